"""What a recording takes, predicted from two configurations: held against models that are loaded and traces."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from commands import output_of
from depth import some
from hub_server import run_commands, serving

from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.models import load_models
from simlab.real_runner.record.dry_run import estimate, spread
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import load, record
from simlab.real_runner.record.static_estimate import estimate_text, key_value_bytes, read_shapes, trace_bytes
from simlab.real_runner.targets.model import KeyValueRows
from simlab.sampling.choice import Sampling
from simlab.traces.reader import open_trace, packaged_trace

QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": False,
}
DFLASH_B16 = QWEN3_8B | {
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 5,
    "num_target_layers": 36,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}


def options_for(folder: Path, **more: object) -> RecordOptions:
    base = RecordOptions(
        target=str(folder / "target"), draft=str(folder / "drafter"), prompts=folder / "prompts.jsonl", out=folder / "t"
    )
    return replace(base, **more)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_models.make_pair(tmp_path)
    tiny_models.write_prompts(tmp_path / "prompts.jsonl", 5, 2)
    return tmp_path


def configs_only(folder: Path, target: object, draft: object) -> Path:
    for name, config in (("target", target), ("drafter", draft)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    tiny_models.write_prompts(folder / "prompts.jsonl", 100)
    return folder


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_parameters_are_those_of_the_loaded_models(tmp_path: Path, family: str) -> None:
    tiny_models.make_pair(tmp_path, family)
    tiny_models.write_prompts(tmp_path / "prompts.jsonl", 2)
    options = options_for(tmp_path)
    models = load_models(options.target_name, options.draft_name, "float32", "cpu")
    for path in tmp_path.rglob("*.safetensors"):
        path.unlink()
    shapes = read_shapes(options)
    assert shapes.target_parameters == sum(weight.numel() for weight in models.target.model.parameters())
    assert shapes.drafter_parameters == sum(weight.numel() for weight in models.block_drafter.parameters())
    assert shapes.key_value_elements == 2 * 4 * 2 * 8


def test_the_published_pair_has_its_published_size(tmp_path: Path) -> None:
    """Qwen3-8B: 8.2 billion parameters, 6.95 billion without embeddings (its model card)."""
    shapes = read_shapes(options_for(configs_only(tmp_path, QWEN3_8B, DFLASH_B16)))
    assert shapes.target_parameters == 8_190_735_360
    assert shapes.target_parameters - 2 * 151936 * 4096 == 6_946_075_648
    assert shapes.config.depth == 15


def test_with_hidden_states_the_layers_are_not_counted(folder: Path) -> None:
    options = options_for(folder)
    whole = read_shapes(options)
    text = {"prompts": None, "completions": folder / "c.jsonl", "hidden_states": folder, "hidden_layers": (1, 2, 3, 4)}
    part = read_shapes(replace(options, **text))  # type: ignore[arg-type]
    assert part.target_parameters == 2 * tiny_models.VOCAB_SIZE * 32 + 32
    assert part.target_parameters < whole.target_parameters


def test_what_would_be_refused_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    folder = configs_only(tmp_path, QWEN3_8B | {"num_hidden_layers": 40}, DFLASH_B16)
    with pytest.raises(ModelError, match="made for a target with layers 36; .* has 40"):
        read_shapes(options_for(folder))
    (folder / "target" / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(ModelError, match="Llama and Qwen3 families"):
        read_shapes(options_for(folder))
    (folder / "target" / "config.json").write_text("{")
    with pytest.raises(ModelError, match="could not be read"):
        read_shapes(options_for(folder))


@pytest.mark.parametrize(("longest", "new_tokens"), [(10, 20), (10, 200), (100, 5), (300, 700)])
def test_keys_and_values_are_those_that_decoding_held(
    folder: Path, monkeypatch: pytest.MonkeyPatch, longest: int, new_tokens: int
) -> None:
    """At most, while room is doubled: the old rows and the new ones."""
    options = options_for(folder, max_new_tokens=new_tokens)
    models, held = load_models(options.target_name, options.draft_name, "float32", "cpu"), [0]
    grow = KeyValueRows._grow

    def watched(self: KeyValueRows, wanted: int, like: torch.Tensor) -> None:
        before = 0 if self.tensor is None else self.tensor.numel()
        grow(self, wanted, like)
        assert self.tensor is not None
        held[0] = max(held[0], 4 * (before + self.tensor.numel()))

    monkeypatch.setattr(KeyValueRows, "_grow", watched)
    target = replace(models.target, stop_token_ids=())
    generate(target, [[9] * longest, [7] * 3], [0, 0], Sampling(0.0, 0, 1.0, 0), new_tokens)
    assert key_value_bytes(read_shapes(options), 4, 2, longest, new_tokens) == held[0]


def test_the_size_of_a_trace_is_that_of_the_packaged_one() -> None:
    trace = open_trace(packaged_trace())
    contents = trace.manifest.contents
    assert contents is not None
    recorded = sum(file.num_bytes for name, file in contents.files.items() if name.startswith(("tokens-", "draft-")))
    num = sum(len(record.text) for record in trace.sequences())
    assert trace_bytes(num, depth=7, min_width=64) == pytest.approx(recorded, rel=0.03)


def test_it_says_what_a_published_pair_needs(tmp_path: Path) -> None:
    options = options_for(
        configs_only(tmp_path, QWEN3_8B, DFLASH_B16),
        dtype="bfloat16",
        device="cuda",
        chat_template_kwargs={"enable_thinking": False},
    )
    said = estimate_text(options)
    for part in (
        "8.19 billion parameters",
        "weights         16.4 GB target + 2.1 GB drafter",
        '{"enable_thinking": false}',
        "at most 25,600",
        "decoding        2.8 GB, of it keys and values 2.8 GB: 32 texts of 10 + 256 tokens",
        "recording       6.8 GB, several texts at a time",
        "in all          about 25.2 GB",
        "time            not estimated; 1,024 passes read the target's weights, at least 17 s at 1 TB/s",
        "audit           32.8 GB more",
        "disk            at most ",
        "Computed, not measured",
    ):
        assert part in said, said


def test_a_model_that_thinks_unless_told_not_to_is_named(tmp_path: Path) -> None:
    """Where the template's arguments are empty, that is said too."""
    said = estimate_text(options_for(configs_only(tmp_path, QWEN3_8B, DFLASH_B16)))
    assert "chat template   no arguments" in said


@pytest.mark.thorough
def test_only_the_configurations_are_fetched(folder: Path) -> None:
    with serving() as hub:
        hub.add("org/target", folder / "target")
        hub.add("org/drafter", folder / "drafter")
        hub.add("org/gated", folder / "target")
        hub.refused["org/gated"] = (401, "GatedRepo", "Access is restricted.")
        text = ["--prompts", str(folder / "prompts.jsonl"), "--out", str(folder / "trace"), "--dry-run"]
        commands = [
            ["record", "--target", "org/target", "--draft", "org/drafter", *text],
            ["record", "--target", "org/gated", "--draft", "org/drafter", *text],
            ["record", "--target", "org/none", "--draft", "org/drafter", *text],
        ]
        done, gated, none = run_commands(hub.address, folder / "home", commands)
        assert done.code == 0, done
        assert hub.files_asked("org/target") == hub.files_asked("org/drafter") == {"config.json"}
    assert gated.code == none.code == 2
    assert "ask for access at" in gated.err
    assert "has no model of that name that you may read; check the spelling, or log in" in none.err
    assert not (folder / "trace").exists()


# A dry run says what a recording will be, and makes none


@pytest.fixture(scope="module")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dry")
    tiny_models.make_pair(made, block_size=8)
    return made


def options_for_prompts(models_folder: Path, tmp_path: Path, num_prompts: int, num_turns: int = 1) -> RecordOptions:
    return RecordOptions(
        target=str(models_folder / "target"),
        draft=str(models_folder / "drafter"),
        prompts=tiny_models.write_prompts(tmp_path / "prompts.jsonl", num_prompts, num_turns),
        out=tmp_path / "trace",
        max_new_tokens=32,
        temperature=0.7,
        batch_size=8,
    )


def recorded_bytes(options: RecordOptions) -> int:
    return sum(path.stat().st_size for path in record(options).iterdir())


@pytest.mark.parametrize(("num_prompts", "num_turns"), some([(20, 2), (1, 1), (150, 1)], quick=2))
def test_the_size_is_right_within_ten_percent(
    models_folder: Path, tmp_path: Path, num_prompts: int, num_turns: int
) -> None:
    options = options_for_prompts(models_folder, tmp_path, num_prompts, num_turns)
    found = estimate(options, *load(options))
    assert (found.num_prompts, found.num_texts) == (num_prompts, num_prompts * num_turns)
    assert found.num_sampled == min(num_prompts, 64)
    assert found.num_bytes == pytest.approx(recorded_bytes(options), rel=0.1)
    assert found.seconds > 0


def test_positions_of_given_text_are_known(models_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    texts = np.random.default_rng(0).integers(5, tiny_models.VOCAB_SIZE, (100, 50))
    rows = [{"prompt_token_ids": [9, 10], "token_ids": text[i % 50 :].tolist()} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = replace(options_for_prompts(models_folder, tmp_path, 1), prompts=None, completions=path)
    found = estimate(options, *load(options))
    assert found.positions == sum(1 + i % 50 for i in range(100))
    assert found.num_bytes == pytest.approx(recorded_bytes(options), rel=0.1)


def test_it_is_printed_and_nothing_is_written(models_folder: Path, tmp_path: Path) -> None:
    tiny_models.write_prompts(tmp_path / "prompts.jsonl", 3)
    models = ["--target", str(models_folder / "target"), "--draft", str(models_folder / "drafter")]
    text = ["--prompts", str(tmp_path / "prompts.jsonl"), "--max-new-tokens", "8"]
    out = output_of("record", *models, *text, "--out", tmp_path / "trace", "--dry-run", "sample")
    assert "<|im_start|>user\n0. tree<|im_end|>\n<|im_start|>assistant\n" in out
    assert "prompts         3\n" in out
    assert "expected size" in out
    assert "expected time" in out
    assert not (tmp_path / "trace").exists()


def test_a_sample_is_spread_over_all() -> None:
    assert spread(range(10), 3) == [0, 3, 6]
    assert spread(range(2), 3) == [0, 1]
