"""What is known of one edge model at one machine's prices while passes over the roots go on.

A tally decides; what its rules take is kept for each root, or, at drawn prices, as sums of each text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from simlab.analysis.table.estimates import Figures
from simlab.arrays import Doubles, Ints, Longs
from simlab.cost import CostTable
from simlab.policies.costs.curves import ALL_STAGES, RoundCosts, convex_view, round_costs
from simlab.policies.rules.ratio_curves import (
    DEEP_MAXIMA,
    MAXIMA,
    ROUNDING,
    ExpectedTokens,
    kept_valleys,
    scan_curves,
    sum_fixed,
    taken_by_rules,
)

# What rounds cost somewhere, as measured and as drawn again, for curves.

FIRST = "first stop"
"""The rule that ends at the first size that brings no more."""

CONVEX = f"{FIRST}, convex"
"""The same, but what it decides by is the convex view of the prices."""


@dataclass(frozen=True, slots=True)
class CurveMachine:
    """What rounds cost somewhere.

    Attributes:
        cost_id: of the measurement.
        costs: seconds, for the largest tree that is asked for.
        views: other curves of seconds at the same contexts, by which a first stop may decide, by name; what it decides
            is priced with ``costs``.
        draws: the same at prices from samples drawn again, with the same views; none: how noisy they are is not known.
        halves: seconds by the prices from each half of the samples; none: they cannot be halved.
    """

    cost_id: str
    costs: RoundCosts
    views: Mapping[str, RoundCosts] = field(default_factory=dict)
    draws: tuple["CurveMachine", ...] = ()
    halves: tuple[RoundCosts, ...] = ()

    @property
    def viewed_s(self) -> Doubles:
        """Seconds by each view, float64 ``[V, C, n_max + 1]``."""
        return np.stack([self.costs.seconds, *(view.seconds for view in self.views.values())])[1:]

    @property
    def drawn_s(self) -> Doubles:
        """Seconds at the prices of each draw, float64 ``[B, C, n_max + 1]``."""
        return np.stack([draw.costs.seconds for draw in self.draws])


def curve_machine(cost: CostTable, most: int, halves: Sequence[CostTable] = ()) -> CurveMachine:
    """Whole rounds by a latency profile, with the convex view, and the same for each of its draws.

    Args:
        cost: the prices.
        most: drafted tokens, at most.
        halves: the prices by each half of the samples.
    """
    whole = CurveMachine(
        cost.cost_id,
        round_costs(cost, ALL_STAGES, most),
        {CONVEX: round_costs(convex_view(cost), ALL_STAGES, most)},
        halves=tuple(round_costs(half, ALL_STAGES, most) for half in halves),
    )
    return replace(whole, draws=tuple(curve_machine(draw, most) for draw in cost.draws))


SCAN, FIXED, PRICE = "full scan", "best fixed", "price"
"""Rules beside the first stop: the best size of each round; one size for all rounds; the sizes with the most tokens
per second of the whole."""

PRICED = (FIXED, PRICE)
"""Rules that are chosen for all roots together, after a first look at them."""

NOTABLE_SHARE = 0.01
"""A round that loses more than this share of its tokens per second has lost something."""


Part = TypeVar("Part")


class RootPart(NamedTuple):
    """Some roots, texts whole and in order.

    Attributes:
        expected: what rounds bring by the size of the tree.
        sequences: int64 ``[R]``, the text of each root; rising.
    """

    expected: ExpectedTokens
    sequences: Longs


class Taken(NamedTuple):
    """What one rule takes at some roots.

    Attributes:
        sizes: int32 ``[R]``.
        tokens: float64 ``[R]``, expected.
        seconds: float64 ``[R]``.
    """

    sizes: Ints
    tokens: Doubles
    seconds: Doubles


class Scanned(NamedTuple):
    """What needs no other roots.

    Attributes:
        fixed: float64 ``[2, n_max + 1]``, tokens and seconds of each fixed budget.
        taken: by rule.
    """

    fixed: Doubles
    taken: Mapping[str, Taken]


def scan_part(machine: CurveMachine, part: RootPart) -> Scanned:
    """Look at some roots for the first time."""
    taken = _taken(machine, part, 0, 0.0)
    return Scanned(
        sum_fixed(part.expected, machine.costs), {rule: taken[rule] for rule in (SCAN, FIRST, *machine.views)}
    )


def price_part(machine: CurveMachine, part: RootPart, budget: int, rate: float) -> Mapping[str, Taken]:
    """The full scan once more, the best fixed budget, and the price rule at a rate."""
    taken = _taken(replace(machine, views={}), part, budget, rate)
    return {rule: taken[rule] for rule in (SCAN, *PRICED)}


def _taken(machine: CurveMachine, part: RootPart, budget: int, rate: float) -> dict[str, Taken]:
    taken = taken_by_rules(part.expected, machine.costs, machine.viewed_s, budget, rate)
    rules = (SCAN, FIRST, FIXED, PRICE, *machine.views)
    return {rule: Taken(*of_rule) for rule, *of_rule in zip(rules, *taken, strict=True)}


def sums_of_texts(taken: Mapping[str, Taken], sequences: Longs, rules: Iterable[str]) -> dict[str, Doubles]:
    """Tokens, seconds and regret of some rules, summed over the roots of each text, float64 ``[S, 3]``.

    Args:
        taken: by rule; against the full scan regret is.
        sequences: int64 ``[R]``, the text of each root; rising.
        rules: which.
    """
    text, best = np.unique(sequences, return_inverse=True)[1], taken[SCAN].tokens / taken[SCAN].seconds
    sums = {}
    for rule in rules:
        _, tokens, seconds = taken[rule]
        columns = tokens, seconds, regret_shares(tokens / seconds, best)
        sums[rule] = np.stack([np.bincount(text, weights=column) for column in columns], 1).astype(np.float64)
    return sums


class Tally(Generic[Part]):
    """The rules at one machine's prices.

    Args:
        machine: whose prices.
        sums: expected tokens and seconds of parts that a rule took.
    """

    def __init__(self, machine: CurveMachine, sums: Callable[[Sequence[Part]], tuple[float, float]]) -> None:
        self.machine, self._sums = machine, sums
        self.taken: dict[str, list[Part]] = {}
        self.settled = False
        self.budget, self.rate = 0, 0.0
        self._fixed: Doubles | float = 0.0

    def scanned(self, fixed: Doubles, taken: Mapping[str, Part]) -> None:
        """One more part, looked at for the first time."""
        self._fixed = self._fixed + fixed
        self.priced(taken)

    def start(self) -> None:
        """Choose the best fixed budget, and the best rate that is known to be reached as the first price."""
        self.budget = int(np.argmax(self.budget_curve))
        self.rate = max(float(self.budget_curve.max()), *map(self._rate_of, (SCAN, FIRST, *self.machine.views)))

    @property
    def asked(self) -> tuple[int, float] | None:
        """Budget and rate of the next pass; None: there is none."""
        return None if self.settled else (self.budget, self.rate)

    def priced(self, taken: Mapping[str, Part]) -> None:
        """What rules take in one more part."""
        for rule, part in taken.items():
            self.taken.setdefault(rule, []).append(part)

    def step(self) -> None:
        """Dinkelbach's step: the next price is what these rounds bring; they are the best once that is the price."""
        reached = self._rate_of(PRICE)
        self.settled = reached <= self.rate * (1.0 + ROUNDING)
        self.rate = max(reached, self.rate)
        if not self.settled:
            del self.taken[PRICE], self.taken[FIXED]

    @property
    def budget_curve(self) -> Doubles:
        """Expected tokens per second of the whole under each fixed budget, float64 ``[n_max + 1]``."""
        sums = np.asarray(self._fixed, np.float64)
        curve: Doubles = sums[0] / sums[1]
        return curve

    def _rate_of(self, rule: str) -> float:
        tokens, seconds = self._sums(self.taken[rule])
        return tokens / seconds


def sums_of_roots(parts: Sequence[Taken]) -> tuple[float, float]:
    """Expected tokens and seconds of what a rule takes at some roots."""
    return float(sum(part.tokens.sum() for part in parts)), float(sum(part.seconds.sum() for part in parts))


def sums_of_parts(parts: Sequence[Doubles]) -> tuple[float, float]:
    """Expected tokens and seconds of sums of texts, float64 ``[S, 3]`` each."""
    tokens, seconds, _ = np.concatenate(parts).sum(axis=0).tolist()
    return tokens, seconds


def regret_shares(rates: Doubles, best: Doubles) -> Doubles:
    """What tokens per second lack of the best, as a share of it, float64 ``[R]``."""
    shares: Doubles = np.maximum(1.0 - rates / best, 0.0)
    return shares


# Whether valleys that one half of the samples shows are there by the other half, which did not choose them.


def scan_halves(halves: tuple[RoundCosts, ...], part: RootPart) -> Doubles:
    """Sums over some roots, float64 ``[8]``; the last is how many roots there are.

    Args:
        halves: the seconds of a round by each of two halves.
        part: the roots.
    """
    first, second = halves
    flags = []
    for costs in (first, second):
        maxima = scan_curves(part.expected, costs, NOTABLE_SHARE)
        flags += [maxima[:, MAXIMA] > 1, maxima[:, DEEP_MAXIMA] > 1]
    again = sum(
        kept_valleys(part.expected, costs, against.seconds[None], NOTABLE_SHARE) / 2
        for costs, against in ((first, second), (second, first))
    )
    shares = [*(flag.sum() for flag in flags), (flags[1] & flags[3]).sum(), *np.sum(again, axis=0)]
    return np.array([*shares, len(part.sequences)], np.float64)


def split_halves(sums: Doubles) -> Figures:
    """Shares of all roots; of valleys the mean of both directions.

    ``several`` are those with several maxima by each half, ``deep`` with maxima more than `NOTABLE_SHARE` apart,
    ``deep_twice`` by both halves, wherever the valleys are. ``found_again`` have a valley by one half whose sizes make
    one by the other too, ``deep_again`` one deeper than `NOTABLE_SHARE`.

    Args:
        sums: float64 ``[8]``, those of `scan_halves` added up.
    """
    several, deep, other_several, other_deep, twice, valley_again, deep_again = (sums[:-1] / sums[-1]).tolist()
    return {
        "several": [several, other_several],
        "deep": [deep, other_deep],
        "deep_twice": twice,
        "found_again": valley_again,
        "deep_again": deep_again,
    }
