"""Damaged, truncated and foreign channel files: one sentence each, by a read where a replay would trust them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from forged_files import forge, mend
from signed_files import signed
from synthetic_traces import DRAFT, SyntheticChannels, write_synthetic_trace

from simlab.errors import TraceError
from simlab.traces.channels.shards import read_channel_rows
from simlab.traces.format.shards import Shard
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace

FILES = [
    "channel-transitions-0000.parquet",
    "channel-pool-0001.parquet",
    "channel-branches-0000.parquet",
    "channel-features-0000.parquet",
]
CHANNELS = ["transitions", "pool", "branches", "features"]
SMALL = SyntheticChannels(previous=3, top_k=3, beam=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "trace"
    return write_synthetic_trace(folder, 0, 8, 12, 3, 8, 97, channels=SMALL)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "trace"))


def told_by_inspect(folder: Path) -> str:
    with pytest.raises(TraceError) as error:
        check_trace(folder)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")
    return str(error.value)


def told(folder: Path) -> str:
    """What a person is told by a replay and by `inspect`, which is the same."""
    trace = open_trace(folder)
    assert len(list(trace.recorded(DRAFT))) == 8, "who reads no channel reads on"
    with pytest.raises(TraceError) as error:
        list(trace.recorded(DRAFT, channels=CHANNELS))
    assert told_by_inspect(folder) == str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_rows_of_another_order_or_text_are_found(folder: Path, tmp_path: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    forge(folder, name, lambda rows: rows[::-1].cast(rows.schema))
    assert f"{name} in {folder}: its rows are not those of the texts" in told(folder)
    (folder / name).write_bytes(whole)
    forge(folder, name, lambda rows: rows.head(-1))
    assert "rows; found" in told(folder)
    other = write_synthetic_trace(tmp_path / "other", 1, 8, 12, 3, 8, 97, channels=SMALL)
    shutil.copy(other / name, folder / name)
    mend(folder, name)
    assert name in told(folder)


def exchanged(rows: pl.DataFrame) -> pl.DataFrame:
    """Each row in another's place."""
    keys = ["sequence", "position"]
    return rows.select(keys).hstack(rows.drop(keys)[::-1]).cast(rows.schema)


def test_transitions_of_another_text_of_the_same_length_are_found(folder: Path) -> None:
    """Their tokens above are not the draft set's; a pool of another text has another id."""
    forge(folder, FILES[0], exchanged)
    assert "sequence 0, position 0: previous are not the first tokens of its draft set" in told(folder)
    trace = open_trace(folder)
    first = Shard(folder, trace.manifest, 0, trace.texts[: trace.manifest.held().shards[0]])
    assert len(read_channel_rows(first, "transitions")) > 0, "without the draft set's rows"


def test_pools_of_another_text_have_another_id(folder: Path) -> None:
    forge(folder, FILES[1], exchanged)
    assert len(list(open_trace(folder).recorded(DRAFT, channels=CHANNELS))) == 8
    said = told_by_inspect(folder)
    assert "the id of pool of its content is" in said or "are exact up to" in said


def first_list(column: str, change: Callable[[list[object]], list[object]]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """The list of the first row changed."""

    def changed(rows: pl.DataFrame) -> pl.DataFrame:
        lists = rows[column].to_list()
        lists[0] = change(lists[0])
        return rows.with_columns(pl.Series(column, lists, dtype=rows.schema[column]))

    return changed


def turned(values: list[object]) -> list[object]:
    """The first two elements exchanged."""
    return [values[1], values[0], *values[2:]]


@pytest.mark.parametrize(
    ("channel", "column", "change", "words"),
    [
        ("transitions", "log_probs", turned, "candidates must stand in the order of log-prob descending, then id"),
        ("transitions", "log_probs", lambda values: [-1e-7, *values[1:]], "on the grid of 2**-16"),
        ("transitions", "ids", lambda values: [97, *values[1:]], "an id lies outside the vocabulary"),
        ("transitions", "previous", turned, "previous are not the first tokens"),
        ("transitions", "previous", lambda values: values[1:], "the lists of previous are not as long as they must be"),
        ("transitions", "ids", lambda values: [*values, 3], "expected at most"),
        ("transitions", "ids", lambda values: [None, *values[1:]], "the column ids must not be null"),
        ("branches", "log_probs", turned, "candidates must stand in the order of log-prob descending, then id"),
        ("branches", "ids", lambda values: [97, *values[1:]], "an id lies outside the vocabulary"),
        ("branches", "ids", lambda values: [*values, 3], "expected at most"),
        ("branches", "lengths", lambda values: [1, *values[1:]], "lengths must be 0 to 2 in each row"),
        ("branches", "lengths", lambda values: values[1:], "the lists of lengths are not as long as they must be"),
        ("features", "values", lambda values: [float("nan"), *values[1:]], "features must be finite numbers"),
        ("features", "values", lambda values: [1e-7, *values[1:]], "features must lie on the grid of 2**-16"),
        ("features", "values", lambda values: [None, *values[1:]], "the column values must not be null"),
        ("pool", "tokens", lambda values: [values[1], *values[1:]], "the same id is listed twice"),
        ("pool", "tokens", lambda values: [-1, *values[1:]], "an id lies outside the vocabulary"),
        ("pool", "parents", lambda values: [999, *values[1:]], "parents must stand before"),
        (
            "pool",
            "parents",
            lambda values: [*values[:3], 4, 4, 4, *values[6:]],
            "parents must stand before their children",
        ),
        (
            "pool",
            "parents",
            lambda values: [*values[:6], 0, 0, 0, *values[9:]],
            "parents must stand before their children",
        ),
        ("pool", "expanded", lambda values: [False] * len(values), "a node has children and is not expanded"),
        ("pool", "expanded", lambda values: [True] * len(values), "deeper than the setting depth, or is expanded"),
        ("pool", "log_probs", lambda values: [0.5, *values[1:]], "from -255 to 0 on the grid"),
        ("pool", "log_probs", lambda values: values[:-1], "the lists of log_probs are not as long as they must be"),
        ("pool", "expanded", lambda values: [None, *values[1:]], "the column expanded must not be null"),
    ],
)
def test_rows_that_break_an_invariant(
    folder: Path, channel: str, column: str, change: Callable[[list[object]], list[object]], words: str
) -> None:
    forge(folder, f"channel-{channel}-0000.parquet", first_list(column, change))
    assert words in told(folder)


def test_children_are_as_many_as_is_said(folder: Path) -> None:
    def without_last(rows: pl.DataFrame) -> pl.DataFrame:
        for column in ("tokens", "parents", "log_probs", "expanded"):
            rows = first_list(column, lambda values: values[:-1])(rows)
        return rows.with_columns(pl.lit(None, pl.List(pl.Float32)).alias("target_log_probs"))

    forge(folder, "channel-pool-0000.parquet", without_last)
    assert "the root and each expanded node have as many children as the setting top_k says" in told(folder)


@pytest.mark.parametrize("name", [FILES[0], FILES[2]])
def test_what_only_inspect_finds(folder: Path, name: str) -> None:
    outside = pl.col("outside_log_mass").list.eval(pl.element() * 0 - 0.25)
    forge(folder, name, lambda rows: rows.with_columns(outside))
    assert "kept and outside mass of a row must add up to 1" in told_by_inspect(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channels": {}}, "channel_ids must be of the channels"),
        ({"channels": {"pool": {"kind": 3, "positions": "all"}}}, "'kind' must be a string"),
        ({"channels": 5}, "'channels' must be an object"),
    ],
)
def test_manifests_that_cannot_be(folder: Path, change: dict[str, object], words: str) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(signed(json.loads(path.read_text()) | change)))
    assert words in told_by_inspect(folder)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"branches": 2},
            "branches has 2 branches; behind a chain of 3 tokens, to the depth 3, there are 3",
        ),
        ({"top_k": 0}, "the setting top_k of branches must be an integer from 1"),
        ({"depth": 256}, "the setting depth of branches must be an integer from 1 to 255"),
    ],
)
def test_branches_that_cannot_be(folder: Path, settings: dict[str, int], words: str) -> None:
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    values["channels"]["branches"]["settings"] |= settings
    path.write_text(json.dumps(signed(values)))
    assert words in told_by_inspect(folder)
    values["channels"]["branches"] |= {"extends": None, "extends_id": None}
    values["channels"]["branches"]["settings"] |= {"branches": 3, "top_k": 3, "depth": 3}
    path.write_text(json.dumps(signed(values)))
    assert "branches extend a draft set, behind whose chain they stand" in told_by_inspect(folder)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 65}, "the setting size of features must be an integer from 1 to 64"),
        ({"routes": "chain"}, "the setting routes of features must be as many routes as there are; got 'chain'"),
        ({"routes": 2}, "the setting routes of features must be as many routes as there are; got 2"),
    ],
)
def test_features_that_cannot_be(folder: Path, settings: dict[str, object], words: str) -> None:
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    values["channels"]["features"]["settings"] |= settings
    path.write_text(json.dumps(signed(values)))
    assert words in told_by_inspect(folder)


def test_more_exact_nodes_than_there_are(folder: Path) -> None:
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    values["channels"]["pool"]["settings"]["exact_nodes"] += 1
    path.write_text(json.dumps(signed(values)))
    assert "the pools of pool are exact up to" in told_by_inspect(folder)
    values["channels"]["pool"]["settings"] |= {"exact_nodes": values["channels"]["pool"]["settings"]["exact_nodes"] - 1}
    values["channels"]["pool"]["producer"]["digest"] = "of another head"
    path.write_text(json.dumps(signed(values)))
    assert "the id of pool of its content is" in told_by_inspect(folder)
