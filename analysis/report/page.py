"""A report as one HTML file that needs nothing else: no network, no server."""

import json
from collections.abc import Sequence
from html import escape
from importlib import metadata, resources
from string import Template

from simlab.analysis.figure_style import DARK, LIGHT
from simlab.analysis.report.parts import Chart, FirstScreen, Grid, Mark, Note, Part, Section, TreeExplorer

_FOLDER = "data/report"


def report_page(title: str, first: FirstScreen, sections: Sequence[Section], footer: str) -> str:
    """The page, charts and script inside.

    Args:
        title: of the browser's tab.
        first: what is seen first.
        sections: what comes below.
        footer: where everything comes from; plain text.
    """
    parts: list[Part] = [first.chart, *(part for section in sections for part in section.parts)]
    figures = {part.key: json.loads(str(part.figure.to_json())) for part in parts if isinstance(part, Chart)}
    if len(figures) != sum(isinstance(part, Chart) for part in parts):
        raise ValueError("two charts of a report have the same key")
    return Template(_file("report.html")).substitute(
        version=escape(metadata.version("simlab")),
        title=escape(title),
        style=_file("report.css"),
        navigation="\n".join(f'<a href="#{escape(one.key)}">{_text(one.title)}</a>' for one in sections),
        verdict=_text(first.verdict),
        more=_list(first.more),
        table=_grid(first.table),
        chart=_chart(first.chart),
        marks="\n".join(map(_mark, first.marks)),
        command=escape(first.command),
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
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _text(text: str) -> str:
    """Escaped text of an element; a sign stays on the line of its number."""
    return escape(text).replace(" %", "&nbsp;%").replace(" ×", "&nbsp;×")


def _list(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return '<ul class="more">\n' + "\n".join(f"<li>{_text(one)}</li>" for one in sentences) + "\n</ul>"


def _mark(one: Mark) -> str:
    return (
        f'<li class="{one.state}"><span class="kind">{_text(one.name)}</span><b>{_text(one.value)}</b>'
        f'<p class="detail">{_text(one.detail)}</p></li>'
    )


def _section(one: Section) -> str:
    parts = "\n".join(map(_part, one.parts))
    key = escape(one.key)
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">\n<h2 id="{key}-title">{_text(one.title)}</h2>\n'
        f'<p class="text">{_text(one.text)}</p>\n{parts}\n</section>'
    )


def _part(part: Part) -> str:
    match part:
        case Chart():
            return _chart(part)
        case Grid():
            return _grid(part)
        case Note():
            return f"<p>{_text(part.text)}</p>"
        case TreeExplorer():
            return Template(_file("explorer.html")).substitute(trees=_json(part.values))


def _chart(one: Chart) -> str:
    key, label = escape(one.key), _text(f"{one.title}. {one.caption}")
    return (
        f'<figure id="chart-{key}">\n<figcaption><h3>{_text(one.title)}</h3></figcaption>\n'
        f'<div class="plot" data-figure="{key}" data-height="{one.height}" style="min-height:{one.height}px" '
        f'role="img" aria-label="{label}"></div>\n<p class="caption">{_text(one.caption)}</p>\n'
        f'<details class="numbers" data-figure="{key}"><summary>The numbers</summary>\n'
        '<div class="scroll"></div></details>\n'
        "</figure>"
    )


def _grid(one: Grid) -> str:
    heads = "".join(f'<th scope="col">{_text(head)}</th>' for head in one.heads)
    rows = "\n".join(_row(cells, place in one.strong) for place, cells in enumerate(one.rows))
    caption = "".join(f"{_text(sentence)} " for sentence in one.caption).strip()
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>\n" + (f'<p class="caption">{caption}</p>' if caption else "")
    )


def _row(cells: Sequence[str], strong: bool) -> str:
    first, *others = cells
    begin = '<tr class="strong">' if strong else "<tr>"
    return f'{begin}<th scope="row">{_text(first)}</th>' + "".join(f"<td>{_text(one)}</td>" for one in others) + "</tr>"
