"""Texts as token ids, for training: a Parquet table, or the texts of a trace."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import polars as pl

from simlab.errors import PromptError, reason_of
from simlab.traces.format.files import MANIFEST, TOKEN_TEXTS, write_beside, write_frame
from simlab.traces.format.manifest import file_info
from simlab.traces.format.token_texts import token_texts_frame
from simlab.traces.parquet.sizes import check_size
from simlab.traces.reader import Trace, open_trace
from simlab.untrusted.json_text import file_text, parse_json

# The text of a finished trace's tokens, stored beside it: `add_token_texts`.


def add_token_texts(folder: Path, bytes_of: Callable[[Sequence[int]], Mapping[int, bytes]]) -> int:
    """Store the text of each prompt's, text's and candidate's token beside a trace; how many there are.

    No id of the trace changes. Reports then show words where the target's tokenizer is not at hand.

    Args:
        folder: of the trace.
        bytes_of: from token ids to their bytes, such as `simlab.real_runner.targets.token_text.bytes_of_tokens` of the
            trace's target.
    """
    trace = open_trace(folder)
    texts = bytes_of(tokens_of(trace))
    write_frame(folder / TOKEN_TEXTS, token_texts_frame(texts))
    contents = trace.manifest.held()
    files = {**contents.files, TOKEN_TEXTS: file_info(folder / TOKEN_TEXTS)}
    finished = replace(trace.manifest, contents=replace(contents, files=files))
    write_beside(folder / MANIFEST, lambda file: file.write(finished.to_bytes()))
    return len(texts)


def tokens_of(trace: Trace) -> list[int]:
    """Every token of the trace's prompts, texts and candidates, once, by id."""
    columns = [("sequences", "prompt_token_ids"), ("sequences", "text_token_ids")]
    columns += [(name, "ids") for name in trace.manifest.draft_sets]
    tokens: set[int] = set()
    for table, column in columns:
        tokens.update(trace.scan(table).select(pl.col(column).explode().unique()).collect()[column].drop_nulls())
    return sorted(tokens)


_COLUMNS = ("prompt_ids", "text_ids")
_LARGEST_ID = (1 << 31) - 1
_COLUMNS_OF_A_TRACE = ("prompt_token_ids", "text_token_ids")

_AS_LISTS = 12
"""A token takes so many times as much memory as a whole number of Python, in a list."""


def read_text_table(path: Path) -> Iterator[tuple[list[int], list[int]]]:
    """Prompt ids and text ids, row by row, of a Parquet file with those two columns of lists.

    A trace's ``sequences.parquet`` has them too, under longer names.

    Raises:
        PromptError: the file is not Parquet, lacks a column, or has no rows.
    """
    try:
        check_size(path, at_once=_AS_LISTS)
        table = pl.read_parquet(path, glob=False)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PromptError(
            f"{path} cannot be read as Parquet ({reason}); expected columns prompt_ids, text_ids"
        ) from error
    columns = _COLUMNS if set(_COLUMNS) <= set(table.columns) else _COLUMNS_OF_A_TRACE
    missing = [name for name in columns if name not in table.columns]
    if missing or table.height == 0:
        problem = f"columns {', '.join(table.columns)}" if missing else "no rows"
        raise PromptError(f"{path} has {problem}; expected lists of token ids in columns prompt_ids and text_ids")
    for name in columns:
        kind = table.schema[name]
        inner = kind.inner if isinstance(kind, pl.List) else None
        # An empty table of lists may hold lists of nothing: those are lists of no ids.
        if not isinstance(inner, pl.DataType) or not (inner.is_integer() or inner == pl.Null):
            raise PromptError(f"{path} has {kind} in column {name}; expected lists of whole numbers, the token ids")
        if table[name].null_count() or table[name].list.eval(pl.element().is_null().any()).explode().any():
            raise PromptError(f"{path} has empty cells in column {name}; expected a list of token ids in every row")
        if not table[name].explode().drop_nulls().is_between(0, _LARGEST_ID).all():
            raise PromptError(f"{path} has ids outside 0 ... {_LARGEST_ID} in column {name}; expected token ids")
    ids = (table[name].cast(pl.List(pl.Int64)).to_list() for name in columns)
    yield from zip(*ids, strict=True)


def read_text_lines(path: Path) -> Iterator[tuple[list[int], list[int]]]:
    """Texts from JSON lines: an object a line with ``text_ids`` and, if there were any, ``prompt_ids``.

    Raises:
        PromptError: the file cannot be read, or a line is no such object.
    """
    try:
        whole = file_text(path).rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path} cannot be read ({reason_of(error)}); expected JSON lines with text_ids") from error
    # Not splitlines: a text may hold U+2028, which ends no line of JSON.
    for number, line in enumerate(whole.split("\n") if whole else [], 1):
        try:
            value = parse_json(line)
        except ValueError:
            value = None
        entry = value if isinstance(value, dict) else {}
        before, text = _ids(entry.get("prompt_ids", [])), _ids(entry.get("text_ids"))
        if before is None or text is None:
            raise PromptError(f"{path}, line {number}: expected an object with text_ids, a list of token ids")
        yield before, text


def _ids(value: object) -> list[int] | None:
    """The value, if it is a list of token ids."""
    is_list = isinstance(value, list) and all(type(token) is int and 0 <= token <= _LARGEST_ID for token in value)
    return cast(list[int], value) if is_list else None
