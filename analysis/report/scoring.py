"""Figures of a report about scoring: whether edge models say the truth, and what their trees are spent on."""

from collections.abc import Sequence

from simlab.analysis.figure_style import on_page
from simlab.analysis.report.parts import Chart, Grid, Part
from simlab.analysis.scoring.figures import first_candidates_figure, gap_figure, reliability_figure, waste_figure
from simlab.analysis.scoring.reliability import OFF_SPINE, ON_SPINE
from simlab.analysis.scoring.rows import Row, calibration_rows, policy_rows, reliability_rows
from simlab.analysis.scoring.score import Scoring, without_budget


def scoring_parts(scored: Scoring, labels: Sequence[str]) -> list[Part]:
    """Charts and a table of what was scored.

    Args:
        scored: policies of one budget.
        labels: of the policies.
    """
    edges = [without_budget(label) for label in labels]
    calibration, policies = calibration_rows(scored), policy_rows(scored)
    return [
        Chart(
            "reliability",
            on_page(reliability_figure(reliability_rows(scored, every_depth=False), edges)),
            "Reliability: probabilities against observed frequencies",
            "Of candidates below a prefix that is the target's own. On the grey line predicted and observed are equal. "
            "Spine (the greedy path): every token before is the drafter's first candidate. Bars are 95 % intervals "
            "over prompts.",
        ),
        _errors(calibration, edges),
        Chart(
            "first-candidates",
            on_page(first_candidates_figure(calibration, edges)),
            "First candidates by depth",
            "Bars: how often the first candidate is right. Lines: what edge models say.",
        ),
        Chart(
            "gap",
            on_page(gap_figure(policies)),
            "From the chain to the oracle upper bound",
            "How much of the gap in acceptance length between the chain and the oracle upper bound a policy closes.",
            260,
        ),
        Chart(
            "waste",
            on_page(waste_figure(policies)),
            "What drafted tokens are spent on",
            "Accepted; wrong although the token before was the target's; or below a token that was already wrong.",
            260,
        ),
    ]


def _errors(rows: Sequence[Row], edges: Sequence[str]) -> Grid:
    """The calibration error of each edge model, on the greedy path and off it."""
    cells = []
    for label in edges:
        own = {str(row["place"]): row for row in rows if row["edges"] == label and _is_whole(row)}
        cells.append([label, *(_with_ends(own.get(place)) for place in (ON_SPINE, OFF_SPINE))])
    heads = ["edge model", "calibration error (ECE) on the greedy path [95 %]", "off it [95 %]"]
    return Grid(heads, cells, ["Per node: the sum over candidates of how far probability and frequency lie apart."])


def _is_whole(row: Row) -> bool:
    return row["depth"] is None and row["rank"] is None


def _with_ends(row: Row | None) -> str:
    if row is None or row["ece_per_node"] is None:
        return "-"
    value, low, high = (row[f"ece_per_node{end}"] for end in ("", "_ci_low", "_ci_high"))
    return f"{value:.3f}" if low is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
