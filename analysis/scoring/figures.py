"""Figures of a scoring, made of the rows that ``simlab scoring --json`` prints and of nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, INDIGO, LIGHT, OCHRE, VERMILLION, on_white
from simlab.analysis.scoring.reliability import ANY, OFF_SPINE, ON_SPINE
from simlab.analysis.scoring.score import without_budget

Rows = Sequence[Mapping[str, Any]]
"""Rows of one of the lists of the JSON."""

_PLACES = {
    ON_SPINE: (BLUE, "solid", "circle"),
    OFF_SPINE: (VERMILLION, "dash", "square"),
    ANY: (INDIGO, "dot", "x"),
}


def reliability_figure(rows: Rows, edges: Sequence[str]) -> go.Figure:
    """Probabilities against how often they came true, a panel for each edge model.

    Args:
        rows: of the list ``reliability``.
        edges: edge models by their labels.
    """
    figure = make_subplots(1, len(edges), subplot_titles=list(edges), shared_yaxes=True, horizontal_spacing=0.03)
    for column, label in enumerate(edges, 1):
        figure.add_scatter(
            x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "width": 1}, showlegend=False, row=1, col=column
        )
        for place, (color, dash, symbol) in _PLACES.items():
            some = _chosen(rows, edges=label, place=place, depth=None, rank=None)
            if some:
                figure.add_scatter(
                    x=[row["predicted"] for row in some],
                    y=[row["observed"] for row in some],
                    error_y=_bars(some, "observed"),
                    mode="lines+markers",
                    line={"color": color, "dash": dash},
                    marker={"symbol": symbol, "size": 6},
                    name=place,
                    legendgroup=place,
                    showlegend=column == 1,
                    row=1,
                    col=column,
                )
        figure.update_xaxes(title_text="probability", range=[0, 1], row=1, col=column)
    figure.update_yaxes(range=[0, 1])
    figure.update_yaxes(title_text="share that came true", row=1, col=1)
    return _plain(figure)


def first_candidates_figure(rows: Rows, edges: Sequence[str]) -> go.Figure:
    """First candidates by depth: what edge models say, and how many are right, on the spine and off it.

    Args:
        rows: of the list ``calibration``.
        edges: edge models by their labels; what came true is the same for all.
    """
    figure = make_subplots(1, 2, subplot_titles=[ON_SPINE, OFF_SPINE], shared_yaxes=True, horizontal_spacing=0.04)
    for column, place in enumerate((ON_SPINE, OFF_SPINE), 1):
        for number, label in enumerate(edges):
            some = [row for row in _chosen(rows, edges=label, place=place, rank="0") if row["depth"] is not None]
            if number == 0:
                figure.add_bar(
                    x=[row["depth"] for row in some],
                    y=[row["true_per_node"] for row in some],
                    marker={"color": "#BBBBBB"},
                    name="came true",
                    showlegend=column == 1,
                    row=1,
                    col=column,
                )
            figure.add_scatter(
                x=[row["depth"] for row in some],
                y=[row["expected_per_node"] for row in some],
                mode="lines+markers",
                line={"color": _COLORS[number], "dash": _DASHES[number]},
                marker={"symbol": _SYMBOLS[number], "size": 7},
                name=label,
                legendgroup=label,
                showlegend=column == 1,
                row=1,
                col=column,
            )
        figure.update_xaxes(title_text="depth", dtick=1, row=1, col=column)
    figure.update_yaxes(title_text="first candidate is right", range=[0, 0.9], row=1, col=1)
    figure.update_yaxes(range=[0, 0.9])
    return _plain(figure)


def coverage_figure(rows: Rows, cap: int) -> go.Figure:
    """The share of roots whose first nodes hold the true path, by depth, a line for each order.

    Args:
        rows: of the list ``coverage``.
        cap: nodes.
    """
    figure = go.Figure()
    for number, label in enumerate(dict.fromkeys(row["order"] for row in rows)):
        some = _chosen(rows, order=label)
        figure.add_scatter(
            x=[row["depth"] for row in some],
            y=[row[f"covered_share_{cap}"] for row in some],
            mode="lines+markers",
            line={"color": _COLORS[number % len(_COLORS)], "dash": _DASHES[number % len(_DASHES)]},
            marker={"symbol": _SYMBOLS[number % len(_SYMBOLS)], "size": 7},
            name=label,
        )
    figure.update_xaxes(title_text="depth", dtick=1)
    figure.update_yaxes(title_text=f"true path within {cap} nodes, share of roots", rangemode="tozero")
    return _plain(figure)


def gap_figure(rows: Rows) -> go.Figure:
    """How much of the way from the chain to the hindsight bound policies go, with intervals.

    Args:
        rows: of the list ``policies``.
    """
    figure = go.Figure()
    for number, budget in enumerate(sorted({row["budget"] for row in rows})):
        some = _chosen(rows, budget=budget)
        figure.add_scatter(
            x=[100 * row["gap_closed_share"] for row in some],
            y=[without_budget(row["policy"]) for row in some],
            error_x=_bars(some, "gap_closed_share", 100),
            mode="markers",
            marker={"color": _COLORS[number], "symbol": _SYMBOLS[number], "size": 9},
            name=f"{budget} nodes",
        )
    figure.update_xaxes(
        title_text="gap from chain to oracle upper bound closed, % of acceptance length", rangemode="tozero"
    )
    figure.update_yaxes(autorange="reversed")
    return _plain(figure)


def waste_figure(rows: Rows) -> go.Figure:
    """What the drafted tokens of policies are: accepted, wrong below a true parent, below a wrong one.

    Args:
        rows: of the list ``policies``.
    """
    figure = go.Figure()
    parts = {
        "accepted": ("accepted", BLUE),
        "sibling": ("wrong, parent true", GREY),
        "below_wrong": ("parent wrong", OCHRE),
    }
    for name, (text, color) in parts.items():
        figure.add_bar(
            x=[100 * row[f"{name}_share"] for row in rows],
            y=[row["policy"] for row in rows],
            orientation="h",
            marker={"color": color, "line": {"color": "white", "width": 1}},
            name=text,
        )
    figure.update_xaxes(title_text="drafted tokens, %", range=[0, 100])
    figure.update_yaxes(autorange="reversed")
    return _plain(figure).update_layout(barmode="stack", legend_traceorder="normal")


_COLORS = LIGHT
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")


def _chosen(rows: Rows, **wanted: str | int | None) -> list[Mapping[str, Any]]:
    """Rows of everything, not of one dataset, that have these values."""
    return [
        row for row in rows if row.get("slice") is None and all(row[name] == value for name, value in wanted.items())
    ]


def _bars(rows: Iterable[Mapping[str, Any]], name: str, scale: float = 1.0) -> dict[str, Any]:
    above, below = [], []
    for row in rows:
        low, high = row[f"{name}_ci_low"], row[f"{name}_ci_high"]
        above.append(0.0 if high is None else scale * (high - row[name]))
        below.append(0.0 if low is None else scale * (row[name] - low))
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1, "width": 2}


def _plain(figure: go.Figure) -> go.Figure:
    """Lay a figure out for a document, its legend above."""
    figure.update_layout(
        margin={"l": 70, "r": 20, "t": 60, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.08, "x": 0},
    )
    return on_white(figure)
