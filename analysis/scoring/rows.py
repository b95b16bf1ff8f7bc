"""Reliability curves as a file: a row for each bin."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from simlab.analysis.table.estimates import Row
from simlab.traces.format.files import write_frame

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


def write_reliability(path: Path, rows: Sequence[Row], ids: Mapping[str, str]) -> None:
    """Write bins as a Parquet file, whole or not at all.

    Args:
        path: the file.
        rows: of `reliability_rows`, with their slices.
        ids: columns with one value for all rows, which say where they come from.
    """
    frame = pl.DataFrame(rows, schema=RELIABILITY_SCHEMA, orient="row")
    write_frame(path, frame.with_columns(**{name: pl.lit(value, pl.String) for name, value in ids.items()}))
