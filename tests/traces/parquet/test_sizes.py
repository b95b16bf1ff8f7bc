"""Sizes of Parquet files from their headers: those of real files are right, and damaged ones are refused."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import polars as pl
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab.errors import TooLargeError, TraceError
from simlab.limits import MAX_GIB
from simlab.traces.format.files import read_frame
from simlab.traces.parquet.sizes import check_promised, check_size, parquet_sizes
from simlab.traces.reader import packaged_trace

ParquetCompression: TypeAlias = Literal["zstd", "snappy", "uncompressed", "gzip", "lz4"]

COLUMNS: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pl.Int32(), st.none() | st.integers(-5, 5)),
    "long": (pl.Int64(), st.integers(-5, 5)),
    "short": (pl.UInt16(), st.integers(0, 5)),
    "real": (pl.Float32(), st.none() | st.floats(width=32)),
    "yes": (pl.Boolean(), st.none() | st.booleans()),
    "text": (pl.String(), st.none() | st.text(max_size=9)),
    "bytes": (pl.Binary(), st.binary(max_size=9)),
    "list": (pl.List(pl.Int32()), st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4)),
    "texts": (pl.List(pl.String()), st.lists(st.text(max_size=3), max_size=3)),
    "array": (pl.Array(pl.Float32(), 3), st.lists(st.floats(width=32), min_size=3, max_size=3)),
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """A few rows of some columns."""
    names = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4, unique=True))
    num = draw(st.integers(0, 12))
    columns = {name: draw(st.lists(COLUMNS[name][1], min_size=num, max_size=num)) for name in names}
    return pl.DataFrame({name: pl.Series(name, values, dtype=COLUMNS[name][0]) for name, values in columns.items()})


def num_leaves(column: pl.Series) -> int:
    """Values in Parquet's sense: an empty list and one that is null are one each."""
    if isinstance(column.dtype, pl.List):
        return sum(max(1, len(one)) if one is not None else 1 for one in column.to_list())
    return len(column) * (3 if isinstance(column.dtype, pl.Array) else 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet") / "rows.parquet"


@settings(max_examples=examples(150))
@given(
    frame=frames(),
    compression=st.sampled_from(["zstd", "snappy", "uncompressed", "gzip", "lz4"]),
    group=st.integers(1, 12),
    page=st.sampled_from([None, 16, 64]),
    statistics=st.booleans(),
)
def test_what_polars_writes_is_sized(
    place: Path, frame: pl.DataFrame, compression: ParquetCompression, group: int, page: int | None, statistics: bool
) -> None:
    frame.write_parquet(
        place, compression=compression, row_group_size=group, data_page_size=page, statistics=statistics
    )
    sizes = parquet_sizes(place)
    assert sizes.num_rows == len(frame)
    if len(frame):
        assert {name: num_values for name, num_values, _ in sizes.columns} == {
            name: num_leaves(frame[name]) for name in frame.columns
        }
        for name, _, num_bytes in sizes.columns:
            dtype = frame.schema[name]
            width = 4 if dtype in (pl.Int32, pl.Float32, pl.UInt16) else 1
            assert num_bytes >= width * (len(frame) - frame[name].null_count())


@settings(max_examples=examples(300))
@given(
    places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3), cut=st.booleans()
)
def test_damage_is_refused_or_sized(place: Path, places: list[tuple[int, int]], cut: bool) -> None:
    buffer = io.BytesIO()
    pl.DataFrame({"list": [[1, 2], [3]] * 50, "text": ["a", "b"] * 50}).write_parquet(buffer, row_group_size=20)
    content = bytearray(buffer.getvalue())
    for at, value in places:
        content[at % len(content)] = value
    place.write_bytes(content[: places[0][0] % len(content)] if cut else content)
    with suppress(ValueError):
        parquet_sizes(place)


@settings(max_examples=examples(200))
@given(footer=st.binary(max_size=60), length=st.none() | st.integers(0, 2**32 - 1))
def test_any_footer_is_refused_or_sized(place: Path, footer: bytes, length: int | None) -> None:
    said = len(footer) if length is None else length
    place.write_bytes(b"PAR1" + footer + said.to_bytes(4, "little") + b"PAR1")
    with suppress(ValueError):
        assert parquet_sizes(place).num_rows == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "too short"),
        (b"PAR1 and nothing else of it", "does not end as Parquet does"),
        (b"PAR1" + (2**31).to_bytes(4, "little") + b"PAR1", "cannot have 2,147,483,648 bytes"),
        (b"PAR1" + b"\x19" * 40 + (40).to_bytes(4, "little") + b"PAR1", "headers"),
        (b"PAR1" + b"\x1c" * 40 + (40).to_bytes(4, "little") + b"PAR1", "nested too deeply"),
        (b"PAR1" + b"\x19\xfc\xff\xff\xff\xff\x0f\x00" + (8).to_bytes(4, "little") + b"PAR1", "longer than they are"),
        (b"PAR1" + b"\x15\x02\x05\x02\x02\x00" + (6).to_bytes(4, "little") + b"PAR1", "twice"),
    ],
)
def test_the_reason_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        parquet_sizes(tmp_path / "x.parquet")


def test_a_page_that_promises_more_than_its_footer_is_refused(tmp_path: Path) -> None:
    """The header of the only page says a billion values; the footer still says three."""
    path = tmp_path / "x.parquet"
    pl.DataFrame({"x": [1, 2, 3]}).write_parquet(path, statistics=False, compression="uncompressed")
    content = path.read_bytes()
    assert parquet_sizes(path).columns[0][1] == 3
    # DataPageHeader: its field 1, an i32 of 3 in zigzag.
    at = content.index(b"\x15\x06\x15")
    path.write_bytes(content[: at + 1] + b"\x86" + content[at + 2 :])
    with pytest.raises(ValueError, match="disagrees|headers|pages"):
        parquet_sizes(path)


def test_a_small_file_that_holds_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, lists = tmp_path / "rows.parquet", tmp_path / "lists.parquet"
    pl.DataFrame({"x": pl.Series([7], dtype=pl.Int32).new_from_index(0, 2_000_000)}).write_parquet(rows)
    pl.DataFrame({"x": pl.zeros(2_000_000, pl.Int32, eager=True)}).select(pl.all().implode()).write_parquet(lists)
    for path in (rows, lists):
        assert path.stat().st_size < 50_000
        assert check_size(path).columns[0][1] == 2_000_000
    monkeypatch.setenv(MAX_GIB, "0.01")
    for path in (rows, lists):
        dtype: pl.DataType = pl.Int32() if path == rows else pl.List(pl.Int32())
        with pytest.raises(TooLargeError, match=r"would take 0\.0?[1-9]+ GiB of memory.*SIMLAB_MAX_GIB"):
            read_frame(tmp_path, path.name, {"x": dtype})
    assert check_size(rows, ()).num_rows == 2_000_000  # no column of it is read


def test_what_was_promised_is_held(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    schema: dict[str, pl.DataType] = {"a": pl.Array(pl.Int32(), 2), "b": pl.List(pl.Int32()), "c": pl.Int32()}
    pl.DataFrame({"a": [[1, 2]] * 3, "b": [[1], [2, 3], [4]], "c": [1] * 3}, schema=schema).write_parquet(path)
    sizes = parquet_sizes(path)
    check_promised(sizes, 3, schema, 4)
    with pytest.raises(ValueError, match="expected 4 rows; found 3"):
        check_promised(sizes, 4, schema, 4)
    with pytest.raises(ValueError, match="expected at most 3 values of b; found 4"):
        check_promised(sizes, 3, schema, 3)
    with pytest.raises(ValueError, match="expected at most 3 values of a; found 6"):
        check_promised(sizes, 3, {"a": pl.Array(pl.Int32(), 1)}, 0)


def test_the_packaged_files_are_sized() -> None:
    for path in packaged_trace().glob("*.parquet"):
        frame = pl.read_parquet(path)
        sizes = parquet_sizes(path)
        assert sizes.num_rows == len(frame)
        total = sum(num_bytes for _, _, num_bytes in sizes.columns)
        assert 0.9 * frame.estimated_size() <= total <= 3 * frame.estimated_size()


def test_a_damaged_file_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing else of it")
    with pytest.raises(TraceError, match="is damaged or not of this format .it does not end as Parquet does"):
        read_frame(tmp_path, "x.parquet", {"x": pl.Int32()})
