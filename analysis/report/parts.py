"""What a report is made of: sections of charts, tables, sentences and trees, without their looks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import plotly.graph_objects as go

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
    figure: go.Figure
    title: str
    caption: str
    height: int = 380


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


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, such as why something is not shown."""

    text: str


@dataclass(frozen=True, slots=True)
class TreeExplorer:
    """Trees that policies chose; see `simlab.analysis.report.trees` for what the values are."""

    values: Mapping[str, object]


Part: TypeAlias = Chart | Grid | Note | TreeExplorer


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
class Mark:
    """One of the things that decide how far the numbers can be trusted.

    Attributes:
        name: of what.
        value: in a few words.
        detail: in a sentence.
        state: how it is to be taken.
    """

    name: str
    value: str
    detail: str
    state: State = "plain"


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What is seen first.

    Attributes:
        verdict: one sentence.
        more: further sentences.
        table: of the policies.
        chart: speed against drafted tokens.
        marks: four of them.
        command: what makes this report again, as it is typed.
    """

    verdict: str
    more: Sequence[str]
    table: Grid
    chart: Chart
    marks: Sequence[Mark]
    command: str
