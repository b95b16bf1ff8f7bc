"""`simlab merge`: the rows of several files, each once, and no two that contradict each other."""

from pathlib import Path

import polars as pl
import pytest
from commands import json_of, output_of, refusal_of
from summary_rows import as_measured

from simlab.cli.main import main
from simlab.traces.results.files import read_results, read_unfinished_results, write_results
from simlab.traces.synthetic import write_synthetic_trace

TEXTS = 5


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("merge") / "trace", num_sequences=TEXTS, length=20)


def replayed(trace: Path, out: Path, *arguments: str) -> Path:
    assert main(["replay", "--trace", str(trace), "--threads", "1", "--out", str(out), *arguments]) == 0
    return out


def shown(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json_of("inspect", path, "--json")["rows"]
    return found


def test_a_full_replay_and_a_limited_one_are_the_full_one(trace: Path, tmp_path: Path) -> None:
    full = replayed(trace, tmp_path / "full.parquet", "-p", "chain")
    few = replayed(trace, tmp_path / "few.parquet", "-p", "chain", "--limit", "2")
    out = tmp_path / "all.parquet"
    said = output_of("merge", full, few, "--out", out)
    assert f"{read_results(few).height} rows were in more than one file, and stand there once." in said
    assert shown(out) == shown(full)
    joined = pl.concat([read_results(full), read_results(few)])
    write_results(out, joined)
    assert "one predicted row of each text" in refusal_of("inspect", out)


def test_policies_of_two_files_stand_side_by_side(trace: Path, tmp_path: Path) -> None:
    one = replayed(trace, tmp_path / "one.parquet", "-p", "ddtree:budget=4")
    other = replayed(trace, tmp_path / "other.parquet", "-p", "ddtree:budget=6")
    both = replayed(trace, tmp_path / "both.parquet", "-p", "ddtree:budget=4/6")
    out = tmp_path / "merged.parquet"
    assert main(["merge", str(one), str(other), "--out", str(out), "--json"]) == 0
    alike = {row["policy"]: row for row in shown(out)}
    for row in shown(both):
        if not str(row["policy"]).startswith("hindsight"):
            assert alike[str(row["policy"])] == row


def test_what_lacks_texts_is_merged_but_no_table_is_made_of_it(trace: Path, tmp_path: Path) -> None:
    full = replayed(trace, tmp_path / "full.parquet", "-p", "ddtree:budget=4")
    few = replayed(trace, tmp_path / "few.parquet", "-p", "ddtree:budget=6", "--limit", "2")
    out = tmp_path / "all.parquet"
    assert "Not finished: " in output_of("merge", full, few, "--out", out)
    assert "ddtree:budget=6 has 2 predicted rows of 2 texts, and other policies have 5 of 5" in refusal_of(
        "inspect", out
    )
    assert read_unfinished_results(out)[1] == {read_results(full)["text_id"][0]: TEXTS}
    assert main(["replay", "--trace", str(trace), "-p", "ddtree:budget=6", "--out", str(out), "--resume"]) == 0
    assert len(shown(out)) > 3


def test_contradictions_are_refused_and_nothing_is_written(trace: Path, tmp_path: Path) -> None:
    full = replayed(trace, tmp_path / "full.parquet", "-p", "chain")
    rows = read_results(full)
    out = tmp_path / "all.parquet"
    other = tmp_path / "other.parquet"
    more = {"drafted": pl.col("drafted") + 1, "verified": pl.col("verified") + 1}
    for changed in (rows.with_columns(**more), rows.with_columns(simlab_version=pl.lit("9"))):
        write_results(other, changed)
        assert f"{full} and {other} both hold what autoregressive did on sequence 0" in refusal_of(
            "merge", full, other, "--out", out
        )
        assert not out.exists()
    measured, again = tmp_path / "m.parquet", tmp_path / "n.parquet"
    write_results(measured, as_measured(rows))
    write_results(again, as_measured(rows).with_columns(pl.col("verify_s") * 2))
    assert "measured with other outcomes" in refusal_of("merge", measured, again, "--out", out)
    write_results(other, rows, {rows["text_id"][0]: TEXTS + 1})
    assert f"holds {TEXTS + 1} sequences, and a file before it says {TEXTS}" in refusal_of(
        "merge", full, other, "--out", out
    )


def test_usage(trace: Path, tmp_path: Path) -> None:
    full = replayed(trace, tmp_path / "full.parquet", "-p", "chain")
    assert "two or more" in refusal_of("merge", full, "--out", tmp_path / "x.parquet")
    assert "is there already" in refusal_of("merge", full, full, "--out", full)
