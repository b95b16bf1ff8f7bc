"""``simlab inspect`` on traces, checkpoints and what is neither."""

import json
import struct
from pathlib import Path

import pytest

from simlab.main import main
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
