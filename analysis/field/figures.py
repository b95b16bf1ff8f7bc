"""Figures of the field, made of the rows that ``simlab study field --json`` prints and of nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, OCHRE, VERMILLION, on_white

Rows = Sequence[Mapping[str, Any]]

_ROW_HEIGHT, _MARGINS = 24, 150


def gains_figure(rows: Rows, sizes: Sequence[str], baseline: str) -> go.Figure:
    """Tokens a round over the baseline's, a panel for each number of drafted tokens, with intervals.

    Args:
        rows: on all prompts.
        sizes: of which the panels are.
        baseline: the system that gains are over; it has no mark of its own.
    """
    names = _names(rows, sizes)
    titles = [f"at most {size} drafted tokens" for size in sizes]
    figure = make_subplots(1, len(sizes), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    for column, size in enumerate(sizes, 1):
        own = [row for row in rows if row["size"] == size and row["gain_tokens"] is not None]
        figure.add_scatter(**_marks(own, "gain_tokens", 100, BLUE, "circle", size), showlegend=False, row=1, col=column)
        figure.update_xaxes(title_text=f"tokens a round, % over {baseline}", row=1, col=column)
    figure.add_vline(x=0, line={"color": GREY, "width": 1}, row="all", col="all")
    return _laid_out(figure, names)


def speeds_figure(rows: Rows, size: str) -> go.Figure:
    """Speedups over autoregressive decoding of each system at one size: predicted, measured and GPU-like.

    Args:
        rows: on all prompts.
        size: of which systems are shown.
    """
    own = [row for row in rows if row["size"] == size and row["predicted_speedup"] is not None]
    figure = go.Figure()
    for name, label, color, symbol in (
        ("predicted_speedup", "predicted", BLUE, "circle"),
        ("measured_speedup", "measured", VERMILLION, "square"),
        ("gpu_like_speedup", "GPU-like prices, not measured", OCHRE, "diamond"),
    ):
        known = [row for row in own if row[name] is not None]
        figure.add_scatter(**_marks(known, name, 1, color, symbol, label))
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(title_text="speedup over autoregressive decoding")
    return _laid_out(figure, _names(own, [size]))


def _names(rows: Rows, sizes: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(_name(row) for row in rows if row["size"] in sizes))


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['system']}{'*' if row['reconstruction'] else ''}"


def _marks(rows: Rows, name: str, scale: float, color: str, symbol: str, label: str) -> dict[str, Any]:
    """Points and the ends of their intervals, as far as these are known."""
    ends = [(row[name], row[f"{name}_low"], row[f"{name}_high"]) for row in rows]
    return {
        "x": [scale * value for value, _, _ in ends],
        "y": [_name(row) for row in rows],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [0 if high is None else scale * (high - value) for value, _, high in ends],
            "arrayminus": [0 if low is None else scale * (value - low) for value, low, _ in ends],
            "thickness": 1.2,
            "width": 3,
        },
        "mode": "markers",
        "marker": {"color": color, "symbol": symbol, "size": 8},
        "name": label,
    }


def _laid_out(figure: go.Figure, names: Sequence[str]) -> go.Figure:
    figure.update_yaxes(categoryorder="array", categoryarray=list(names)[::-1])
    figure.update_layout(
        margin={"l": 150, "r": 20, "t": 70, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
    )
    return on_white(figure, _MARGINS + _ROW_HEIGHT * max(len(names), 4))
