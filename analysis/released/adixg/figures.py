"""Figures of released data, made of what ``simlab study reproduce NAME --json`` prints and of nothing else."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, LIGHT, MARKERS, VERMILLION, on_white

_SIZES = (1, 16, 32, 64)
"""Sizes of a pass that are drawn; all are in the table."""


def pass_prices_figure(found: Mapping[str, Any]) -> go.Figure:
    """What a pass takes by its context, beside both prices of it; and what serving at the corrected price gains.

    Args:
        found: what ``simlab study reproduce adixg-cost --json`` prints.
    """
    titles = ("passes that replay a CUDA graph", "20 rounds of serving, in their order")
    figure = make_subplots(1, 2, subplot_titles=titles, column_widths=[0.62, 0.38], horizontal_spacing=0.11)
    for place, size in enumerate(_SIZES):
        rows = [row for row in found["passes"] if row["tokens"] == size]
        _add_passes(figure, rows, found["k_us_of_graphs"] / 1000, place)
    _add_rounds(figure, found)
    figure.update_xaxes(title_text="context of each request, tokens", row=1, col=1)
    figure.update_yaxes(title_text="ms", row=1, col=1, rangemode="tozero")
    figure.update_xaxes(title_text="round", row=1, col=2)
    figure.update_yaxes(title_text="% faster with the corrected price", row=1, col=2)
    figure.update_layout(
        margin={"l": 55, "r": 20, "t": 84, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.1, "x": 0, "font": {"size": 12}},
    )
    return on_white(figure, 400)


def _add_passes(figure: go.Figure, rows: list[Mapping[str, Any]], k_ms: float, place: int) -> None:
    """Medians, the price with the context as a line, and the one price for the size as a dashed one."""
    contexts, size = [row["context"] for row in rows], rows[0]["tokens"]
    floor = next(row["median_ms"] for row in rows if row["context"] == 0)
    prices = {
        "solid": [floor + k_ms * size * context for context in contexts],
        "dash": [row["profiled_ms"] for row in rows],
    }
    for dash, values in prices.items():
        figure.add_scatter(
            x=contexts,
            y=values,
            mode="lines",
            line={"color": LIGHT[place], "dash": dash, "width": 1.5},
            name={"solid": "price with the context", "dash": "one price for each size"}[dash],
            legendgroup=dash,
            showlegend=place == 0,
            row=1,
            col=1,
        )
    figure.add_scatter(
        x=contexts,
        y=[row["median_ms"] for row in rows],
        mode="markers",
        marker={"color": LIGHT[place], "symbol": MARKERS[place], "size": 8},
        name=f"{size} token{'' if size == 1 else 's'}",
        row=1,
        col=1,
    )


def _add_rounds(figure: go.Figure, found: Mapping[str, Any]) -> None:
    percents = found["paired_percent"]
    (mean,) = [one for one in found["figures"] if one["what"].startswith("% faster")]
    figure.add_scatter(
        x=list(range(1, len(percents) + 1)),
        y=percents,
        mode="markers",
        marker={"color": VERMILLION, "symbol": "circle", "size": 7},
        showlegend=False,
        row=1,
        col=2,
    )
    # After the points: an empty panel takes no lines. Plotly's types want names in place of numbers of panels.
    low, high = mean["ours_ci_low"], mean["ours_ci_high"]
    figure.add_hrect(low, high, fillcolor=BLUE, opacity=0.15, line_width=0, row=1, col=2)  # pyright: ignore[reportArgumentType]
    figure.add_hline(y=mean["ours"], line={"color": BLUE, "width": 1.5}, row=1, col=2)  # pyright: ignore[reportArgumentType]
    figure.add_hline(y=0, line={"color": GREY, "width": 1}, row=1, col=2)  # pyright: ignore[reportArgumentType]
