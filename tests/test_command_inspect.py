"""``simlab inspect`` on traces, checkpoints and what is neither."""

import json
import struct
from pathlib import Path

import pytest
from made_up_costs import EMPTY, filled, sample_s

from simlab.main import main
from simlab.traces.cost_file import write_cost_file
from simlab.traces.synthetic import write_synthetic_trace

CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "block_size": 8,
    "num_target_layers": 4,
    "num_hidden_layers": 1,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2]},
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "vocab_size": 32,
}


def write_checkpoint(folder: Path, config: object = CONFIG, cut: int = 0) -> Path:
    """A checkpoint of two tensors; ``cut`` bytes short."""
    folder.mkdir()
    entries = {
        "__metadata__": {"format": "pt"},
        "norm.weight": {"dtype": "BF16", "shape": [8], "data_offsets": [256, 272]},
        "fc.weight": {"dtype": "BF16", "shape": [8, 16], "data_offsets": [0, 256]},
    }
    header = json.dumps(entries).encode()
    whole = struct.pack("<Q", len(header)) + header + bytes(272)
    (folder / "model.safetensors").write_bytes(whole[: len(whole) - cut])
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_a_trace_is_proved_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=4, length=12)
    assert main(["inspect", str(trace)]) == 0
    assert "whole: every file" in capsys.readouterr().out
    assert main(["inspect", "--json", str(trace)]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kind"], value["whole"], value["sequences"]) == ("trace", True, 4)
    assert value["manifest"]["format_version"] == 1
    damaged = next(trace.glob("tokens-*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert main(["inspect", str(trace)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_checkpoint_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_checkpoint(tmp_path / "drafter")
    assert main(["inspect", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "2 tensors, 136 parameters, 272 bytes" in text
    assert "block_size" in text
    assert text.index("fc.weight") < text.index("norm.weight")
    assert main(["inspect", "--json", str(folder / "model.safetensors")]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["config"]["target_layer_ids"] == [0, 2]
    assert value["tensors"][0] == {"name": "fc.weight", "dtype": "BF16", "shape": [8, 16], "num_bytes": 256}


@pytest.mark.parametrize("cut", [1, 272, 400, 1000])
def test_a_cut_checkpoint_is_one_sentence(tmp_path: Path, cut: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(write_checkpoint(tmp_path / "drafter", cut=cut))]) == 2
    err = capsys.readouterr().err
    assert "damaged" in err
    assert err.count("\n") == 1


def test_a_foreign_config_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(write_checkpoint(tmp_path / "drafter", config={"model_type": "llama"}))]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_cost_file_is_shown_as_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = tmp_path / "cost.json", filled()
    write_cost_file(path, file)
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    for part in (file.cost_id, file.verify_key(), file.draft_key(), "Made-up CPU, 2 threads", "block 8", "torch 2.0.0"):
        assert part in text
    assert "unfinished" not in text
    lines = [line.split() for line in text[text.index("drafted  ") :].splitlines()]
    assert lines[0] == ["drafted", "16", "64", "256"]
    assert lines[1] == ["plain", "0", *(f"{1000 * sample_s('plain', 0, context):.3f}" for context in file.contexts)]
    verify = next(place for place, line in enumerate(lines) if line[0] == "verify")
    assert lines[verify][1] == "0"
    assert lines[verify + 2] == ["8", *(f"{1000 * sample_s('verify', 8, context):.3f}" for context in file.contexts)]
    assert len(lines) == 2 + 4 * len(file.node_counts)


def test_a_cost_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = tmp_path / "cost.json", filled()
    write_cost_file(path, file)
    assert main(["inspect", "--json", str(path)]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kind"], value["cost_id"], value["complete"]) == ("cost", file.cost_id, True)
    assert (value["verify_key"], value["draft_key"]) == (file.verify_key(), file.draft_key())
    assert value["settings"]["device"] == "Made-up CPU"
    prices = {(one["stage"], one["num_drafted"], one["context"]): one["price_s"] for one in value["prices"]}
    assert prices == {cell: sample_s(*cell) for cell in file.cells()}


def test_an_unfinished_cost_file_is_shown_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cost.json"
    write_cost_file(path, EMPTY.with_samples({("verify", 8, 64): (0.25, 0.5)}))
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "unfinished 50 cells are missing" in text
    assert "--resume" in text
    assert ["8", "-", "312.500", "-"] in [line.split() for line in text.splitlines()]
    assert main(["inspect", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] is False


@pytest.mark.parametrize(
    ("text", "said"), [("{}", "no cost file"), ("hello", "not JSON"), ('{"format": "simlab-cost"}', "format_version")]
)
def test_what_is_no_cost_file_is_one_sentence(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cost.json"
    path.write_text(text, encoding="utf-8")
    assert main(["inspect", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_what_is_neither_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = tmp_path / "note.txt"
    note.write_text("hello")
    false_results = tmp_path / "results.parquet"
    false_results.write_text("hello")
    for path in (note, tmp_path, false_results, tmp_path / "gone.safetensors"):
        assert main(["inspect", str(path)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
