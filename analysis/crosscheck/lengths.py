"""Acceptance lengths of an engine beside those that a trace foretells, paired by prompt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.crosscheck.rounds import ComparedText
from simlab.analysis.statistics.intervals import UNKNOWN, Interval, ratio_interval, speedup_interval


@dataclass(frozen=True, slots=True)
class ComparedLengths:
    """Pooled acceptance lengths of engine and trace.

    Attributes:
        num_prompts: that the intervals are over.
        measured: the engine's, tokens a round without the prefills' tokens; likewise ``measured_interval``.
        foretold: of the recorded texts; likewise ``foretold_interval``.
        error: foretold over measured; above 1 the trace foretold more.
        error_interval: of it, paired by prompt.
        all_equal: whether every text has as many rounds and tokens as foretold.
    """

    num_prompts: int
    measured: float
    measured_interval: Interval
    foretold: float
    foretold_interval: Interval
    error: float
    error_interval: Interval
    all_equal: bool

    @property
    def agrees(self) -> bool:
        """Whether they are equal, or their interval holds 1."""
        low, high = self.error_interval.low, self.error_interval.high
        return self.all_equal or (not math.isnan(low) and low <= 1 <= high)


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
        measured=float(measured),
        measured_interval=ratio_interval(tokens, rounds),
        foretold=float(foretold),
        foretold_interval=ratio_interval(foretold_tokens, foretold_rounds),
        error=float(foretold / measured),
        error_interval=UNKNOWN if equal else error,
        all_equal=equal,
    )
