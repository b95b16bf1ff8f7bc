"""Counts of a 3-gram on disk: one Parquet file, with what they were counted from and for which tokenizer.

Rows are in the order of first, second and third, nulls first. A row of ``third`` alone counts a token, with
``second`` a pair, with ``first`` a triple; where ``third`` is null the count is what rare tokens, left out, had after
the two.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from simlab.arrays import Ints, read_only
from simlab.errors import TraceError
from simlab.traces.format.documents import Json, JsonFields, check_digest, read_once, value_of, with_digest
from simlab.traces.format.files import FAILURES, write_beside
from simlab.traces.format.manifest import same_tokenizer
from simlab.traces.format.tables import ENTRY, table_facts
from simlab.traces.parquet.sizes import check_size

FORMAT = "simlab-ngram"
FORMAT_VERSION = 1
"""The format of counts that this simlab writes, and the newest that it reads."""

SMOOTHING = "witten-bell"
COLUMNS = ("first", "second", "third", "count")

PACKAGED = Path(str(files("simlab.traces"))) / "data" / "ngram"
"""Where the counts lie that are shipped with simlab."""

_COMPRESSION_LEVEL = 19


@dataclass(frozen=True, slots=True, eq=False)
class NGramFile:
    """Counts, and what they are of.

    Attributes:
        tokenizer_digest: as in the manifest of a trace; ids of another tokenizer mean other tokens.
        vocab_size: ids are below it.
        min_count: pairs and triples that came less often are left out.
        num_texts: how many texts were counted.
        num_tokens: tokens in them.
        source: sha256 of the file of texts, or the ``text_id`` of a trace.
        firsts: int32 ``[R]``, the token two places before; -1 for null.
        seconds: int32 ``[R]``, the token before; -1 for null.
        thirds: int32 ``[R]``, the token that followed; -1 for null.
        counts: int32 ``[R]``.
    """

    tokenizer_digest: str
    vocab_size: int
    min_count: int
    num_texts: int
    num_tokens: int
    source: str
    firsts: Ints
    seconds: Ints
    thirds: Ints
    counts: Ints

    def __post_init__(self) -> None:
        columns = [np.asarray(column) for column in self._columns()]
        if {(column.dtype, column.ndim, len(column)) for column in columns} != {
            (np.dtype(np.int32), 1, len(self.counts))
        }:
            raise ValueError("the columns of counts must be int32, flat and equally long")
        firsts, seconds, thirds, counts = columns
        ids = np.stack(columns[:3])
        if ids.min(initial=0) < -1 or ids.max(initial=0) >= self.vocab_size or counts.min(initial=1) < 1:
            raise ValueError(f"ids must be below {self.vocab_size:,} and counts at least 1")
        if np.any((seconds < 0) & ((firsts >= 0) | (thirds < 0))):
            raise ValueError("a row must have a third token, or two before it")
        order = np.lexsort((thirds, seconds, firsts))
        same = np.all(ids[:, 1:] == ids[:, :-1], axis=0) if len(counts) else np.zeros(0, bool)
        if np.any(order[1:] < order[:-1]) or same.any():
            raise ValueError("rows must be in the order of first, second and third, each of them once")
        for name, column in zip(("firsts", "seconds", "thirds", "counts"), columns, strict=True):
            object.__setattr__(self, name, read_only(column))

    @property
    def ngram_id(self) -> str:
        """Content id of everything but where it came from."""
        digest = sha256(json.dumps([SMOOTHING, self.tokenizer_digest, self.vocab_size]).encode())
        for column in self._columns():
            digest.update(np.ascontiguousarray(column, "<i4").data)
        return digest.hexdigest()[:16]

    def _columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self.firsts, self.seconds, self.thirds, self.counts

    def facts(self) -> Json:
        """What the file says beside its columns."""
        names = ("tokenizer_digest", "vocab_size", "min_count", "num_texts", "num_tokens", "source", "ngram_id")
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "smoothing": SMOOTHING}
        return head | {name: getattr(self, name) for name in names}


def write_ngram_file(path: Path, file: NGramFile) -> None:
    """Write counts beside and rename them."""
    columns = (file.firsts, file.seconds, file.thirds, file.counts)
    table = pl.DataFrame({name: pl.Series(column) for name, column in zip(COLUMNS, columns, strict=True)})
    table = table.with_columns(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in COLUMNS[:3])

    def write(target: IO[bytes]) -> None:
        table.write_parquet(
            target,
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            statistics=False,
            metadata={ENTRY: json.dumps(with_digest(file.facts()), sort_keys=True)},
        )

    write_beside(path, write)


def read_ngram_file(path: str | Path) -> NGramFile:
    """Counts from a file.

    Args:
        path: a file, or the name of one that comes with simlab.

    Raises:
        TraceError: there is none, it is not of this format, newer than this simlab, or damaged.
    """
    shipped = {file.stem: file for file in packaged_ngram_files()}
    file = Path(path) if Path(path).is_file() else shipped.get(str(path), Path(path))
    again = "`simlab train ngram --out FILE` makes one"
    if not file.is_file():
        come = f", and {', '.join(shipped)} comes with simlab" if shipped else ""
        raise TraceError(f"expected the counts of a 3-gram at {path}; there is no such file. {again}{come}.")
    try:
        check_size(file)
        facts = table_facts(file)
        if facts.values.get("format") != FORMAT:
            raise TraceError(f"{path} does not hold the counts of a 3-gram; {again}.")
        return _checked(facts, pl.read_parquet(file, glob=False))
    except (*FAILURES, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TraceError(f"{path} is damaged or does not hold the counts of a 3-gram ({reason}); {again}.") from error


def _checked(fields: JsonFields, table: pl.DataFrame) -> NGramFile:
    where, version = fields.where, fields.integer("format_version")
    if version > FORMAT_VERSION or fields.text("smoothing") != SMOOTHING:
        raise TraceError(
            f"{where} has format version {version} and is to be smoothed by {fields.text('smoothing')}; this simlab "
            f"reads up to {FORMAT_VERSION} and knows {SMOOTHING}. Upgrade simlab, or count again."
        )
    if dict(table.schema) != dict.fromkeys(COLUMNS, pl.Int32()) or table["count"].null_count():
        raise ValueError(f"expected int32 columns {', '.join(COLUMNS)}, and no count missing; found {table.schema}")
    firsts, seconds, thirds, counts = (table[name].fill_null(-1).to_numpy() for name in COLUMNS)
    file = value_of(NGramFile, fields, firsts=firsts, seconds=seconds, thirds=thirds, counts=counts)
    if file.ngram_id != fields.text("ngram_id"):
        raise ValueError("its counts are not the ones it was written with")
    check_digest(fields)
    return file


def packaged_ngram_files() -> list[Path]:
    """The counts that are shipped with simlab, by name; there may be none."""
    return sorted(PACKAGED.glob("*.parquet"))


def find_packaged_ngram(tokenizer_digest: str) -> NGramFile | None:
    """The first shipped counts for a tokenizer."""
    files = map(_read_packaged, packaged_ngram_files())
    return next((file for file in files if same_tokenizer(file.tokenizer_digest, tokenizer_digest)), None)


_read_packaged = read_once(read_ngram_file)
