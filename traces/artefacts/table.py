"""Fitted tables on disk: what policies were calibrated with, and on which record."""

from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from simlab.arrays import Doubles, read_only
from simlab.errors import TraceError
from simlab.ids import content_id
from simlab.traces.format.documents import (
    DocumentKind,
    Json,
    check_digest,
    in_lines,
    read_document,
    read_once,
    value_of,
    with_digest,
)
from simlab.traces.format.files import write_beside
from simlab.traces.format.manifest_entries import ModelInfo, as_json

FORMAT = "simlab-table"
FORMAT_VERSION = 1
"""The format of fitted tables that this simlab writes, and the newest that it reads."""

KIND = DocumentKind(FORMAT, FORMAT_VERSION, "fitted table", "`simlab train calibration --out FILE` makes one")

CALIBRATION, RANKS = "calibration", "ranks"
KINDS = (CALIBRATION, RANKS)
"""A calibration has values ``[D, 2, classes, 2]``, frequencies of ranks ``[D, R]``."""

PACKAGED = Path(str(files("simlab.traces"))) / "data" / "tables"
"""Where the tables lie that are shipped with simlab."""


@dataclass(frozen=True, slots=True, eq=False)
class TableFile:
    """A table fitted on one draft set of one trace.

    Attributes:
        kind: one of `KINDS`.
        block_size: of the drafter.
        text_id: of the trace's texts.
        draft_id: of the draft set.
        num_positions: roots that it was fitted on.
        values: float64 ``[D, 2, classes, 2]``, slope and intercept by depth, place below the spine or elsewhere, and
            class of ranks; or float64 ``[D, R]``, frequencies by depth and rank.
    """

    kind: str
    target: ModelInfo
    drafter: ModelInfo
    block_size: int
    text_id: str
    draft_id: str
    num_positions: int
    values: Doubles

    def __post_init__(self) -> None:
        values = np.array(self.values, np.float64)
        if self.kind not in KINDS:
            raise ValueError(f"the kind of a table is one of {', '.join(KINDS)}; got {self.kind!r}")
        if self.block_size < 1 or self.num_positions < 0:
            raise ValueError(f"block_size must be at least 1 and num_positions at least 0: {self!r}")
        if values.size == 0 or not np.all(np.isfinite(values)):
            raise ValueError("values must be one or more finite numbers")
        check = _check_calibration if self.kind == CALIBRATION else _check_ranks
        check(values)
        object.__setattr__(self, "values", read_only(values))

    def fits(self, target: ModelInfo, drafter: ModelInfo, block_size: int) -> bool:
        """Whether it is of these models and this block."""
        return self.target.is_same(target) and self.drafter.is_same(drafter) and self.block_size == block_size

    @property
    def table_id(self) -> str:
        """Content id of everything."""
        return content_id(self.to_json())

    def to_json(self) -> Json:
        """The JSON value of the file."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "kind": self.kind,
            "target": as_json(self.target),
            "drafter": as_json(self.drafter),
            "block_size": self.block_size,
            "text_id": self.text_id,
            "draft_id": self.draft_id,
            "num_positions": self.num_positions,
            "values": self.values.tolist(),
        }


def write_table_file(path: Path, file: TableFile) -> None:
    """Write a table beside and rename it: one line per setting, one per depth."""
    text = in_lines(with_digest(file.to_json()), "values")
    write_beside(path, lambda target: target.write(text.encode()))


def read_table_file(path: str | Path, kind: str | None = None) -> TableFile:
    """A table that was fitted to a trace, such as calibration maps or the chances of ranks.

    Args:
        path: a file, or the name of one that comes with simlab.
        kind: of which it must be; None: any.

    Raises:
        TraceError: there is none, it is of another kind, newer than this simlab, or damaged.
    """
    again = f"`simlab train {kind or 'calibration'} --out FILE` makes one"
    fields = read_document(path, replace(KIND, again=again), packaged_table_files())
    try:
        file = value_of(TableFile, fields, values=_array(fields.values.get("values")))
    except ValueError as error:
        raise TraceError(f"{fields.where}: {error}. Copy the file again, or fit the table again.") from error
    check_digest(fields)
    if kind is not None and file.kind != kind:
        raise TraceError(f"{path} is a fitted table of {file.kind}, and one of {kind} is needed; {again}.")
    return file


def packaged_table_files() -> list[Path]:
    """The tables that are shipped with simlab, by name; there may be none."""
    return sorted(PACKAGED.glob("*.json"))


def find_packaged_table(kind: str, target: ModelInfo, drafter: ModelInfo, block_size: int) -> TableFile | None:
    """The first shipped table of a kind for these models and this block."""
    files = map(_read_packaged, packaged_table_files())
    return next((file for file in files if file.kind == kind and file.fits(target, drafter, block_size)), None)


_read_packaged = read_once(read_table_file)


def _array(value: object) -> Doubles:
    """Nested lists of numbers as an array; numpy alone would also take texts and truth values."""
    if not _is_numbers(value):
        raise ValueError("values must be nested lists of numbers")
    return np.array(value, np.float64)


def _is_numbers(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_numbers(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_calibration(values: Doubles) -> None:
    if values.ndim != 4 or values.shape[1] != 2 or values.shape[3] != 2:
        raise ValueError(f"values of a calibration have the shape [D, 2, classes, 2]; got {list(values.shape)}")
    if values[..., 0].min() < 0:
        raise ValueError(f"slopes of a calibration are not negative; got {values[..., 0].min()}")


def _check_ranks(values: Doubles) -> None:
    if values.ndim != 2:
        raise ValueError(f"frequencies of ranks have the shape [D, R]; got {list(values.shape)}")
    if values.min() < 0 or values.sum(axis=1).max() > 1 + 1e-9:
        raise ValueError("frequencies of ranks are at least 0 and sum to at most 1 at each depth")
