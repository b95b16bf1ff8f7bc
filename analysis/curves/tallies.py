"""What is known of one edge model at one machine's prices while passes over the roots go on.

A tally decides; what its rules take is kept for each root, or, at drawn prices, as sums of each text.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

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


class Kept(Protocol):
    """What rules took so far, part after part."""

    def add(self, rule: str, part: RootPart, sizes: Ints, tokens: Doubles, seconds: Doubles) -> None:
        """One more part of a rule; of the first rules the full scan comes first."""
        ...

    def forget(self, rule: str) -> None:
        """All parts of a rule."""
        ...

    def totals(self, rule: str) -> tuple[float, float]:
        """Expected tokens and seconds of all parts."""
        ...


class Tally:
    """The rules at one machine's prices."""

    def __init__(self, machine: CurveMachine, kept: Kept) -> None:
        self.machine, self.kept = machine, kept
        self.settled = False
        self.budget, self.rate = 0, 0.0
        self._fixed: Doubles | float = 0.0

    def scan(self, part: RootPart) -> Ints:
        """Everything that needs no other root; gives what `scan_curves` found."""
        scores, contexts, costs = part.scores, part.contexts, self.machine.costs
        found = scan_curves(scores, contexts, costs, NOTABLE_SHARE)
        self._fixed = self._fixed + sum_fixed(scores, contexts, costs)
        rules = {SCAN: found[:, BEST], FIRST: found[:, FIRST_STOP]}
        rules |= {view: first_stops(scores, contexts, seen) for view, seen in self.machine.views.items()}
        self._take(rules, part)
        return found

    def start(self) -> None:
        """Choose the best fixed budget, and the best rate that is known to be reached as the first price."""
        self.budget = int(np.argmax(self.budget_curve))
        self.rate = max(float(self.budget_curve.max()), *map(self._rate_of, (SCAN, FIRST, *self.machine.views)))

    def price(self, part: RootPart) -> None:
        """The price rule at the rate of now, and the best fixed budget."""
        available = (part.scores > -np.inf).sum(axis=1) - 1
        rules = {FIXED: np.minimum(available, self.budget).astype(np.int32)}
        rules[PRICE] = price_sizes(part.scores, part.contexts, self.machine.costs, self.rate)
        self._take(rules, part)

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

    def _take(self, rules: Mapping[str, Ints], part: RootPart) -> None:
        sizes = np.stack(list(rules.values()), axis=1).astype(np.int32)
        tokens, seconds = at_sizes(part.scores, part.contexts, self.machine.costs, sizes)
        for place, rule in enumerate(rules):
            self.kept.add(rule, part, sizes[:, place].copy(), tokens[:, place].copy(), seconds[:, place].copy())

    def _rate_of(self, rule: str) -> float:
        tokens, seconds = self.kept.totals(rule)
        return tokens / seconds


class RootNumbers:
    """Sizes, tokens and seconds at each root."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[Ints, Doubles, Doubles]]] = {}

    def add(self, rule: str, part: RootPart, sizes: Ints, tokens: Doubles, seconds: Doubles) -> None:
        """One more part of a rule."""
        self._taken.setdefault(rule, []).append((sizes, tokens, seconds))

    def forget(self, rule: str) -> None:
        """All parts of a rule."""
        del self._taken[rule]

    def totals(self, rule: str) -> tuple[float, float]:
        """Expected tokens and seconds of all parts."""
        taken = self._taken[rule]
        return float(sum(one[1].sum() for one in taken)), float(sum(one[2].sum() for one in taken))

    def of(self, rule: str) -> tuple[Ints, Doubles, Doubles]:
        """Sizes int32 ``[R]``, tokens and seconds float64 ``[R]`` of all roots."""
        sizes, tokens, seconds = zip(*self._taken[rule], strict=True)
        return np.concatenate(sizes), np.concatenate(tokens), np.concatenate(seconds)


class TextSums:
    """Tokens, seconds and regret, summed over the roots of each text."""

    def __init__(self) -> None:
        self._best: list[Doubles] = []
        self._sums: dict[str, list[Doubles]] = {}

    def add(self, rule: str, part: RootPart, sizes: Ints, tokens: Doubles, seconds: Doubles) -> None:
        """One more part of a rule; of each part the full scan's first, against which regret is."""
        parts = self._sums.setdefault(rule, [])
        if rule == SCAN:
            self._best.append(tokens / seconds)
        regret = regret_shares(tokens / seconds, self._best[len(parts)])
        text = np.unique(part.sequences, return_inverse=True)[1]
        sums = np.stack([np.bincount(text, weights=one) for one in (tokens, seconds, regret)], axis=1)
        parts.append(sums.astype(np.float64, copy=False))

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
