"""From result rows, one per policy and sequence, to one summary per policy and slice."""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from simlab.analysis.intervals import Interval, ratio_interval
from simlab.totals import Totals

SLICES = ("dataset", "turn")
"""The columns by which results can be cut into slices."""

Scalar = str | int | float | bool | None

_SUMS = ("rounds", "drafted", "verified", "accepted", "committed", "clipped")


@dataclass(frozen=True, slots=True)
class Summary:
    """What one policy did on all sequences of a slice.

    Attributes:
        slice: the dataset or turn; None for everything.
        settings: JSON text.
        totals: sums over all sequences; the summaries of disjoint slices add up.
        acceptance_length_macro: mean of the per-response means, responses without a round left out.
        interval: of the pooled acceptance length, over prompts.
    """

    slice: Scalar
    policy: str
    policy_id: str
    name: str
    settings: str
    prompts: int
    sequences: int
    totals: Totals
    acceptance_length_macro: float
    interval: Interval

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        first: dict[str, Scalar] = {} if self.slice is None else {"slice": self.slice}
        values: dict[str, Scalar] = {
            "policy": self.policy,
            "policy_id": self.policy_id,
            "name": self.name,
            "settings": self.settings,
            "prompts": self.prompts,
            "sequences": self.sequences,
            **{name: getattr(self.totals, name) for name in _SUMS},
            "acceptance_length": self.totals.acceptance_length,
            "acceptance_length_macro": self.acceptance_length_macro,
            "acceptance_length_ci_low": self.interval.low,
            "acceptance_length_ci_high": self.interval.high,
            "nodes_per_round": self.totals.nodes_per_round,
            "accepted_per_verified": self.totals.accepted_per_verified,
            # Speeds come with a cost table.
            **dict.fromkeys(("tokens_per_s", "speedup", "speedup_ci_low", "speedup_ci_high")),
        }
        return first | {key: _finite(value) for key, value in values.items()}


def summaries(results: pl.DataFrame, by: str | None = None) -> list[Summary]:
    """One summary per policy, policies in the order of their first row; with ``by``, slice by slice.

    Args:
        results: result rows, one per policy and sequence.
        by: one of ``SLICES``; slices come in the order of their first row.
    """
    if by is not None and by not in SLICES:
        raise ValueError(f"by must be one of {', '.join(SLICES)}; got {by!r}")
    if by is None:
        return _of_slice(results, None)
    parts = results.partition_by(by, maintain_order=True)
    return [summary for part in parts for summary in _of_slice(part, part[by][0])]


def _of_slice(results: pl.DataFrame, value: Scalar) -> list[Summary]:
    parts = results.partition_by("policy", "policy_id", maintain_order=True)
    return [_summary(part, value) for part in parts]


def _summary(part: pl.DataFrame, value: Scalar) -> Summary:
    """Of the rows of one policy in one slice."""
    sums = part.select(pl.col(_SUMS).cast(pl.Int64).sum()).row(0, named=True)
    prompts = part.group_by("dataset", "prompt_id").agg(pl.col("committed", "rounds").cast(pl.Int64).sum())
    prompts = prompts.sort("dataset", "prompt_id")
    with_rounds = part.filter(pl.col("rounds") > 0)
    means = (with_rounds["committed"] / with_rounds["rounds"]).to_numpy()
    first = part.row(0, named=True)
    return Summary(
        slice=value,
        policy=first["policy"],
        policy_id=first["policy_id"],
        name=first["name"],
        settings=first["settings"],
        prompts=prompts.height,
        sequences=part.height,
        totals=Totals(**sums),
        acceptance_length_macro=float(np.mean(means)) if len(means) else math.nan,
        interval=ratio_interval(prompts["committed"].to_numpy(), prompts["rounds"].to_numpy()),
    )


def _finite(value: Scalar) -> Scalar:
    return None if isinstance(value, float) and not math.isfinite(value) else value
