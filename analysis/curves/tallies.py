"""What is known of one edge model at one machine's prices while passes over the roots go on.

A tally decides; what its rules take is kept for each root, or, at drawn prices, as sums of each text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from simlab.analysis.curves.machines import FIRST, CurveMachine
from simlab.arrays import Doubles, Ints, Longs
from simlab.policies.rules.ratio_curves import ROUNDING, ExpectedTokens, sum_fixed, taken_by_rules

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
