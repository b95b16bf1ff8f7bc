"""How many candidates a depth may have: the caps of DDTree++ (2026, github.com/hxri/ddtreeplus).

A cap leaves the first candidates of a depth, below every node of the depth above. Entropies are the drafter's own, over
its whole vocabulary, as the release takes them.
"""

import math
from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.grid import STEPS_PER_NAT, grid_scalar, weight_scalar
from simlab.jit import kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children

PROPORTIONAL, COVERAGE, LEAST_PROB, BINS = 0, 1, 2, 3

HIGHEST_POWER = 16.0
"""With larger powers nearly all would go to one depth."""

_SHARE_BITS = 40


class WidthCaps(NamedTuple):
    """A kind of cap and its settings; what a kind does not read is 0 or empty.

    Attributes:
        kind: `PROPORTIONAL`, `COVERAGE`, `LEAST_PROB` or `BINS`.
        most_width: no depth has more.
        budget: that is shared in proportion to entropies.
        power: to which entropies are raised.
        base_width: every depth has it before the rest is shared.
        level: the probability to be covered, or the least log-probability, on the grid.
        entropies: float64 ``[B]``, borders of bins, rising.
        widths: int32 ``[B + 1]``, of depths at or below the first border, the second, ..., and above the last.
    """

    kind: int
    most_width: int
    budget: int = 0
    power: float = 0.0
    base_width: int = 0
    level: float = 0.0
    entropies: Doubles = np.empty(0, np.float64)
    widths: Ints = np.empty(0, np.int32)

    @property
    def key(self) -> str:
        """The kind and the settings of these caps."""
        return ":".join(map(str, (*self[:6], self.entropies.tolist(), self.widths.tolist())))

    @property
    def needs_entropies(self) -> bool:
        """Whether widths follow from entropies."""
        return self.kind in (PROPORTIONAL, BINS)


def proportional_caps(budget: int, power: float, *, base_width: int, most_width: int) -> WidthCaps:
    """A depth has a base and, of the rest of a budget, a whole part in proportion to its entropy to a power."""
    return WidthCaps(PROPORTIONAL, most_width, budget=budget, power=power, base_width=base_width)


def coverage_caps(coverage: float, most_width: int) -> WidthCaps:
    """A depth has as few first candidates as together have a probability; all that are read where they have less."""
    return WidthCaps(COVERAGE, most_width, level=coverage)


def least_prob_caps(least_prob: float, most_width: int) -> WidthCaps:
    """A depth has the candidates of at least a probability, or else the first."""
    level = float(grid_scalar(np.log(least_prob))) if least_prob > 0 else -np.inf
    return WidthCaps(LEAST_PROB, most_width, level=level)


def bin_caps(entropies: tuple[float, ...], widths: tuple[int, ...], most_width: int) -> WidthCaps:
    """A depth has the width of the bin in which its entropy lies; a border belongs to the bin below it."""
    return WidthCaps(BINS, most_width, entropies=np.array(entropies, np.float64), widths=np.array(widths, np.int32))


@kernel
def cap_widths(children: Children, caps: WidthCaps, entropies: Floats) -> None:
    """Leave at each depth as many first candidates as its cap allows.

    Args:
        children: of one root.
        caps: of the depths.
        entropies: float32 ``[D]``, nats, over the drafter's vocabulary; ``[0]`` where the caps do not need them.
    """
    num_depths = children.starts.shape[1]
    shares, total = _shares(entropies, caps.power) if caps.kind == PROPORTIONAL else (np.zeros(num_depths, np.int64), 1)
    rest = max(0, caps.budget - caps.base_width * num_depths)
    for depth in range(num_depths):
        if caps.kind == PROPORTIONAL:
            width = caps.base_width + rest * shares[depth] // total
        elif caps.kind == COVERAGE:
            width = _covering(children, depth, caps.level)
        elif caps.kind == LEAST_PROB:
            width = _at_least(children, depth, caps.level)
        else:
            width = _of_bin(entropies[depth], caps.entropies, caps.widths)
        width = min(width, caps.most_width)
        for kind in (SPINE, ELSEWHERE):
            children.ends[kind, depth] = min(children.ends[kind, depth], children.starts[kind, depth] + width)


@kernel
def _shares(entropies: Floats, power: float) -> tuple[Longs, int]:
    """The share of each depth, int64 ``[D]``, and their sum; if all entropies are 0 shares are equal."""
    weights = np.maximum(entropies.astype(np.float64), 0.0) ** power
    if weights.sum() == 0.0:
        weights[:] = 1.0
    # Whole numbers, so that equal entropies have equal shares and a share that is a whole number stays one.
    _, exponent = math.frexp(weights.max())
    shares = np.rint(weights * 2.0 ** (_SHARE_BITS - exponent)).astype(np.int64)
    return shares, int(shares.sum())


@kernel
def _covering(children: Children, depth: int, coverage: float) -> int:
    covered, width = 0.0, 0
    for index in range(children.starts[SPINE, depth], children.ends[SPINE, depth]):
        if width > 0 and covered >= coverage:
            break
        covered += weight_scalar(children.costs[index] / -STEPS_PER_NAT)
        width += 1
    return width


@kernel
def _at_least(children: Children, depth: int, level: float) -> int:
    width = 1
    for index in range(children.starts[SPINE, depth] + 1, children.ends[SPINE, depth]):
        if children.costs[index] / -STEPS_PER_NAT < level:
            break
        width += 1
    return width


@kernel
def _of_bin(entropy: float, borders: Doubles, widths: Ints) -> int:
    index = 0
    while index < borders.size and entropy > borders[index]:
        index += 1
    return int(widths[index])
