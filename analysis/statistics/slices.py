"""Slices of result rows: by dataset, by turn, by the length of the prompt."""

from typing import TypeAlias

import polars as pl

SLICES = ("dataset", "context", "turn")
"""The columns by which results can be cut into slices."""

Slice: TypeAlias = str | int | float | bool | None
"""What a slice is called; None: everything."""


def split_by_slice(rows: pl.DataFrame, by: str | None) -> list[tuple[Slice, pl.DataFrame]]:
    """Rows by the value of a slice, in the order of their first row; by context from short to long.

    Every row is in one slice, so the sums of slices add up to those of the whole. Turns of a prompt may fall into
    different slices; within each they stay together. Contexts are tokens of the prompt, in steps that double.

    Args:
        rows: result rows.
        by: one of ``SLICES``, or None for one slice of everything.
    """
    if by is None:
        return [(None, rows)]
    if by not in SLICES:
        raise ValueError(f"by must be one of {', '.join(SLICES)}; got {by!r}")
    if by != "context":
        return [(part[by][0], part) for part in rows.partition_by(by, maintain_order=True)]
    bits = rows["context_length"].map_elements(int.bit_length, return_dtype=pl.Int64).alias("bits")
    parts = rows.with_columns(bits).sort("bits", maintain_order=True).partition_by("bits", maintain_order=True)
    return [(context_name(part["bits"][0]), part.drop("bits")) for part in parts]


def context_name(bits: int) -> str:
    """The context lengths of so many binary digits.

    >>> context_name(7)
    '64-127'
    """
    return f"{1 << bits >> 1}-{(1 << bits) - 1}"
