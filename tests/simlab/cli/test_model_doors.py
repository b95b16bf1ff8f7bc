"""Models and files that cannot be used: exit code 2 and one sentence each."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import tiny_models
import torch
from commands import refusal_of
from safetensors.torch import load_file, save_file

from simlab.errors import ModelError
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.token_text import decoder_at_hand

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    tiny_models.make_pair(made)
    return made


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Path:
    """Copies that a test may spoil."""
    for part in ("target", "drafter"):
        (tmp_path / part).mkdir()
        for path in (models / part).iterdir():
            (tmp_path / part / path.name).write_bytes(path.read_bytes())
    tiny_models.write_prompts(tmp_path / "prompts.jsonl", 1)
    return tmp_path


def refusal(folder: Path, *more: str) -> str:
    """The one sentence with which a recording is refused."""
    given = {"--target": "target", "--draft": "drafter", "--prompts": "prompts.jsonl", "--out": "trace"}
    arguments = [text for name, place in given.items() for text in (name, str(folder / place))]
    err = refusal_of("record", *arguments, "--max-new-tokens", "4", *more)
    assert not (folder / "trace").exists()
    return err


def with_fields(**fields: object) -> Change:
    """Set fields of a config.json."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def cut(name: str, num_bytes: int) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:num_bytes])


def with_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


DRAFTERS: dict[str, tuple[Change, str]] = {
    "no config": (without("config.json"), "has no config.json"),
    "empty weights": (cut("model.safetensors", 0), "cannot be read"),
    "cut config": (cut("config.json", 30), "is not JSON"),
    "a word for a size": (with_fields(block_size="four"), "'four' where a whole number belongs"),
    "other layers": (with_fields(num_target_layers=6), "layers 6; .* has 4"),
    "other vocabulary": (with_fields(vocab_size=7777), "vocabulary 7777; .* has 101"),
    "other sizes": (with_fields(intermediate_size=48), "its config.json makes it .*, so they do not fit"),
    "a tensor more": (with_tensors(lambda tensors: tensors.update(d2t=torch.zeros(3))), "d2t in .* so they do not fit"),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter(name: str, folder: Path) -> None:
    change, said = DRAFTERS[name]
    change(folder / "drafter")
    assert_said(said, refusal(folder))


TARGETS: dict[str, tuple[Change, str]] = {
    "a tensor less": (
        with_tensors(lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight")),
        "lacks 1 of the tensors.*layers.1.mlp.up_proj.weight",
    ),
    "no config": (without("config.json"), "has no config.json; give a folder with one"),
    "no weights": (without("model.safetensors"), "could not be loaded"),
    "cut weights": (cut("model.safetensors", 3000), "could not be loaded"),
    "cut config": (cut("config.json", 30), "could not be read .*; fetch the checkpoint again"),
    "no tokenizer": (without("tokenizer.json"), "could not be loaded"),
    "other sizes": (
        with_fields(intermediate_size=64),
        r"layers.0.mlp.down_proj.weight' of the target .* is \[32, 48\], and its config.json makes it \[32, 64\]",
    ),
    "unknown family": (
        with_fields(model_type="no-such-model", architectures=["X"]),
        "transformers has no causal language model of its",
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target(name: str, folder: Path) -> None:
    change, said = TARGETS[name]
    change(folder / "target")
    assert_said(said, refusal(folder))


@pytest.fixture
def cached(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The snapshot of a hub's ``org/tiny``, the target, in a cache without a network; no branch points to it."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    kept, commit = tmp_path / "hub" / "models--org--tiny", "0123456789abcdef0123456789abcdef01234567"
    (kept / "refs").mkdir(parents=True)
    return shutil.copytree(folder / "target", kept / "snapshots" / commit)


def test_a_hub_model_has_the_digest_of_a_folder_with_its_files(folder: Path, cached: Path) -> None:
    (cached.parent.parent / "refs" / "main").write_text(cached.name)
    here, hub = (load_target(name, torch.float32) for name in (str(folder / "target"), "org/tiny"))
    assert hub.revision == cached.name
    assert hub.digest == here.digest


def test_the_tokenizer_is_that_of_the_commit(cached: Path) -> None:
    """Which the cache may have although it has no ``main``."""
    ids = tiny_models.tiny_tokenizer().encode("a tree")
    assert decoder_at_hand("org/tiny", cached.name)(ids) == "a tree"
    with pytest.raises(ModelError, match="the tokenizer of 'org/tiny' could not be loaded"):
        decoder_at_hand("org/tiny", "")


def test_a_target_with_sliding_windows(folder: Path) -> None:
    tiny_models.make_target(folder / "target", "qwen3")
    with_fields(use_sliding_window=True, sliding_window=8, layer_types=["sliding_attention"] * 4)(folder / "target")
    assert_said("has sliding windows of 8 tokens", refusal(folder))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--device", "cuda"), "torch sees no GPU here"),
        (("--device", "abacus"), "torch knows no device 'abacus'"),
        (("--dtype", "int8"), "int8"),
        (("--target", "no/such/folder/anywhere"), "could not be loaded"),
        (("--draft", "no/such/folder/anywhere"), "could not be found"),
        (("--prompts", "no-such-file.jsonl"), "cannot be read"),
    ],
)
def test_an_option(more: tuple[str, ...], said: str, folder: Path) -> None:
    if more == ("--device", "cuda") and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert_said(said, refusal(folder, *more))


@pytest.mark.parametrize("text", ["", "\n\n", "{", "[]", '{"turns": []}', '{"nothing": 1}'])
def test_a_prompt_file(text: str, folder: Path) -> None:
    (folder / "prompts.jsonl").write_text(text)
    assert_said("prompts.jsonl", refusal(folder))


def assert_said(pattern: str, sentence: str) -> None:
    assert re.search(pattern, sentence), sentence
