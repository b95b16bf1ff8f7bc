"""A draft tree as indented text."""

from collections.abc import Collection, Sequence

from simlab.tree import DraftTree


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
    if not len(labels) == len(notes) == tree.num_nodes:
        raise ValueError(f"{tree.num_nodes} nodes need as many labels and notes; got {len(labels)} and {len(notes)}")
    drawn = _drawn(tree, labels)
    column = min(width, max(len(text) for _, text in drawn))
    lines = [f"{'*' if node in path else ' '} {text.ljust(column)}  {notes[node]}".rstrip() for node, text in drawn]
    return "\n".join(lines)


def _drawn(tree: DraftTree, labels: Sequence[str]) -> list[tuple[int, str]]:
    """Each node with its branches and its label, from top to bottom."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents.tolist()):
        children.setdefault(parent, []).append(node)
    drawn: list[tuple[int, str]] = []
    waiting = [(0, "", "")]
    while waiting:
        node, branch, below = waiting.pop()
        drawn.append((node, branch + labels[node]))
        here = children.get(node, [])
        for child in reversed(here):
            is_last = child == here[-1]
            waiting.append((child, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  ")))
    return drawn
