"""Result rows as Markdown and LaTeX tables: the columns of the command line's table, and a line that says whose."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.table.summaries import Summary, summarise
from simlab.analysis.table.text import summary_notes, table_columns
from simlab.errors import TraceError
from simlab.untrusted.visible import visible

_MARKDOWN = re.compile(r"([\\`*_{}<>|#~$])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': "''",
}
_KINDS = {"predicted": "Predicted", "measured": "Measured in a real runner"}
_BOUND = "hindsight"
_BOUNDS = "Hindsight rows are oracle upper bounds, which know the target's text, and no policies."


@dataclass(frozen=True, slots=True)
class ExportTable:
    """A table before it is written in any language.

    Attributes:
        heading: of each column two lines; where the first is empty it is the one to the left.
        to_left: for each column whether its cells begin at its left.
        cells: a row for each policy.
        title: which slice it is of; empty: everything.
        source: which texts, drafter and prices it rests on, in one line.
        notes: what a reader must know, a sentence each.
    """

    heading: tuple[tuple[str, str], ...]
    to_left: tuple[bool, ...]
    cells: tuple[tuple[str, ...], ...]
    title: str
    source: str
    notes: tuple[str, ...]


def export_tables(rows: pl.DataFrame, by: str | None = None) -> list[ExportTable]:
    """A table for each kind, trace, drafter and prices that stand together; with ``by`` those of the slices before it.

    Raises:
        TraceError: there are no rows.
    """
    if rows.is_empty():
        raise TraceError("the result file holds no rows, so there is no table; replay some policies with --out")
    tables = []
    for part in rows.partition_by("kind", "text_id", "draft_id", "cost_id", maintain_order=True):
        source = _source(part, sized=by is None)
        whole = summarise(part)
        slices = [] if by is None else summarise(part, by)
        values = dict.fromkeys(one.slice for one in slices)
        tables += [_table([one for one in slices if one.slice == value], f"{by} {value}", source) for value in values]
        tables.append(_table(whole, "" if by is None else "all", source))
    return tables


def _table(summaries: Sequence[Summary], title: str, source: str) -> ExportTable:
    columns = table_columns(summaries)
    return ExportTable(
        heading=tuple((first, second) for first, second, _ in columns),
        to_left=tuple(index == 0 for index in range(len(columns))),
        cells=tuple(tuple(" ".join(text(summary).split()) for _, _, text in columns) for summary in summaries),
        title=f"{title}: {summaries[0].prompts} prompts, {summaries[0].sequences} sequences" if title else "",
        source=source,
        notes=(
            " ".join(summary_notes(summaries).split()),
            *([_BOUNDS] if any(summary.name.startswith(_BOUND) for summary in summaries) else []),
        ),
    )


def _one_line(pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The two lines of a heading as one; the second column of a heading over several repeats it."""
    found, last = [], ""
    for first, second in pairs:
        last = first or last
        found.append(f"{last}{second}" if second.startswith("/") else f"{last} {second}".strip())
    return tuple(found)


def _source(part: pl.DataFrame, sized: bool) -> str:
    """Which texts, drafter and latency profile some rows rest on; how many texts, where no title says so."""
    prompts = part.select("dataset", "prompt_id").n_unique()
    first = part.row(0, named=True)
    datasets = ", ".join(sorted(set(part["dataset"])))
    ids = [f"text {first['text_id']}"]
    ids += [
        f"{name} {first[column]}"
        for name, column in (("draft", "draft_id"), ("latency profile", "cost_id"))
        if first[column]
    ]
    versions = ", ".join(sorted(set(part["simlab_version"])))
    size = f"{prompts} prompts ({datasets}), {part['sequence'].n_unique()} sequences"
    parts = [_KINDS[first["kind"]], *([size] if sized else []), ", ".join(ids), f"simlab {versions}"]
    return f"{'; '.join(parts)}."


def markdown(tables: Sequence[ExportTable]) -> str:
    """Pipe tables, each followed by its source and notes."""
    return "\n\n".join(_markdown(table) for table in tables) + "\n"


def _markdown(table: ExportTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = ["---" if left else "---:" for left in table.to_left]
    rows = [line(_each(row, escaped_markdown)) for row in (_one_line(table.heading), *table.cells)]
    title = [f"**{escaped_markdown(table.title)}**", ""] if table.title else []
    said = escaped_markdown(" ".join([table.source, *table.notes]))
    return "\n".join([*title, rows[0], line(rule), *rows[1:], "", said])


def latex(tables: Sequence[ExportTable]) -> str:
    """``table`` environments with the rules of the package booktabs; source and notes are the caption."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_latex(table) for table in tables)


def _latex(table: ExportTable) -> str:
    def line(cells: Sequence[str]) -> str:
        # A row that begins with a bracket would be read as the space that \\ before it may ask for.
        text = " & ".join(_each(cells, escaped_latex))
        return f"    {'{}' if text.startswith('[') else ''}{text} \\\\"

    columns = "".join("l" if left else "r" for left in table.to_left)
    title = [table.title.rstrip(".") + "."] if table.title else []
    caption = escaped_latex(" ".join([*title, table.source, *table.notes]))
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            f"  \\begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {_over_columns(table.heading)} \\\\",
            line([second for _, second in table.heading]),
            r"    \midrule",
            *(line(row) for row in table.cells),
            r"    \bottomrule",
            r"  \end{tabular}",
            f"  \\caption{{{caption}}}",
            r"\end{table}",
            "",
        ]
    )


def _over_columns(pairs: Sequence[tuple[str, str]]) -> str:
    """The first line of a heading, with what stands over several columns in their middle."""
    groups: list[tuple[str, int]] = []
    for first, second in pairs:
        if not first and second and groups:
            groups[-1] = groups[-1][0], groups[-1][1] + 1
        else:
            groups.append((first, 1))
    texts = [(escaped_latex(first), columns) for first, columns in groups]
    return " & ".join(text if many == 1 else f"\\multicolumn{{{many}}}{{c}}{{{text}}}" for text, many in texts)


def escaped_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> escaped_markdown("a_b|c")
    'a\\_b\\|c'
    """
    return _MARKDOWN.sub(r"\\\1", visible(text))


def escaped_latex(text: str) -> str:
    r"""Text that LaTeX sets as it is.

    >>> escaped_latex("95 % of a_b")
    '95 \\% of a\\_b'
    """
    return "".join(_LATEX.get(character, character) for character in visible(text))


def _each(cells: Sequence[str], escape: Callable[[str], str]) -> list[str]:
    return [escape(cell) for cell in cells]
