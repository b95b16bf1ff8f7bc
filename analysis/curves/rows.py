"""Rows of the curves of expected tokens per second: what each rule takes at each root, and what it is worth.

The roots are held fixed, all of a trace or those that one policy comes to. A rule that takes another size would come
to other roots; that is what a replay is for. Here rules are held against each other where all of them decide the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from simlab.arrays import Doubles, Ints, Longs
from simlab.policies.costs.round_costs import RoundCosts
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.ratio_curves import (
    AVAILABLE,
    BEST,
    DEEP_MAXIMA,
    FIRST_STOP,
    MAXIMA,
    ROUNDING,
    at_sizes,
    first_stops,
    price_sizes,
    scan_curves,
    sum_fixed,
)
from simlab.recorded import RecordedTexts
from simlab.traces.format.files import write_frame

CurveRows: TypeAlias = pl.DataFrame
"""Rows of curves, for those who hand them on without looking inside."""

FIRST, SCAN, FIXED, PRICE = "first stop", "full scan", "best fixed", "price"
"""Rules: the first size that brings no more; the best size of each round; one size for all rounds; the sizes with the
most tokens per second of the whole."""

NOTABLE_SHARE = 0.01
"""A round that loses more than this share of its tokens per second has lost something."""

SCHEMA: dict[str, pl.DataType] = {
    "edges": pl.String(),
    "edges_key": pl.String(),
    "cost_id": pl.String(),
    "rule": pl.String(),
    "dataset": pl.String(),
    "prompt_id": pl.String(),
    "turn": pl.Int32(),
    "sequence": pl.Int32(),
    "position": pl.Int32(),
    "context": pl.Int32(),
    "num_available": pl.Int32(),
    "num_maxima": pl.Int32(),
    "num_deep_maxima": pl.Int32(),
    "num_drafted": pl.Int32(),
    "expected_tokens": pl.Float64(),
    "round_s": pl.Float64(),
    "regret_share": pl.Float64(),
}
"""One row is one rule at one root. Between deep maxima the curve falls, and rises again, by more than `NOTABLE_SHARE`;
``regret_share`` is what the rule's tokens per second lack of the full scan's there."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What rounds cost somewhere.

    Attributes:
        cost_id: of the measurement.
        costs: seconds, for the largest tree that is asked for.
        views: other curves of seconds by which a first stop may decide, by name; what it decides is priced with
            ``costs``.
    """

    cost_id: str
    costs: RoundCosts
    views: Mapping[str, RoundCosts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """What one edge model and one machine came to as a whole.

    Attributes:
        edges: the edge model's name.
        cost_id: of the machine's prices.
        budget: the best fixed one; chosen on these roots.
        rate: the price rule's, tokens per second; chosen on these roots.
        budget_curve: float64 ``[n_max + 1]``, expected tokens per second of the whole under each fixed budget.
    """

    edges: str
    cost_id: str
    budget: int
    rate: float
    budget_curve: Doubles


@dataclass(frozen=True, slots=True)
class Roots:
    """The roots at which rules decide on a tree's size.

    Attributes:
        texts: reads them anew each time, in the same parts.
        chosen: which roots of some texts count, int64; None: all.
        advance: is told how many roots were looked at.
    """

    texts: Callable[[], Iterable[RecordedTexts]]
    chosen: Callable[[RecordedTexts], Longs] | None = None
    advance: Callable[[int], object] = int

    def of(self, texts: RecordedTexts) -> Longs:
        """Those of some texts that count."""
        return np.arange(len(texts.roots.places)) if self.chosen is None else self.chosen(texts)


def curve_rows(
    orders: Mapping[str, BestFirst], machines: Sequence[Machine], roots: Roots, most: int
) -> tuple[CurveRows, list[Setting]]:
    """A row for each edge model, machine, rule and root.

    Args:
        orders: by the names of their edge models; their scores are probabilities.
        machines: with different ids.
        roots: where rules decide.
        most: drafted tokens, at most.

    Returns:
        The rows, columns as `SCHEMA`; and what was chosen for all roots together.

    Raises:
        ValueError: there is no root.
    """
    frames, settings = [], []
    for name, order in orders.items():
        tallies = [_Tally(machine) for machine in machines]
        wheres = [_scan(part, order, tallies, roots, most) for part in roots.texts()]
        if not any(where.height for where in wheres):
            raise ValueError("there are no rounds, so there is no curve")
        for tally in tallies:
            tally.start()
        while not all(tally.settled for tally in tallies):
            for part in roots.texts():
                _price(part, order, tallies, roots, most)
            for tally in tallies:
                tally.step()
        where = pl.concat(wheres)
        frames += [tally.frame(name, order.edge.key, where) for tally in tallies]
        settings += [tally.setting(name) for tally in tallies]
    return pl.concat(frames), settings


class _Tally:
    """What is known of one edge model on one machine while passes go on."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.settled = False
        self.budget, self.rate = 0, 0.0
        self._fixed: Doubles | float = 0.0
        self._scanned: list[Ints] = []
        self._taken: dict[str, list[tuple[Ints, Doubles, Doubles]]] = {}

    def scan(self, scores: Doubles, contexts: Longs) -> None:
        """Everything that needs no other root."""
        found = scan_curves(scores, contexts, self.machine.costs, NOTABLE_SHARE)
        self._scanned.append(found[:, [AVAILABLE, MAXIMA, DEEP_MAXIMA]])
        self._fixed = self._fixed + sum_fixed(scores, contexts, self.machine.costs)
        rules = {FIRST: found[:, FIRST_STOP], SCAN: found[:, BEST]}
        rules |= {view: first_stops(scores, contexts, costs) for view, costs in self.machine.views.items()}
        self._take(rules, scores, contexts)

    def start(self) -> None:
        """Choose the best fixed budget, and the best rate that is known to be reached as the first price."""
        curve = self._budget_curve()
        self.budget = int(np.argmax(curve))
        self.rate = max(float(curve.max()), *(self._rate_of(rule) for rule in self._taken))

    def price(self, scores: Doubles, contexts: Longs) -> None:
        """The price rule at the rate of now, and the best fixed budget."""
        available = (scores > -np.inf).sum(axis=1) - 1
        rules = {FIXED: np.minimum(available, self.budget).astype(np.int32)}
        rules[PRICE] = price_sizes(scores, contexts, self.machine.costs, self.rate)
        self._take(rules, scores, contexts)

    def step(self) -> None:
        """Dinkelbach's step: the next price is what these rounds bring; they are the best once that is the price."""
        reached = self._rate_of(PRICE)
        self.settled = reached <= self.rate * (1.0 + ROUNDING)
        self.rate = max(reached, self.rate)
        if not self.settled:
            del self._taken[PRICE], self._taken[FIXED]

    def frame(self, edges: str, edges_key: str, where: pl.DataFrame) -> pl.DataFrame:
        """The rows of this edge model and machine, rule after rule."""
        available, maxima, deep = np.concatenate(self._scanned).T
        parts = {rule: tuple(map(np.concatenate, zip(*taken, strict=True))) for rule, taken in self._taken.items()}
        _, best_tokens, best_s = parts[SCAN]
        frames = []
        for rule in (FIRST, SCAN, *self.machine.views, FIXED, PRICE):
            sizes, tokens, seconds = parts[rule]
            numbers = {"num_available": available, "num_maxima": maxima, "num_deep_maxima": deep}
            numbers |= {"num_drafted": sizes, "expected_tokens": tokens, "round_s": seconds}
            numbers["regret_share"] = np.maximum(1.0 - (tokens / seconds) / (best_tokens / best_s), 0.0)
            names = {"edges": edges, "edges_key": edges_key, "cost_id": self.machine.cost_id, "rule": rule}
            frames.append(where.with_columns(**{key: pl.lit(value) for key, value in names.items()}, **numbers))
        return pl.concat(frames).select([pl.col(name).cast(kind) for name, kind in SCHEMA.items()])

    def setting(self, edges: str) -> Setting:
        """The budget and the rate that were chosen, and tokens per second by budget."""
        return Setting(edges, self.machine.cost_id, self.budget, self.rate, self._budget_curve())

    def _budget_curve(self) -> Doubles:
        sums = np.asarray(self._fixed, np.float64)
        curve: Doubles = sums[0] / sums[1]
        return curve

    def _take(self, rules: Mapping[str, Ints], scores: Doubles, contexts: Longs) -> None:
        sizes = np.stack(list(rules.values()), axis=1).astype(np.int32)
        tokens, seconds = at_sizes(scores, contexts, self.machine.costs, sizes)
        for place, rule in enumerate(rules):
            taken = sizes[:, place].copy(), tokens[:, place].copy(), seconds[:, place].copy()
            self._taken.setdefault(rule, []).append(taken)

    def _rate_of(self, rule: str) -> float:
        taken = self._taken[rule]
        return float(sum(one[1].sum() for one in taken) / sum(one[2].sum() for one in taken))


def write_rows(path: Path, rows: CurveRows, ids: Mapping[str, str | None]) -> None:
    """Write the rows as a Parquet file, whole or not at all.

    Args:
        path: the file.
        rows: of `curve_rows`.
        ids: columns with one value for all rows, which say where they come from.

    Raises:
        TraceError: it cannot be written.
    """
    write_frame(path, rows.with_columns(**{name: pl.lit(value, pl.String) for name, value in ids.items()}))


def _scan(texts: RecordedTexts, order: BestFirst, tallies: Sequence[_Tally], roots: Roots, most: int) -> pl.DataFrame:
    """The first pass over some texts; says where their roots are."""
    chosen = roots.of(texts)
    scores, contexts = _scores(texts, order, chosen, most), texts.contexts[chosen]
    for tally in tallies:
        tally.scan(scores, contexts)
    roots.advance(len(texts.roots.places))
    return _where(texts, chosen)


def _price(texts: RecordedTexts, order: BestFirst, tallies: Sequence[_Tally], roots: Roots, most: int) -> None:
    chosen = roots.of(texts)
    scores, contexts = _scores(texts, order, chosen, most), texts.contexts[chosen]
    for tally in tallies:
        if not tally.settled:
            tally.price(scores, contexts)
    roots.advance(len(texts.roots.places))


def _scores(texts: RecordedTexts, order: BestFirst, chosen: Longs, most: int) -> Doubles:
    return order.layer(texts, most, with_scores=True).score_rows[chosen]


def _where(texts: RecordedTexts, chosen: Longs) -> pl.DataFrame:
    firsts = texts.roots.firsts
    text = np.searchsorted(firsts, chosen, side="right") - 1
    of_text = pl.DataFrame(
        [(one.prompt.dataset, one.prompt.prompt_id, one.prompt.turn, one.index) for one in texts.sequences],
        schema={name: SCHEMA[name] for name in ("dataset", "prompt_id", "turn", "sequence")},
        orient="row",
    )
    return of_text[text].with_columns(position=chosen - firsts[text], context=texts.contexts[chosen])
