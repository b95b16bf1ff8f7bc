"""The curve at one root, to be drawn: where the first stop lost most."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from simlab.analysis.curves.machines import FIRST, CurveMachine
from simlab.analysis.curves.rows import CurveSetting
from simlab.arrays import Doubles
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.ratio_curves import root_curve
from simlab.recorded import RecordedTexts


@dataclass(frozen=True, slots=True)
class CurveExample:
    """One root, and where each rule ends on its curve.

    Attributes:
        edges: the edge model's name.
        cost_id: of the machine's prices.
        sequence: the text.
        position: the root, a token of the text.
        context: tokens before it.
        sizes: drafted tokens, by rule.
        curve: float64 ``[available + 1]``, expected tokens per second by the number of drafted tokens.
    """

    edges: str
    cost_id: str
    sequence: int
    position: int
    context: int
    sizes: dict[str, int]
    curve: Doubles

    def row(self) -> dict[str, object]:
        """Plain values, as a script reads them."""
        return {
            "edges": self.edges,
            "cost_id": self.cost_id,
            "sequence": self.sequence,
            "position": self.position,
            "context": self.context,
            "num_drafted": self.sizes,
            "tokens_per_s": self.curve.tolist(),
        }


def worst_example(
    rows: pl.DataFrame,
    setting: CurveSetting,
    order: BestFirst,
    machine: CurveMachine,
    text: Callable[[int], RecordedTexts],
    most: int,
) -> CurveExample:
    """Where the first stop lost the largest share of the full scan's tokens per second; of several the first root.

    Args:
        rows: of `simlab.analysis.curves.rows.curve_rows`.
        setting: one of those from there.
        order: of its edge model.
        machine: its prices.
        text: reads one sequence.
        most: drafted tokens, as the rows were made with.
    """
    own = rows.filter(pl.col("edges") == setting.edges, pl.col("cost_id") == setting.cost_id)
    first = own.filter(pl.col("rule") == FIRST)
    place = first["regret_share"].arg_max()
    sequence, position, context = first.select("sequence", "position", "context").row(place or 0)
    there = own.filter(pl.col("sequence") == sequence, pl.col("position") == position)
    scores = order.layer(text(sequence), most, with_scores=True).score_rows[position]
    sizes = dict(zip(there["rule"].to_list(), there["num_drafted"].to_list(), strict=True))
    curve = root_curve(scores, context, machine.costs)
    return CurveExample(
        edges=setting.edges,
        cost_id=setting.cost_id,
        sequence=sequence,
        position=position,
        context=context,
        sizes=sizes,
        curve=curve,
    )
