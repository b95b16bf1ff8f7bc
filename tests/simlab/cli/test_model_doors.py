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
from safetensors.torch import load_file, save_file

from simlab.cli.main import main
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


def refusal(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """The one sentence with which a recording is refused."""
    given = {"--target": "target", "--draft": "drafter", "--prompts": "prompts.jsonl", "--out": "trace"}
    arguments = [text for name, place in given.items() for text in (name, str(folder / place))]
    assert main(["record", *arguments, "--max-new-tokens", "4", *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("simlab: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not (folder / "trace").exists()
    return err


def with_fields(**fields: object) -> Change:
    """Set fields of a config.json; ``inner`` are those of its dflash_config."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        found = json.loads(path.read_text())
        inner = fields.get("inner")
        if isinstance(inner, dict):
            found["dflash_config"] |= inner
        path.write_text(json.dumps(found | {name: value for name, value in fields.items() if name != "inner"}))

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
    "no weights": (without("model.safetensors"), "has no model.safetensors"),
    "cut weights": (cut("model.safetensors", 3000), "cannot be read"),
    "empty weights": (cut("model.safetensors", 0), "cannot be read"),
    "cut config": (cut("config.json", 30), "is not JSON"),
    "a list": (lambda folder: (folder / "config.json").write_text("[]"), "is not a JSON object"),
    "a word for a size": (with_fields(block_size="four"), "'four' where a whole number belongs"),
    "no mask": (with_fields(inner={"mask_token_id": None}), "has no 'mask_token_id'"),
    "mask outside": (with_fields(inner={"mask_token_id": 101}), "mask_token_id 101 is not in"),
    "block of one": (with_fields(block_size=1), "block_size must be at least 2"),
    "taps outside": (with_fields(inner={"target_layer_ids": [0, 4]}), "do not fit a target of 4 layers"),
    "other layers": (with_fields(num_target_layers=6), "layers 6; .* has 4"),
    "other vocabulary": (with_fields(vocab_size=300), "vocabulary 300; .* has 101"),
    "other sizes": (with_fields(intermediate_size=48), "its config.json makes it .*, so they do not fit"),
    "a tensor less": (with_tensors(lambda tensors: tensors.pop("fc.weight")), "lacks fc.weight"),
    "a tensor more": (with_tensors(lambda tensors: tensors.update(d2t=torch.zeros(3))), "d2t in .* so they do not fit"),
    "selector": (with_fields(selector_rank=256), "needs a DFlash2 candidate selector"),
    "own vocabulary": (with_fields(draft_vocab_size=50), "needs a reduced vocabulary"),
    "shifted": (with_fields(inner={"shift_label": True}), "needs shifted labels"),
    "linear": (with_fields(layer_types=["linear_attention", "full_attention"]), "has layers of 'linear_attention'"),
    "scaled positions": (with_fields(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}), "'yarn'"),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, said = DRAFTERS[name]
    change(folder / "drafter")
    assert_said(said, refusal(folder, capsys))


TARGETS: dict[str, tuple[Change, str]] = {
    "a tensor less": (
        with_tensors(lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight")),
        "lacks 1 of the tensors.*layers.1.mlp.up_proj.weight",
    ),
    "no config": (without("config.json"), "could not be loaded"),
    "no weights": (without("model.safetensors"), "could not be loaded"),
    "cut weights": (cut("model.safetensors", 3000), "could not be loaded"),
    "cut config": (cut("config.json", 30), "could not be loaded"),
    "no tokenizer": (without("tokenizer.json"), "could not be loaded"),
    "other sizes": (
        with_fields(intermediate_size=64),
        r"layers.0.mlp.down_proj.weight' of the target .* is \[32, 48\], and its config.json makes it \[32, 64\]",
    ),
    "unknown family": (with_fields(model_type="no-such-model", architectures=["X"]), "could not be loaded"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, said = TARGETS[name]
    change(folder / "target")
    assert_said(said, refusal(folder, capsys))


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


def test_a_target_with_sliding_windows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_models.make_target(folder / "target", "qwen3")
    with_fields(use_sliding_window=True, sliding_window=8, layer_types=["sliding_attention"] * 4)(folder / "target")
    assert_said("has sliding windows of 8 tokens", refusal(folder, capsys))


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
def test_an_option(more: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if more == ("--device", "cuda") and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert_said(said, refusal(folder, capsys, *more))


@pytest.mark.parametrize("text", ["", "\n\n", "{", "[]", '{"turns": []}', '{"nothing": 1}'])
def test_a_prompt_file(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "prompts.jsonl").write_text(text)
    assert_said("prompts.jsonl", refusal(folder, capsys))


def test_fields_that_ask_for_nothing_are_no_variant(folder: Path) -> None:
    with_fields(draft_vocab_size=tiny_models.VOCAB_SIZE, output_multiplier=1.0, is_causal=False)(folder / "drafter")
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter")]
    text = ["--prompts", str(folder / "prompts.jsonl"), "--out", str(folder / "trace"), "--max-new-tokens", "4"]
    assert main(["record", *models, *text]) == 0


def assert_said(pattern: str, sentence: str) -> None:
    assert re.search(pattern, sentence), sentence
