"""Result files that are merged: each row once, no two that contradict each other, and no table of what lacks texts."""

from pathlib import Path

import polars as pl
import pytest
from study_results import merge_refusal, refused, value_of
from summary_rows import as_measured
from synthetic_traces import write_synthetic_trace

from simlab.studies.inspect.inspect import inspect
from simlab.studies.merge import merge
from simlab.studies.replay.replay import replay
from simlab.traces.results.files import read_results, read_unfinished_results, write_results

TEXTS = 5


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("merge") / "trace", num_sequences=TEXTS, length=20)


def replayed(trace: Path, out: Path, policy: str, limit: int | None = None) -> Path:
    replay(trace, [policy], threads=1, out=out, limit=limit)
    return out


def shown(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = value_of(inspect(str(path)))["rows"]
    return rows


def test_a_full_replay_and_a_limited_one_are_the_full_one(trace: Path, tmp_path: Path) -> None:
    full = replayed(trace, tmp_path / "full.parquet", "chain")
    few = replayed(trace, tmp_path / "few.parquet", "chain", limit=2)
    out = tmp_path / "all.parquet"
    said = merge([full, few], out).text()
    assert f"{read_results(few).height} rows were in more than one file, and stand there once." in said
    assert shown(out) == shown(full)
    write_results(out, pl.concat([read_results(full), read_results(few)]))
    assert "one predicted row of each text" in refused(inspect, str(out))


def test_policies_of_two_files_stand_side_by_side(trace: Path, tmp_path: Path) -> None:
    path, other = (replayed(trace, tmp_path / f"{n}.parquet", f"ddtree:budget={n}") for n in (4, 6))
    both = replayed(trace, tmp_path / "both.parquet", "ddtree:budget=4/6")
    merge([path, other], tmp_path / "merged.parquet")
    alike = {row["policy"]: row for row in shown(tmp_path / "merged.parquet")}
    for row in shown(both):
        if not str(row["policy"]).startswith("hindsight"):
            assert alike[str(row["policy"])] == row


def test_what_lacks_texts_is_merged_but_no_table_is_made_of_it(trace: Path, tmp_path: Path) -> None:
    full = replayed(trace, tmp_path / "full.parquet", "ddtree:budget=4")
    few = replayed(trace, tmp_path / "few.parquet", "ddtree:budget=6", limit=2)
    out = tmp_path / "all.parquet"
    assert "Not finished: " in merge([full, few], out).text()
    said = "ddtree:budget=6 has 2 predicted rows of 2 texts, and other policies have 5 of 5"
    assert said in refused(inspect, str(out))
    assert read_unfinished_results(out)[1] == {read_results(full)["text_id"][0]: TEXTS}
    replay(trace, ["ddtree:budget=6"], out=out, resume=True)
    assert len(shown(out)) > 3


def test_contradictions_are_refused_and_nothing_is_written(trace: Path, tmp_path: Path) -> None:
    full = replayed(trace, tmp_path / "full.parquet", "chain")
    rows, out = read_results(full), tmp_path / "all.parquet"
    other, measured, again = (tmp_path / f"{name}.parquet" for name in ("other", "m", "n"))
    more = {"drafted": pl.col("drafted") + 1, "verified": pl.col("verified") + 1}
    for changed in (rows.with_columns(**more), rows.with_columns(simlab_version=pl.lit("9"))):
        write_results(other, changed)
        said = f"{full} and {other} both hold what autoregressive did on sequence 0"
        assert said in merge_refusal(out, full, other)
    write_results(measured, as_measured(rows))
    write_results(again, as_measured(rows).with_columns(pl.col("verify_s") * 2))
    assert "measured with other outcomes" in merge_refusal(out, measured, again)
    write_results(other, rows, {rows["text_id"][0]: TEXTS + 1})
    said = f"holds {TEXTS + 1} sequences, and a file before it says {TEXTS}"
    assert said in merge_refusal(out, full, other)
    assert "two or more" in merge_refusal(out, full)
    assert "is there already" in refused(merge, [full, full], full)
