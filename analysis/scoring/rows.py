"""Figures of a scoring, and the same as flat rows, as scripts, files and reports read them."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from simlab.analysis.statistics.intervals import finite
from simlab.analysis.table.estimates import Estimate
from simlab.traces.format.files import write_frame

Scalar = str | int | float | bool | None
Row = dict[str, Scalar]

Figures: TypeAlias = dict[str, Any]
"""Labels, numbers and estimates by the keys of the JSON."""

NO_FIGURE = Estimate(math.nan)
"""An estimate that is asked of nobody, such as of how far the first is ahead of itself; its cell stays empty."""

RELIABILITY_SCHEMA: dict[str, pl.DataType] = {
    "slice": pl.String(),
    "edges": pl.String(),
    "has_probabilities": pl.Boolean(),
    "place": pl.String(),
    "depth": pl.Int32(),
    "rank": pl.String(),
    "num_edges": pl.Int64(),
    "weight_share": pl.Float64(),
    "predicted": pl.Float64(),
    "observed": pl.Float64(),
    "observed_ci_low": pl.Float64(),
    "observed_ci_high": pl.Float64(),
}
"""One row is one bin of one edge model; see `simlab.analysis.scoring.reliability.reliability`. ``slice`` is the
dataset, or null for all; ``depth`` and ``rank`` are null for all."""


def flat(figures: Figures) -> Row:
    """Scalars alone: of an estimate the value and both ends; what is not known is None."""
    row: Row = {}
    for name, value in figures.items():
        if isinstance(value, Estimate):
            row |= value.row(name, digits=None)
        else:
            row[name] = finite(value) if isinstance(value, float) else value
    return row


def write_reliability(path: Path, rows: Sequence[Row], ids: Mapping[str, str]) -> None:
    """Write bins as a Parquet file, whole or not at all.

    Args:
        path: the file.
        rows: of `reliability_rows`, with their slices.
        ids: columns with one value for all rows, which say where they come from.
    """
    frame = pl.DataFrame(rows, schema=RELIABILITY_SCHEMA, orient="row")
    write_frame(path, frame.with_columns(**{name: pl.lit(value, pl.String) for name, value in ids.items()}))
