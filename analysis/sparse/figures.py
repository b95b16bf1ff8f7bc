"""The figure of what sparse logs predict, made of the rows that ``simlab sparse --json`` prints and of nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, VERMILLION, on_white
from simlab.analysis.sparse.logs import MEAN, NEAREST

_MARKS = {MEAN: ("mean over rows", BLUE, "circle"), NEAREST: ("nearest row", VERMILLION, "square")}


def sparse_figure(rows: Sequence[Mapping[str, Any]], measure: str) -> go.Figure:
    """How far each estimate is from the dense prediction, a panel for each recorded policy, with intervals.

    Args:
        rows: of the list ``rows``.
        measure: which of them.
    """
    some = [row for row in rows if row["measure"] == measure and row["policy"] != row["recorded_policy"]]
    logs = list(dict.fromkeys(row["recorded_policy"] for row in some))
    titles = [f"log of {one}" for one in logs]
    figure = make_subplots(1, len(logs), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    for column, log in enumerate(logs, 1):
        for name, (label, color, symbol) in _MARKS.items():
            own = [row for row in some if row["recorded_policy"] == log]
            figure.add_scatter(
                x=[_percent(row[f"{name}_over_dense"]) for row in own],
                y=[row["policy"] for row in own],
                error_x=_bars(own, f"{name}_over_dense"),
                mode="markers",
                marker={"color": color, "symbol": symbol, "size": 8},
                name=label,
                legendgroup=label,
                showlegend=column == 1,
                row=1,
                col=column,
            )
        figure.update_xaxes(title_text="% off the dense prediction", row=1, col=column)
    figure.add_vline(x=0, line={"color": GREY, "width": 1}, row="all", col="all")
    figure.update_xaxes(matches="x")
    order = list(dict.fromkeys(row["policy"] for row in rows))
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1])
    figure.update_layout(
        margin={"l": 130, "r": 20, "t": 70, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.12, "x": 0},
    )
    return on_white(figure, 360)


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _bars(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Ends of intervals, as far as they are known."""
    above, below = [], []
    for row in rows:
        low, high = row[f"{name}_ci_low"], row[f"{name}_ci_high"]
        above.append(0.0 if high is None else 100 * (high - row[name]))
        below.append(0.0 if low is None else 100 * (row[name] - low))
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1, "width": 2}
