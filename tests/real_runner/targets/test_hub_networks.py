"""Heads for Qwen3-8B by their ids on the hub, as docs/reference/checkpoints.md adds them: small files of theirs."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_models
import torch
from hub_server import Hub, Said, run_commands, serving
from random_eagle3 import make_eagle3
from safetensors.torch import load_file, save_file

from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "checkpoints.md"
TARGET, DRAFTER = "Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16"
EAGLE3, JETSPEC = "AngelSlim/Qwen3-8B_eagle3", "JetSpec/jetspec-qwen3-8b"
RELEASED = {
    *("fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"),
    *(f"midlayer.{name}.weight" for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")),
    *(f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    *(f"midlayer.self_attn.{name}_proj.weight" for name in "qkvo"),
}
"""The tensors of a released EAGLE-3 head."""


def commands_of_the_page() -> list[str]:
    """The example of the section on published heads."""
    section = PAGE.read_text().split("## Published heads for Qwen3-8B\n", 1)[1]
    return section.split("```\n", 2)[1].splitlines()


def as_released(folder: Path) -> Path:
    """A head whose `config.json` has the released fields alone, none of simlab's; its layers are the release's."""
    fields = json.loads((folder / "config.json").read_text())
    for name in ("eagle_config", "num_target_layers", "target_hidden_size"):
        fields.pop(name, None)
    (folder / "config.json").write_text(json.dumps(fields))
    tensors = load_file(folder / "model.safetensors")
    assert set(tensors) == RELEASED
    generator = torch.Generator().manual_seed(3)
    tensors["fc.weight"] = 0.3 * torch.randn(tiny_models.HIDDEN_SIZE, 3 * tiny_models.HIDDEN_SIZE, generator=generator)
    save_file(tensors, folder / "model.safetensors")
    return folder


def as_causal(folder: Path) -> Path:
    fields = json.loads((folder / "config.json").read_text())
    fields["dflash_config"]["causal_head"] = True
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("networks")
    tiny_models.make_pair(made)
    as_released(make_eagle3(made / "eagle3"))
    as_causal(tiny_models.make_drafter(made / "jetspec", seed=5))
    tiny_models.make_drafter(made / "runs" / "second", block_size=5, seed=8)
    shutil.copytree(made / "eagle3", made / "pickled")
    (made / "pickled" / "model.safetensors").rename(made / "pickled" / "pytorch_model.bin")
    tiny_models.write_prompts(made / "prompts.jsonl", 2)
    return made


@pytest.fixture(scope="module")
def hub(folder: Path) -> Iterator[Hub]:
    with serving() as made:
        names = {TARGET: "target", DRAFTER: "drafter", EAGLE3: "eagle3", JETSPEC: "jetspec", "org/pickled": "pickled"}
        for repository, name in names.items():
            made.add(repository, folder / name)
        yield made


def typed(folder: Path, line: str) -> list[str]:
    """A line of the page, with its files in a folder and texts that are short."""
    program, *words = shlex.split(line)
    assert program == "simlab"
    places = {
        "prompts.jsonl": folder / "prompts.jsonl",
        "runs/mine": folder / "mine",
        "d2sd=runs/second": f"d2sd={folder / 'runs' / 'second'}",
    }
    found = [str(places.get(word, word)) for word in words]
    return [*found, "--max-new-tokens", "8"] if "--prompts" in found else found


@pytest.fixture(scope="module")
def said(folder: Path, hub: Hub) -> dict[str, Said]:
    lines = commands_of_the_page()
    return {
        line: command for line in lines for command in run_commands(hub.address, folder / "home", [typed(folder, line)])
    }


@pytest.mark.thorough
def test_the_commands_of_the_page_run(folder: Path, said: dict[str, Said]) -> None:
    assert len(said) == 7
    for line, one in said.items():
        assert one.code == 0, (line, one)
    check_trace(folder / "mine")
    manifest = open_trace(folder / "mine").manifest
    assert {name: channel.producer.name for name, channel in manifest.channels.items()} == {
        "eagle3": EAGLE3,
        "jetspec": JETSPEC,
        "d2sd": str(folder / "runs" / "second"),
    }
    assert {name: one.model.name for name, one in manifest.draft_sets.items()} == {
        "dflash": DRAFTER,
        "jetspec": JETSPEC,
    }
    assert [manifest.channels[name].extends for name in ("eagle3", "jetspec", "d2sd")] == [None, "jetspec", "dflash"]


@pytest.mark.thorough
def test_what_each_says(said: dict[str, Said]) -> None:
    inspected, _, predicted, *_ = said.values()
    assert "causal inside" in inspected.out
    assert "will run   yes" in inspected.out
    # The pools would hold ten tokens behind the root and behind ten nodes of each of seven steps.
    assert "710 scored tokens at each" in predicted.out


@pytest.mark.thorough
def test_weights_that_are_pickled_are_refused(folder: Path, hub: Hub, said: dict[str, Said]) -> None:
    assert said
    commands = [
        ["inspect", "org/pickled"],
        ["record", "--trace", str(folder / "mine"), "--add-channel", "other=org/pickled"],
    ]
    for command in run_commands(hub.address, folder / "home of the refused", commands):
        assert (command.code, command.err.count("\n")) == (2, 1), command
        assert "has no model.safetensors on the hub; simlab reads weights from safetensors only" in command.err
    assert not any(path.endswith(".bin") for path in hub.asked)
