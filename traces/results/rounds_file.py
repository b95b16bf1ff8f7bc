"""A file of single rounds that grows beside its result file: what a killed replay kept of both is gone on with."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from simlab.arrays import Ints, Longs
from simlab.errors import TraceError, UsageError
from simlab.ids import content_digest
from simlab.traces.format.documents import DIGEST
from simlab.traces.format.files import FAILURES, write_beside
from simlab.traces.format.schema import Schema
from simlab.traces.format.tables import ENTRY, read_table, rows_digest, table_facts
from simlab.traces.parquet.sizes import parquet_sizes
from simlab.traces.results.files import NotedPart, PiecesFolder, check_once, check_together, noted_part
from simlab.traces.results.rows import Results

# Tables of single rounds: one row for each policy, sequence and round.


RoundRows: TypeAlias = pl.DataFrame
"""Rows of rounds, for those who hand them on without looking inside."""

ENDINGS = ("not kept", "not in tree", "block end", "text end")
"""Why a round accepted no more: the true token was not among the candidates that the policy reads; it was, and no
node of the tree; nothing is drafted so deep; nothing of the text was left."""

_TEXTS = ("policy", "policy_id", "text_id", "draft_id", "channel_ids")
_NUMBERS = ("position", "context", "num_drafted", "num_accepted", "num_committed")


def rounds_schema() -> Schema:
    """The columns of a table of rounds, in their order."""
    schema: Schema = {name: pl.String() for name in _TEXTS}
    schema |= {"sequence": pl.Int32()} | {name: pl.Int32() for name in _NUMBERS}
    return schema | {"clipped": pl.Boolean(), "miss_depth": pl.Int32(), "ended": pl.String()}


def round_rows(
    identities: Sequence[Mapping[str, str]],
    num_rounds: Longs,
    numbers: Mapping[str, Ints | Longs],
    endings: Longs,
    shared: Mapping[str, object],
) -> RoundRows:
    """The rounds of several policies on one text.

    Args:
        identities: label, id and channel_ids of each policy.
        num_rounds: int64 ``[P]``, rounds of each.
        numbers: columns ``[sum R]``, policy after policy.
        endings: int64 ``[sum R]``, places in `ENDINGS`.
        shared: columns with one value for all.

    Raises:
        ValueError: the columns do not fit each other.
    """
    owners = np.repeat(np.arange(len(identities)), num_rounds)
    columns: dict[str, object] = {
        name: pl.Series([identity[name] for identity in identities], dtype=pl.String).gather(owners)
        for name in ("policy", "policy_id", "channel_ids")
    }
    columns |= {name: pl.Series(values).cast(rounds_schema()[name]) for name, values in numbers.items()}
    columns |= {"ended": pl.Series(list(ENDINGS)).gather(endings)}
    given = pl.DataFrame(columns)
    others = [pl.lit(value, rounds_schema()[name]).alias(name) for name, value in shared.items()]
    return given.with_columns(others).select(list(rounds_schema()))


def joined_rounds(parts: Sequence[RoundRows]) -> RoundRows:
    """The rows of several tables, one after the other."""
    return pl.concat(parts)


FORMAT = "simlab-rounds"
FORMAT_VERSION = 1
"""The format of tables of rounds that this simlab writes, and goes on with."""

_KEYS = ("sequence", "policy_id", "text_id", "draft_id", "channel_ids")
"""The rounds that agree in these are those of one result row, or of several at other prices."""

_SUMS = {"drafted": "num_drafted", "accepted": "num_accepted", "committed": "num_committed", "clipped": "clipped"}
"""Columns of result rows, and what they are the sums of."""

_ROWS_AT_ONCE = 1 << 18
_ROWS_OF_A_DIGEST = 1 << 18
"""A file's digest is of the digests of so many rows each: another number would be another format."""

_ROWS_PER_GROUP = 1 << 16


class RoundsFile:
    """A table of rounds that is written piece by piece, and is there only when it is whole.

    Args:
        path: the file.
        resume: whether what is there is gone on with; if not, it is replaced at the end.
        part: of what the rounds will be a part; None: of nothing.
    """

    def __init__(self, path: Path, resume: bool, part: NotedPart | None = None) -> None:
        self._path, self._parts, self._part = path, PiecesFolder(path, rounds_schema()), part
        # Files, and of each the keys of the rows that are wanted, with how many there are of each, ``rounds``.
        self._sources: list[tuple[Path, pl.DataFrame]] = []
        if not resume:
            self._parts.remove()

    def go_on(self, partners: Results) -> pl.DataFrame:
        """Keep the rounds that are there of whole result rows; all others are left out of the file.

        Args:
            partners: the result rows that stay, or stand for new ones.

        Returns:
            ``sequence``, ``policy_id``, ``text_id``, ``draft_id`` and ``channel_ids`` of what is kept.
        """
        wanted = partners.select(*_KEYS, "rounds", *_SUMS).unique()
        covered = wanted.clear()
        for path in [*([self._path] if self._path.is_file() else []), *self._parts.files()]:
            is_piece = path != self._path
            sums = _sums_of(read_table(path, rounds_schema())[0].lazy()) if is_piece else _finished_sums(path)
            new = sums.join(wanted, on=wanted.columns, how="semi").join(covered, on=_KEYS, how="anti")
            self._sources += [(path, new.select(*_KEYS, "rounds"))] if new.height else []
            covered = pl.concat([covered, new])
        return covered.select(_KEYS)

    def add(self, rows: RoundRows) -> None:
        """Keep some more rows."""
        path = self._parts.add(rows)
        keys = rows.group_by(_KEYS).agg(pl.len().cast(pl.Int64).alias("rounds"))
        self._sources.append((path, keys))

    def take(self, path: Path) -> pl.DataFrame:
        """Take all rounds of a finished file in.

        Returns:
            for each policy on each text, in the order of the file, what `finish` reads of a result row.
        """
        self._sources.append((path, _finished_sums(path).select(*_KEYS, "rounds")))
        rows = _scanned(path).select(*_KEYS, "policy").unique(_KEYS, keep="first", maintain_order=True)
        return rows.collect()

    def finish(self, rows: Results) -> None:
        """Write the file, without having all of it in memory: what others left first, then the rounds of these rows.

        Args:
            rows: the result rows of this replay; rounds are in their order, and under their labels.
        """
        order = rows.unique(_KEYS, keep="first", maintain_order=True).select(*_KEYS, "policy").with_row_index("place")

        def parts() -> Iterator[RoundRows]:
            for path, keys in self._sources:
                yield from _of_others(path, keys.join(order, on=_KEYS, how="anti"))
            for batch in self._batches(order):
                yield self._in_order(batch)

        write_rounds(self._path, parts, self._part)
        self._parts.remove()

    def _batches(self, order: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Result rows of so many whole texts that their rounds fit into memory."""
        numbers = [keys.select("sequence", "rounds") for _, keys in self._sources]
        if not numbers or not order.height:
            return
        of_texts = pl.concat(numbers).group_by("sequence").agg(pl.col("rounds").sum())
        batch = (pl.col("rounds").fill_null(0).cum_sum() // _ROWS_AT_ONCE).alias("batch")
        texts = order.select("sequence").unique(maintain_order=True)
        texts = texts.join(of_texts, on="sequence", how="left", maintain_order="left").select("sequence", batch)
        batched = order.join(texts, on="sequence", maintain_order="left")
        yield from (part.drop("batch") for part in batched.partition_by("batch", maintain_order=True))

    def _in_order(self, order: pl.DataFrame) -> RoundRows:
        """The rounds of some result rows, from wherever they are, as they are to stand in the file."""
        texts = order.select("sequence").unique()
        near = [
            _scanned(path).join(keys.lazy(), on=_KEYS, how="semi", maintain_order="left")
            for path, keys in self._sources
            if keys.join(texts, on="sequence", how="semi").height
        ]
        first, last = pl.lit(texts["sequence"].min()), pl.lit(texts["sequence"].max())
        frames = [rows.filter(pl.col("sequence").is_between(first, last)).collect() for rows in near]
        joined = pl.concat([pl.DataFrame(schema=rounds_schema()), *frames]).drop("policy")
        return joined.join(order, on=_KEYS).sort("place", "position").select(list(rounds_schema()))


def merge_rounds(paths: Sequence[str | Path], out: Path) -> int:
    """Put the rounds of all parts of a replay into one file, as one process would have written it.

    Returns:
        how many rounds it holds.

    Raises:
        UsageError: files are not all the parts of one replay, or a part is there twice.
        TraceError: a file cannot be read or written, or is not a table of rounds.
    """
    # Reading all first proves that each is a table of rounds, and is what its metadata say.
    merged = RoundsFile(out, resume=False)
    rows = [merged.take(Path(path)) for path in paths]
    noted = [noted_part(table_facts(Path(path))) for path in paths]
    if not any(noted):
        raise UsageError(f"{paths[0]} is no part; of rounds, merge takes the parts that `simlab replay --shard` wrote")
    check_together(paths, noted)
    check_once(paths, noted)
    together = pl.concat(rows)
    doubled = together.filter(pl.struct(_KEYS).is_duplicated())
    if not doubled.is_empty():
        raise UsageError(f"two parts hold rounds of {doubled['policy'][0]} on sequence {doubled['sequence'][0]}")
    merged.finish(together.sort("sequence", maintain_order=True))
    return int(_scanned(out).select(pl.len()).collect().item())


def write_rounds(path: Path, parts: Callable[[], Iterator[RoundRows]], part: NotedPart | None = None) -> None:
    """Write a table of rounds and the digest of its rows, which are made twice and never all in memory.

    Args:
        path: of the file.
        parts: makes the rows, some at a time, the same each time.
        part: of what the rounds are a part; None: of nothing.
    """
    facts = {"format": FORMAT, "format_version": FORMAT_VERSION, DIGEST: _digest(parts())}
    metadata = {ENTRY: json.dumps(facts | ({} if part is None else part.facts()))}
    table = register_io_source(lambda *_: parts(), schema=rounds_schema())
    write_beside(
        path,
        lambda file: table.sink_parquet(file, compression="zstd", row_group_size=_ROWS_PER_GROUP, metadata=metadata),
    )


def _digest(parts: Iterable[RoundRows]) -> str:
    """The sha256 of rows, whatever the sizes of the parts in which they come."""
    return content_digest([rows_digest(part) for part in _slices(parts)])


def _slices(parts: Iterable[RoundRows]) -> Iterator[RoundRows]:
    """All rows again, always so many at a time."""
    frames: list[RoundRows] = []
    for part in parts:
        rest = part
        while rest.height:
            room = _ROWS_OF_A_DIGEST - sum(frame.height for frame in frames)
            frames.append(rest.head(room))
            rest = rest.slice(room)
            if sum(frame.height for frame in frames) == _ROWS_OF_A_DIGEST:
                yield pl.concat(frames)
                frames = []
    if frames:
        yield pl.concat(frames)


def _of_others(path: Path, others: pl.DataFrame) -> Iterator[RoundRows]:
    """The rows of a file that have these keys, which no result row of this replay has, some at a time."""
    if not others.height:
        return
    height = _scanned(path).select(pl.len()).collect().item()
    for begin in range(0, height, _ROWS_AT_ONCE):
        batch = _scanned(path).slice(begin, _ROWS_AT_ONCE)
        yield batch.join(others.lazy(), on=_KEYS, how="semi", maintain_order="left").collect()


def _sums_of(rows: pl.LazyFrame) -> pl.DataFrame:
    """The number and the sums of the rounds of each policy and text, as a result row has them."""
    sums = [pl.col(name).cast(pl.Int64).sum().alias(total) for total, name in _SUMS.items()]
    return rows.group_by(_KEYS).agg(pl.len().cast(pl.Int64).alias("rounds"), *sums).collect()


def _finished_sums(path: Path) -> pl.DataFrame:
    """The number and the sums in a finished file, which must be a table of rounds."""
    try:
        parquet_sizes(path)  # a footer that lies would end the process
        rows = _scanned(path)
        if dict(rows.collect_schema()) != rounds_schema():
            raise _no_rounds(path, "it has other columns")
        height = rows.select(pl.len()).collect().item()
        batches = (rows.slice(begin, _ROWS_AT_ONCE).collect() for begin in range(0, height, _ROWS_AT_ONCE))
        if table_facts(path).values.get(DIGEST) != _digest(batches):
            raise _no_rounds(
                path, "the digest of its rows is missing or another: it was changed, or is of an older simlab"
            )
        return _sums_of(rows)
    except (*FAILURES, ValueError) as error:
        raise _no_rounds(path, str(error).partition("\n")[0]) from error


def _no_rounds(path: Path, reason: str) -> TraceError:
    return TraceError(
        f"{path} is not a table of rounds of this simlab ({reason}), so --resume cannot go on with it; move it away, "
        "or give another --rounds"
    )


def _scanned(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False)
