"""Sums of many policies on each prompt, as a search over policies adds them up: files that parts of it leave."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import polars as pl

from simlab.errors import TraceError, UsageError
from simlab.traces.format.documents import JsonFields
from simlab.traces.format.schema import Schema
from simlab.traces.format.tables import read_table, write_table
from simlab.traces.results.files import NotedPart, check_once, check_together, noted_part

FORMAT = "simlab-sums"
FORMAT_VERSION = 1
"""The format of files of sums that this simlab writes, and the only one that it reads."""

SUMS = ("committed", "rounds", "drafted", "seconds", "plain_seconds")
"""Tokens, rounds, drafted tokens and seconds of a policy on the texts of a prompt; seconds of plain decoding."""

SumRows: TypeAlias = pl.DataFrame
"""Rows of sums, for those who hand them on without looking inside."""

_POLICY = ("cost_id", "policy", "policy_id")
_PROMPT = ("side", "dataset", "prompt_id")


def sums_schema() -> Schema:
    """The columns of a file of sums; seconds are null where there is no latency profile."""
    schema: Schema = {name: pl.String() for name in (*_PROMPT, *_POLICY)}
    schema |= {name: pl.Int64() for name in SUMS[:3]}
    return schema | {name: pl.Float64() for name in SUMS[3:]}


def write_sums(path: Path, rows: SumRows, noted: NotedPart) -> None:
    """Write the sums of a part beside and rename them.

    Args:
        path: of the file.
        rows: side by side, prompt after prompt, policies in one order.
        noted: of which search they are, and which part.
    """
    facts = {"format": FORMAT, "format_version": FORMAT_VERSION, "part_of": dict(noted.of)}
    write_table(path, rows.select(list(sums_schema())), facts | noted.facts())


def read_sums(path: str | Path) -> tuple[SumRows, NotedPart | None, Mapping[str, object]]:
    """The rows of a file, which part they are of (None: all is there), and of which search.

    Raises:
        TraceError: the file is missing, damaged, was changed, or holds something else.
    """
    if not Path(path).is_file():
        raise TraceError(f"expected a file of sums at {path}; there is none. `simlab optimize --shard` writes one.")
    try:
        rows, facts = read_table(Path(path), sums_schema())
        _check_format(facts)
        _check_numbers(rows)
        of, noted = facts.inner("part_of").values, noted_part(facts)
    except (ValueError, TraceError) as error:
        reason = getattr(error, "reason", "") or str(error).removeprefix(f"{path} ").rstrip(".")
        raise TraceError(
            f"{path} is not a file of sums of this simlab ({reason}); make it again with `simlab optimize --shard "
            "I/N --sums FILE`"
        ) from error
    return rows, noted, of


def merge_sums(paths: Sequence[str | Path], out: Path) -> SumRows:
    """Put the sums of all parts of a search into one file, as if there had been one part only.

    Raises:
        UsageError: files are not all the parts of one search, or parts have sums of other policies or twice.
        TraceError: a file cannot be read or written.
    """
    read = [read_sums(path) for path in paths]
    if all(noted is None for _, noted, _ in read):
        raise UsageError(f"{paths[0]} is whole, so there is nothing to merge; go on with `simlab optimize --sums`")
    check_together(paths, [noted for _, noted, _ in read])
    check_once(paths, [noted for _, noted, _ in read])
    parts = sorted((noted.part, index) for index, (_, noted, _) in enumerate(read) if noted is not None)
    tables = [(paths[index], read[index][0]) for _, index in parts]
    _check_policies(tables)
    sides = pl.concat([rows for _, rows in tables]).partition_by("side", maintain_order=True)
    rows = pl.concat(sorted(sides, key=lambda frame: str(frame["side"][0]))) if sides else tables[0][1]
    first = next(noted for _, noted, _ in read if noted is not None)
    write_table(out, rows, {"format": FORMAT, "format_version": FORMAT_VERSION, "part_of": dict(first.of)})
    return rows


def _check_format(facts: JsonFields) -> None:
    if facts.text("format") != FORMAT or facts.integer("format_version") != FORMAT_VERSION:
        raise ValueError("it is of another format")


def _check_numbers(rows: SumRows) -> None:
    """Refuse sums that no replay has: each token is committed once, whatever the policy, and one at least a round."""
    seconds = [pl.col(name).is_finite() & (pl.col(name) >= 0) for name in SUMS[3:]]
    counts = (pl.col("rounds") >= 0) & (pl.col("committed") >= pl.col("rounds")) & (pl.col("drafted") >= 0)
    if not rows.select(
        pl.all_horizontal(counts.fill_null(value=False), *(column.fill_null(value=True) for column in seconds)).all()
    ).item():
        raise ValueError("a sum is missing, below 0 or not finite, or there are more rounds than tokens")
    if (rows.group_by(_PROMPT).agg(pl.n_unique("committed"))["committed"] > 1).any():
        raise ValueError("every policy commits each token of a prompt once, and some committed more than others")


def _check_policies(tables: Sequence[tuple[str | Path, SumRows]]) -> None:
    """Refuse parts that have not the same policies on each of their prompts."""
    first: tuple[str | Path, pl.DataFrame] | None = None
    for path, rows in tables:
        policies = rows.select(_POLICY).unique(maintain_order=True)
        prompts = rows.select(_PROMPT).unique().height
        if rows.height != policies.height * prompts or rows.select(*_PROMPT, *_POLICY).is_duplicated().any():
            raise UsageError(f"{path} has not one row for each policy on each prompt; make that part again")
        if not rows.height:
            continue
        first = first or (path, policies)
        if not policies.equals(first[1], null_equal=True):
            raise UsageError(f"{first[0]} and {path} are parts of different searches: {_differing(first[1], policies)}")


def _differing(first: pl.DataFrame, second: pl.DataFrame) -> str:
    """In which policy two lists of policies differ."""
    for frame, other, where in ((first, second, "first"), (second, first, "second")):
        alone = frame.join(other, on=_POLICY, how="anti", nulls_equal=True)
        if alone.height:
            cost_id, policy, policy_id = alone.row(0)
            return f"{policy} ({policy_id}, latency profile {cost_id}) is in the {where} alone"
    return "their policies stand in another order"
