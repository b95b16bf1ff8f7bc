"""Acceptance lengths of an engine beside those that a trace predicts, paired by prompt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.crosscheck.rounds import ComparedText
from simlab.analysis.statistics.intervals import UNKNOWN, ratio_interval, speedup_interval
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import is_known


@dataclass(frozen=True, slots=True)
class ComparedLengths:
    """Pooled acceptance lengths of engine and trace.

    Attributes:
        num_prompts: that the intervals are over.
        measured: the engine's, tokens a round without the prefills' tokens.
        foretold: of the recorded texts.
        error: foretold over measured, paired by prompt; above 1 the trace foretold more.
        all_equal: whether every text has as many rounds and tokens as foretold.
    """

    num_prompts: int
    measured: Estimate
    foretold: Estimate
    error: Estimate
    all_equal: bool

    @property
    def agrees(self) -> bool:
        """Whether they are equal, or their interval holds 1."""
        return self.all_equal or self.error.interval.low <= 1 <= self.error.interval.high

    def to_json(self) -> dict[str, object]:
        """All of it; null: not known."""
        return {
            "prompts": self.num_prompts,
            **self.measured.row("engine", digits=None),
            **self.foretold.row("trace", digits=None),
            **self.error.row("trace_over_engine", digits=None),
        }


def percent_off(ratio: Estimate, unit: str = "") -> str:
    """How far a ratio is from 1, in per cent, with its interval where that is known; empty where the ratio is not."""
    low, high = ratio.interval.low, ratio.interval.high
    ends = f" [{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}]" if is_known(ratio.interval) else ""
    return "" if math.isnan(ratio.value) else f"{100 * (ratio.value - 1):+.2f}{unit}{ends}"


def compared_lengths(texts: Sequence[ComparedText]) -> ComparedLengths | None:
    """Both lengths over texts of which the engine told its rounds; None: it told those of none."""
    told = [
        text for text in texts if text.num_rounds is not None and text.num_tokens > 1 and text.num_foretold_tokens > 1
    ]
    if not told:
        return None
    names = sorted({one.text.prompt for one in told})
    sums = np.zeros((len(names), 4))
    for one in told:
        assert one.num_rounds is not None
        sums[names.index(one.text.prompt)] += (
            one.num_tokens - 1,
            one.num_rounds,
            one.num_foretold_tokens - 1,
            one.num_foretold,
        )
    tokens, rounds, foretold_tokens, foretold_rounds = sums.T
    measured, foretold = tokens.sum() / rounds.sum(), foretold_tokens.sum() / foretold_rounds.sum()
    equal = all((one.num_tokens, one.num_rounds) == (one.num_foretold_tokens, one.num_foretold) for one in told)
    error = speedup_interval(foretold_tokens, foretold_rounds, tokens, rounds)
    return ComparedLengths(
        num_prompts=len(names),
        measured=Estimate(float(measured), ratio_interval(tokens, rounds)),
        foretold=Estimate(float(foretold), ratio_interval(foretold_tokens, foretold_rounds)),
        error=Estimate(float(foretold / measured), UNKNOWN if equal else error),
        all_equal=equal,
    )
