"""Result files: what no replay and no run gives is refused, whole files come back, changed ones do not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from summary_rows import as_measured
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.errors import TraceError
from simlab.traces.format.tables import ENTRY, read_table, rows_digest, write_table
from simlab.traces.results.files import read_results, read_unfinished_results, write_results
from simlab.traces.results.rows import OPTIONAL, find_missing_rows, find_row_problem, results_frame, results_schema

TEXTS = 4


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Real rows, priced and unpriced."""
    trace = write_synthetic_trace(tmp_path_factory.mktemp("rows") / "trace", num_sequences=TEXTS, length=20)
    sample = simlab.replay(policies=["ddtree:budget=4"], limit=2).rows
    return pl.concat([sample, simlab.replay(trace, ["ddtree:budget=4"]).rows])


def planted(rows: pl.DataFrame, **values: object) -> pl.DataFrame:
    """The rows with other values in the first row of the chain."""
    schema = results_schema()
    first = int(np.flatnonzero(rows["policy"].to_numpy() == "chain")[0])
    at = pl.int_range(pl.len()) == first
    changed = {
        name: pl.when(at)
        .then(value if isinstance(value, pl.Expr) else pl.lit(value, schema[name]))
        .otherwise(pl.col(name))
        for name, value in values.items()
    }
    return rows.with_columns(**changed)


def test_whole_files_come_back(rows: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    for some in (rows, as_measured(rows), pl.concat([as_measured(rows), as_measured(rows)]), rows.clear()):
        write_results(path, some, {"a": 3})
        assert read_results(path).equals(some)
        assert read_unfinished_results(path)[1] == {"a": 3}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": -3}, "must not be negative; chain on sequence 0"),
        ({"accepted": pl.col("accepted") + 1}, "committed must be accepted + rounds - clipped"),
        ({"drafted": pl.col("drafted") + 1}, "verified must be drafted + rounds"),
        ({"verified": 1 << 60, "drafted": (1 << 60) - pl.col("rounds")}, "sums must be below 2^53"),
        ({"verify_s": float("nan")}, "seconds must be finite"),
        ({"draft_s": -0.5}, "seconds must be finite and not negative"),
        ({"verify_s": 1e308}, "seconds must be finite"),
        ({"select_s": None}, "of all stages or of none"),
        ({"kind": "measured"}, "measured rows have seconds, and no latency profile"),
        ({"kind": "guessed"}, "kind must be one of predicted, measured; got guessed"),
        ({"stop_reason": "bored"}, "stop_reason must be one of stop, length; got 'bored'"),
        ({"clipped": 2, "rounds": pl.col("rounds") + 2, "verified": pl.col("verified") + 2}, "a text ends once"),
        ({"dataset": "elsewhere"}, "dataset must be the same in all rows of a text"),
        ({"context_length": 7}, "context_length must be the same"),
        ({"sequence": 3}, "other policies have 2 of 2; sequence 0 is missing"),
        ({"sequence": 90_000}, "holds 41 sequences, from 0 to 40; chain on sequence 90000"),
        (
            {"committed": pl.col("committed") + 1, "accepted": pl.col("accepted") + 1, "drafted": 900, "verified": 900}
            | {"verified": 900 + pl.col("rounds")},
            "commits each token of a text once",
        ),
        ({"settings": "{"}, "not a result file"),
        ({"settings": "[1]"}, "settings must be a JSON object"),
    ],
)
def test_what_cannot_be_is_refused(rows: pl.DataFrame, tmp_path: Path, changes: dict[str, object], said: str) -> None:
    path, known = tmp_path / "r.parquet", {rows["text_id"][0]: 41}
    facts = {"format": "simlab-results", "format_version": 1, "sequences": known}
    write_table(path, planted(rows, **changes), facts)
    with pytest.raises(TraceError) as refused:
        read_results(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_draws_that_cannot_be_are_refused(rows: pl.DataFrame, tmp_path: Path) -> None:
    draws = pl.lit(pl.Series([[1.0, float("nan")]], dtype=pl.List(pl.Float32))).first()
    write_results(tmp_path / "r.parquet", planted(rows, draws_s=draws))
    with pytest.raises(TraceError, match="draws_s must be finite"):
        read_results(tmp_path / "r.parquet")
    fewer = pl.col("draws_s").list.head(5)
    write_results(tmp_path / "r.parquet", planted(rows, draws_s=fewer))
    with pytest.raises(TraceError, match="as many draws_s each"):
        read_results(tmp_path / "r.parquet")


def without_texts(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter((pl.col("policy") != "chain") | (pl.col("sequence") != 0))


def twice(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows, rows.filter(pl.col("policy") == "chain").head(1)])


def measured_once_more(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([as_measured(rows), as_measured(rows).filter(pl.col("policy") == "chain")])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without_texts, "chain has"),
        (measured_once_more, "autoregressive has"),
        (twice, "one predicted row of each text"),
    ],
)
def test_every_policy_has_the_same_texts(
    rows: pl.DataFrame, tmp_path: Path, damage: Callable[[pl.DataFrame], pl.DataFrame], said: str
) -> None:
    write_results(tmp_path / "r.parquet", damage(rows))
    with pytest.raises(TraceError, match=said):
        read_results(tmp_path / "r.parquet")
    assert find_missing_rows(rows) is None
    assert find_row_problem(rows, {}) is None


def test_a_file_without_texts_that_others_have_can_be_gone_on_with(rows: pl.DataFrame, tmp_path: Path) -> None:
    write_results(tmp_path / "r.parquet", without_texts(rows))
    found, _ = read_unfinished_results(tmp_path / "r.parquet")
    assert found.height == rows.height - 2


@settings(max_examples=examples(60))
@given(data=st.data())
def test_every_changed_cell_is_found(
    rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever is changed in a file whose digest is left alone, it is refused."""
    folder = tmp_path_factory.mktemp("cells")
    write_results(folder / "whole.parquet", rows)
    metadata = {ENTRY: pl.read_parquet_metadata(folder / "whole.parquet")[ENTRY]}
    column = data.draw(st.sampled_from([name for name in rows.columns if name != "draws_s"]))
    index = data.draw(st.integers(0, rows.height - 1))
    value = rows[column][index]
    other = f"{value}x" if isinstance(value, str) else 1 if value is None else value + 1
    if value is None and rows.schema[column] == pl.String:
        other = "x"
    changed = rows.with_columns(
        rows[column]
        .to_frame()
        .with_row_index("i")
        .select(
            pl.when(pl.col("i") == index)
            .then(pl.lit(other, rows.schema[column]))
            .otherwise(pl.col(column))
            .alias(column)
        )[column]
    )
    changed.write_parquet(folder / "changed.parquet", metadata=metadata)
    with pytest.raises(TraceError):
        read_results(folder / "changed.parquet")
    assert rows_digest(changed) != rows_digest(rows)


def test_a_digest_is_of_values_and_not_of_how_they_lie_in_the_file(rows: pl.DataFrame, tmp_path: Path) -> None:
    write_results(tmp_path / "r.parquet", rows)
    metadata = {ENTRY: pl.read_parquet_metadata(tmp_path / "r.parquet")[ENTRY]}
    rows.write_parquet(tmp_path / "other.parquet", metadata=metadata, compression="snappy", row_group_size=3)
    assert read_results(tmp_path / "other.parquet").equals(rows)
    assert rows_digest(pl.concat([rows.head(3), rows.slice(3)], rechunk=False)) == rows_digest(rows)
    assert rows_digest(rows.reverse()) != rows_digest(rows)


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(max_size=3),
            st.none() | st.integers(-9, 9),
            st.none() | st.lists(st.floats(width=32), max_size=3),
        ),
        max_size=6,
    )
)
def test_tables_come_back_and_different_ones_have_other_digests(
    tmp_path_factory: pytest.TempPathFactory, listed: list[tuple[object, ...]]
) -> None:
    schema = {"a": pl.String(), "b": pl.Int64(), "c": pl.List(pl.Float32())}
    table = pl.DataFrame(listed, schema=schema, orient="row")
    path = tmp_path_factory.mktemp("tables") / "t.parquet"
    write_table(path, table, {"x": 1})
    found, facts = read_table(path, schema)
    assert found.equals(table)
    assert facts.integer("x") == 1
    for other in (
        table.head(-1),
        table.with_columns(pl.col("b").fill_null(0)),
        table.with_columns(pl.col("a").fill_null("")),
    ):
        assert (rows_digest(other) == rows_digest(table)) == other.equals(table)


def test_a_file_of_an_older_simlab_is_read(rows: pl.DataFrame, tmp_path: Path) -> None:
    """Without the columns that were added since; its digest is of those that it has."""
    path = tmp_path / "r.parquet"
    write_table(
        path, rows.drop("channel_s", "channel_ids"), {"format": "simlab-results", "format_version": 1, "sequences": {}}
    )
    found = read_results(path)
    assert found.equals(rows)
    assert found["channel_s"].null_count() == found["draft_s"].null_count() > 0
    changed = rows.drop("channel_s", "channel_ids").with_columns(pl.col("draft_s") * 2)
    changed.write_parquet(path, metadata={ENTRY: pl.read_parquet_metadata(path)[ENTRY]})
    with pytest.raises(TraceError, match="its digest is not that of its rows"):
        read_results(path)
    write_results(path, planted(rows, draft_s=1.0, channel_s=None))
    with pytest.raises(TraceError, match="of all stages or of none"):
        read_results(path)


# Result files


def row(**changes: object) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, dtype in results_schema().items():
        values[name] = "x" if dtype == pl.String else 1
    values |= dict.fromkeys(OPTIONAL) | {
        "kind": "predicted",
        "settings": "{}",
        "channel_ids": "{}",
        "stop_reason": "length",
    }
    values |= {"verified": 2, "committed": 1}
    return values | changes


def test_rows_come_back_in_canonical_order(tmp_path: Path) -> None:
    rows = [dict(reversed(row(sequence=index).items())) for index in range(3)]
    write_results(tmp_path / "new" / "results.parquet", results_frame(rows))
    found = read_results(tmp_path / "new" / "results.parquet")
    assert found.schema == pl.Schema(results_schema())
    assert found["sequence"].to_list() == [0, 1, 2]
    assert found["verify_s"].null_count() == 3
    assert len(results_frame([])) == 0


def test_optional_columns_may_be_left_out() -> None:
    short = {name: value for name, value in row().items() if name not in (*OPTIONAL, "channel_ids")}
    assert results_frame([short]).equals(results_frame([row()]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"speed": 3.0},
        {"kind": "guessed"},
        {"rounds": None},
        {"rounds": "many"},
        {"policy": None},
        {"channel_ids": "[]"},
        {"channel_ids": '{"a": 1}'},
    ],
)
def test_a_row_that_does_not_fit_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"columns|kind|null|type|channel_ids"):
        results_frame([row(**wrong)])


def test_files_that_are_no_results(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is none"):
        read_results(tmp_path / "none.parquet")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(TraceError, match="that is a trace"):
        read_results(tmp_path)
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(TraceError, match="cannot be read as a result file: it is too short to be Parquet;"):
        read_results(tmp_path / "text.parquet")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(TraceError, match="result file: expected the column policy as String; found none;"):
        read_results(tmp_path / "other.parquet")
