"""Models by their ids on a hub: what is fetched, what is refused, and that none of their code is run."""

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import dumped_files
import pytest
import tiny_models
import torch
from damaged_checkpoints import speculators_fields
from hub_server import Hub, Said, run_commands, serving
from safetensors.torch import load_file, save_file

from simlab.real_runner.targets.hub_files import files_digest

NOBODY = "http://127.0.0.1:9"
MARK = "import pathlib\npathlib.Path({!r}).write_text('ran')\n"
TRAINED = {"README.md": "# tiny", "pytorch_model.bin": "no pickle", "original/weights.safetensors": "other weights"}


def plant(folder: Path, mark: Path, modules: str, **names: str) -> None:
    """Files that must not be fetched, and code that would leave a mark."""
    for name, text in TRAINED.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / f"{modules}.py").write_text(MARK.format(str(mark)))
    edit(folder, auto_map={kind: f"{modules}.{name}" for kind, name in names.items()})


def edit(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def as_speculators(drafter: Path, folder: Path) -> Path:
    """The same drafter as a checkpoint in the other format."""
    shutil.copytree(drafter, folder)
    fields = speculators_fields(json.loads((drafter / "config.json").read_text()))
    fields |= {"architectures": ["DFlashSpeculator"], "auto_map": {"": "dflash.DFlashSpeculator"}}
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def serve(folder: Path, target: Path) -> None:
    """Texts as of an engine, and the states after every layer, which it dumped."""
    engine, rows = dumped_files.load_engine(target), []
    for number in range(2):
        prompt, answer = [1, 20 + number, 30], [40, 50 + number, 60, 2]
        rows.append({"id": f"c{number}", "prompt_token_ids": prompt, "token_ids": answer})
        path = folder / "dumped" / f"{number}.safetensors"
        dumped_files.dump(engine, path, [*prompt, *answer], (1, 2, 3, 4), without_last=False)
    (folder / "served.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def pickled(source: Path, folder: Path) -> Path:
    """The same checkpoint with weights that are no safetensors."""
    shutil.copytree(source, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hub")
    target, drafter = tiny_models.make_pair(made)
    tiny_models.make_target(made / "older", seed=7)
    as_speculators(drafter, made / "speculators")
    serve(made, target)
    tiny_models.make_sharded(target, made / "sharded")
    (made / "bare").mkdir()
    shutil.copy(drafter / "model.safetensors", made / "bare")
    (made / "adapter").mkdir()
    (made / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    save_file({"base_model.model.x.lora_A.weight": torch.ones(2, 2)}, made / "adapter" / "adapter_model.safetensors")
    shutil.copytree(drafter, made / "changed")
    shutil.copytree(made / "adapter", made / "changed" / "adapter")
    pickled(target, made / "pickled-target")
    pickled(drafter, made / "pickled-drafter")
    shutil.copytree(target, made / "foreign")
    mark = made / "mark"
    plant(target, mark, "modeling_tiny", AutoConfig="Config", AutoModelForCausalLM="Model", AutoTokenizer="Tokens")
    plant(drafter, mark, "dflash", AutoModel="DFlashDraftModel")
    plant(made / "speculators", mark, "speculator", AutoModel="DFlashSpeculator")
    plant(made / "foreign", mark, "modeling_foreign", AutoConfig="Config", AutoModelForCausalLM="Model")
    edit(made / "foreign", model_type="foreign")
    tiny_models.write_prompts(made / "prompts.jsonl", 2)
    return made


@pytest.fixture(scope="module")
def hub(folder: Path) -> Iterator[Hub]:
    with serving() as made:
        for name in ("target", "drafter", "speculators", "sharded", "pickled-target", "pickled-drafter", "foreign"):
            made.add(f"org/{name}", folder / name)
        made.add("org/only-inspected", folder / "target")
        made.add("org/served", folder / "sharded")
        made.add("org/bare", folder / "bare")
        made.add("org/adapter", folder / "adapter")
        made.add("org/changed", folder / "changed")
        made.add("org/drafter", folder / "drafter", "refs/pr/3")
        made.add("org/target", folder / "older", "v1")
        made.add("org/gated", folder / "drafter")
        made.add("org/private", folder / "drafter")
        made.add("org/no-target", folder / "drafter")
        made.add("org/broken", folder / "drafter")
        made.refused["org/gated"] = (401, "GatedRepo", "Access to model org/gated is restricted.")
        made.refused["org/private"] = (403, "", "You have no access.")
        made.refused["org/broken"] = (503, "", "")
        yield made


def record(folder: Path, out: str, target: str = "org/target", draft: str = "org/drafter") -> list[str]:
    prompts = ["--prompts", str(folder / "prompts.jsonl"), "--max-new-tokens", "8"]
    return ["record", "--target", target, "--draft", draft, *prompts, "--out", str(folder / out)]


def record_served(folder: Path) -> list[str]:
    text = ["--completions", str(folder / "served.jsonl"), "--hidden-states", str(folder / "dumped")]
    kept = ["--hidden-layers", "1,2,3,4", "--out", str(folder / "served-trace")]
    return ["record", "--target", "org/served", "--draft", "org/drafter", *text, *kept]


def confirm(folder: Path, trace: str) -> list[str]:
    return ["confirm", "--trace", str(folder / trace), "-p", "ddtree:budget=8", "--out", str(folder / f"{trace}-run")]


@pytest.fixture(scope="module")
def online(folder: Path, hub: Hub) -> dict[str, Said]:
    commands = {
        "record": record(folder, "trace"),
        "speculators": record(folder, "other", draft="org/speculators"),
        "pinned": record(folder, "older-trace", target="org/target@v1"),
        "sharded": record(folder, "sharded-trace", target="org/sharded"),
        "served": record_served(folder),
        "confirm": confirm(folder, "trace"),
        "confirm pinned": confirm(folder, "older-trace"),
        "inspect": ["inspect", "org/drafter"],
        "inspect speculators": ["inspect", "--json", "org/speculators"],
        "inspect a request": ["inspect", "org/drafter@refs/pr/3"],
        "inspect bare": ["inspect", "org/bare"],
        "inspect target": ["inspect", "org/only-inspected"],
        "inspect adapter": ["inspect", "org/adapter"],
        "inspect changed": ["inspect", "org/changed"],
    }
    refused = {name: record(folder, "refused", target, draft) for name, (target, draft, _) in REFUSED.items()}
    said = run_commands(hub.address, folder / "home", [*commands.values(), *refused.values()])
    return dict(zip([*commands, *refused], said, strict=True))


def manifest(folder: Path, trace: str) -> dict[str, dict[str, str]]:
    """The two models that a manifest names."""
    found = json.loads((folder / trace / "manifest.json").read_text())
    return {"target": found["target"], "drafter": found["draft_sets"]["dflash"]["model"]}


def test_a_recording_names_repository_and_commit(folder: Path, hub: Hub, online: dict[str, Said]) -> None:
    assert online["record"].code == 0, online["record"].err
    named = manifest(folder, "trace")
    assert named["target"]["name"] == "org/target"
    assert named["target"]["revision"] == hub.commits["org/target"]["main"]
    assert named["drafter"]["name"] == "org/drafter"
    assert named["drafter"]["revision"] == hub.commits["org/drafter"]["main"]
    assert named["target"]["digest"] == files_digest([folder / "target" / "model.safetensors"])


def test_a_tag_is_fetched_where_it_is_named(folder: Path, hub: Hub, online: dict[str, Said]) -> None:
    assert online["pinned"].code == 0, online["pinned"].err
    named = manifest(folder, "older-trace")["target"]
    assert (named["name"], named["revision"]) == ("org/target", hub.commits["org/target"]["v1"])
    assert named["digest"] == files_digest([folder / "older" / "model.safetensors"])


def test_all_files_of_the_index_make_the_digest(folder: Path, online: dict[str, Said]) -> None:
    assert online["sharded"].code == 0, online["sharded"].err
    shards = sorted((folder / "sharded").glob("model-*-of-*.safetensors"))
    assert len(shards) > 2
    assert manifest(folder, "sharded-trace")["target"]["digest"] == files_digest(shards)


def test_with_hidden_states_the_layers_are_not_fetched(folder: Path, hub: Hub, online: dict[str, Said]) -> None:
    assert online["served"].code == 0, online["served"].err
    placed = json.loads((folder / "sharded" / "model.safetensors.index.json").read_text())["weight_map"]
    needed = sorted({file for tensor, file in placed.items() if ".layers." not in tensor})
    assert {name for name in hub.files_asked("org/served") if name.startswith("model-")} == set(needed)
    assert len(needed) < len(set(placed.values()))
    named = manifest(folder, "served-trace")["target"]
    assert named["digest"] == files_digest([folder / "sharded" / name for name in needed])
    assert (named["name"], named["revision"]) == ("org/served", hub.commits["org/served"]["main"])


def test_confirm_runs_the_commits_of_the_trace(online: dict[str, Said]) -> None:
    """Also that of a tag, although the manifest names the repository without it."""
    for name in ("confirm", "confirm pinned"):
        assert online[name].code == 0, online[name].err


def test_inspect_fetches_no_weights_of_a_target(hub: Hub, online: dict[str, Said]) -> None:
    assert online["inspect target"].code == 2
    assert "is not of a drafter" in online["inspect target"].err
    assert hub.files_asked("org/only-inspected") == {"config.json"}
    assert online["inspect bare"].code == 2
    assert "'org/bare' has no config.json on the hub" in online["inspect bare"].err
    assert "model.safetensors" not in hub.files_asked("org/bare")


def test_an_adapter_and_what_lies_beside_a_drafter_are_seen_on_the_hub(online: dict[str, Said]) -> None:
    assert (
        "will run   no: an adapter changes q_proj, k_proj, v_proj, o_proj, gate_proj" in online["inspect adapter"].out
    )
    assert "will run   no: adapter/ in " in online["inspect changed"].out


def test_only_data_is_fetched(hub: Hub, folder: Path, online: dict[str, Said]) -> None:
    assert online["record"].code == 0, online["record"].err
    assert hub.files_asked("org/drafter") == {"config.json", "model.safetensors"}
    of_target = {"config.json", "generation_config.json", "model.safetensors", "chat_template.jinja"}
    assert hub.files_asked("org/target") == of_target | {"tokenizer.json", "tokenizer_config.json"}
    assert not (folder / "mark").exists()


@pytest.mark.thorough
def test_the_cache_is_enough_without_a_network(folder: Path, hub: Hub, online: dict[str, Said]) -> None:
    assert online["record"].code == 0
    asked = len(hub.asked)
    cases = (
        (True, hub.address, "unset HF_HUB_OFFLINE"),
        (False, NOBODY, r"127.0.0.1:9 does not answer \(ConnectError\)"),
    )
    for offline, address, reason in cases:
        out = f"again-{offline}"
        commands = [
            record(folder, out),
            ["inspect", "org/drafter@main"],
            ["inspect", "org/speculators"],
            record(folder, "refused", target="org/never-fetched"),
        ]
        *done, refused = run_commands(address, folder / "home", commands, offline=offline)
        assert [said.code for said in done] == [0, 0, 0], done
        assert (folder / out / "manifest.json").read_bytes() == (folder / "trace" / "manifest.json").read_bytes()
        assert_refused(address, refused, reason)
    assert len(hub.asked) == asked


REFUSED = {
    "unknown": ("org/no-such", "org/drafter", "has no model of that name that you may read"),
    "unknown drafter": ("org/target", "org/no-such", "the drafter 'org/no-such' could not be fetched"),
    "no organisation": ("org/target", "no-such", "has no model of that name"),
    "gated": ("org/target", "org/gated", "ask for access at http://127.*/org/gated, then log in with `hf auth login`"),
    "forbidden": ("org/target", "org/private", "answered 403"),
    "broken": ("org/broken", "org/drafter", "answered 503"),
    "no such revision": ("org/target@v9", "org/drafter", "has no revision 'v9'"),
    "two revisions": ("org/target@v1@v2", "org/drafter", "nothing has that name"),
    "pickled target": ("org/pickled-target", "org/drafter", "has no model.safetensors on the hub; .* safetensors only"),
    "pickled drafter": ("org/target", "org/pickled-drafter", "has no model.safetensors on the hub"),
    "code of its own": ("org/foreign", "org/drafter", "runs no code of a checkpoint"),
    "no target": ("org/no-target", "org/drafter", "lacks 2 of the tensors that its config.json asks"),
    "no drafter": ("org/target", "org/target", "the drafter"),
}


def test_what_cannot_be_had_is_refused_in_a_sentence(hub: Hub, folder: Path, online: dict[str, Said]) -> None:
    for name, (_, _, said) in REFUSED.items():
        assert_refused(name, online[name], said)
    assert not (folder / "mark").exists()
    assert not (folder / "refused").exists()
    assert not any(path.endswith((".bin", ".py")) for path in hub.asked)


def assert_refused(name: str, said: Said, pattern: str) -> None:
    assert (said.code, said.out) == (2, ""), (name, said)
    assert said.err.startswith("simlab: "), (name, said)
    assert said.err.count("\n") == 1, (name, said)
    assert re.search(pattern, said.err), (name, said.err)
    assert said.seconds < 90, (name, said)  # of which the processor may have few on a busy machine


@pytest.mark.thorough
def test_a_hub_that_is_silent_is_noticed_soon(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (said,) = run_commands(address, folder / "empty home", [record(folder, "refused")])
    assert_refused("silent", said, r"does not answer \(ReadTimeout\)")
