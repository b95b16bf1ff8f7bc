"""Refusing what is too large before it is read, by `simlab.traces.parquet.sizes`."""

from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from simlab.limits.memory import check_memory
from simlab.traces.parquet.sizes import ParquetSizes, parquet_sizes

MOST_LISTED = 1 << 20
"""Tokens that a text or a prompt may have, more than any model reads."""

_AT_ONCE = 3
"""A column is in memory so many times while it is read: unpacked, as polars has it, as numpy has it."""


def check_size(path: Path, columns: Collection[str] | None = None, at_once: int = _AT_ONCE) -> ParquetSizes:
    """What a Parquet file on this machine holds, if that fits into memory.

    Args:
        path: of the file.
        columns: those that will be read; None: all.
        at_once: how many times as much as the values of a column its reader takes.
    """
    sizes = parquet_sizes(path)
    read = [one for one in sizes.columns if columns is None or one.name in columns]
    # Each row takes a little in each column, whatever the pages say of its values.
    num_bytes = sum(max(one.num_bytes, 8 * sizes.num_rows) for one in read)
    check_memory(at_once * num_bytes, f"reading {path} ({sizes.num_rows:,} rows)")
    return sizes


def check_promised(sizes: ParquetSizes, num_rows: int, schema: Mapping[str, pl.DataType], most_listed: int) -> None:
    """Refuse a file that does not hold what it must, where other files say how much that is.

    Args:
        sizes: what it holds.
        num_rows: how many rows it must have.
        schema: of the columns that will be read; others may hold anything.
        most_listed: values that all lists of a column together may have.
    """
    if sizes.num_rows != num_rows:
        raise ValueError(f"expected {num_rows:,} rows; found {sizes.num_rows:,}")
    for column in sizes.columns:
        dtype = schema.get(column.name)
        most = most_listed if isinstance(dtype, pl.List) else num_rows * _width(dtype)
        if dtype is not None and column.num_values > most:
            raise ValueError(f"expected at most {most:,} values of {column.name}; found {column.num_values:,}")


def _width(dtype: pl.DataType | None) -> int:
    return int(dtype.size) if isinstance(dtype, pl.Array) else 1
