"""Tables for papers and pages: one form, written as LaTeX or as Markdown.

What a reader needs is in the caption; ids, digests and versions are in a comment of the file.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
_LATEX_SIGNS = {"\N{MINUS SIGN}": "$-$", "\N{LESS-THAN OR EQUAL TO}": r"$\le$"}


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in one place of a table.

    Attributes:
        text: the number, or a dash.
        interval: behind it and smaller; empty: none.
        is_bold: whether it stands out; the caption says why.
    """

    text: str
    interval: str = ""
    is_bold: bool = False


@dataclass(frozen=True, slots=True)
class ExportTable:
    """A table before it is written in any language.

    Attributes:
        corner: what the first column holds.
        heads: of the columns behind the first: what stands over several, and the column's own. Neighbours with the same
            first part share it; where it is empty everywhere there is one line of headings.
        rows: the first column, and a cell for each other column.
        rules: before which rows a line stands, by their places.
        caption: a line.
        key: of the label, ``tab:KEY``.
        comment: where everything comes from, a line each.
    """

    corner: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    rules: tuple[int, ...]
    caption: str
    key: str
    comment: tuple[str, ...]

    def groups(self) -> list[tuple[str, int]]:
        """What stands over the columns, and over how many of them; empty where nothing does."""
        groups: list[tuple[str, int]] = []
        for first, _ in self.heads:
            if groups and groups[-1][0] == first:
                groups[-1] = first, groups[-1][1] + 1
            else:
                groups.append((first, 1))
        return groups if any(first for first, _ in groups) else []


def markdown(tables: Sequence[ExportTable]) -> str:
    """Pipe tables, each with its caption above and its comment below."""
    return "\n\n".join(_markdown(table) for table in tables) + "\n"


def _markdown(table: ExportTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    heads = [escaped_markdown(f"{first} {second}".strip()) for first, second in table.heads]
    rows = [[escaped_markdown(name), *map(_markdown_cell, cells)] for name, cells in table.rows]
    comment = ["<!--", *(visible(line).replace("--", "- -").replace(">", "&gt;") for line in table.comment), "-->"]
    return "\n".join(
        [
            escaped_markdown(table.caption),
            "",
            line([escaped_markdown(table.corner), *heads]),
            line(["---", *["---:"] * len(heads)]),
            *map(line, rows),
            "",
            *comment,
        ]
    )


def _markdown_cell(cell: Cell) -> str:
    text = escaped_markdown(cell.text)
    text = f"**{text}**" if cell.is_bold else text
    return f"{text} {escaped_markdown(cell.interval)}" if cell.interval else text


def latex(tables: Sequence[ExportTable]) -> str:
    """``table`` environments with the rules of the package booktabs, each below its comment."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_latex(table) for table in tables)


def _latex(table: ExportTable) -> str:
    columns = "l" + "r" * len(table.heads)
    groups = table.groups()
    over = [f"    {_over_columns(groups)} \\\\", f"    {_rules_below(groups)}"] if groups else []
    lines = []
    for index, (name, cells) in enumerate(table.rows):
        lines += [r"    \midrule"] if index in table.rules else []
        lines.append(_latex_line([escaped_latex(name), *map(_latex_cell, cells)]))
    return "\n".join(
        [
            *(f"% {' '.join(visible(line).split())}" for line in table.comment),
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{escaped_latex(table.caption)}}}",
            f"  \\label{{tab:{table.key}}}",
            f"  \\begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            *over,
            _latex_line([escaped_latex(table.corner), *(escaped_latex(second) for _, second in table.heads)]),
            r"    \midrule",
            *lines,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_line(cells: Sequence[str]) -> str:
    # A row that begins with a bracket would be read as the space that \\ before it may ask for.
    text = " & ".join(cells)
    return f"    {'{}' if text.startswith('[') else ''}{text} \\\\"


def _latex_cell(cell: Cell) -> str:
    text = escaped_latex(cell.text)
    text = f"\\textbf{{{text}}}" if cell.is_bold else text
    return f"{text} {{\\scriptsize {escaped_latex(cell.interval)}}}" if cell.interval else text


def _over_columns(groups: Sequence[tuple[str, int]]) -> str:
    """The upper line of headings, with what stands over several columns in their middle."""
    return "".join(
        f" & {escaped_latex(first)}" if many == 1 else f" & \\multicolumn{{{many}}}{{c}}{{{escaped_latex(first)}}}"
        for first, many in groups
    ).strip()


def _rules_below(groups: Sequence[tuple[str, int]]) -> str:
    """A short line below each heading that stands over columns."""
    rules, column = [], 2
    for first, many in groups:
        rules += [f"\\cmidrule(lr){{{column}-{column + many - 1}}}"] if first else []
        column += many
    return " ".join(rules)


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
    return "".join(_LATEX.get(sign) or _LATEX_SIGNS.get(sign, sign) for sign in visible(text))
