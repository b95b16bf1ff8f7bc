"""Figures of the study of SpecDecode-Bench, made of what ``simlab study reproduce specdecode-bench --json`` prints."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import GREY, colour, line, on_white

_DRAFTERS = {"eagle": "EAGLE", "ngram": "n-grams"}


def specdecode_survival_figure(values: Mapping[str, Any]) -> go.Figure:
    """How many tokens of a drafted chain are accepted, by dataset, a panel for each drafter.

    Args:
        values: what ``simlab study reproduce specdecode-bench --json`` prints.
    """
    rows: Sequence[Mapping[str, Any]] = values["survival"]
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    titles = list(_DRAFTERS.values())
    figure = make_subplots(1, 2, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    for row in rows:
        place = datasets.index(row["dataset"])
        figure.add_scatter(
            x=list(range(1, len(row["shares"]) + 1)),
            y=row["shares"],
            mode="lines",
            line=line(place),
            name=row["dataset"],
            legendgroup=row["dataset"],
            showlegend=row["drafter"] == "eagle",
            row=1,
            col=1 + list(_DRAFTERS).index(row["drafter"]),
        )
    figure.update_xaxes(title_text="depth d", range=[0.5, 20.5])
    figure.update_yaxes(type="log", tickvals=[1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001], range=[-3.2, 0])
    figure.update_yaxes(title_text="share accepting d or more", row=1, col=1)
    figure.update_layout(
        margin={"l": 70, "r": 16, "t": 70, "b": 52},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.1, "x": 0},
    )
    return on_white(figure, 380)


def specdecode_speedup_figure(values: Mapping[str, Any]) -> go.Figure:
    """Speedup by the length of a fixed chain and by batch size, with the oracle, a panel for each drafter and dataset.

    The panels of a row share their y axis.

    Args:
        values: what ``simlab study reproduce specdecode-bench --json`` prints.
    """
    rows: Sequence[Mapping[str, Any]] = values["curves"]
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    titles = [f"{label}, {dataset}" for label in _DRAFTERS.values() for dataset in datasets]
    figure = make_subplots(
        2,
        len(datasets),
        subplot_titles=titles,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=0.12,
    )
    _add_legend(figure, batches)
    for row in rows:
        at = {"row": 1 + list(_DRAFTERS).index(row["drafter"]), "col": 1 + datasets.index(row["dataset"])}
        _add_curves(figure, row, colour(batches.index(row["batch"])), at)
    figure.add_hline(y=1, line={"color": GREY, "width": 1}, row="all", col="all")
    figure.update_xaxes(title_text="length k of the chain", row=2)
    figure.update_yaxes(title_text="speedup", col=1)
    figure.update_layout(
        margin={"l": 60, "r": 16, "t": 80, "b": 52},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.08, "x": 0},
    )
    figure.update_annotations(font={"size": 13})
    return on_white(figure, 560)


def _add_legend(figure: go.Figure, batches: Sequence[int]) -> None:
    """Name the colours and the dots by lines without points, since they are the same in every panel."""
    named = [(f"batch {batch}", {"color": colour(place), "width": 2}) for place, batch in enumerate(batches)]
    named.append(("oracle, in the colour of its batch", {"color": "black", "width": 1.5, "dash": "dot"}))
    for name, style in named:
        figure.add_scatter(x=[None], y=[None], mode="lines", line=style, name=name, row=1, col=1)


def _add_curves(figure: go.Figure, row: Mapping[str, Any], shade: str, at: Mapping[str, int]) -> None:
    """The fixed lengths of one batch size, and its oracle."""
    lengths = list(range(1, len(row["fixed"]) + 1))
    solid, dotted = {"color": shade, "width": 2}, {"color": shade, "width": 1.5, "dash": "dot"}
    for x, y, style in ((lengths, row["fixed"], solid), ([lengths[0], lengths[-1]], [row["oracle"]] * 2, dotted)):
        figure.add_scatter(x=x, y=y, mode="lines", line=style, showlegend=False, **at)
