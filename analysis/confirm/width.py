"""How tightly a confirmation knows the speeds of its policies, on the prompts that it has run so far."""

import math

import numpy as np

from simlab.analysis.statistics.bootstrap import log_products
from simlab.analysis.statistics.intervals import intervals_of
from simlab.arrays import Doubles


def widest_half_width(sums: Doubles, plain: int) -> float:
    """Half the width of the widest 95 % interval of a speed ratio, as a share of the ratio.

    The ratios are, paired by prompt, each policy's speed over plain decoding's, and the fastest policy's over each
    of the others.

    Args:
        sums: float64 ``[prompts, policies, 2]``, tokens and seconds of each prompt; positive.
        plain: the place of plain decoding among the policies.

    Returns:
        infinite while an interval is not known.
    """
    num_prompts, num_policies, _ = sums.shape
    if num_prompts < 2 or num_policies < 2:
        return math.inf
    tokens, seconds = sums.sum(axis=0).T
    fastest = int(np.argmax(tokens / seconds))
    pairs = {(one, plain) for one in range(num_policies)} | {(fastest, one) for one in range(num_policies)}
    powers = np.array([_ratio_powers(num_policies, *pair) for pair in sorted(pairs) if pair[0] != pair[1]])
    spread = log_products(sums.reshape(num_prompts, -1), powers)
    ends = np.array([(one.low, one.high) for one in intervals_of(spread)])
    halves = (np.exp(ends[:, 1]) - np.exp(ends[:, 0])) / 2 / np.exp(spread.whole)
    return float(np.where(np.isnan(halves), np.inf, halves).max())


def _ratio_powers(num_policies: int, one: int, other: int) -> Doubles:
    """Of tokens and seconds of each policy in the speed of one over that of another, float64 ``[2 policies]``."""
    powers = np.zeros((num_policies, 2))
    powers[one] += 1, -1
    powers[other] += -1, 1
    return powers.ravel()
