"""Figures of studies of released files, made of what ``simlab study reproduce NAME --json`` prints and of nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREEN, GREY, INDIGO, PURPLE, VERMILLION, line, on_white

Value = Mapping[str, Any]
"""Of the JSON, parsed."""


def domino_rounds_figure(found: Value) -> go.Figure:
    """Their acceptance lengths beside means of the same rounds, and the graph arm over the eager one.

    Args:
        found: of ``domino-rounds``.
    """
    arms, means = found["arms"], found["means"]
    names = [_setting(row) for row in arms]
    titles = ("acceptance length: theirs, and three means", "graph arm over eager arm, paired")
    figure = make_subplots(1, 2, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    figure.add_scatter(
        x=[row["theirs"] for row in means],
        y=names,
        mode="markers",
        marker={"color": GREY, "symbol": "line-ns-open", "size": 16, "line": {"width": 3}},
        name="theirs",
    )
    for key, label, color, symbol in (
        ("dataset_macro", "macro averages, datasets weighed equally", BLUE, "circle"),
        ("dataset_pooled", "pooled inside datasets, these equally", INDIGO, "star"),
        ("pooled", "pooled", VERMILLION, "square"),
    ):
        figure.add_trace(_points(means, key, names, label, color, symbol), row=1, col=1)
    for key, label, color, symbol in (
        ("length_ratio", "ratio of lengths (pooled)", PURPLE, "triangle-up"),
        ("speed_ratio", "ratio of speeds", GREEN, "diamond"),
    ):
        figure.add_trace(_points(arms, key, names, label, color, symbol), row=1, col=2)
    figure.add_vline(x=1, line={"color": GREY, "width": 1}, row=1, col=2)  # pyright: ignore[reportArgumentType]
    figure.update_xaxes(title_text="tokens per round", row=1, col=1)
    figure.update_xaxes(title_text="ratio", row=1, col=2)
    return _laid_out(figure, names)


def domino_caddtree_figure(found: Value) -> go.Figure:
    """Lengths and speeds of CaDDTree over those of DDTree of 16, paired, with intervals.

    Args:
        found: of ``domino-caddtree``.
    """
    rows = found["settings"]
    names = [f"{_setting(row)} ({row['same']} of {row['turns']} the same)" for row in rows]
    titles = ("length, macro average", "speed, per turn", "speed, pooled")
    figure = make_subplots(1, 3, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    for column, (key, color, symbol) in enumerate(
        (
            ("macro_length_ratio", BLUE, "circle"),
            ("speed_ratio", GREEN, "diamond"),
            ("pooled_speed_ratio", VERMILLION, "square"),
        ),
        1,
    ):
        figure.add_trace(_points(rows, key, names, titles[column - 1], color, symbol), row=1, col=column)
        figure.add_vline(x=1, line={"color": GREY, "width": 1}, row=1, col=column)  # pyright: ignore[reportArgumentType]
    figure.update_xaxes(range=[0.965, 1.04], tickvals=[0.98, 1, 1.02])
    figure.update_xaxes(title_text="CaDDTree over DDTree@16", row=1, col=2)
    _laid_out(figure, names, left=250)
    figure.update_layout(showlegend=False, margin={"t": 40})
    return figure


def domino_lossless_figure(found: Value) -> go.Figure:
    """How many texts have no difference to autoregressive decoding's so far, by position.

    Args:
        found: of ``domino-lossless``.
    """
    shown = (
        ("results/conditioning_ladder/matched_builder", "marg@16", "Qwen3-4B marginals, 16"),
        ("results/conditioning_ladder/matched_builder", "condstatic@16", "Qwen3-4B one correction per depth, 16"),
        ("results/conditioning_ladder/matched_builder", "dominotree@16", "Qwen3-4B DominoTree, 16"),
        ("results/raw/dominotree", "chain", "Qwen3-4B Domino's chain"),
        ("results/raw/8b/dominotree", "dominotree@16", "Qwen3-8B DominoTree, 16"),
    )
    figure = go.Figure()
    for place, (folder, method, label) in enumerate(shown):
        for one in found["curves"]:
            if (one["folder"], one["method"]) == (folder, method):
                shares = [100 * share for share in one["head_equal"]]
                figure.add_scatter(x=one["positions"], y=shares, mode="lines", line=line(place), name=label)
    figure.update_xaxes(title_text="first tokens of the text")
    figure.update_yaxes(title_text="% of texts without a difference", range=[0, 101])
    figure.update_layout(legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0}, margin={"t": 60, "r": 20})
    return on_white(figure, 380)


def _setting(row: Value) -> str:
    return f"{row['model']} T={row['temperature']}"


def _points(rows: Sequence[Value], key: str, names: Sequence[str], label: str, color: str, symbol: str) -> go.Scatter:
    """A figure of each row with its interval; rows without the figure are left out."""
    some = [(row, name) for row, name in zip(rows, names, strict=True) if row.get(key) is not None]
    return go.Scatter(
        x=[row[key] for row, _ in some],
        y=[name for _, name in some],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_reach(row, key, "high") for row, _ in some],
            "arrayminus": [_reach(row, key, "low") for row, _ in some],
            "thickness": 1.5,
            "width": 3,
        },
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 8},
        name=label,
    )


def _reach(row: Value, key: str, end: str) -> float:
    """How far the interval reaches from the value; 0 where only sums were released, which have no interval."""
    found = row[f"{key}_ci_{end}"]
    return 0.0 if found is None else abs(float(found) - float(row[key]))


def _laid_out(figure: go.Figure, names: Sequence[str], left: int = 130) -> go.Figure:
    figure.update_yaxes(categoryorder="array", categoryarray=list(names)[::-1])
    figure.update_layout(
        margin={"l": left, "r": 20, "t": 80, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.13, "x": 0},
    )
    return on_white(figure, 400)
