"""Whose prices result rows have, and their seconds at prices drawn again, added up."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import NUM_DRAWS

DRAWS = "draws_s"
"""The column of result rows that holds them, a list for each row."""


@dataclass(frozen=True, slots=True)
class BatchPrices:
    """Whose prices a batch size has.

    Attributes:
        batch: texts at a time.
        cost_id: of the prices.
        heading: whose they are, in one line.
        what_if: whether they were worked out from those of another batch size.
        caveats: what nobody stated or timed of them, a sentence each.
    """

    batch: int
    cost_id: str
    heading: str
    what_if: bool
    caveats: tuple[str, ...] = ()


def seconds_at_draws(rows: pl.DataFrame) -> Doubles:
    """Seconds of all stages of all rows together, at each draw of the prices of one latency profile.

    Args:
        rows: result rows, all at the prices of one profile.

    Returns:
        float64 ``[NUM_DRAWS]``; nan without rows, or where one has none, as measured rows, or another number of them.
    """
    lists = rows[DRAWS]
    if rows.is_empty() or lists.null_count() or (lists.list.len() != NUM_DRAWS).any():
        return np.full(NUM_DRAWS, np.nan)
    flat = lists.explode().to_numpy().reshape(len(lists), NUM_DRAWS)
    return np.asarray(flat.sum(axis=0, dtype=np.float64), np.float64)


def log_seconds_at_draws(rows: pl.DataFrame) -> Doubles:
    """Their logarithms; nan too where rows take no time."""
    seconds = seconds_at_draws(rows)
    return np.asarray(np.log(np.where(seconds > 0, seconds, np.nan)), np.float64)
