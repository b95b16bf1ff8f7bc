"""A report as one HTML file that needs nothing else: no network, no server."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Literal, TypeAlias

from simlab.analysis.figure_style import DARK, LIGHT, Figure, colour, figure, fitted, on_white
from simlab.analysis.statistics.intervals import Interval
from simlab.ids import VERSION
from simlab.untrusted.visible import visible, visible_html

# What a report is made of: sections of charts, tables, sentences and trees, without their looks.


State: TypeAlias = Literal["good", "plain", "caution"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with what a reader must know of it.

    Attributes:
        key: unique in the report.
        figure: drawn with the colours of `simlab.analysis.figure_style`.
        title: what is shown.
        caption: how to read it, and over what; plain text.
        height: pixels.
    """

    key: str
    figure: Figure
    title: str
    caption: str
    height: int = 380

    def on_white(self) -> Figure:
        """The figure, laid out to stand alone: in a notebook or a document."""
        return fitted(on_white(self.figure, self.height))


def error_bars(values: Sequence[float], intervals: Sequence[Interval], **style: object) -> dict[str, object]:
    """Bars from values to the ends of their intervals; none where an interval is not known."""
    up = [ends.high - value for value, ends in zip(values, intervals, strict=True)]
    down = [value - ends.low for value, ends in zip(values, intervals, strict=True)]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.2, "width": 3, **style}


def stacked_bars(x_title: str, labels: Sequence[str], parts: Mapping[str, Sequence[float]], hover: str) -> Figure:
    """A bar for each label, made of parts in this order; ``hover`` follows the name of a part."""
    drawn = figure(x_title, "", barmode="stack")
    drawn.update_layout(legend={"traceorder": "normal"})
    for index, (name, values) in enumerate(parts.items()):
        drawn.add_bar(
            y=list(labels),
            x=list(values),
            name=name,
            orientation="h",
            marker={"color": colour(index)},
            hovertemplate=f"{name}{hover}",
        )
    drawn.update_yaxes(autorange="reversed")
    return drawn


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as headings, cells and captions.

    Attributes:
        heads: of the columns.
        rows: cells as text, the first of a row being its name.
        caption: what must be known beside it, a sentence each.
        strong: numbers of rows that stand out.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: Sequence[str] = ()
    strong: frozenset[int] = frozenset()


Part: TypeAlias = Chart | Grid | Mapping[str, object] | str
"""A mapping is the trees of `simlab.analysis.report.trees`; a text a sentence, such as why something is not shown."""


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under one heading.

    Attributes:
        key: unique in the report; its address within the page.
        title: the heading.
        text: what it answers, in a sentence or two.
        parts: in order.
    """

    key: str
    title: str
    text: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class TrustLabel:
    """One of the things that decide how far the numbers can be trusted.

    Attributes:
        value: in a few words.
        detail: in a sentence.
        state: how it is to be taken.
    """

    value: str
    detail: str
    state: State = "plain"


_FOLDER = "data/report"


def report_page(
    title: str,
    sentences: Sequence[str],
    table: Grid,
    chart: Chart,
    marks: Mapping[str, TrustLabel],
    command: str,
    sections: Sequence[Section],
    footer: str,
) -> str:
    """The page, charts and script inside.

    Args:
        title: of the browser's tab.
        sentences: the verdict, and further ones.
        table: of the policies.
        chart: speed against drafted tokens.
        marks: four of them, by what they are of.
        command: what makes this report again, as it is typed.
        sections: what comes below.
        footer: where everything comes from; plain text.
    """
    parts: list[Part] = [chart, *(part for section in sections for part in section.parts)]
    charts = [part for part in parts if isinstance(part, Chart)]
    figures = {part.key: json.loads(str(fitted(part.figure).to_json())) for part in charts}  # noqa: TID251 - plotly's
    if len(figures) != sum(isinstance(part, Chart) for part in parts):
        raise ValueError("two charts of a report have the same key")
    return Template(_file("report.html")).substitute(
        version=visible_html(VERSION),
        title=visible_html(title),
        style=_file("report.css"),
        navigation="\n".join(
            f'<a href="#{visible_html(section.key)}">{_text(section.title)}</a>' for section in sections
        ),
        verdict=_text(sentences[0]),
        more=_list(sentences[1:]),
        table=_grid(table),
        chart=_chart(chart),
        marks="\n".join(_mark(name, label) for name, label in marks.items()),
        command=visible_html(command),
        sections="\n".join(map(_section, sections)),
        footer=_text(footer),
        figures=_json(figures),
        colours=_json({"light": LIGHT, "dark": DARK}),
        plotly=_file("plotly-basic.min.js"),
        script=_file("report.js"),
    )


def _file(name: str) -> str:
    return (resources.files("simlab.analysis") / _FOLDER / name).read_text(encoding="utf-8")


def _json(value: object) -> str:
    """JSON text that can stand in a script element, which no tag may end."""
    return visible(json.dumps(value, separators=(",", ":"), ensure_ascii=False)).replace("<", "\\u003c")


def _text(text: str) -> str:
    """Escaped text of an element; a sign stays on the line of its number."""
    return visible_html(text).replace(" %", "&nbsp;%").replace(" ×", "&nbsp;×")


def _list(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return '<ul class="more">\n' + "\n".join(f"<li>{_text(sentence)}</li>" for sentence in sentences) + "\n</ul>"


def _mark(name: str, label: TrustLabel) -> str:
    return (
        f'<li class="{label.state}"><span class="kind">{_text(name)}</span><b>{_text(label.value)}</b>'
        f'<p class="detail">{_text(label.detail)}</p></li>'
    )


def _section(section: Section) -> str:
    parts = "\n".join(map(_part, section.parts))
    key = visible_html(section.key)
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">\n<h2 id="{key}-title">{_text(section.title)}</h2>\n'
        f'<p class="text">{_text(section.text)}</p>\n{parts}\n</section>'
    )


def _part(part: Part) -> str:
    match part:
        case Chart():
            return _chart(part)
        case Grid():
            return _grid(part)
        case str():
            return f"<p>{_text(part)}</p>"
        case _:
            return Template(_file("explorer.html")).substitute(trees=_json(part))


def _chart(chart: Chart) -> str:
    key, label = visible_html(chart.key), _text(f"{chart.title}. {chart.caption}")
    return (
        f'<figure id="chart-{key}">\n<figcaption><h3>{_text(chart.title)}</h3></figcaption>\n'
        f'<div class="plot" data-figure="{key}" data-height="{chart.height}" style="min-height:{chart.height}px" '
        f'role="img" aria-label="{label}"></div>\n<p class="caption">{_text(chart.caption)}</p>\n'
        f'<details class="numbers" data-figure="{key}"><summary>The numbers</summary>\n'
        '<div class="scroll"></div></details>\n'
        "</figure>"
    )


def _grid(grid: Grid) -> str:
    heads = "".join(f'<th scope="col">{_text(head)}</th>' for head in grid.heads)
    rows = "\n".join(_row(cells, index in grid.strong) for index, cells in enumerate(grid.rows))
    caption = "".join(f"{_text(sentence)} " for sentence in grid.caption).strip()
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>\n" + (f'<p class="caption">{caption}</p>' if caption else "")
    )


def _row(cells: Sequence[str], strong: bool) -> str:
    first, *others = cells
    begin = '<tr class="strong">' if strong else "<tr>"
    return (
        f'{begin}<th scope="row">{_text(first)}</th>' + "".join(f"<td>{_text(cell)}</td>" for cell in others) + "</tr>"
    )
