"""What a file holds: traces, checkpoints, latencies, tables, counts, and a sentence for what is none of them."""

import hashlib
import json
import math
import statistics
import struct
from pathlib import Path

import pytest
from made_up_costs import EMPTY, filled, sample_s
from study_results import refused, value_of

import simlab
from simlab.cli.main import main
from simlab.cost import GRID_STAGES
from simlab.policies.costs.cell_prices import few_visits, ratio_half_widths
from simlab.studies.fit_ngram import fit_ngram
from simlab.studies.fit_tables import fit_calibration, fit_ranks
from simlab.studies.inspect.inspect import inspect
from simlab.traces.artefacts import kinds
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file, write_cost_file
from simlab.traces.artefacts.ngram import packaged_ngram_files, read_ngram_file
from simlab.traces.artefacts.table import packaged_table_files, read_table_file
from simlab.traces.reader import open_trace
from simlab.traces.synthetic import SyntheticChannels, write_synthetic_trace

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
    shown, trace = inspect(str(folder)), open_trace(folder)
    value, text = value_of(shown), shown.text()
    assert "whole: every file" in text
    assert (value["kind"], value["whole"], value["sequences"]) == ("trace", True, 4)
    assert value["manifest"]["format_version"] == 1
    assert f"channel    transitions ({trace.channel_ids['transitions']}), transitions of synthetic on the draft" in text
    assert "  depth 3, previous 3, top_k 3, order base-rank\n" in text
    assert "depth 3, top_k 3, beam 2, exact_nodes " in text
    num = sum(len(record.text) - 1 for record in trace.texts)
    channels = value["channels"]
    assert channels["pool"]["num_rows"] == channels["transitions"]["num_rows"] == num
    assert channels["transitions"]["num_scored"] == num * 7 * 3
    assert channels["pool"]["kind"] == "pool"
    damaged = next(folder.glob("tokens-*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert damaged.name in refused(inspect, str(folder))


def test_a_checkpoint_is_listed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "drafter")
    text = inspect(str(folder)).text()
    assert "2 tensors, 136 parameters, 272 bytes" in text
    assert "block_size" in text
    assert text.index("\nfc.weight") < text.index("\nnorm.weight")
    assert "will run   no: the drafter in" in text
    assert "lacks hidden_norm.weight" in text
    value = value_of(inspect(str(folder / "model.safetensors")))
    assert value["config"]["target_layer_ids"] == [0, 2]
    assert value["tensors"][0] == {"name": "fc.weight", "dtype": "BF16", "shape": [8, 16], "num_bytes": 256}


@pytest.mark.parametrize("cut", [1, 272, 400, 1000])
def test_a_cut_checkpoint_is_one_sentence(tmp_path: Path, cut: int) -> None:
    assert "damaged" in refused(inspect, str(write_checkpoint(tmp_path / "drafter", cut=cut)))


def test_a_cost_file_is_shown_as_prices(tmp_path: Path) -> None:
    path, file = tmp_path / "cost.json", filled()
    write_cost_file(path, file)
    text, value = inspect(str(path)).text(), value_of(inspect(str(path)))
    for part in (file.cost_id, file.verify_key(), file.draft_key(), "Made-up CPU, 2 threads", "block 8", "torch 2.0.0"):
        assert part in text
    assert "unfinished" not in text
    lines = [line.split() for line in text[text.index("drafted  ") :].splitlines()]
    assert lines[0] == ["drafted", "16", "64", "256"]
    assert lines[1] == ["plain", "0", *(f"{1000 * sample_s('plain', 0, context):.3f}" for context in file.contexts)]
    verify = next(index for index, line in enumerate(lines) if line[0] == "verify")
    assert lines[verify][1] == "0"
    assert lines[verify + 2] == ["8", *(f"{1000 * sample_s('verify', 8, context):.3f}" for context in file.contexts)]
    assert len(lines) == 2 + 4 * len(file.node_counts)
    assert (value["kind"], value["cost_id"], value["complete"]) == ("cost", file.cost_id, True)
    assert (value["verify_key"], value["draft_key"]) == (file.verify_key(), file.draft_key())
    assert value["settings"]["device"] == "Made-up CPU"
    prices = {(one["stage"], one["num_drafted"], one["context"]): one["price_s"] for one in value["prices"]}
    assert prices == {cell: sample_s(*cell) for cell in file.cells()}


def test_an_imported_file_says_what_was_not_timed_and_shows_a_constant_stage_once(tmp_path: Path) -> None:
    timings, made = Path("tests/data/engines/vllm_bench_serve.json"), tmp_path / "served.json"
    assert main(["import", str(timings), "--out", str(made)]) == 0
    shown = inspect(str(made))
    text, rows = shown.text(), [line.split() for line in shown.text().splitlines()]
    assert "autoregressive decoding was not timed" in text
    assert "one sample a cell" in text
    assert ["plain", "0", "-"] in rows
    assert [row[:2] for row in rows if row and row[0] in GRID_STAGES] == [[stage, "0-7"] for stage in GRID_STAGES]
    assert all(len(line) <= 100 for line in text.splitlines())
    assert {one["price_s"] for one in value_of(shown)["prices"] if one["stage"] == "plain"} == {None}
    passes = tmp_path / "passes.csv"
    passes.write_text("nodes,context,seconds\n1,100,0.008\n8,100,0.009\n64,100,0.017\n")
    assert main(["import", str(passes), "--counts", "root-included", "--out", str(tmp_path / "passes.json")]) == 0
    text = inspect(str(tmp_path / "passes.json")).text()
    assert "was not timed, so there are no speedups" not in text
    assert len(text[text.index("drafted  ") :].splitlines()) == 1 + 1 + 3 + 3


def test_an_unfinished_cost_file_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    write_cost_file(path, EMPTY.with_samples({("verify", 8, 64): (0.25, 0.5)}))
    text = inspect(str(path)).text()
    assert "unfinished 50 cells are missing" in text
    assert "--resume" in text
    assert ["8", "-", "312.500", "-"] in [line.split() for line in text.splitlines()]
    assert value_of(inspect(str(path)))["complete"] is False


@pytest.mark.parametrize(("name", "rounds"), [("smollm2-135m-epyc-bfloat16", 14), ("smollm2-135m-epyc-float32", 6)])
def test_how_well_prices_are_known_and_what_it_takes(name: str, rounds: int) -> None:
    file, shown = read_cost_file(name), inspect(name)
    known, text = value_of(shown)["known"], shown.text()
    widths = list(ratio_half_widths(file.samples, file.visits).values())
    median, widest = statistics.median(widths), max(widths)
    assert known["median_half_width_share"] == pytest.approx(median)
    assert known["widest_half_width_share"] == pytest.approx(widest)
    assert known["samples"] == rounds
    few = few_visits(rounds // file.visits.rounds)
    for key, width in (("", median), ("_everywhere", widest)):
        assert known[f"samples_needed{key}"] == pytest.approx(rounds * (width / few / 0.01) ** 2, rel=0.06)
    assert f"known to ±{100 * median:.1f} % (median; widest {100 * widest:.1f} %; 95 %)" in text
    assert f"`simlab profile --out NEW_FILE --repeats {known['samples_needed']}`" in text


@pytest.mark.parametrize("kind", ["calibration", "ranks"])
def test_a_fitted_table(tmp_path: Path, kind: str) -> None:
    """What it was fitted on, by ids, and figures a depth."""
    trace, path = open_trace(write_synthetic_trace(tmp_path / "trace", num_sequences=4)), tmp_path / "table.json"
    fit_calibration(trace, out=path) if kind == "calibration" else fit_ranks(trace, out=path)
    file, text, value = read_table_file(path), inspect(str(path)).text(), value_of(inspect(str(path)))
    for part in (file.table_id, trace.text_id, f"{file.num_positions} positions", f"{kind}, {len(file.values)} depths"):
        assert part in text
    rows = [line.split() for line in text[text.index("\ndepth") :].splitlines()[2:]]
    assert [row[0] for row in rows] == [str(depth + 1) for depth in range(len(file.values))]
    if kind == "ranks":
        assert [float(row[1]) for row in rows] == pytest.approx(file.values[:, 0].tolist(), abs=1e-4)
        assert all(sum(map(float, row[1:])) == pytest.approx(1, abs=1e-3) for row in rows)
    else:
        slope, intercept = file.values[1, 1, 0]
        assert float(rows[1][5]) == pytest.approx(1 / (1 + math.exp(-intercept)), abs=1e-3)
        logit = slope * math.log(9) + intercept
        assert float(rows[1][6]) == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-3)
    assert (value["kind"], value["table_id"], value["values"]) == (kind, file.table_id, file.values.tolist())
    assert value["shape"] == list(file.values.shape)


def test_counts_of_a_3_gram(tmp_path: Path) -> None:
    """One token stands for all of its rows: ``1 2 1 2 ...`` has one pair more often than the other."""
    texts, path = tmp_path / "texts.jsonl", tmp_path / "counts.parquet"
    texts.write_text(json.dumps({"prompt_ids": [7, 1], "text_ids": [2, 1, 2, 1, 2]}) + "\n", encoding="utf-8")
    fit_ngram(text=texts, out=path)
    file, shown = read_ngram_file(path), inspect(str(path))
    value = value_of(shown)
    assert (value["kind"], value["ngram_id"], value["num_tokens"], value["num_texts"]) == ("ngram", file.ngram_id, 5, 1)
    assert value["source"] == hashlib.sha256(texts.read_bytes()).hexdigest()
    one, two, three = value["by_length"]
    assert one == {"num_rows": 2, "most_frequent": [{"tokens": [2], "count": 3}, {"tokens": [1], "count": 2}]}
    assert two == {"num_rows": 2, "most_frequent": [{"tokens": [1, 2], "count": 3}, {"tokens": [2, 1], "count": 2}]}
    assert (three["num_rows"], three["most_frequent"][0]["count"]) == (3, 2)
    for part in (file.ngram_id, value["source"], "5 tokens of 1 texts", "1 2 (3);  2 1 (2)"):
        assert part in shown.text()


def test_a_packaged_file_needs_no_path() -> None:
    for path in (*packaged_cost_files(), *packaged_table_files(), *packaged_ngram_files()):
        assert str(path) in inspect(path.stem).text().splitlines()[0]
    said = refused(inspect, "no-such-file")
    assert "there is nothing at no-such-file" in said
    assert "a fitted table, the counts of a 3-gram" in said
    said = refused(inspect, "smollm2-135m-calibratio")
    assert "nothing at smollm2-135m-calibratio; did you mean `smollm2-135m-calibration`?" in said


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
    other = write_checkpoint(tmp_path / "drafter", config={"model_type": "llama"})
    assert str(other) in refused(inspect, str(other))


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
