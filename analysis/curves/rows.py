"""Rows of the curves of expected tokens per second: what each rule takes at each root, and what it is worth.

The roots are held fixed, all of a trace or those that one policy comes to. A rule that takes another size would come
to other roots; that is what a replay is for. Here rules are held against each other where all of them decide the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import polars as pl

from simlab.analysis.curves.tallies import (
    FIRST,
    NOTABLE_SHARE,
    PRICED,
    SCAN,
    CurveMachine,
    RootPart,
    Scanned,
    Taken,
    Tally,
    price_part,
    regret_shares,
    scan_halves,
    scan_part,
    split_halves,
    sums_of_parts,
    sums_of_roots,
    sums_of_texts,
)
from simlab.analysis.table.estimates import Figures
from simlab.arrays import Doubles, Ints, Longs
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.ratio_curves import (
    AVAILABLE,
    DEEP_MAXIMA,
    MAXIMA,
    kept_valleys,
    scan_curves,
    tokens_of_roots,
)
from simlab.recorded import RecordedTexts
from simlab.traces.format.files import write_frame
from simlab.workers.threads import in_order, num_cores

Found = TypeVar("Found")

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
        halves: see `simlab.analysis.curves.tallies.split_halves`; None: the samples cannot be halved.
    """

    edges: str
    cost_id: str
    budget: int
    rate: float
    budget_curve: Doubles
    drawn: DrawnSums | None = None
    halves: Figures | None = None


RootScan: TypeAlias = Callable[[RootPart], Found]
"""What is asked of some roots; it can be pickled, and what it finds too."""


MOST_KEPT = 1 << 28
"""Bytes of expected tokens that are kept between looks at the same roots."""


class Roots(Protocol):
    """The roots at which rules decide on a tree's size, looked at as often as is asked."""

    def __call__(self, order: BestFirst, most: int, look: RootScan[Found]) -> Iterator[tuple[pl.DataFrame, Found]]:
        """Where some roots are and what is found there, in the same parts each time.

        Args:
            order: of nodes.
            most: nodes that are looked at.
            look: what is asked.
        """
        ...


_ReadPart: TypeAlias = tuple[pl.DataFrame, RootPart, int]
"""Where some roots are, what they bring, and how many were looked at."""


def roots_read_here(
    texts: Callable[[], Iterable[RecordedTexts]],
    chosen: Callable[[RecordedTexts], Longs] | None = None,
    advance: Callable[[int], object] = int,
) -> Roots:
    """Roots of texts that are looked at on the cores of this process; what they bring is kept where it has room.

    Args:
        texts: reads them anew each time, in the same parts.
        chosen: which roots of some texts count, int64; None: all.
        advance: is told how many roots were looked at.
    """
    kept: dict[tuple[str, int], list[_ReadPart]] = {}

    def roots(order: BestFirst, most: int, look: RootScan[Found]) -> Iterator[tuple[pl.DataFrame, Found]]:
        def read(some: RecordedTexts) -> tuple[_ReadPart, Found]:
            where, part = root_part(some, chosen, order, most)
            return (where, part, len(some.roots.token_indices)), look(part)

        def again(part: _ReadPart) -> tuple[_ReadPart, Found]:
            return part, look(part[1])

        known, threads = kept.get((order.key, most)), num_cores()
        parts, size = list[_ReadPart](), 0
        looks = in_order(iter(texts()), read, threads) if known is None else in_order(iter(known), again, threads)
        for part, result in looks:
            size += part[1].expected.tokens.nbytes
            parts = [*parts, part] if size <= MOST_KEPT else []
            yield part[0], result
            advance(part[2])
        if parts:
            kept[order.key, most] = parts

    return roots


def root_part(
    texts: RecordedTexts, chosen: Callable[[RecordedTexts], Longs] | None, order: BestFirst, most: int
) -> tuple[pl.DataFrame, RootPart]:
    """Where the roots of some texts are that count, and what their rounds bring.

    Args:
        texts: with draft rows.
        chosen: which roots count, int64; None: all.
        order: of nodes.
        most: nodes that are looked at.
    """
    counted = np.arange(len(texts.roots.token_indices)) if chosen is None else chosen(texts)
    where = _where(texts, counted)
    scores = order.layer(texts, most, with_scores=True).score_rows[counted]
    expected = tokens_of_roots(scores, texts.contexts[counted])
    return where, RootPart(expected, where["sequence"].to_numpy().astype(np.int64))


def curve_rows(
    orders: Mapping[str, BestFirst], machines: Sequence[CurveMachine], roots: Roots, most: int
) -> tuple[CurveRows, list[CurveSetting]]:
    """A row for each edge model, machine, rule and root.

    Args:
        orders: by the names of their edge models; their scores are probabilities.
        machines: with different ids.
        roots: where rules decide.
        most: drafted tokens, at most.

    Returns:
        The rows, columns as `SCHEMA`; and what was chosen for all roots together.
    """
    frames, settings = [], []
    for name, order in orders.items():
        running = [_Machine(machine) for machine in machines]
        wheres = []
        for where, looks in roots(order, most, partial(_first_looks, machines)):
            wheres.append(where)
            for machine, first in zip(running, looks, strict=True):
                machine.scanned(first)
        if not any(where.height for where in wheres):
            raise ValueError("there are no rounds, so there is no curve")
        for machine in running:
            machine.start()
        while any(any(machine.asked) for machine in running):
            asked = [machine.asked for machine in running]
            for _, again in roots(order, most, partial(_next_looks, machines, asked)):
                for machine, more in zip(running, again, strict=True):
                    machine.priced(more)
            for machine in running:
                machine.step()
        frames += [machine.frame(name, order.edge.key, pl.concat(wheres)) for machine in running]
        settings += [machine.setting(name) for machine in running]
    return pl.concat(frames), settings


class _FirstLook(NamedTuple):
    """What one machine comes to at some roots, looked at for the first time.

    Attributes:
        sequences: int64 ``[R]``, the text of each root.
        curves: int32 ``[R, 3]``, `AVAILABLE`, `MAXIMA` and `DEEP_MAXIMA` of each curve.
        measured: at the prices as measured.
        drawn: at each draw of them: sums of fixed budgets, and of each rule by text.
        kept: float64 ``[R, 2]``, the shares of draws that keep a valley; None: there are no draws.
        halves: those of `scan_halves`; None: there are no halves.
    """

    sequences: Longs
    curves: Ints
    measured: Scanned
    drawn: Sequence[tuple[Doubles, Mapping[str, Doubles]]]
    kept: Doubles | None
    halves: Doubles | None


class _NextLook(NamedTuple):
    """What one machine's rules take at the budgets and rates that were asked for; None: nothing was."""

    measured: Mapping[str, Taken] | None
    drawn: Sequence[Mapping[str, Doubles] | None]


def _first_looks(machines: Sequence[CurveMachine], part: RootPart) -> list[_FirstLook]:
    """Everything that needs no other roots, of each machine."""
    looks = []
    for machine in machines:
        drawn = [
            (fixed, sums_of_texts(taken, part.sequences, taken))
            for fixed, taken in (scan_part(draw, part) for draw in machine.draws)
        ]
        curves = scan_curves(part.expected, machine.costs, NOTABLE_SHARE)[:, [AVAILABLE, MAXIMA, DEEP_MAXIMA]]
        kept = None
        if machine.draws:
            kept = kept_valleys(part.expected, machine.costs, machine.drawn_s, NOTABLE_SHARE)
        halves = scan_halves(machine.halves, part) if machine.halves else None
        looks.append(_FirstLook(part.sequences, curves, scan_part(machine, part), drawn, kept, halves))
    return looks


def _next_looks(
    machines: Sequence[CurveMachine], asked: Sequence[Sequence[tuple[int, float] | None]], part: RootPart
) -> list[_NextLook]:
    """What rules take at budgets and rates: of each machine as measured, and at each draw."""
    looks = []
    for machine, (first, *others) in zip(machines, asked, strict=True):
        drawn = [
            None if asked is None else sums_of_texts(price_part(draw, part, *asked), part.sequences, PRICED)
            for draw, asked in zip(machine.draws, others, strict=True)
        ]
        measured = None if first is None else price_part(machine, part, *first)
        looks.append(_NextLook(None if measured is None else {rule: measured[rule] for rule in PRICED}, drawn))
    return looks


class _Machine:
    """What is known of one edge model on one machine: as measured, at each draw, and by halves."""

    def __init__(self, machine: CurveMachine) -> None:
        self._machine = machine
        self._measured = Tally(machine, sums_of_roots)
        self._drawn_tallies = [Tally(draw, sums_of_parts) for draw in machine.draws]
        self._looks: list[_FirstLook] = []

    @property
    def _tallies(self) -> "list[Tally[Taken] | Tally[Doubles]]":
        return [self._measured, *self._drawn_tallies]

    def scanned(self, look: _FirstLook) -> None:
        """Some more roots were looked at for the first time."""
        self._looks.append(look)
        self._measured.scanned(look.measured.fixed, look.measured.taken)
        for tally, (fixed, taken) in zip(self._drawn_tallies, look.drawn, strict=True):
            tally.scanned(fixed, taken)

    def start(self) -> None:
        """All roots were looked at once."""
        for tally in self._tallies:
            tally.start()

    @property
    def asked(self) -> list[tuple[int, float] | None]:
        """Budget and rate of the next pass, as measured and at each draw; None where there is no next."""
        return [tally.asked for tally in self._tallies]

    def priced(self, look: _NextLook) -> None:
        """Some more roots were looked at again."""
        if look.measured is not None:
            self._measured.priced(look.measured)
        for tally, taken in zip(self._drawn_tallies, look.drawn, strict=True):
            if taken is not None:
                tally.priced(taken)

    def step(self) -> None:
        """All roots were looked at once more."""
        for tally in self._tallies:
            if not tally.settled:
                tally.step()

    def frame(self, edges: str, edges_key: str, where: pl.DataFrame) -> pl.DataFrame:
        """The rows of this edge model and machine, rule after rule."""
        available, maxima, deep = np.concatenate([look.curves for look in self._looks]).T
        known = [look.kept for look in self._looks if look.kept is not None]
        kept: list[object] = list(np.concatenate(known).T) if known else [None, None]
        taken = {
            rule: tuple(map(np.concatenate, zip(*parts, strict=True))) for rule, parts in self._measured.taken.items()
        }
        _, best_tokens, best_s = taken[SCAN]
        frames = []
        for rule in (FIRST, SCAN, *self._machine.views, *PRICED):
            sizes, tokens, seconds = taken[rule]
            numbers: dict[str, object] = {"num_available": available, "num_maxima": maxima, "num_deep_maxima": deep}
            numbers |= {"num_drafted": sizes, "expected_tokens": tokens, "round_s": seconds}
            numbers["regret_share"] = regret_shares(tokens / seconds, best_tokens / best_s)
            names = {"edges": edges, "edges_key": edges_key, "cost_id": self._machine.cost_id, "rule": rule}
            numbers |= {
                f"kept_{name}_share": share for name, share in zip(("valley", "deep_valley"), kept, strict=True)
            }
            columns = {name: pl.lit(value) for name, value in (names | numbers).items()}
            frames.append(where.with_columns(**columns))
        return pl.concat(frames).select([pl.col(name).cast(kind) for name, kind in SCHEMA.items()])

    def setting(self, edges: str) -> CurveSetting:
        """The budget and the rate that were chosen, and what is known of noise."""
        tally, known = self._measured, [look.halves for look in self._looks if look.halves is not None]
        halves = split_halves(np.sum(known, axis=0)) if known else None
        curve, cost_id = tally.budget_curve, self._machine.cost_id
        return CurveSetting(edges, cost_id, tally.budget, tally.rate, curve, self._drawn(), halves)

    def _drawn(self) -> DrawnSums | None:
        if not self._drawn_tallies:
            return None
        rules = (FIRST, SCAN, *self._machine.draws[0].views, *PRICED)
        sequences, roots = np.unique(np.concatenate([look.sequences for look in self._looks]), return_counts=True)
        taken = [tally.taken for tally in self._drawn_tallies]
        sums = {rule: np.stack([np.concatenate(by_rule[rule]) for by_rule in taken], 1) for rule in rules}
        return DrawnSums(sequences, roots, sums)


def write_rows(path: Path, rows: CurveRows, ids: Mapping[str, str | None]) -> None:
    """Write the rows as a Parquet file, whole or not at all.

    Args:
        path: the file.
        rows: of `curve_rows`.
        ids: columns with one value for all rows, which say where they come from.
    """
    write_frame(path, rows.with_columns(**{name: pl.lit(value, pl.String) for name, value in ids.items()}))


def _where(texts: RecordedTexts, chosen: Longs) -> pl.DataFrame:
    firsts = texts.roots.firsts
    text = np.searchsorted(firsts, chosen, side="right") - 1
    of_text = pl.DataFrame(
        [
            (sequence.prompt.dataset, sequence.prompt.prompt_id, sequence.prompt.turn, sequence.index)
            for sequence in texts.sequences
        ],
        schema={name: SCHEMA[name] for name in ("dataset", "prompt_id", "turn", "sequence")},
        orient="row",
    )
    return of_text[text].with_columns(position=chosen - firsts[text], context=texts.contexts[chosen])
