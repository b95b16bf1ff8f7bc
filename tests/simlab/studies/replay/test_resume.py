"""Result rows and rounds in files: killed, gone on with, extended; the same bytes whatever was there before."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from depth import some
from made_up_costs import two_machines
from study_results import refused
from summary_rows import as_measured
from synthetic_traces import write_synthetic_trace

from simlab.analysis.table.summaries import STAGE_COLUMNS
from simlab.policies.engine import replay as engine
from simlab.recorded import RecordedTexts
from simlab.studies.replay import run as replay_run
from simlab.studies.replay.replay import replay
from simlab.traces.format.tables import ENTRY, write_table
from simlab.traces.results import rounds_file
from simlab.traces.results.files import read_results, write_results
from simlab.traces.results.rounds_file import write_rounds

KEYS = ("sequence", "policy_id", "text_id", "draft_id")
POLICIES = ("ddtree:budget=2..4", "chain:length=1..2", "caddtree:budget=6")
NUM_SEQUENCES = 6
NAMES = ("results", "rounds")
# The order of nodes decides what is replayed together; the files are in the order in which policies were typed.
MORE = ("chain:length=3", "ddtree:budget=5")

Both = tuple[bytes, ...]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace, and the cost files of two machines."""
    folder = tmp_path_factory.mktemp("rounds")
    write_synthetic_trace(folder / "trace", num_sequences=NUM_SEQUENCES, length=20)
    two_machines(folder)
    return folder


def files(folder: Path) -> dict[str, Path]:
    """The arguments that name both files."""
    return dict(zip(("out", "rounds"), (folder / f"{name}.parquet" for name in NAMES), strict=True))


def run(place: Path, folder: Path, policies: tuple[str, ...] = POLICIES, **more: object) -> None:
    costs = [place / "dear.json", place / "free.json"]
    folder.mkdir(exist_ok=True)
    asked: dict[str, object] = {"threads": 2, "cost": costs, **files(folder), **more}
    replay(place / "trace", policies, **asked)  # type: ignore[arg-type]


def replayed(place: Path, folder: Path, policies: tuple[str, ...] = POLICIES, **more: object) -> Both:
    """The bytes of both files, which are all that is left."""
    run(place, folder, policies, **more)
    assert sorted(path.stem for path in folder.iterdir()) == list(NAMES)
    return tuple((folder / f"{name}.parquet").read_bytes() for name in NAMES)


@pytest.fixture(scope="module")
def whole(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Both files of a replay that nobody killed."""
    return replayed(place, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def finished(place: Path, whole: Both, tmp_path: Path) -> Path:
    """A folder with both files."""
    for name, content in zip(NAMES, whole, strict=True):
        (tmp_path / f"{name}.parquet").write_bytes(content)
    return tmp_path


class Counted:
    """The texts that are replayed; after so many calls of the engine it is interrupted."""

    def __init__(self) -> None:
        self.texts: list[int] = []
        self.policies = 0
        self.most = 10**6


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found, real = Counted(), engine.Replay.sums

    def sums(replay: engine.Replay, texts: RecordedTexts) -> engine.ReplaySums:
        if len(found.texts) >= found.most:
            raise KeyboardInterrupt
        sums = real(replay, texts)
        found.texts += [sequence.index for sequence in texts.sequences]
        found.policies += sums.counts.shape[0] * len(texts.sequences)
        return sums

    monkeypatch.setattr(engine.Replay, "sums", sums)
    return found


@contextmanager
def in_small_pieces() -> Iterator[None]:
    """One text at a time is replayed, and kept at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_run, "ROOTS_AT_ONCE", 1)
        patch.setattr(replay_run, "KEEP_EVERY_ROWS", 1)
        yield


def test_an_interrupted_replay_goes_on_to_the_same_files(
    place: Path, whole: Both, tmp_path: Path, counted: Counted
) -> None:
    counted.most = 5
    with in_small_pieces(), pytest.raises(KeyboardInterrupt):
        run(place, tmp_path, threads=1)
    assert not (tmp_path / "results.parquet").exists()
    assert "results.parquet was begun already; add --resume to go on with it" in refused(run, place, tmp_path)
    counted.most, before = 10**6, len(counted.texts)
    with in_small_pieces():
        assert replayed(place, tmp_path, resume=True) == whole
    assert before > 0
    assert 0 < len(counted.texts) - before < len(counted.texts)


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


def killed(at: int, place: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    typed = ["replay", "--trace", place / "trace", "--cost", place / "dear.json", "--cost", place / "free.json"]
    typed += [word for name, path in files(folder).items() for word in (f"--{name}", path)]
    typed += [word for policy in POLICIES for word in ("-p", policy)]
    command = [sys.executable, "-c", KILLED, str(at), *map(str, typed), "--threads", "2", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_killed_replay_goes_on_to_the_same_files(place: Path, whole: Both, tmp_path: Path) -> None:
    assert killed(18, place, tmp_path).returncode == 9
    (tmp_path / "results.parquet.parts" / ".part-000099.parquet.part").write_bytes(b"half")
    assert replayed(place, tmp_path, resume=True) == whole


@pytest.mark.thorough
def test_a_replay_killed_twice_goes_on_to_the_same_files(place: Path, whole: Both, tmp_path: Path) -> None:
    unbroken = killed(-1, place, tmp_path / "unbroken")
    last = int(unbroken.stdout.splitlines()[-1])
    assert last > 50
    assert tuple((tmp_path / "unbroken" / f"{name}.parquet").read_bytes() for name in NAMES) == whole
    # Between two pieces, between the two pieces of the same rows, and between the two finished files.
    for at in some((last - 1, 18, 7)):
        folder = tmp_path / str(at)
        assert killed(at, place, folder).returncode == 9
        assert killed(5, place, folder, "--resume").returncode in (0, 9)
        assert replayed(place, folder, resume=True) == whole


def test_nothing_is_replayed_twice(place: Path, whole: Both, finished: Path, counted: Counted) -> None:
    path = finished / "results.parquet"
    said = f"{path} is there already; add --resume to go on with it, or give another --out"
    assert said in refused(run, place, finished)
    assert replayed(place, finished, resume=True) == whole
    assert counted.texts == []
    before = read_results(path)
    replayed(place, finished, ("ddtree:budget=3..5", "caddtree:budget=6"), resume=True)
    assert counted.policies == 2 * NUM_SEQUENCES, "one policy is new, at two machines"
    after = read_results(path)
    kept = before.filter(~pl.col("name").str.starts_with("hindsight"))
    assert after.join(kept, on=kept.columns, how="semi", nulls_equal=True).height == kept.height


def test_rounds_are_made_for_rows_that_were_there_without(
    place: Path, whole: Both, tmp_path: Path, counted: Counted
) -> None:
    run(place, tmp_path, rounds=None)
    assert (tmp_path / "results.parquet").read_bytes() == whole[0]
    counted.texts.clear()
    assert replayed(place, tmp_path, resume=True) == whole
    assert set(counted.texts) == set(range(NUM_SEQUENCES))


def test_the_order_and_the_sums_of_rounds_are_those_of_the_rows(finished: Path) -> None:
    rounds, rows = pl.read_parquet(finished / "rounds.parquet"), read_results(finished / "results.parquet")
    played = rows.filter(~pl.col("name").str.starts_with("hindsight"), pl.col("rounds") > 0)
    of_rows = played.unique(KEYS, keep="first", maintain_order=True)
    # A policy that does not read prices was replayed at both, and has its rounds once.
    assert played.height > of_rows.height
    assert rounds.select(*KEYS, "policy").unique(maintain_order=True).equals(of_rows.select(*KEYS, "policy"))
    sums = rounds.group_by(KEYS, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("rounds"),
        *(pl.col(f"num_{name}").cast(pl.Int64).sum().alias(name) for name in ("drafted", "accepted", "committed")),
        pl.col("clipped").cast(pl.Int64).sum(),
    )
    assert sums.equals(of_rows.select(sums.columns))


@pytest.mark.parametrize(("threads", "rows_at_once"), [(1, 1000), (2, 3), (3, 1)])
def test_files_do_not_depend_on_threads_and_what_is_replayed_together(
    place: Path, whole: Both, tmp_path: Path, threads: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_run, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(replay_run, "ROOTS_AT_ONCE", 30)
    monkeypatch.setattr(replay_run, "KEEP_EVERY_ROWS", 7)
    monkeypatch.setattr(rounds_file, "_ROWS_AT_ONCE", 11 * rows_at_once)
    assert replayed(place, tmp_path, threads=threads) == whole


def test_rows_of_other_policies_and_measured_rows_stay(place: Path, finished: Path) -> None:
    out = finished / "results.parquet"
    rows = read_results(out)
    others = rows.with_columns(pl.concat_str(pl.lit("x"), "policy_id").alias("policy_id"))
    measured = as_measured(rows.head(4))
    write_results(out, pl.concat([others, measured, measured]))
    replayed(place, finished, resume=True)
    found = read_results(out)
    assert found.height == 2 * rows.height + 8
    assert found.tail(rows.height).equals(rows)
    assert found.head(8).equals(pl.concat([measured, measured]))


@pytest.mark.parametrize("column", ["simlab_version", "text_id", "draft_id", "cost_id"])
def test_rows_of_anything_else_do_not_stand_for_new_ones(
    place: Path, finished: Path, column: str, counted: Counted
) -> None:
    """Rows of another version are replaced; those of another trace or other prices say something else."""
    out = finished / "results.parquet"
    rows = read_results(out)
    old = rows.filter(cost_id=rows["cost_id"][0])
    write_results(out, old.with_columns(pl.lit("other").alias(column), pl.col(STAGE_COLUMNS).fill_null(7.0)))
    replayed(place, finished, resume=True)
    assert set(counted.texts) == set(range(NUM_SEQUENCES))
    found = read_results(out)
    assert found.tail(rows.height).equals(rows)
    assert found.height == rows.height + (0 if column == "simlab_version" else old.height)


def test_a_policy_stands_under_the_name_that_was_typed_last(place: Path, tmp_path: Path, counted: Counted) -> None:
    replayed(place, tmp_path, ("chain:length=null",), limit=2)
    replayed(place, tmp_path, ("chain",), resume=True)
    played = {"autoregressive", "chain"}
    assert set(pl.read_parquet(tmp_path / "rounds.parquet")["policy"]) == played
    labels = set(read_results(tmp_path / "results.parquet")["policy"])
    assert labels == played | {"hindsight:budget=7", "hindsight:best<=7"}
    assert set(counted.texts) == set(range(NUM_SEQUENCES))


def signed(folder: Path, rows: pl.DataFrame) -> None:
    """Write rounds as if they had been replayed so."""
    write_rounds(folder / "rounds.parquet", lambda: iter([rows]))


def with_rounds(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    return lambda folder: signed(folder, change(pl.read_parquet(folder / "rounds.parquet")))


def with_rows(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "results.parquet"
        write_results(path, change(read_results(path)))

    return damage


def with_rows_of_another_simlab(folder: Path) -> None:
    doubled = {"drafted": 2 * pl.col("drafted"), "verified": 2 * pl.col("drafted") + pl.col("rounds")}
    with_rows(lambda rows: rows.with_columns(pl.lit("0.0.1").alias("simlab_version"), **doubled))(folder)
    with_rounds(lambda rows: rows.with_columns(pl.col("num_drafted") * 2))(folder)


def with_pieces_that_were_not_removed(folder: Path) -> None:
    for name in NAMES:
        path = folder / f"{name}.parquet.parts" / "part-000000.parquet"
        write_table(path, pl.read_parquet(folder / f"{name}.parquet"), {})
        (path.parent / ".part-000001.parquet.part").write_bytes(b"half")


NOBODY = pl.lit("nobody").alias("policy_id")

DAMAGES: dict[str, Callable[[Path], None]] = {
    "some rounds lack": with_rounds(
        lambda rows: rows.filter((pl.col("policy") != "chain:length=1") | (pl.col("sequence") < 4))
    ),
    "half the rounds": with_rounds(lambda rows: rows.gather_every(2)),
    "a text lacks": with_rows(lambda rows: rows.filter(pl.col("sequence") != 2)),
    "one price": with_rows(lambda rows: rows.filter(cost_id=rows["cost_id"][0])),
    "another simlab": with_rows_of_another_simlab,
    "other numbers": with_rounds(lambda rows: rows.with_columns(pl.col("num_drafted") + 1)),
    "rounds of nobody": with_rounds(lambda rows: pl.concat([rows.with_columns(NOBODY), rows, rows])),
    "no rounds": lambda folder: (folder / "rounds.parquet").unlink(),
    "no rows": lambda folder: (folder / "results.parquet").unlink(),
    "pieces": with_pieces_that_were_not_removed,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_has_no_partner_is_made_anew(place: Path, whole: Both, finished: Path, name: str) -> None:
    DAMAGES[name](finished)
    assert replayed(place, finished, resume=True) == whole


def test_the_rounds_of_other_policies_stay(place: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_file, "_ROWS_AT_ONCE", 40)
    before = pl.read_parquet(finished / "rounds.parquet")
    replayed(place, finished, MORE, resume=True)
    found = pl.read_parquet(finished / "rounds.parquet")
    again = before.filter(pl.col("policy").is_in(["autoregressive", "chain"]))
    others = before.join(again, on="policy_id", how="anti")
    assert found.head(others.height).equals(others)
    new = found.tail(-others.height)
    assert new["policy"].unique(maintain_order=True).to_list() == ["autoregressive", "chain", *MORE]
    assert new.join(again, on=again.columns, how="semi", nulls_equal=True).height == again.height
    # All that are there have their result row.
    rows = read_results(finished / "results.parquet")
    assert found.join(rows, on=KEYS, how="anti").height == 0


def damaged(content: bytes) -> bytes:
    """The same number of bytes, half of them zero."""
    half = len(content) // 2
    return content[:4] + bytes(half) + content[4 + half :]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results", lambda _both: b"mine"),
        ("rounds", lambda _both: b"mine"),
        ("rounds", lambda both: both[0]),
        ("rounds", lambda both: damaged(both[1])),
    ],
)
def test_a_file_of_something_else_is_left_alone(
    place: Path, whole: Both, finished: Path, name: str, content: Callable[[Both], bytes]
) -> None:
    path = finished / f"{name}.parquet"
    path.write_bytes(content(whole))
    said = refused(run, place, finished, resume=True)
    assert str(path) in said
    assert name == "results" or "rounds.parquet is not a table of rounds of this simlab (" in said
    assert path.read_bytes() == content(whole)


def test_a_changed_round_is_refused(place: Path, whole: Both, finished: Path) -> None:
    path = finished / "rounds.parquet"
    changed = pl.read_parquet(path).with_columns(miss_depth=pl.col("miss_depth") + 1)
    changed.write_parquet(path, metadata={ENTRY: pl.read_parquet_metadata(path)[ENTRY]})
    assert "the digest of its rows is missing or another" in refused(run, place, finished, resume=True)
    assert (finished / "results.parquet").read_bytes() == whole[0]
    assert pl.read_parquet(path).equals(changed)


def test_pieces_are_not_written_through_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "part-000000.parquet").write_text("precious")
    (tmp_path / "rounds.parquet.parts").symlink_to(tmp_path / "victim")
    assert "rounds.parquet.parts is a link" in refused(run, place, tmp_path)
    assert (tmp_path / "victim" / "part-000000.parquet").read_text() == "precious"


@pytest.mark.parametrize("name", NAMES)
def test_the_place_of_a_device_is_refused_before_anything_is_written(place: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.parquet").symlink_to("/dev/null")
    assert "which is a device or a pipe" in refused(run, place, tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.parquet"]


def test_a_piece_that_was_changed_is_not_gone_on_with(place: Path, finished: Path) -> None:
    with_pieces_that_were_not_removed(finished)
    piece = finished / "rounds.parquet.parts" / "part-000000.parquet"
    pl.read_parquet(piece).write_parquet(piece)
    assert "part-000000.parquet has no digest of its rows" in refused(run, place, finished, resume=True)
