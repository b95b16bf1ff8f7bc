"""A draft tree as people see it: as indented text, or as a picture whose columns are depths."""

from collections.abc import Collection, Sequence

import networkx as nx

from simlab.tree import DraftTree
from simlab.untrusted.visible import visible_html

_LIT = "#0072B2"
"""The colour of the nodes on the path: the first of `simlab.analysis.figure_style`, which is seen on light and dark."""

_ROW_PX, _LETTER_PX, _GAP_PX = 22, 7, 34
"""Pixels of a row, of a letter of 12 px type, and from the end of a label to the next column."""

_MOST_LETTERS = 24
"""Longer labels are cut short in a picture; the whole one is shown where the pointer rests."""


def tree_text(
    tree: DraftTree, labels: Sequence[str], notes: Sequence[str], path: Collection[int], width: int = 60
) -> str:
    """One line per node, children below their parent in the order in which they entered the tree.

    Args:
        tree: the tree.
        labels: what to call each node, the root included.
        notes: what to say beside each node, in a column of their own; may be empty strings.
        path: nodes to mark with ``*``.
        width: columns for branches and labels; longer labels push their note outwards.
    """
    _check_lengths(tree, labels, notes)
    drawn = _drawn(tree, labels)
    column = min(width, max(len(text) for _, text in drawn))
    lines = [f"{'*' if node in path else ' '} {text.ljust(column)}  {notes[node]}".rstrip() for node, text in drawn]
    return "\n".join(lines)


def tree_svg(tree: DraftTree, labels: Sequence[str], notes: Sequence[str], path: Collection[int]) -> str:
    """A picture of a tree as an ``<svg>`` element, which needs nothing else: no script, no network.

    The root stands at the left; a first child goes straight on, further ones go below it. Colours are those of the
    page around it, but for the path.

    Args:
        tree: the tree.
        labels: what to call each node, the root included; long ones are cut short.
        notes: what is shown beside a label where the pointer rests; may be empty strings.
        path: nodes to light, as the target's accepted ones and the root.
    """
    _check_lengths(tree, labels, notes)
    parents, depths = tree.parents.tolist(), tree.depths().tolist()
    shown = [label if len(label) <= _MOST_LETTERS else f"{label[: _MOST_LETTERS - 1]}…" for label in labels]
    widths = [0] * (max(depths) + 1)
    for depth, label in zip(depths, shown, strict=True):
        widths[depth] = max(widths[depth], _LETTER_PX * len(label) + 10)
    lefts = [sum(widths[:depth]) + depth * _GAP_PX + 8 for depth in range(len(widths))]
    heights = [round(_ROW_PX * (row + 0.5)) for row in drawing_rows(parents)]
    lines, words = [], []
    for node, parent in enumerate(parents):
        x, y, lit = lefts[depths[node]], heights[node], node in path
        if parent >= 0:
            start = lefts[depths[parent]] + _LETTER_PX * len(shown[parent]) + 6, heights[parent]
            lines.append(_edge(start, (x - 4, y), lit and parent in path))
        note = f" {notes[node]}" if notes[node] else ""
        words.append(
            f'<text x="{x}" y="{y + 4}"{_lit(lit, "fill")}><title>{visible_html(labels[node] + note)}</title>'
            f"{visible_html(shown[node])}</text>"
        )
    width, height = lefts[-1] + widths[-1] + 8, max(heights) + _ROW_PX // 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="Draft tree of {tree.num_drafted} drafted tokens, {sum(node > 0 for node in path)} on the path" '
        f'width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="monospace" font-size="12" fill="currentColor">\n'
        + "\n".join([*lines, *words])
        + "\n</svg>"
    )


def drawing_rows(parents: Sequence[int]) -> list[float]:
    """The row of each node in a drawing whose columns are depths: leaves below each other, parents beside a child.

    No two edges cross, and the first child of each node goes straight on, so the drafter's favourite path is a line.

    Args:
        parents: of each node, which stands before it; -1 for the root, which is the first.

    >>> drawing_rows([-1, 0, 0, 1])
    [0.0, 0.0, 1.0, 0.0]
    """
    graph = _graph_of(parents)
    rows, leaves = [0.0] * len(parents), 0
    for node in nx.dfs_preorder_nodes(graph, 0):
        if not graph.out_degree(node):
            rows[node], leaves = float(leaves), leaves + 1
    for node in nx.dfs_postorder_nodes(graph, 0):
        first = next(graph.successors(node), None)
        rows[node] = rows[node] if first is None else rows[first]
    return rows


def _check_lengths(tree: DraftTree, labels: Sequence[str], notes: Sequence[str]) -> None:
    if not len(labels) == len(notes) == tree.num_nodes:
        raise ValueError(f"{tree.num_nodes} nodes need as many labels and notes; got {len(labels)} and {len(notes)}")


def _edge(start: tuple[int, int], end: tuple[int, int], lit: bool) -> str:
    """A line from a parent's column to a child, level at both ends."""
    middle = (start[0] + end[0]) // 2
    points = f"M{start[0]} {start[1]}C{middle} {start[1]} {middle} {end[1]} {end[0]} {end[1]}"
    colour = _lit(True, "stroke") + ' stroke-width="2"' if lit else ' stroke="currentColor" stroke-opacity="0.4"'
    return f'<path d="{points}" fill="none"{colour}/>'


def _lit(lit: bool, attribute: str) -> str:
    weight = ' font-weight="bold"' if attribute == "fill" else ""
    return f' {attribute}="{_LIT}"{weight}' if lit else ""


def _graph_of(parents: Sequence[int]) -> "nx.DiGraph[int]":
    """The tree alone; the children of a node come in the order in which they entered it."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(parents)))
    graph.add_edges_from((parent, node) for node, parent in enumerate(parents) if parent >= 0)
    return graph


def _drawn(tree: DraftTree, labels: Sequence[str]) -> list[tuple[int, str]]:
    """Each node with its branches and its label, from top to bottom."""
    graph = _graph_of(tree.parents.tolist())
    drawn: list[tuple[int, str]] = []
    waiting = [(0, "", "")]
    while waiting:
        node, branch, below = waiting.pop()
        drawn.append((node, branch + labels[node]))
        here = list(graph.successors(node))
        for child in reversed(here):
            is_last = child == here[-1]
            waiting.append((child, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  ")))
    return drawn
