"""What is known of one edge model at one machine's prices while passes over the roots go on.

A tally decides; what its rules take is kept for each root, or, at drawn prices, as sums of each text.
"""

from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from simlab.analysis.curves.machines import FIRST, CurveMachine
from simlab.arrays import Doubles, Ints, Longs
from simlab.policies.rules.ratio_curves import (
    BEST,
    FIRST_STOP,
    ROUNDING,
    at_sizes,
    first_stops,
    price_sizes,
    scan_curves,
    sum_fixed,
)

SCAN, FIXED, PRICE = "full scan", "best fixed", "price"
"""Rules beside the first stop: the best size of each round; one size for all rounds; the sizes with the most tokens
per second of the whole."""

NOTABLE_SHARE = 0.01
"""A round that loses more than this share of its tokens per second has lost something."""


Part_contra = TypeVar("Part_contra", contravariant=True)
Part = TypeVar("Part")


class RootPart(NamedTuple):
    """Some roots, texts whole and in order.

    Attributes:
        scores: float64 ``[R, n_max + 1]``, as `simlab.policies.rules.ratio_curves.scan_curves` takes them.
        contexts: int64 ``[R]``, tokens before each root.
        sequences: int64 ``[R]``, the text of each root; rising.
    """

    scores: Doubles
    contexts: Longs
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
        found: int32, what `simlab.policies.rules.ratio_curves.scan_curves` found at each root.
        fixed: float64 ``[2, n_max + 1]``, tokens and seconds of each fixed budget.
        taken: by rule.
    """

    found: Ints
    fixed: Doubles
    taken: Mapping[str, Taken]


def scan_part(machine: CurveMachine, part: RootPart) -> Scanned:
    """Look at some roots for the first time."""
    scores, contexts, costs = part.scores, part.contexts, machine.costs
    found = scan_curves(scores, contexts, costs, NOTABLE_SHARE)
    rules = {SCAN: found[:, BEST], FIRST: found[:, FIRST_STOP]}
    rules |= {view: first_stops(scores, contexts, seen) for view, seen in machine.views.items()}
    return Scanned(found, sum_fixed(scores, contexts, costs), _taken(machine, part, rules))


def price_part(machine: CurveMachine, part: RootPart, budget: int, rate: float) -> Mapping[str, Taken]:
    """The best fixed budget, and the price rule at a rate."""
    available = (part.scores > -np.inf).sum(axis=1) - 1
    rules = {FIXED: np.minimum(available, budget).astype(np.int32)}
    rules[PRICE] = price_sizes(part.scores, part.contexts, machine.costs, rate)
    return _taken(machine, part, rules)


def best_rates(machine: CurveMachine, part: RootPart) -> Doubles:
    """Tokens per second of the best size of each root, float64 ``[R]``."""
    found = scan_curves(part.scores, part.contexts, machine.costs, NOTABLE_SHARE)
    best = _taken(machine, part, {SCAN: found[:, BEST]})[SCAN]
    rates: Doubles = best.tokens / best.seconds
    return rates


def _taken(machine: CurveMachine, part: RootPart, rules: Mapping[str, Ints]) -> dict[str, Taken]:

    sizes = np.stack(list(rules.values()), axis=1).astype(np.int32)
    tokens, seconds = at_sizes(part.scores, part.contexts, machine.costs, sizes)
    return {
        rule: Taken(sizes[:, place].copy(), tokens[:, place].copy(), seconds[:, place].copy())
        for place, rule in enumerate(rules)
    }


def sums_of_texts(taken: Mapping[str, Taken], best: Doubles, sequences: Longs) -> dict[str, Doubles]:
    """Tokens, seconds and regret of each rule, summed over the roots of each text, float64 ``[S, 3]``.

    Args:
        taken: by rule.
        best: float64 ``[R]``, tokens per second of the full scan, against which regret is.
        sequences: int64 ``[R]``, the text of each root; rising.
    """
    text = np.unique(sequences, return_inverse=True)[1]
    found = {}
    for rule, one in taken.items():
        regret = regret_shares(one.tokens / one.seconds, best)
        sums = np.stack([np.bincount(text, weights=each) for each in (one.tokens, one.seconds, regret)], axis=1)
        found[rule] = sums.astype(np.float64, copy=False)
    return found


class Kept(Protocol[Part_contra]):
    """What rules took so far, part after part."""

    def add(self, rule: str, part: Part_contra) -> None:
        """One more part of a rule."""
        ...

    def forget(self, rule: str) -> None:
        """All parts of a rule."""
        ...

    def totals(self, rule: str) -> tuple[float, float]:
        """Expected tokens and seconds of all parts."""
        ...


class Tally(Generic[Part]):
    """The rules at one machine's prices."""

    def __init__(self, machine: CurveMachine, kept: Kept[Part]) -> None:
        self.machine, self.kept = machine, kept
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
        for rule, one in taken.items():
            self.kept.add(rule, one)

    def step(self) -> None:
        """Dinkelbach's step: the next price is what these rounds bring; they are the best once that is the price."""
        reached = self._rate_of(PRICE)
        self.settled = reached <= self.rate * (1.0 + ROUNDING)
        self.rate = max(reached, self.rate)
        if not self.settled:
            self.kept.forget(PRICE)
            self.kept.forget(FIXED)

    @property
    def budget_curve(self) -> Doubles:
        """Expected tokens per second of the whole under each fixed budget, float64 ``[n_max + 1]``."""
        sums = np.asarray(self._fixed, np.float64)
        curve: Doubles = sums[0] / sums[1]
        return curve

    def _rate_of(self, rule: str) -> float:
        tokens, seconds = self.kept.totals(rule)
        return tokens / seconds


class RootNumbers:
    """Sizes, tokens and seconds at each root."""

    def __init__(self) -> None:
        self._taken: dict[str, list[Taken]] = {}

    def add(self, rule: str, part: Taken) -> None:
        """One more part of a rule."""
        self._taken.setdefault(rule, []).append(part)

    def forget(self, rule: str) -> None:
        """All parts of a rule."""
        del self._taken[rule]

    def totals(self, rule: str) -> tuple[float, float]:
        """Expected tokens and seconds of all parts."""
        taken = self._taken[rule]
        return float(sum(one.tokens.sum() for one in taken)), float(sum(one.seconds.sum() for one in taken))

    def of(self, rule: str) -> Taken:
        """Sizes, tokens and seconds of all roots."""
        return Taken(*map(np.concatenate, zip(*self._taken[rule], strict=True)))


class TextSums:
    """Tokens, seconds and regret, summed over the roots of each text."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Doubles]] = {}

    def add(self, rule: str, part: Doubles) -> None:
        """One more part of a rule, float64 ``[S, 3]``."""
        self._sums.setdefault(rule, []).append(part)

    def forget(self, rule: str) -> None:
        """All parts of a rule."""
        del self._sums[rule]

    def totals(self, rule: str) -> tuple[float, float]:
        """Expected tokens and seconds of all parts."""
        tokens, seconds, _ = self.of(rule).sum(axis=0).tolist()
        return tokens, seconds

    def of(self, rule: str) -> Doubles:
        """Tokens, seconds and regret of each text that has roots, float64 ``[S, 3]``."""
        return np.concatenate(self._sums[rule])


def regret_shares(rates: Doubles, best: Doubles) -> Doubles:
    """What tokens per second lack of the best, as a share of it, float64 ``[R]``."""
    shares: Doubles = np.maximum(1.0 - rates / best, 0.0)
    return shares
