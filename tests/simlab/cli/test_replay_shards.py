"""`simlab replay --shard I/N` and `simlab merge`: the parts together have the bytes of one replay."""

from pathlib import Path

import polars as pl
import pytest
from commands import json_of, merge_refusal, output_of, refusal_of

import simlab
from simlab.cli.interruption import INTERRUPTED
from simlab.cli.main import main
from simlab.errors import UsageError
from simlab.policies.engine import replay as engine
from simlab.recorded import RecordedTexts
from simlab.studies.replay import run as replay_run
from simlab.traces.results.files import NotedPart, read_unfinished_results, results_part, write_results
from simlab.traces.results.rounds_file import write_rounds
from simlab.traces.synthetic import write_synthetic_trace
from simlab.workers.parts import Part

POLICIES = ("-p", "ddtree:budget=2..4", "-p", "chain:length=2")
WHAT_IF = ("--what-if", "verify*0.5")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine prompts, three of two turns."""
    return write_synthetic_trace(tmp_path_factory.mktemp("shards") / "trace", num_sequences=12, length=20)


@pytest.fixture(scope="module")
def whole(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return replayed(trace, tmp_path_factory.mktemp("whole") / "all.parquet").read_bytes()


def typed(trace: Path, out: Path, *more: str) -> list[str]:
    return ["replay", "--trace", str(trace), *POLICIES, "--threads", "1", "--out", str(out), *more]


def replayed(trace: Path, out: Path, *more: str) -> Path:
    output_of(*typed(trace, out, *more))
    return out


def parts_of(trace: Path, folder: Path, count: int, *more: str) -> list[Path]:
    return [replayed(trace, folder / f"{n}.parquet", "--shard", f"{n}/{count}", *more) for n in range(count)]


@pytest.mark.parametrize(("count", "order"), [(2, [1, 0]), (4, [2, 0, 3, 1]), (12, list(range(11, -1, -1)))])
def test_the_parts_together_are_the_whole(
    trace: Path, tmp_path: Path, whole: bytes, count: int, order: list[int]
) -> None:
    """Twelve parts of nine prompts: some hold nothing."""
    parts = parts_of(trace, tmp_path, count)
    texts = [set(read_unfinished_results(path)[0]["sequence"]) for path in parts]
    assert sum(map(len, texts)) == 12
    prompts = [set(read_unfinished_results(path)[0].select("dataset", "prompt_id").iter_rows()) for path in parts]
    assert sum(map(len, prompts)) == 9, "turns of one prompt belong to one part"
    out = tmp_path / "all.parquet"
    assert main(["merge", *(str(parts[n]) for n in order), "--out", str(out)]) == 0
    assert out.read_bytes() == whole


def test_one_part_of_one_is_the_whole(trace: Path, tmp_path: Path, whole: bytes) -> None:
    assert replayed(trace, tmp_path / "all.parquet", "--shard", "0/1").read_bytes() == whole


def test_parts_with_prices_a_limit_and_repeats(tmp_path: Path) -> None:
    """The packaged trace has prices and their noise; the same part twice is taken once."""
    typed = ["replay", "-p", "ddtree:budget=4", "--limit", "5", *WHAT_IF, "--threads", "1", "--out"]
    assert main([*typed, str(tmp_path / "all.parquet")]) == 0
    for number in range(2):
        assert main([*typed, str(tmp_path / f"{number}.parquet"), "--shard", f"{number}/2"]) == 0
    paths = [tmp_path / f"{number}.parquet" for number in (1, 0, 1)]
    rows = read_unfinished_results(tmp_path / "1.parquet")[0].height
    said = output_of("merge", *paths, "--out", tmp_path / "merged.parquet")
    assert f"{rows:,} rows were in more than one file" in said
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "all.parquet").read_bytes()


def test_a_killed_part_goes_on(trace: Path, tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "0.parquet"
    typed = ["replay", "--trace", str(trace), *POLICIES, "--threads", "1", "--out", str(first)]
    real, calls = engine.Replay.sums, 0

    def sums(replay: engine.Replay, texts: RecordedTexts) -> engine.ReplaySums:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return real(replay, texts)

    with monkeypatch.context() as patch:
        patch.setattr(engine.Replay, "sums", sums)
        patch.setattr(replay_run, "ROOTS_AT_ONCE", 1)
        patch.setattr(replay_run, "KEEP_EVERY_ROWS", 1)
        assert main([*typed, "--shard", "0/2"]) == INTERRUPTED
    assert "is not of part 1/2 of this replay" in refusal_of(*typed, "--shard", "1/2", "--resume")
    assert main([*typed, "--shard", "0/2", "--resume"]) == 0
    other = replayed(trace, tmp_path / "1.parquet", "--shard", "1/2")
    assert main(["merge", str(other), str(first), "--out", str(tmp_path / "all.parquet")]) == 0
    assert (tmp_path / "all.parquet").read_bytes() == whole
    assert f"{first} holds part 0/2, and this is part 1/2" in refusal_of(*typed, "--shard", "1/2", "--resume")
    assert main([*typed, "-p", "chain:length=3", "--shard", "0/2", "--resume"]) == 0, "more policies go on"
    assert "holds chain:length=3 on sequence 0" in refusal_of(*typed, "--shard", "0/2", "--resume")
    # Without --shard the rest is replayed too, and the file is whole.
    assert main([*typed, "-p", "chain:length=3", "--resume"]) == 0
    assert results_part(first) is None


def test_a_whole_file_becomes_no_part(trace: Path, tmp_path: Path) -> None:
    out = replayed(trace, tmp_path / "all.parquet")
    typed = ["replay", "--trace", str(trace), *POLICIES, "--out", str(out), "--shard", "0/2", "--resume"]
    assert f"{out} holds a whole replay, and this is part 0/2" in refusal_of(*typed)


def test_a_part_says_that_it_is_one(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "1.parquet"
    said = output_of(*typed(trace, out, "--shard", "1/4"))
    assert "This is part 1/4 of the prompts alone; `simlab merge` puts the files of all 4" in said
    assert json_of(*typed(trace, tmp_path / "json.parquet", "--shard", "1/4", "--json"))["part"] == "1/4"
    for words in (["inspect", out], ["inspect", out, "--sign"], ["report", out, "--out", "x.html"]):
        assert "is part 1/4 alone; put all 4 together first" in refusal_of(*words)
    assert results_part(out) is not None


def test_an_empty_part_prints_no_table(trace: Path, tmp_path: Path) -> None:
    said = output_of(*typed(trace, tmp_path / "0.parquet", "--shard", "0/12"))
    assert "This is part 0/12" in said
    assert "rounds" not in said
    assert json_of(*typed(trace, tmp_path / "j.parquet", "--shard", "0/12", "--json", "--by", "dataset"))["rows"] == []


def test_merge_names_what_is_wrong_with_parts(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.parquet"
    four = parts_of(trace, tmp_path, 4)
    assert "0/4 and 2/4 are missing; merge takes all parts" in merge_refusal(out, four[3], four[1])
    assert "2/4 is missing" in merge_refusal(out, four[3], four[1], four[0])
    alone = replayed(trace, tmp_path / "alone.parquet")
    said = merge_refusal(out, four[0], alone)
    assert f"{four[0]} is a part and {alone} is none; merge the parts alone, all of them" in said
    assert f"{four[0]} is a part and {alone} is none" in merge_refusal(out, alone, four[0])
    half = replayed(trace, tmp_path / "half.parquet", "--shard", "0/2")
    assert f"{half} is one of 2 parts, and {four[1]} is one of 4" in merge_refusal(out, half, four[1])
    few = replayed(trace, tmp_path / "few.parquet", "--shard", "1/2", "--limit", "8")
    said = merge_refusal(out, half, few)
    assert f"parts of different works: they differ in sequences (12 in {half}, 10 in {few})" in said
    more = replayed(trace, tmp_path / "more.parquet", "--shard", "1/2", "-p", "chain:length=3")
    assert "parts of different replays: chain:length=3 (" in merge_refusal(out, half, more)
    assert "is in the second alone" in merge_refusal(out, half, more)
    swapped = tmp_path / "swapped.parquet"
    typed = ["replay", "--trace", str(trace), *POLICIES[2:], *POLICIES[:2], "--out", str(swapped), "--shard", "1/2"]
    assert main(typed) == 0
    assert "their policies stand in another order" in merge_refusal(out, half, swapped)


def test_merge_names_another_text_and_another_simlab(trace: Path, tmp_path: Path) -> None:
    out, (first, second) = tmp_path / "all.parquet", parts_of(trace, tmp_path, 2)
    there = write_synthetic_trace(tmp_path / "there", seed=1, num_sequences=12, length=20)
    elsewhere = replayed(there, tmp_path / "elsewhere.parquet", "--shard", "1/2")
    assert "they differ in text_id (" in merge_refusal(out, first, elsewhere)
    rows, sequences = read_unfinished_results(second)
    noted = results_part(second)
    assert noted is not None
    older = NotedPart(noted.part, {**noted.of, "simlab_version": "0.0.1"})
    write_results(second, rows.with_columns(simlab_version=pl.lit("0.0.1")), sequences, older)
    assert "they differ in simlab_version (" in merge_refusal(out, first, second)
    drawn = NotedPart(noted.part, {**noted.of, "draft_id": "another"})
    write_results(second, rows, sequences, drawn)
    assert "they differ in draft_id (" in merge_refusal(out, first, second)
    write_results(second, rows.head(rows.height - 1), sequences, noted)
    assert "a part is not finished: " in merge_refusal(out, first, second)
    write_results(second, rows.filter(pl.col("sequence") != rows["sequence"].max()), sequences, noted)
    assert "the parts hold 11 sequences of 12; finish it" in merge_refusal(out, first, second)


def test_the_same_part_with_other_outcomes_is_refused(trace: Path, tmp_path: Path) -> None:
    first, second = parts_of(trace, tmp_path, 2)
    rows, sequences = read_unfinished_results(first)
    other = tmp_path / "other.parquet"
    more = {"drafted": pl.col("drafted") + 1, "verified": pl.col("verified") + 1}
    write_results(other, rows.with_columns(**more), sequences, results_part(first))
    said = merge_refusal(tmp_path / "all.parquet", first, second, other)
    assert f"{first} and {other} both hold what autoregressive did on sequence 0" in said


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--shard", "4/4", "--out", "x.parquet"], "counted from 0: 0/4 to 3/4; got 4/4"),
        (["--shard", "one", "--out", "x.parquet"], "counted from 0: 0/4 to 3/4; got 'one'"),
        (["--shard", "1/4"], "--shard makes one part of a result file; name it with --out FILE"),
        (["--shard", "1/4", "--out", "x.parquet", "--batch", "2"], "--batch replays all texts together"),
    ],
)
def test_usage(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal_of("replay", "--trace", trace, *typed)
    assert list(tmp_path.iterdir()) == []


def test_in_python(trace: Path, tmp_path: Path) -> None:
    table = simlab.replay(trace, shard=Part(1, 3), out=tmp_path / "1.parquet")
    assert table.part == Part(1, 3)
    with pytest.raises(UsageError, match="0/3 to 2/3; got 3/3"):
        simlab.replay(trace, shard="3/3", out=tmp_path / "3.parquet")


def with_rounds(trace: Path, folder: Path, name: str, *more: str) -> Path:
    replayed(trace, folder / f"{name}.parquet", "--rounds", str(folder / f"{name}-rounds.parquet"), *more)
    return folder / f"{name}-rounds.parquet"


@pytest.mark.parametrize(("count", "order"), [(2, [1, 0]), (4, [2, 0, 3, 1]), (12, list(range(11, -1, -1)))])
def test_the_rounds_of_the_parts_are_those_of_the_whole(
    trace: Path, tmp_path: Path, count: int, order: list[int]
) -> None:
    one = with_rounds(trace, tmp_path, "one")
    parts = [with_rounds(trace, tmp_path, str(n), "--shard", f"{n}/{count}") for n in range(count)]
    # A part whose rounds were there already, and are gone on with.
    with_rounds(trace, tmp_path, "0", "--shard", f"0/{count}", "--resume")
    out, rows = tmp_path / "all-rounds.parquet", pl.read_parquet(one).height
    said = output_of("merge", *(parts[n] for n in order), "--out", out)
    assert said == f"{rows:,} rounds of {count} parts: {out}\n"
    assert out.read_bytes() == one.read_bytes()


def test_merge_names_what_is_wrong_with_rounds(trace: Path, tmp_path: Path) -> None:
    out, one = tmp_path / "all.parquet", with_rounds(trace, tmp_path, "one")
    first, second = (with_rounds(trace, tmp_path, str(n), "--shard", f"{n}/2") for n in range(2))
    assert "1/2 is missing" in merge_refusal(out, first, first)
    assert f"{first} and {first} are both part 0/2" in merge_refusal(out, first, first, second)
    assert f"{first} is a part and {one} is none" in merge_refusal(out, first, one)
    assert f"{one} is no part; of rounds, merge takes the parts" in merge_refusal(out, one, one)
    results = tmp_path / "0.parquet"
    assert f"{results} is not a table of rounds" in merge_refusal(out, first, results)
    rows = pl.read_parquet(second)
    noted = results_part(tmp_path / "1.parquet")
    both = pl.concat([rows, pl.read_parquet(first)])
    write_rounds(second, lambda: iter([both]), noted)
    assert "two parts hold rounds of " in merge_refusal(out, first, second)
