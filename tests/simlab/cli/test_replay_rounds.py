"""``simlab replay --out FILE --rounds FILE``: what a killed replay kept of both files is gone on with."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from commands import refusal_of
from depth import some
from made_up_costs import EMPTY, filled

from simlab.cli.main import main
from simlab.cost import PLAIN
from simlab.policies.engine import replay as engine
from simlab.recorded import RecordedTexts
from simlab.studies.replay import run as replay_run
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.format.tables import ENTRY, write_table
from simlab.traces.results import rounds_file
from simlab.traces.results.files import read_results, write_results
from simlab.traces.results.rounds_file import write_rounds
from simlab.traces.synthetic import write_synthetic_trace

KEYS = ("sequence", "policy_id", "text_id", "draft_id")
POLICIES = ("-p", "ddtree:budget=2..4", "-p", "chain:length=1..2", "-p", "caddtree:budget=6")
NUM_SEQUENCES = 6
# The order of nodes decides what is replayed together; the files are in the order in which policies were typed.
MORE = ("-p", "chain:length=3", "-p", "ddtree:budget=5")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace, and the cost files of two machines."""
    folder = tmp_path_factory.mktemp("rounds")
    write_synthetic_trace(folder / "trace", num_sequences=NUM_SEQUENCES, length=20)
    write_cost_file(folder / "dear.json", filled())
    other = replace(EMPTY, device="Another CPU")
    samples = {cell: (1.0 if cell[0] == PLAIN else 0.01,) * 3 for cell in other.cells()}
    write_cost_file(folder / "free.json", replace(filled(other), samples=samples))
    return folder


def arguments(place: Path, folder: Path, *more: str, rounds: bool = True) -> list[str]:
    typed = ["replay", "--trace", str(place / "trace"), "--threads", "2", "--out", str(folder / "results.parquet")]
    typed += ["--cost", str(place / "dear.json"), "--cost", str(place / "free.json")]
    return [*typed, *(("--rounds", str(folder / "rounds.parquet")) if rounds else ()), *more]


def replayed(place: Path, folder: Path, *more: str, rounds: bool = True) -> tuple[bytes, ...]:
    """The bytes of both files, which are all that is left."""
    assert main(arguments(place, folder, *more, rounds=rounds)) == 0
    wanted = ["results.parquet", *(["rounds.parquet"] if rounds else [])]
    assert sorted(one.name for one in folder.iterdir()) == wanted
    return tuple((folder / name).read_bytes() for name in wanted)


@pytest.fixture(scope="module")
def whole(place: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, ...]:
    """Both files of a replay that nobody killed."""
    return replayed(place, tmp_path_factory.mktemp("whole") / "in", *POLICIES)


@pytest.fixture
def finished(place: Path, whole: tuple[bytes, ...], tmp_path: Path) -> Path:
    """A folder with both files."""
    for name, content in zip(("results.parquet", "rounds.parquet"), whole, strict=True):
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The texts that are replayed."""
    found: list[int] = []
    real = engine.Replay.sums

    def sums(replay: engine.Replay, texts: RecordedTexts) -> engine.ReplaySums:
        found.extend(one.index for one in texts.sequences)
        return real(replay, texts)

    monkeypatch.setattr(engine.Replay, "sums", sums)
    return found


KILLED = """
import os, sys
from pathlib import Path
from simlab.cli.main import main
from simlab.studies.replay import run

run.KEEP_EVERY_ROWS, run.ROOTS_AT_ONCE, run.ROWS_AT_ONCE = 1, 1, 5
at, events, rename = int(sys.argv[1]), [], Path.replace

def event():
    events.append(1)
    if len(events) == at:
        os._exit(9)

def replace(path, target):
    event()
    found = rename(path, target)
    event()
    return found

Path.replace = replace
code = main(sys.argv[2:])
print(len(events))
sys.exit(code)
"""
"""A replay that ends right before a file is renamed into place, or right after."""


def killed(at: int, typed: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLED, str(at), *typed]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_a_killed_replay_goes_on_with_both_files(place: Path, whole: tuple[bytes, ...], tmp_path: Path) -> None:
    unbroken = killed(-1, arguments(place, tmp_path / "unbroken", *POLICIES))
    last = int(unbroken.stdout.splitlines()[-1])
    assert ((tmp_path / "unbroken" / "results.parquet").read_bytes(), last > 50) == (whole[0], True)
    assert (tmp_path / "unbroken" / "rounds.parquet").read_bytes() == whole[1]
    # Between two pieces, between the two pieces of the same rows, and between the two finished files.
    for at in some((last - 1, 18, 7)):
        folder = tmp_path / str(at)
        assert killed(at, arguments(place, folder, *POLICIES)).returncode == 9
        assert killed(5, arguments(place, folder, *POLICIES, "--resume")).returncode in (0, 9)
        assert replayed(place, folder, *POLICIES, "--resume") == whole


def test_a_finished_replay_is_left_as_it_is(
    place: Path, whole: tuple[bytes, ...], finished: Path, counted: list[int]
) -> None:
    assert replayed(place, finished, *POLICIES, "--resume") == whole
    assert counted == []


def test_rounds_are_made_for_rows_that_were_there_without(
    place: Path, whole: tuple[bytes, ...], tmp_path: Path, counted: list[int]
) -> None:
    assert replayed(place, tmp_path, *POLICIES, rounds=False) == whole[:1]
    counted.clear()
    assert replayed(place, tmp_path, *POLICIES, "--resume") == whole
    assert set(counted) == set(range(NUM_SEQUENCES))


def test_the_order_of_the_rounds_is_that_of_the_rows(place: Path, finished: Path) -> None:
    rounds, rows = pl.read_parquet(finished / "rounds.parquet"), read_results(finished / "results.parquet")
    played = rows.filter(pl.col("name") != "hindsight", pl.col("rounds") > 0)
    played = played.filter(~pl.col("name").str.starts_with("hindsight"))
    of_rows = played.unique(KEYS, keep="first", maintain_order=True).select(*KEYS, "policy")
    assert rounds.select(*KEYS, "policy").unique(maintain_order=True).equals(of_rows)
    # A policy that does not read prices was replayed at both, and has its rounds once.
    assert played.height > of_rows.height
    numbers = rounds.group_by(KEYS, maintain_order=True).agg(pl.len().cast(pl.Int64).alias("rounds"))
    assert numbers.equals(played.unique(KEYS, keep="first", maintain_order=True).select(*KEYS, "rounds"))


@pytest.mark.parametrize("rows_at_once", [1, 3, 1000])
def test_the_files_do_not_depend_on_what_is_replayed_together(
    place: Path, whole: tuple[bytes, ...], tmp_path: Path, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_run, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(replay_run, "ROOTS_AT_ONCE", 30)
    monkeypatch.setattr(replay_run, "KEEP_EVERY_ROWS", 7)
    monkeypatch.setattr(rounds_file, "_ROWS_AT_ONCE", 11 * rows_at_once)
    assert replayed(place, tmp_path, *POLICIES) == whole


def without_some_rounds(folder: Path) -> None:
    rounds = pl.read_parquet(folder / "rounds.parquet")
    signed(folder, rounds.filter(~((pl.col("policy") == "chain:length=1") & (pl.col("sequence") > 3))))


def signed(folder: Path, rows: pl.DataFrame) -> None:
    """Write rounds as if they had been replayed so."""
    write_rounds(folder / "rounds.parquet", lambda: iter([rows]))


def with_half_the_rounds(folder: Path) -> None:
    signed(folder, pl.read_parquet(folder / "rounds.parquet").gather_every(2))


def without_some_rows(folder: Path) -> None:
    rows = read_results(folder / "results.parquet")
    write_results(folder / "results.parquet", rows.filter(pl.col("sequence") != 2))


def without_rows_at_one_price(folder: Path) -> None:
    rows = read_results(folder / "results.parquet")
    write_results(folder / "results.parquet", rows.filter(cost_id=rows["cost_id"][0]))


def with_rows_of_another_simlab(folder: Path) -> None:
    rows = read_results(folder / "results.parquet")
    doubled = {"drafted": 2 * pl.col("drafted"), "verified": 2 * pl.col("drafted") + pl.col("rounds")}
    older = rows.with_columns(pl.lit("0.0.1").alias("simlab_version"), **doubled)
    write_results(folder / "results.parquet", older)
    rounds = pl.read_parquet(folder / "rounds.parquet")
    signed(folder, rounds.with_columns(pl.col("num_drafted") * 2))


def with_rounds_of_other_numbers(folder: Path) -> None:
    rounds = pl.read_parquet(folder / "rounds.parquet")
    signed(folder, rounds.with_columns(pl.col("num_drafted") + 1))


def with_rounds_of_nobody(folder: Path) -> None:
    rounds = pl.read_parquet(folder / "rounds.parquet")
    strangers = rounds.with_columns(pl.lit("nobody").alias("policy_id"))
    signed(folder, pl.concat([strangers, rounds, rounds]))


def without_rounds(folder: Path) -> None:
    (folder / "rounds.parquet").unlink()


def without_rows(folder: Path) -> None:
    (folder / "results.parquet").unlink()


def with_pieces_that_were_not_removed(folder: Path) -> None:
    for name in ("results", "rounds"):
        path = folder / f"{name}.parquet.parts" / "part-000000.parquet"
        write_table(path, pl.read_parquet(folder / f"{name}.parquet"), {})
        (path.parent / ".part-000001.parquet.part").write_bytes(b"half")


@pytest.mark.parametrize(
    "damage",
    [
        without_some_rounds,
        with_half_the_rounds,
        without_some_rows,
        without_rows_at_one_price,
        with_rows_of_another_simlab,
        with_rounds_of_other_numbers,
        with_rounds_of_nobody,
        without_rounds,
        without_rows,
        with_pieces_that_were_not_removed,
    ],
)
def test_what_has_no_partner_is_made_anew(
    place: Path, whole: tuple[bytes, ...], finished: Path, damage: Callable[[Path], None]
) -> None:
    damage(finished)
    assert replayed(place, finished, *POLICIES, "--resume") == whole


def test_the_rounds_of_other_policies_stay(place: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_file, "_ROWS_AT_ONCE", 40)
    before = pl.read_parquet(finished / "rounds.parquet")
    replayed(place, finished, *MORE, "--resume")
    found = pl.read_parquet(finished / "rounds.parquet")
    again = before.filter(pl.col("policy").is_in(["autoregressive", "chain"]))
    others = before.join(again, on="policy_id", how="anti")
    assert found.head(others.height).equals(others)
    new = found.tail(-others.height)
    assert new["policy"].unique(maintain_order=True).to_list() == ["autoregressive", "chain", "chain:length=3", MORE[3]]
    assert new.join(again, on=again.columns, how="semi", nulls_equal=True).height == again.height
    # All that are there have their result row.
    rows = read_results(finished / "results.parquet")
    assert found.join(rows, on=KEYS, how="anti").height == 0


def test_rounds_stand_under_the_name_that_was_typed_last(place: Path, tmp_path: Path, counted: list[int]) -> None:
    replayed(place, tmp_path, "-p", "chain:length=null", "--limit", "2")
    replayed(place, tmp_path, "-p", "chain", "--resume")
    assert set(pl.read_parquet(tmp_path / "rounds.parquet")["policy"]) == {"autoregressive", "chain"}
    assert sorted(counted) == list(range(NUM_SEQUENCES))


@pytest.mark.parametrize("content", ["mine", "rows", "damaged"])
def test_what_is_no_table_of_rounds_is_left_alone(place: Path, finished: Path, content: str) -> None:
    path = finished / "rounds.parquet"
    rounds = path.read_bytes()
    damaged = rounds[:4] + bytes(len(rounds) // 2) + rounds[4 + len(rounds) // 2 :]
    before = {"mine": b"mine", "rows": (finished / "results.parquet").read_bytes(), "damaged": damaged}[content]
    path.write_bytes(before)
    assert "rounds.parquet is not a table of rounds of this simlab (" in refusal_of(
        *arguments(place, finished, *POLICIES, "--resume")
    )
    assert path.read_bytes() == before


def test_a_changed_round_is_refused(place: Path, finished: Path) -> None:
    path = finished / "rounds.parquet"
    rows, before = pl.read_parquet(path), (finished / "results.parquet").read_bytes()
    changed = rows.with_columns(miss_depth=pl.col("miss_depth") + 1)
    changed.write_parquet(path, metadata={ENTRY: pl.read_parquet_metadata(path)[ENTRY]})
    assert "the digest of its rows is missing or another" in refusal_of(
        *arguments(place, finished, *POLICIES, "--resume")
    )
    assert (finished / "results.parquet").read_bytes() == before
    assert pl.read_parquet(path).equals(changed)


def test_pieces_are_not_written_through_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "part-000000.parquet").write_text("precious")
    (tmp_path / "rounds.parquet.parts").symlink_to(tmp_path / "victim")
    assert "rounds.parquet.parts is a link" in refusal_of(*arguments(place, tmp_path, *POLICIES))
    assert (tmp_path / "victim" / "part-000000.parquet").read_text() == "precious"


def test_a_piece_that_was_changed_is_not_gone_on_with(place: Path, finished: Path) -> None:
    with_pieces_that_were_not_removed(finished)
    piece = finished / "rounds.parquet.parts" / "part-000000.parquet"
    pl.read_parquet(piece).write_parquet(piece)
    assert "part-000000.parquet has no digest of its rows" in refusal_of(
        *arguments(place, finished, *POLICIES, "--resume")
    )
