"""The calibration of a token, written out by hand."""

import math

STEPS = 65536


FIRST_RANKS = (0, 1, 2, 4, 8, 16, 32)


def class_by_hand(rank: int) -> int:
    return sum(rank >= first for first in FIRST_RANKS) - 1


def mapped_by_hand(cost: int, slope: float, intercept: float) -> int:
    """Grid steps below 0 of the logistic of slope * logit + intercept."""
    if (slope, intercept) == (1.0, 0.0):
        return cost
    prob = math.exp(-cost / STEPS)
    score = slope * (-cost / STEPS - math.log1p(-min(prob, 1 - 1e-9))) + intercept
    log_prob = score if score <= -30 else -math.log1p(math.exp(-score))
    return round(min(max(-log_prob, 0.0), 255.0) * STEPS)
