"""Rows of the curves of expected tokens per second: what each rule takes at each root, and what it is worth.

The roots are held fixed, all of a trace or those that one policy comes to. A rule that takes another size would come
to other roots; that is what a replay is for. Here rules are held against each other where all of them decide the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from simlab.analysis.curves.halves import HalvesTally, SplitHalves
from simlab.analysis.curves.machines import FIRST, CurveMachine
from simlab.analysis.curves.tallies import (
    FIXED,
    NOTABLE_SHARE,
    PRICE,
    SCAN,
    RootNumbers,
    RootPart,
    Tally,
    TextSums,
    regret_shares,
)
from simlab.arrays import Doubles, Ints, Longs
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.ratio_curves import AVAILABLE, DEEP_MAXIMA, MAXIMA, kept_valleys
from simlab.recorded import RecordedTexts
from simlab.traces.format.files import write_frame

CurveRows: TypeAlias = pl.DataFrame
"""Rows of curves, for those who hand them on without looking inside."""

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
    "kept_valley_share": pl.Float64(),
    "kept_deep_valley_share": pl.Float64(),
    "num_drafted": pl.Int32(),
    "expected_tokens": pl.Float64(),
    "round_s": pl.Float64(),
    "regret_share": pl.Float64(),
}
"""One row is one rule at one root. Between deep maxima the curve falls, and rises again, by more than `NOTABLE_SHARE`.
The shares of draws are those of `simlab.policies.rules.ratio_curves.kept_valleys`, null where the noise of prices is
not known; ``regret_share`` is what the rule's tokens per second lack of the full scan's there."""


@dataclass(frozen=True, slots=True)
class DrawnSums:
    """What rules come to at each draw of the prices, text by text.

    Attributes:
        sequences: int64 ``[S]``, the texts that have roots.
        roots: int64 ``[S]``, how many.
        sums: by rule float64 ``[S, B, 3]``: expected tokens, seconds, and the regret of each root summed.
    """

    sequences: Longs
    roots: Longs
    sums: Mapping[str, Doubles]


@dataclass(frozen=True, slots=True)
class CurveSetting:
    """What one edge model and one machine came to as a whole.

    Attributes:
        edges: the edge model's name.
        cost_id: of the machine's prices.
        budget: the best fixed one; chosen on these roots.
        rate: the price rule's, tokens per second; chosen on these roots.
        budget_curve: float64 ``[n_max + 1]``, expected tokens per second of the whole under each fixed budget.
        drawn: the rules at drawn prices, budget and rate chosen anew at each; None: the noise is not known.
        halves: the curves by each half of the samples; None: they cannot be halved.
    """

    edges: str
    cost_id: str
    budget: int
    rate: float
    budget_curve: Doubles
    drawn: DrawnSums | None = None
    halves: SplitHalves | None = None


@dataclass(frozen=True, slots=True)
class CurveRoots:
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
    orders: Mapping[str, BestFirst], machines: Sequence[CurveMachine], roots: CurveRoots, most: int
) -> tuple[CurveRows, list[CurveSetting]]:
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
        found = [_Machine(machine) for machine in machines]
        where = _scan(found, order, roots, most)
        tallies = [tally for one in found for tally in one.tallies]
        for tally in tallies:
            tally.start()
        while not all(tally.settled for tally in tallies):
            _price([tally for tally in tallies if not tally.settled], order, roots, most)
        frames += [one.frame(name, order.edge.key, where) for one in found]
        settings += [one.setting(name) for one in found]
    return pl.concat(frames), settings


class _Machine:
    """What is known of one edge model on one machine: as measured, at each draw, and by halves."""

    def __init__(self, machine: CurveMachine) -> None:
        self._machine = machine
        self._roots, self._texts = RootNumbers(), [TextSums() for _ in machine.draws]
        self._measured = Tally(machine, self._roots)
        drawn = (Tally(draw, kept) for draw, kept in zip(machine.draws, self._texts, strict=True))
        self.tallies = [self._measured, *drawn]
        self._halves = HalvesTally(machine.halves) if machine.halves else None
        self._scanned: list[Ints] = []
        self._kept: list[Doubles] = []
        self._sequences: list[Longs] = []

    def scan(self, part: RootPart) -> None:
        """Look at some more roots, which needs no others."""
        machine = self._machine
        self._scanned.append(self._measured.scan(part)[:, [AVAILABLE, MAXIMA, DEEP_MAXIMA]])
        self._sequences.append(part.sequences)
        for tally in self.tallies[1:]:
            tally.scan(part)
        if machine.draws:
            kept = kept_valleys(part.scores, part.contexts, machine.costs, machine.drawn_s, NOTABLE_SHARE)
            self._kept.append(kept)
        if self._halves is not None:
            self._halves.scan(part)

    def frame(self, edges: str, edges_key: str, where: pl.DataFrame) -> pl.DataFrame:
        """The rows of this edge model and machine, rule after rule."""
        available, maxima, deep = np.concatenate(self._scanned).T
        kept: list[object] = [None, None] if not self._kept else list(np.concatenate(self._kept).T)
        _, best_tokens, best_s = self._roots.of(SCAN)
        frames = []
        for rule in (FIRST, SCAN, *self._machine.views, FIXED, PRICE):
            sizes, tokens, seconds = self._roots.of(rule)
            numbers: dict[str, object] = {"num_available": available, "num_maxima": maxima, "num_deep_maxima": deep}
            numbers |= {"num_drafted": sizes, "expected_tokens": tokens, "round_s": seconds}
            numbers["regret_share"] = regret_shares(tokens / seconds, best_tokens / best_s)
            names = {"edges": edges, "edges_key": edges_key, "cost_id": self._machine.cost_id, "rule": rule}
            numbers |= {f"kept_{name}_share": one for name, one in zip(("valley", "deep_valley"), kept, strict=True)}
            columns = {name: pl.lit(value) for name, value in (names | numbers).items()}
            frames.append(where.with_columns(**columns))
        return pl.concat(frames).select([pl.col(name).cast(kind) for name, kind in SCHEMA.items()])

    def setting(self, edges: str) -> CurveSetting:
        """The budget and the rate that were chosen, and what is known of noise."""
        tally, halves = self._measured, None if self._halves is None else self._halves.result()
        curve, cost_id = tally.budget_curve, self._machine.cost_id
        return CurveSetting(edges, cost_id, tally.budget, tally.rate, curve, self._drawn(), halves)

    def _drawn(self) -> DrawnSums | None:
        if not self._texts:
            return None
        rules = (FIRST, SCAN, *self._machine.draws[0].views, FIXED, PRICE)
        sequences, roots = np.unique(np.concatenate(self._sequences), return_counts=True)
        return DrawnSums(sequences, roots, {rule: np.stack([one.of(rule) for one in self._texts], 1) for rule in rules})


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


def _scan(found: Sequence[_Machine], order: BestFirst, roots: CurveRoots, most: int) -> pl.DataFrame:
    """The first pass over all roots; says where they are."""
    wheres = []
    for part, where in _parts(order, roots, most):
        wheres.append(where)
        for one in found:
            one.scan(part)
    if not any(where.height for where in wheres):
        raise ValueError("there are no rounds, so there is no curve")
    return pl.concat(wheres)


def _price(tallies: Sequence[Tally], order: BestFirst, roots: CurveRoots, most: int) -> None:
    """One more pass, and a step of each tally."""
    for part, _ in _parts(order, roots, most):
        for tally in tallies:
            tally.price(part)
    for tally in tallies:
        tally.step()


def _parts(order: BestFirst, roots: CurveRoots, most: int) -> Iterator[tuple[RootPart, pl.DataFrame]]:
    """Some roots after the other, and where they are."""
    for texts in roots.texts():
        chosen = roots.of(texts)
        where = _where(texts, chosen)
        scores = order.layer(texts, most, with_scores=True).score_rows[chosen]
        yield RootPart(scores, texts.contexts[chosen], where["sequence"].to_numpy().astype(np.int64)), where
        roots.advance(len(texts.roots.places))


def _where(texts: RecordedTexts, chosen: Longs) -> pl.DataFrame:
    firsts = texts.roots.firsts
    text = np.searchsorted(firsts, chosen, side="right") - 1
    of_text = pl.DataFrame(
        [(one.prompt.dataset, one.prompt.prompt_id, one.prompt.turn, one.index) for one in texts.sequences],
        schema={name: SCHEMA[name] for name in ("dataset", "prompt_id", "turn", "sequence")},
        orient="row",
    )
    return of_text[text].with_columns(position=chosen - firsts[text], context=texts.contexts[chosen])
