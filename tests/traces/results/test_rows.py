"""Result files."""

from pathlib import Path

import polars as pl
import pytest

from simlab.errors import TraceError
from simlab.traces.results.files import read_results, write_results
from simlab.traces.results.rows import OPTIONAL, results_frame, results_schema


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
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(TraceError, match="is not a result file"):
        read_results(tmp_path / "text.parquet")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(TraceError, match="is not a result file"):
        read_results(tmp_path / "other.parquet")
