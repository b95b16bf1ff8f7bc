"""Texts as token ids, for training: a Parquet table, or the texts of a trace."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from simlab.errors import PromptError

_COLUMNS = ("prompt_ids", "text_ids")
_COLUMNS_OF_A_TRACE = ("prompt_token_ids", "text_token_ids")


def read_text_table(path: Path) -> Iterator[tuple[list[int], list[int]]]:
    """Prompt ids and text ids, row by row, of a Parquet file with those two columns of lists.

    A trace's ``sequences.parquet`` has them too, under longer names.

    Raises:
        PromptError: the file is not Parquet, lacks a column, or has no rows.
    """
    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PromptError(
            f"{path} cannot be read as Parquet ({reason}); expected columns prompt_ids, text_ids"
        ) from error
    columns = _COLUMNS if set(_COLUMNS) <= set(table.columns) else _COLUMNS_OF_A_TRACE
    missing = [name for name in columns if name not in table.columns]
    if missing or table.height == 0:
        found = f"columns {', '.join(table.columns)}" if missing else "no rows"
        raise PromptError(f"{path} has {found}; expected lists of token ids in columns prompt_ids and text_ids")
    for name in columns:
        kind = table.schema[name]
        inner = kind.inner if isinstance(kind, pl.List) else None
        # An empty table of lists may hold lists of nothing: those are lists of no ids.
        if not isinstance(inner, pl.DataType) or not (inner.is_integer() or inner == pl.Null):
            raise PromptError(f"{path} has {kind} in column {name}; expected lists of whole numbers, the token ids")
        if table[name].null_count() or table[name].list.eval(pl.element().is_null().any()).explode().any():
            raise PromptError(f"{path} has empty cells in column {name}; expected a list of token ids in every row")
    ids = (table[name].cast(pl.List(pl.Int64)).to_list() for name in columns)
    yield from zip(*ids, strict=True)
