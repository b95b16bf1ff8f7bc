"""What a file holds: traces, checkpoints, latencies, tables, counts, and a sentence for what is none of them."""

import json
import struct
from pathlib import Path

import pytest
from made_up_costs import EMPTY
from study_results import refused, value_of
from synthetic_traces import SyntheticChannels, write_synthetic_trace

import simlab
from simlab.studies.inspect.inspect import inspect
from simlab.traces.artefacts import kinds
from simlab.traces.artefacts.cost import packaged_cost_files, write_cost_file
from simlab.traces.artefacts.ngram import packaged_ngram_files
from simlab.traces.artefacts.table import packaged_table_files
from simlab.traces.reader import open_trace

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


def test_a_trace_is_proved_whole_and_its_channels_are_listed(tmp_path: Path) -> None:
    made = SyntheticChannels(previous=3, top_k=3, beam=2)
    folder = write_synthetic_trace(tmp_path / "trace", 0, 4, 24, 3, 8, 97, channels=made)
    num = sum(len(record.text) - 1 for record in open_trace(folder).texts)
    channels = value_of(inspect(str(folder)))["channels"]
    assert channels["pool"]["num_rows"] == channels["transitions"]["num_rows"] == num
    assert channels["transitions"]["num_scored"] == num * 7 * 3
    damaged = next(folder.glob("tokens-*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert damaged.name in refused(inspect, str(folder))


def test_a_checkpoint_that_lacks_tensors_will_not_run(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "drafter")
    text = inspect(str(folder)).text()
    assert "will run   no: the drafter in" in text
    assert "lacks hidden_norm.weight" in text
    value = value_of(inspect(str(folder / "model.safetensors")))
    assert value["tensors"][0] == {"name": "fc.weight", "dtype": "BF16", "shape": [8, 16], "num_bytes": 256}


@pytest.mark.parametrize("cut", [1, 272, 400, 1000])
def test_a_cut_checkpoint_is_one_sentence(tmp_path: Path, cut: int) -> None:
    assert "damaged" in refused(inspect, str(write_checkpoint(tmp_path / "drafter", cut=cut)))


def test_an_unfinished_cost_file_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    write_cost_file(path, EMPTY.with_samples({("verify", 8, 64): (0.25, 0.5)}))
    text = inspect(str(path)).text()
    assert "unfinished 50 cells are missing" in text
    assert "--resume" in text
    assert ["8", "-", "312.500", "-"] in [line.split() for line in text.splitlines()]
    assert value_of(inspect(str(path)))["complete"] is False


def test_a_packaged_file_needs_no_path() -> None:
    for path in (*packaged_cost_files(), *packaged_table_files(), *packaged_ngram_files()):
        assert str(path) in inspect(path.stem).text().splitlines()[0]
    said = refused(inspect, "no-such-file")
    assert "there is nothing at no-such-file" in said
    assert "a fitted table, the counts of a 3-gram" in said


@pytest.mark.parametrize("name", ["runs/mine", "runs/mine@v1", "gone/cost.json", "gone/rows.parquet"])
def test_a_mistyped_path_is_not_looked_for_on_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert f"there is nothing at {name}; expected a trace (folder or address)" in refused(inspect, name)


def test_the_hub_needs_a_package_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'huggingface_hub'", name="huggingface_hub")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("simlab.studies.inspect.inspect.fetch", lacking)
    said = refused(inspect, "z-lab/Qwen3-8B-DFlash-b16")
    assert "there is nothing at z-lab/Qwen3-8B-DFlash-b16 on this machine" in said
    assert 'the package huggingface_hub, which is not installed; install it with: pip install "simlab[models]"' in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("cost.json", "{}", "another kind"),
        ("cost.json", "hello", "another kind"),
        ("cost.json", '{"format": "simlab-of-tomorrow"}', "another kind"),
        ("cost.json", '{"format": "simlab-cost"}', "format_version"),
        ("cost.json", '{"format": "simlab-table"}', "format_version"),
        ("cost.json", '{"format": "simlab-cost"', "another kind"),
        ("note.txt", "hello", "note.txt"),
        ("results.parquet", "hello", "results.parquet"),
        ("gone.safetensors", None, "gone.safetensors"),
        (".", None, "holds no manifest.json"),
    ],
)
def test_what_is_no_such_file_is_one_sentence(tmp_path: Path, name: str, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert said in refused(inspect, str(tmp_path / name))


def test_files_of_another_kind_are_one_sentence(tmp_path: Path) -> None:
    """Rows of rounds, say, are no damaged results; and a checkpoint may be of another architecture."""
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=2, length=12)
    rounds, results = tmp_path / "rounds.parquet", tmp_path / "results.parquet"
    simlab.replay(trace, ["ddtree:budget=2"], rounds=rounds, out=results)
    assert "is a file of another kind" in refused(inspect, str(rounds))
    assert "ddtree:budget=2" in inspect(str(results)).text()
    assert value_of(inspect(str(results)))["part"] is None
    other = write_checkpoint(tmp_path / "drafter", config={"model_type": "llama"})
    assert str(other) in refused(inspect, str(other))


def test_a_part_of_a_replay_is_shown_as_one(tmp_path: Path) -> None:
    trace, part = write_synthetic_trace(tmp_path / "trace", num_sequences=4, length=12), tmp_path / "part.parquet"
    replayed = value_of(simlab.replay(trace, ["ddtree:budget=2"], shard="1/2", out=part))
    found = inspect(str(part))
    assert "This is part 1/2 of the prompts alone; `simlab merge`" in found.text()
    value = value_of(found)
    assert value["part"] == "1/2"
    assert [row["rounds"] for row in value["rows"]] == [row["rounds"] for row in replayed["rows"]]


def test_a_file_that_this_user_may_not_read_is_no_file_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the system's answer is made up."""
    path = tmp_path / "cost.json"
    path.write_text("{}")

    def locked(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(kinds, "open_file", locked)
    said = refused(inspect, str(path))
    assert said == f"{path} cannot be read: Permission denied"
