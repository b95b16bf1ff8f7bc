"""Figures of a scoring as flat rows, as scripts, files and reports read them; what is not known is None."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from simlab.analysis.scoring.gap_and_waste import PolicyFigures, policy_figures
from simlab.analysis.scoring.path_places import Coverage, OrderFigures, order_figures, path_coverage
from simlab.analysis.scoring.reliability import (
    Calibration,
    EdgeSlice,
    ScoredEdges,
    calibration,
    loss_against,
    reliability,
)
from simlab.analysis.scoring.score import Scoring
from simlab.analysis.statistics.intervals import finite
from simlab.analysis.table.estimates import Estimate
from simlab.policies.fits.edge_sums import RANK_CLASSES
from simlab.traces.format.files import write_frame

Scalar = str | int | float | bool | None
Row = dict[str, Scalar]

RELIABILITY_SCHEMA: dict[str, pl.DataType] = {
    "slice": pl.String(),
    "edges": pl.String(),
    "has_probabilities": pl.Boolean(),
    "place": pl.String(),
    "depth": pl.Int32(),
    "rank": pl.String(),
    "num_edges": pl.Int64(),
    "weight_share": pl.Float64(),
    "predicted": pl.Float64(),
    "observed": pl.Float64(),
    "observed_ci_low": pl.Float64(),
    "observed_ci_high": pl.Float64(),
}
"""One row is one bin of one edge model; see `simlab.analysis.scoring.reliability.ReliabilityBin`. ``slice`` is the
dataset, or null for all; ``depth`` and ``rank`` are null for all."""


def calibration_rows(scored: Scoring) -> list[Row]:
    """A row for each edge model, place, and depth or class of rank."""
    return [
        _calibration_row(model, found, loss_against(model, scored.edges[0], where) if _is_whole(where) else None)
        for model in scored.edges
        for where in model.slices()
        if (found := calibration(model, where)) is not None
    ]


def reliability_rows(scored: Scoring, every_depth: bool) -> list[Row]:
    """A row for each bin of each edge model and place: of all its candidates, and of each class of rank and depth.

    Args:
        scored: what to tell.
        every_depth: without it only all candidates, and the first ones.
    """
    rows: list[Row] = []
    for model in scored.edges:
        for where in model.slices():
            is_first = where.depth is None and where.rank in (None, RANK_CLASSES[0])
            if (where.depth is None or where.rank is None) and (every_depth or is_first):
                rows += _reliability_rows(model, where)
    return rows


def order_rows(scored: Scoring) -> list[Row]:
    """A row for each order of nodes."""
    if scored.places is None:
        return []
    caps = scored.places.caps
    return [_order_row(figure, caps) for figure in order_figures(scored.places)]


def coverage_rows(scored: Scoring) -> list[Row]:
    """A row for each order of nodes and depth."""
    places = scored.places
    if places is None:
        return []
    return [
        _coverage_row(coverage, places.caps) for order in places.orders for coverage in path_coverage(places, order)
    ]


def policy_rows(scored: Scoring) -> list[Row]:
    """A row for each policy."""
    return [_policy_row(figure) for figure in policy_figures(scored.rounds)]


def with_slice(rows: Iterable[Row], value: str | None) -> list[Row]:
    """The rows of one dataset, or, None, of all."""
    first: Row = {"slice": value}
    return [first | row for row in rows]


def write_reliability(path: Path, rows: Sequence[Row], ids: Mapping[str, str]) -> None:
    """Write bins as a Parquet file, whole or not at all.

    Args:
        path: the file.
        rows: of `reliability_rows`, with their slices.
        ids: columns with one value for all rows, which say where they come from.
    """
    frame = pl.DataFrame(rows, schema=RELIABILITY_SCHEMA, orient="row")
    write_frame(path, frame.with_columns(**{name: pl.lit(value, pl.String) for name, value in ids.items()}))


def _is_whole(where: EdgeSlice) -> bool:
    return where.depth is None and where.rank is None


def _calibration_row(model: ScoredEdges, one: Calibration, against: Estimate | None) -> Row:
    return (
        _slice_of(model, one.slice)
        | {"num_nodes": one.nodes, "num_edges": one.edges}
        | {"expected_per_node": one.expected, "true_per_node": one.observed}
        | _row("excess_per_node", one.excess)
        | _row("ece_per_node", one.ece)
        | {"ece_per_node_raw": one.raw_ece}
        | _row("log_loss_per_node", one.log_loss)
        | _row("log_loss_against_first", against)
        | {"brier_per_node": one.brier}
    )


def _reliability_rows(model: ScoredEdges, where: EdgeSlice) -> list[Row]:
    return [
        _slice_of(model, where)
        | {"num_edges": one.edges, "weight_share": one.weight, "predicted": one.predicted}
        | _row("observed", one.observed)
        for one in reliability(model, where)
    ]


def _slice_of(model: ScoredEdges, where: EdgeSlice) -> Row:
    first: Row = {"edges": model.label, "has_probabilities": model.has_probabilities}
    return first | {"place": where.place, "depth": where.depth, "rank": where.rank}


def _order_row(figures: OrderFigures, caps: Sequence[int]) -> Row:
    row: Row = {"order": figures.order}
    row |= _row("auc", figures.auc) | _row("excess_nodes", figures.excess)
    for index, cap in enumerate(caps):
        row[f"expected_accepted_{cap}"] = None if figures.expected is None else finite(figures.expected[index])
        row[f"accepted_{cap}"] = finite(figures.accepted[index])
        row |= _row(f"overstated_share_{cap}", None if figures.overstated is None else figures.overstated[index])
    return row


def _coverage_row(coverage: Coverage, caps: Sequence[int]) -> Row:
    row: Row = {"order": coverage.order, "depth": coverage.depth, "roots": coverage.roots}
    for cap, share in zip(caps, coverage.shares, strict=True):
        row |= _row(f"covered_share_{cap}", share)
    return row | {"nodes_median": coverage.median, "nodes_90_percent": coverage.ninety}


def _policy_row(figures: PolicyFigures) -> Row:
    row: Row = {"policy": figures.policy, "budget": figures.budget, "acceptance_length": figures.acceptance_length}
    row |= {"acceptance_length_macro": finite(figures.acceptance_length_macro)}
    row |= {"chain_acceptance_length": figures.chain, "hindsight_acceptance_length": figures.hindsight}
    row |= _row("gap_closed_share", figures.closed)
    row |= _row("gap_closed_against_first", figures.against_first)
    row |= {"tokens_per_s": figures.tokens_per_s, "chain_tokens_per_s": figures.chain_tokens_per_s}
    row |= {"hindsight_tokens_per_s": figures.hindsight_tokens_per_s}
    row |= _row("speed_gap_closed_share", figures.speed_closed)
    row |= {"num_drafted": figures.drafted}
    for name in ("accepted_share", "sibling_share", "below_wrong_share"):
        row |= _row(name, getattr(figures, name))
    return row


def _row(name: str, figure: Estimate | None) -> Row:
    return dict((Estimate(math.nan) if figure is None else figure).row(name, digits=None))
