"""The looks of figures: colours that colour-blind readers can tell apart, in light and in dark."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

import plotly.graph_objects as go

from simlab.errors import SimlabError, UsageError, describe_error
from simlab.untrusted.visible import label_lines, visible_html

Figure: TypeAlias = go.Figure
"""A figure of plotly."""

LIGHT = ("#0072B2", "#D55E00", "#008A65", "#A85585", "#9A6A00", "#56697A", "#4B3FA7")
"""After Okabe and Ito (2008), darkened where a thin line on white would be faint."""

DARK = ("#5CB3EA", "#FF9355", "#2BC79A", "#EBA0CB", "#F2BE4B", "#AEBCC9", "#A79BFF")
"""The same hues on a dark page, place by place."""

BLUE, VERMILLION, GREEN, PURPLE, OCHRE, GREY, INDIGO = LIGHT
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid", "dash")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "x", "star")


def colour(index: int) -> str:
    """Colour of the series at this place; colours come again after seven."""
    return LIGHT[index % len(LIGHT)]


def faint(index: int) -> str:
    """Transparent colour of the series at this place, to fill areas with."""
    red, green, blue = (int(colour(index)[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def line(index: int, width: float = 2.0) -> dict[str, object]:
    """Colour and dash of a series, so that either tells it from the others."""
    return {"color": colour(index), "dash": DASHES[index % len(DASHES)], "width": width}


def marker(index: int, size: int = 7) -> dict[str, object]:
    """Colour and shape of a series."""
    return {"color": colour(index), "symbol": MARKERS[index % len(MARKERS)], "size": size}


def figure(x_title: str, y_title: str, barmode: str | None = None) -> go.Figure:
    """An empty figure; paper and text take the colours of the page when it is shown."""
    chart = go.Figure()
    chart.update_layout(
        template="none",
        xaxis={"title": {"text": x_title}, "zeroline": False},
        yaxis={"title": {"text": y_title}, "zeroline": False},
        margin={"l": 58, "r": 16, "t": 12, "b": 52},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "font": {"size": 12}},
        font={"size": 13},
        hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        # plotly makes a dark box of a clear paper's colour.
        modebar={"bgcolor": "rgba(0,0,0,0)"},
        barmode=barmode,
    )
    return chart


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], index: int, group: str) -> go.Scatter:
    """The area between two curves, as intervals around a line."""
    return go.Scatter(
        x=[*x, *reversed(x)],
        y=[*high, *reversed(low)],
        fill="toself",
        fillcolor=faint(index),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        legendgroup=group,
        name="95 %",
    )


LABEL_WIDTH = 24
"""Characters of one line of a label, so that a phone has room for it and for the picture."""


_LEGEND_WIDTH = 46
"""Characters of one line of a legend, which may be as wide as the picture."""


def wrapped(label: str, width: int = LABEL_WIDTH) -> str:
    """A label in lines of at most so many characters, as plotly breaks them."""
    return "<br>".join(line.strip() for part in label.split("<br>") for line in label_lines(part, width))


def height_of_rows(labels: Sequence[str], around: int = 150) -> int:
    """Pixels of a chart with a bar or a mark for each of these labels.

    Args:
        labels: of the rows, as `fitted` will wrap them.
        around: pixels for axis, legend and margins.
    """
    return around + sum(12 + 16 * (1 + wrapped(label).count("<br>")) for label in labels)


def fitted(figure: go.Figure) -> go.Figure:
    """Make room for every label of a figure: long ones are wrapped, and margins grow with what stands in them."""
    figure.update_xaxes(automargin=True, title={"standoff": 8})
    figure.update_yaxes(automargin=True, title={"standoff": 8})
    figure.update_layout(hoverlabel={"namelength": -1})
    figure.for_each_annotation(
        lambda annotation: annotation.update(text=wrapped(annotation.text or ""), font={"size": 13})
    )
    for trace in figure.data:
        if trace.name:
            trace.name = wrapped(trace.name, _LEGEND_WIDTH)
        _without_box(trace)
    for letter in ("x", "y"):
        for axis in figure.select_xaxes() if letter == "x" else figure.select_yaxes():
            anchor = axis.plotly_name.replace("axis", "")
            values = [
                getattr(trace, letter) for trace in figure.data if (getattr(trace, f"{letter}axis") or letter) == anchor
            ]
            names = list(dict.fromkeys(name for labels in values if labels is not None for name in labels))
            if names and all(isinstance(name, str) for name in names):
                axis.update(tickmode="array", tickvals=names, ticktext=[_tick(name, letter) for name in names])
    return figure


def _tick(label: str, letter: str) -> str:
    """A label of a row, or of a column: there each word has its own line."""
    return wrapped(label) if letter == "y" else label.replace(" ", "<br>")


def _without_box(trace: go.Scatter | go.Bar) -> None:
    """Templates of hover texts name what they are of, so the box with the trace's name beside them is left out."""
    template = trace.hovertemplate
    if isinstance(template, str) and "<extra>" not in template:
        trace.hovertemplate = f"{template}<extra></extra>"
    elif template is not None and not isinstance(template, str):
        trace.hovertemplate = [text if "<extra>" in text else f"{text}<extra></extra>" for text in template]


def on_white(figure: go.Figure, height: int = 400) -> go.Figure:
    """Lay a figure out for an image in a document, which light and dark pages may show."""
    figure.update_layout(
        template="simple_white",
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"family": "Helvetica, Arial, sans-serif", "size": 13, "color": "black"},
        width=860,
        height=height,
    )
    return figure


def on_page(figure: go.Figure) -> go.Figure:
    """Lay a figure out for a page that brings paper, text and width."""
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": None, "color": None},
        width=None,
        height=None,
    )
    return figure


def svg_of(figure: go.Figure, name: str) -> str:
    """A figure as the text of an SVG file, through kaleido and a Chromium that is installed.

    Args:
        figure: laid out by `on_white`.
        name: of the picture. plotly draws some names within by chance; with this one in their place, equal results give
            equal files.
    """
    svg = figure.to_image(format="svg").decode()
    drawn = re.search('id="defs-([0-9a-f]{6})"', svg)
    svg = svg if drawn is None else svg.replace(drawn[1], name)
    return re.sub(r" trace[0-9a-f]{6}\b", "", svg) + "\n"


FORMATS = ("svg", "pdf", "png", "html")
"""In which a picture can be written."""

PLOTLY = "data/report/plotly-basic.min.js"
"""plotly for browsers, with the kinds of figures that are drawn here."""


def picture_format(path: Path) -> str:
    """The format that the end of a name says.

    Raises:
        UsageError: it is none of `FORMATS`.
    """
    ending = path.suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        raise UsageError(f"a picture ends in {', '.join(f'.{known}' for known in FORMATS)}; got {path}")
    return ending


def picture_bytes(figure: go.Figure, written_as: str, name: str) -> bytes:
    """A figure as a file.

    Args:
        figure: laid out by `on_white`.
        written_as: one of `FORMATS`; html needs nothing else, the others kaleido and a Chromium that is installed.
        name: of the picture, as for `svg_of`.

    Raises:
        SimlabError: what draws it is not installed.
    """
    if written_as == "html":
        return _html_of(figure, name).encode()
    try:
        if written_as == "svg":
            return svg_of(figure, name).encode()
        return bytes(figure.to_image(format=written_as, scale=2 if written_as == "png" else 1))
    except Exception as error:
        raise SimlabError(
            f"a picture as .{written_as} is drawn by the package kaleido, from version 1 on, and a Chrome or Chromium, "
            f"and this failed ({describe_error(error)}); install both (pip install kaleido), or write .html, which "
            "needs neither"
        ) from error


def _html_of(figure: go.Figure, title: str) -> str:
    """A page with the figure alone, and plotly inside."""
    script = (files("simlab.analysis") / PLOTLY).read_text(encoding="utf-8")
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, div_id="picture")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{visible_html(title)}</title>\n'
        f"<script>{script}</script></head>\n<body>{drawn}</body></html>\n"
    )
