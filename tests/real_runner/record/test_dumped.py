"""Recording along hidden states that an engine dumped: equal to a live recording, or refused in a sentence."""

import json
import shutil
import weakref
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import dumped_files
import numpy as np
import pytest
import safetensors
import tiny_models
import torch
import transformers
from commands import output_of, refusal_of
from depth import some
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from simlab.errors import ModelError
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.traces.inspect import check_trace
from simlab.traces.reader import Trace, open_trace

LAYERS = (1, 2, 3, 4)
"""The states that the tiny drafter taps, and the last, numbered as engines do."""


@pytest.fixture(scope="module", params=some(["llama", "qwen3"]))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that wrote seven texts, dumped; half of the dumps lack the last token. ``qwen3`` ties its head."""
    made = tmp_path_factory.mktemp("dumped")
    tiny_models.make_pair(made, request.param)
    tiny_models.write_prompts(made / "prompts.jsonl", 7)
    options = RecordOptions(
        target=str(made / "target"), draft=str(made / "drafter"), prompts=made / "prompts.jsonl", out=made / "live"
    )
    record(replace(options, max_new_tokens=70, temperature=0.8, min_width=8, exact_budget=32))
    engine, rows = dumped_files.load_engine(made / "target"), []
    for text in open_trace(made / "live").sequences():
        prompt, answer = text.prompt.token_ids.tolist(), text.text.tolist()
        rows.append({"id": text.prompt.prompt_id, "prompt_token_ids": prompt, "token_ids": answer})
        path = made / "dumped" / f"cmpl-{7 - text.index}.safetensors"
        dumped_files.dump(engine, path, [*prompt, *answer], LAYERS, without_last=text.index % 2 == 0)
    (made / "served.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


@pytest.fixture
def options(folder: Path, tmp_path: Path) -> RecordOptions:
    return RecordOptions(
        target=str(folder / "target"),
        draft=str(folder / "drafter"),
        completions=folder / "served.jsonl",
        hidden_states=folder / "dumped",
        hidden_layers=LAYERS,
        out=tmp_path / "trace",
        batch_size=3,
        min_width=8,
        exact_budget=32,
    )


def recorded(options: RecordOptions) -> Trace:
    check_trace(record(options))
    return open_trace(options.folder)


def without_dump(options: RecordOptions) -> RecordOptions:
    return replace(options, hidden_states=None, hidden_layers=(), out=options.folder.with_name("live"))


def copied(options: RecordOptions, tmp_path: Path) -> RecordOptions:
    """The same with a folder of dumps that may be spoilt."""
    assert options.hidden_states is not None
    return replace(options, hidden_states=shutil.copytree(options.hidden_states, tmp_path / "spoilt"))


def columns(trace: Trace) -> list[np.ndarray]:
    """Every column of every text."""
    found = []
    for text in trace.records(["dflash"]):
        assert text.tokens is not None
        found += [text.text, text.prompt.token_ids]
        for rows in (text.tokens, text.drafts["dflash"]):
            found += [getattr(rows, entry.name) for entry in fields(rows)]
    return found


def test_equal_to_a_live_recording(options: RecordOptions) -> None:
    ours, live = recorded(options), recorded(without_dump(options))
    for column, other in zip(columns(ours), columns(live), strict=True):
        np.testing.assert_array_equal(column, other)
    assert (ours.text_id, ours.draft_ids) == (live.text_id, live.draft_ids)
    told = ours.manifest.to_json()
    dumped = ours.manifest.hidden_states
    assert dumped is not None
    assert (dumped.layers, dumped.dtype) == (LAYERS, "float32")
    assert (told["gt_mode"], told["attention"]) == ("given", "not run here")
    assert "hidden_states" not in live.manifest.to_json()
    for key in ("target", "prompts_digest", "stop_token_ids", "vocab_size", "draft_sets"):
        assert getattr(ours.manifest, key) == getattr(live.manifest, key)


@pytest.mark.parametrize("taps", [(-1, 1), (0, 3)], ids=["embedding", "last"])
def test_a_drafter_of_the_first_or_the_last_state(
    taps: tuple[int, ...], options: RecordOptions, tmp_path: Path, folder: Path
) -> None:
    """The last state is read after the final norm, as in a live recording."""
    shutil.copytree(options.draft_name, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    config["dflash_config"]["target_layer_ids"] = [*taps, 2]
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    engine = dumped_files.load_engine(folder / "target")
    for number, line in enumerate((folder / "served.jsonl").read_text().splitlines()):
        row = json.loads(line)
        tokens = [*row["prompt_token_ids"], *row["token_ids"]]
        dumped_files.dump(engine, tmp_path / f"all/{number}.safetensors", tokens, (0, 1, 2, 3, 4), without_last=False)
    other = replace(
        options, draft=str(tmp_path / "other"), hidden_states=tmp_path / "all", hidden_layers=(0, 1, 2, 3, 4)
    )
    assert recorded(other).draft_ids == recorded(without_dump(other)).draft_ids


def test_a_target_of_linear_attention_is_recorded_from_its_states_though_it_is_not_run(tmp_path: Path) -> None:
    """It reads pictures too, so that its tensors have other names; laws are those of its own class."""
    config = transformers.Qwen3_5TextConfig(
        vocab_size=tiny_models.VOCAB_SIZE,
        hidden_size=tiny_models.HIDDEN_SIZE,
        intermediate_size=24,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        layer_types=["linear_attention", "full_attention"] * 2,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    )
    torch.manual_seed(0)
    engine = AutoModelForCausalLM.from_config(config).eval()
    place, served, tokens = tmp_path / "target", tmp_path / "served.jsonl", [7, 8, 9, 20, 21, 22, 23, 2]
    tiny_models.tiny_tokenizer().save_pretrained(place)
    named = {name.replace("model.", "model.language_model.", 1): one for name, one in engine.state_dict().items()}
    save_file({name: one.contiguous() for name, one in named.items()}, place / "model.safetensors")
    fields = {"model_type": "qwen3_5", "text_config": config.to_dict(), "architectures": ["Qwen3_5"]}
    (place / "config.json").write_text(json.dumps(fields))
    row = {"id": "one", "prompt_token_ids": tokens[:3], "token_ids": tokens[3:]}
    served.write_text(json.dumps(row) + "\n")
    dumped_files.dump(engine, tmp_path / "dumped" / "one.safetensors", tokens, LAYERS, without_last=False)
    drafter = tiny_models.make_drafter(tmp_path / "drafter")
    common = ("record", "--target", place, "--draft", drafter, "--completions", served, "--out", tmp_path / "trace")
    said = refusal_of(*common, "--dry-run")
    assert "has layers of linear_attention" in said
    assert "`simlab record --completions FILE --hidden-states DIR --hidden-layers K,K,...`" in said
    dumps = ("--hidden-states", tmp_path / "dumped", "--hidden-layers", "1,2,3,4", "--min-width", 8)
    assert "4 layers" in output_of(*common, *dumps, "--exact-budget", 16, "--dry-run")
    output_of(*common, *dumps, "--exact-budget", 16)
    (text,) = open_trace(tmp_path / "trace").records(["dflash"])
    with torch.inference_mode():
        laws = engine(torch.tensor([tokens])).logits[0].log_softmax(-1)
    expected = [float(laws[at - 1, tokens[at]]) for at in range(3, len(tokens))]
    assert text.tokens is not None
    np.testing.assert_allclose(text.tokens.log_prob, expected, atol=1e-4)


def test_the_layers_are_not_read(options: RecordOptions, tmp_path: Path) -> None:
    """A checkpoint of nothing but embedding, norm and head, in two files, does as well."""
    bare = shutil.copytree(options.target_name, tmp_path / "bare")
    tensors = {name: value for name, value in load_file(bare / "model.safetensors").items() if ".layers." not in name}
    assert len(tensors) in (2, 3)
    (bare / "model.safetensors").unlink()
    for number, (name, value) in enumerate(tensors.items()):
        save_file({name: value}, bare / f"model-{number}.safetensors")
    assert recorded(replace(options, target=str(bare))).draft_ids == recorded(without_dump(options)).draft_ids


def test_one_text_is_held_at_a_time(options: RecordOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """States are read when their text is recorded, and not kept."""
    read: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    real = safetensors.safe_open

    class Watched:
        def __init__(self, *given: object) -> None:
            self._file = real(*given)

        def __enter__(self) -> "Watched":
            self._file.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self._file.__exit__(*error)

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def get_tensor(self, name: str) -> torch.Tensor:
            found: torch.Tensor = self._file.get_tensor(name)
            if name == "hidden_states":
                alive.append(sum(earlier() is not None for earlier in read))
                read.append(weakref.ref(found))
            return found

    monkeypatch.setattr("simlab.real_runner.targets.dumped_states.safe_open", Watched)
    record(options)
    assert alive == [0] * 7


def change(name: str, new: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], object]:
    def apply(path: Path) -> None:
        found = load_file(path)
        save_file({**found, name: new(found[name]).contiguous()}, path)

    return apply


def drop(name: str) -> Callable[[Path], object]:
    return lambda path: save_file({key: value for key, value in load_file(path).items() if key != name}, path)


def normed_already(path: Path) -> None:
    found = load_file(path)
    last = found["hidden_states"][:, -1]
    found["hidden_states"][:, -1] = last / (last.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    save_file(found, path)


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-10]), "cmpl-4.safetensors cannot be read as safetensors"),
    "empty": (lambda path: path.write_bytes(b""), "cmpl-4.safetensors cannot be read as safetensors"),
    "missing": (lambda path: path.unlink(), "no file in .* has the .* token_ids of prompt and text of 'p3'"),
    "prompt only": (change("token_ids", lambda ids: ids[:-1]), "hidden_states of .* are .*; expected"),
    "other tokens": (change("token_ids", lambda ids: ids.flip(0)), "no file in .* of 'p3', with or without the last"),
    "no tokens": (drop("token_ids"), "cmpl-4.safetensors has no tensor 'token_ids'"),
    "no states": (drop("hidden_states"), "cmpl-4.safetensors has no tensor 'hidden_states'"),
    "layers": (change("hidden_states", lambda states: states[:, 1:]), r", 3, 32\]; expected \[.*, 4, 32\]"),
    "hidden size": (change("hidden_states", lambda states: states[..., 1:]), r", 4, 31\]; expected \[.*, 4, 32\]"),
    "flat": (change("hidden_states", lambda states: states.flatten(1)), r", 128\]; expected"),
    "whole numbers": (change("hidden_states", lambda states: states.int()), "are I32; expected float32, bfloat16 or"),
    "another dtype": (
        change("hidden_states", lambda states: states.half()),
        "is float32 and .* is float16; give the dumps of one engine",
    ),
    "token fractions": (change("token_ids", lambda ids: ids.float()), "token_ids of .* expected a row of token ids"),
    "of other positions": (
        change("hidden_states", lambda states: states.flip(0)),
        "less than blind guesses of 101 tok",
    ),
    "normed": (normed_already, "have passed the target's final norm; expected those before it"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_spoilt_file_is_refused(kind: str, options: RecordOptions, tmp_path: Path) -> None:
    spoil, said = SPOILT[kind]
    spoilt = copied(options, tmp_path)
    assert spoilt.hidden_states is not None
    spoil(Path(spoilt.hidden_states) / "cmpl-4.safetensors")
    with pytest.raises(ModelError, match=said) as error:
        record(spoilt)
    assert "\n" not in str(error.value)
    assert kind in ("normed", "of other positions") or not spoilt.folder.exists()


def test_a_recording_says_of_which_bytes_it_is(options: RecordOptions, tmp_path: Path) -> None:
    spoilt = copied(options, tmp_path)
    assert spoilt.hidden_states is not None
    other = Path(spoilt.hidden_states) / "cmpl-4.safetensors"
    change("hidden_states", lambda states: torch.cat([states[:3], 50 * states[:1], states[4:]]))(other)
    before, after = (recorded(one).manifest for one in (options, replace(spoilt, out=tmp_path / "after")))
    assert before.hidden_states is not None
    assert after.hidden_states is not None
    assert before.hidden_states.digest != after.hidden_states.digest


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((), r"do not say which hidden states they hold; give --hidden-layers .* need \[1, 2, 3, 4\]"),
        ((1, 2, 3), r"without the state after the last layer, 4, .* eagle_aux_hidden_state_layer_ids \[1, 2, 3, 4\]"),
        ((0, 1, 2, 4), r"that were not dumped, \[3\]; dump with .* give --hidden-layers 1,2,3,4"),
        ((4, 1, 2, 3), "must rise, as engines dump in the order of the layers"),
        ((1, 2, 3, 5), "must lie from 0 to 4"),
    ],
)
def test_states_that_do_not_suffice_are_refused(layers: tuple[int, ...], said: str, options: RecordOptions) -> None:
    with pytest.raises(ModelError, match=said):
        record(replace(options, hidden_layers=layers))
    assert not options.folder.exists()


def test_a_quantised_head_is_refused(options: RecordOptions, tmp_path: Path) -> None:
    bare = shutil.copytree(options.target_name, tmp_path / "fp8")
    found = load_file(bare / "model.safetensors")
    found["model.embed_tokens.weight"] = found["model.embed_tokens.weight"].to(torch.float8_e4m3fn)
    save_file(found, bare / "model.safetensors")
    with pytest.raises(ModelError, match="is float8_e4m3fn .* give the checkpoint that is not quantised"):
        record(replace(options, target=str(bare)))


def test_a_checkpoint_without_its_norm_is_refused(options: RecordOptions, tmp_path: Path) -> None:
    bare = shutil.copytree(options.target_name, tmp_path / "cut")
    drop("model.norm.weight")(bare / "model.safetensors")
    with pytest.raises(ModelError, match="has no tensor 'model.norm.weight'; it is not whole"):
        record(replace(options, target=str(bare)))
