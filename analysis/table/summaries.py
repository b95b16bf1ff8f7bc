"""From result rows, one per policy and sequence, to one summary per policy and slice."""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import Interval, ratio_interval
from simlab.analysis.statistics.slices import split_by_slice
from simlab.analysis.table.speeds import STAGE_COLUMNS, PlainRows, Speed, speed_of
from simlab.arrays import Longs
from simlab.totals import SUMS, Totals

BASELINE = "ar"
"""The name of the policy whose speed is the reference."""

_UNREAD = ("text_id", "draft_id", "channel_ids", "context_length", "stop_reason", "simlab_version")
"""Columns that no summary reads."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Summary:
    """What one policy did on all sequences of a slice.

    Attributes:
        slice: the dataset, turn or range of contexts; None for everything.
        kind: ``predicted`` or ``measured``.
        settings: JSON text.
        totals: sums over all sequences; the summaries of disjoint slices add up.
        acceptance_length_macro: mean of the per-response means, responses without a round left out.
        interval: of the pooled acceptance length, over prompts.
        speed: seconds, tokens per second and speedup, as far as they are known.
    """

    slice: Scalar
    kind: str
    policy: str
    policy_id: str
    name: str
    settings: str
    prompts: int
    sequences: int
    totals: Totals
    acceptance_length_macro: float
    interval: Interval
    speed: Speed

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        first: dict[str, Scalar] = {} if self.slice is None else {"slice": self.slice}
        stages = self.speed.seconds
        values: dict[str, Scalar] = {
            "policy": self.policy,
            "policy_id": self.policy_id,
            "name": self.name,
            "settings": self.settings,
            "prompts": self.prompts,
            "sequences": self.sequences,
            **{name: getattr(self.totals, name) for name in SUMS},
            "acceptance_length": self.totals.acceptance_length,
            "acceptance_length_macro": self.acceptance_length_macro,
            "acceptance_length_ci_low": self.interval.low,
            "acceptance_length_ci_high": self.interval.high,
            "nodes_per_round": self.totals.nodes_per_round,
            "accepted_per_verified": self.totals.accepted_per_verified,
            **{name: None if stages is None else getattr(stages, name) for name in STAGE_COLUMNS},
            "tokens_per_s": self.speed.tokens_per_s,
            "speedup": self.speed.speedup,
            "speedup_ci_low": self.speed.interval.low,
            "speedup_ci_high": self.speed.interval.high,
            "speedup_price_low": self.speed.price_interval.low,
            "speedup_price_high": self.speed.price_interval.high,
        }
        return first | {key: _finite(value) for key, value in values.items()}


def summarise(results: pl.DataFrame, by: str | None = None) -> list[Summary]:
    """One summary per policy, policies in the order of their first row; with ``by``, slice by slice.

    The speedup of a policy is over the rows of plain decoding among these results, if they are of
    the same sequences.

    Args:
        results: result rows, one per policy and sequence; all predicted under the same prices, or
            all measured.
        by: one of `simlab.analysis.statistics.slices.SLICES`; slices come in the order of their first row, contexts
            from short to long.
    """
    if results.n_unique(["kind", "cost_id"]) > 1:
        raise ValueError("results of several kinds or latency profiles do not add up; summarise each by itself")
    return [summary for value, part in split_by_slice(results, by) for summary in _of_slice(part, value)]


def _of_slice(results: pl.DataFrame, value: Scalar) -> list[Summary]:
    plain, prompts = PlainRows(results.filter(pl.col("name") == BASELINE)), _Prompts()
    # All columns of many rows are much to move.
    parts = results.drop(_UNREAD, strict=False).partition_by("policy", "policy_id", maintain_order=True)
    return [_summary(part, prompts, plain, value) for part in parts]


class _Prompts:
    """Which prompt each row is of; worked out once for all policies with rows of the same sequences."""

    def __init__(self) -> None:
        self._names = pl.DataFrame()
        self._places, self._num = np.zeros(0, np.uint32), 0

    def sums(self, part: pl.DataFrame, name: str) -> Longs:
        """A column summed over the rows of each prompt, in an order that depends on the prompts alone; int64."""
        names = part.select("dataset", "prompt_id")
        if not names.equals(self._names):
            distinct = names.unique().sort("dataset", "prompt_id").with_row_index("place")
            found = names.join(distinct, on=["dataset", "prompt_id"], how="left", maintain_order="left")
            self._names, self._places, self._num = names, found["place"].to_numpy(), distinct.height
        sums = np.zeros(self._num, np.int64)
        np.add.at(sums, self._places, part[name].to_numpy())
        return sums


def _summary(part: pl.DataFrame, of_prompts: _Prompts, plain: PlainRows, value: Scalar) -> Summary:
    """Summary of the rows of one policy in one slice, beside plain decoding's rows of the same slice."""
    by_prompt = [of_prompts.sums(part, name) for name in ("committed", "rounds")]
    sums = {name: int(part[name].cast(pl.Int64).sum()) for name in SUMS}
    committed, rounds = part["committed"].to_numpy(), part["rounds"].to_numpy()
    means = committed[rounds > 0] / rounds[rounds > 0]
    first = part.row(0, named=True)
    return Summary(
        slice=value,
        kind=first["kind"],
        policy=first["policy"],
        policy_id=first["policy_id"],
        name=first["name"],
        settings=first["settings"],
        prompts=len(by_prompt[0]),
        sequences=part.height,
        totals=Totals(**sums),
        acceptance_length_macro=float(np.mean(means)) if len(means) else math.nan,
        interval=ratio_interval(*by_prompt),
        speed=speed_of(part, plain),
    )


def _finite(value: Scalar) -> Scalar:
    return None if isinstance(value, float) and not math.isfinite(value) else value
