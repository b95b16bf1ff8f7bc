"""Replays in parts: merged they have the bytes of one replay, and what does not belong together is refused by name."""

from pathlib import Path

import polars as pl
import pytest
from study_results import merge_refusal, refused, value_of
from synthetic_traces import write_synthetic_trace

from simlab.policies.engine import replay as engine
from simlab.recorded import RecordedTexts
from simlab.studies.merge import merge
from simlab.studies.replay import run as replay_run
from simlab.studies.replay.replay import replay
from simlab.traces.results.files import NotedPart, read_unfinished_results, results_part, write_results
from simlab.traces.results.rounds_file import write_rounds
from simlab.workers.parts import Part

POLICIES = ("ddtree:budget=2..4", "chain:length=2")
COUNTS = [(2, [1, 0]), (4, [2, 0, 3, 1]), (12, list(range(11, -1, -1)))]
"""Parts, and the order in which they are merged; twelve parts of nine prompts: some hold nothing."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine prompts, three of two turns."""
    return write_synthetic_trace(tmp_path_factory.mktemp("shards") / "trace", num_sequences=12, length=20)


def replayed(trace: Path, out: Path, policies: tuple[str, ...] = POLICIES, **more: object) -> Path:
    """Result rows in a file, with their rounds beside it."""
    named: dict[str, object] = {"threads": 1, "rounds": rounds_of(out), **more}
    replay(trace, policies, out=out, **named)  # type: ignore[arg-type]
    return out


def rounds_of(out: Path) -> Path:
    return out.with_name(f"{out.stem}-rounds.parquet")


@pytest.fixture(scope="module")
def whole(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replayed(trace, tmp_path_factory.mktemp("whole") / "all.parquet")


def parts_of(trace: Path, folder: Path, count: int) -> list[Path]:
    return [replayed(trace, folder / f"{n}.parquet", shard=Part(n, count)) for n in range(count)]


@pytest.mark.parametrize(("count", "order"), COUNTS)
def test_the_parts_together_are_the_whole(
    trace: Path, tmp_path: Path, whole: Path, count: int, order: list[int]
) -> None:
    parts = parts_of(trace, tmp_path, count)
    rows = [read_unfinished_results(path)[0] for path in parts]
    assert sum(len(set(row["sequence"])) for row in rows) == 12
    prompts = [set(row.select("dataset", "prompt_id").iter_rows()) for row in rows]
    assert sum(map(len, prompts)) == 9, "turns of one prompt belong to one part"
    # A part that was there already is gone on with.
    replayed(trace, parts[0], shard=Part(0, count), resume=True)
    out = tmp_path / "all.parquet"
    merge([parts[n] for n in order], out)
    said = merge([rounds_of(parts[n]) for n in order], rounds_of(out)).text()
    assert said == f"{pl.read_parquet(rounds_of(whole)).height:,} rounds of {count} parts: {rounds_of(out)}"
    for path, wanted in ((out, whole), (rounds_of(out), rounds_of(whole))):
        assert path.read_bytes() == wanted.read_bytes()


def test_one_part_of_one_is_the_whole(trace: Path, tmp_path: Path, whole: Path) -> None:
    assert replayed(trace, tmp_path / "all.parquet", shard="0/1").read_bytes() == whole.read_bytes()


def test_parts_with_prices_a_limit_and_repeats(tmp_path: Path) -> None:
    """The packaged trace has prices and their noise; the same part twice is taken once."""
    for name, part in (("all", None), ("0", "0/2"), ("1", "1/2")):
        out = tmp_path / f"{name}.parquet"
        replay(None, ["ddtree:budget=4"], limit=5, what_if=["verify*0.5"], threads=1, out=out, shard=part)
    rows = read_unfinished_results(tmp_path / "1.parquet")[0].height
    merged = merge([tmp_path / f"{number}.parquet" for number in (1, 0, 1)], tmp_path / "merged.parquet")
    assert f"{rows:,} rows were in more than one file" in merged.text()
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "all.parquet").read_bytes()


def test_a_killed_part_goes_on(trace: Path, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, real, calls = tmp_path / "0.parquet", engine.Replay.sums, [0]

    def sums(replay: engine.Replay, texts: RecordedTexts) -> engine.ReplaySums:
        calls[0] += 1
        if calls[0] == 4:
            raise KeyboardInterrupt
        return real(replay, texts)

    with monkeypatch.context() as patch:
        patch.setattr(engine.Replay, "sums", sums)
        patch.setattr(replay_run, "ROOTS_AT_ONCE", 1)
        patch.setattr(replay_run, "KEEP_EVERY_ROWS", 1)
        with pytest.raises(KeyboardInterrupt):
            replay(trace, POLICIES, threads=1, out=first, shard="0/2")

    def gone_on(shard: str | None, *more: str) -> None:
        replay(trace, [*POLICIES, *more], threads=1, out=first, shard=shard, resume=True)

    assert "is not of part 1/2 of this replay" in refused(gone_on, "1/2")
    gone_on("0/2")
    other = replayed(trace, tmp_path / "1.parquet", shard="1/2")
    merge([other, first], tmp_path / "all.parquet")
    assert (tmp_path / "all.parquet").read_bytes() == whole.read_bytes()
    assert f"{first} holds part 0/2, and this is part 1/2" in refused(gone_on, "1/2")
    gone_on("0/2", "chain:length=3")
    assert "holds chain:length=3 on sequence 0" in refused(gone_on, "0/2")
    # Without --shard the rest is replayed too, and the file is whole.
    gone_on(None, "chain:length=3")
    assert results_part(first) is None
    assert f"{first} holds a whole replay, and this is part 0/2" in refused(gone_on, "0/2")


def test_a_part_says_that_it_is_one(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "1.parquet"
    table = replay(trace, POLICIES, out=out, shard="1/4")
    assert "This is part 1/4 of the prompts alone; `simlab merge` puts the files of all 4" in table.text()
    assert (table.part, value_of(table)["part"]) == (Part(1, 4), "1/4")
    assert results_part(out) is not None
    empty = replay(trace, POLICIES, out=tmp_path / "0.parquet", shard="0/12", by="dataset")
    assert "This is part 0/12" in empty.text()
    assert "rounds" not in empty.text()
    assert value_of(empty)["rows"] == []


def test_merge_names_another_text_and_another_simlab(trace: Path, tmp_path: Path) -> None:
    out, (first, second) = tmp_path / "all.parquet", parts_of(trace, tmp_path, 2)
    there = write_synthetic_trace(tmp_path / "there", seed=1, num_sequences=12, length=20)
    elsewhere = replayed(there, tmp_path / "elsewhere.parquet", shard="1/2")
    assert "they differ in text_id (" in merge_refusal(out, first, elsewhere)
    rows, sequences = read_unfinished_results(second)
    noted = results_part(second)
    assert noted is not None
    older = rows.with_columns(simlab_version=pl.lit("0.0.1"))
    for changed, of, said in (
        (older, {**noted.of, "simlab_version": "0.0.1"}, "they differ in simlab_version ("),
        (rows, {**noted.of, "draft_id": "another"}, "they differ in draft_id ("),
        (rows.head(rows.height - 1), noted.of, "a part is not finished: "),
        (
            rows.filter(pl.col("sequence") != rows["sequence"].max()),
            noted.of,
            "the parts hold 11 sequences of 12; finish it",
        ),
    ):
        write_results(second, changed, sequences, NotedPart(noted.part, of))
        assert said in merge_refusal(out, first, second)
    more = {"drafted": pl.col("drafted") + 1, "verified": pl.col("verified") + 1}
    write_results(second, rows, sequences, noted)
    rows, sequences = read_unfinished_results(first)
    other = tmp_path / "other.parquet"
    write_results(other, rows.with_columns(**more), sequences, results_part(first))
    said = merge_refusal(out, first, second, other)
    assert f"{first} and {other} both hold what autoregressive did on sequence 0" in said


def test_merge_names_what_is_wrong_with_rounds(trace: Path, tmp_path: Path, whole: Path) -> None:
    out, path = tmp_path / "all.parquet", rounds_of(whole)
    results = parts_of(trace, tmp_path, 2)
    first, second = map(rounds_of, results)
    assert f"{first} and {first} are both part 0/2" in merge_refusal(out, first, first, second)
    assert f"{first} is a part and {path} is none" in merge_refusal(out, first, path)
    assert f"{path} is no part; of rounds, merge takes the parts" in merge_refusal(out, path, path)
    both = pl.concat([pl.read_parquet(second), pl.read_parquet(first)])
    write_rounds(second, lambda: iter([both]), results_part(results[1]))
    assert "two parts hold rounds of " in merge_refusal(out, first, second)
