"""A tree drawn as text."""

import numpy as np
import pytest

from simlab.analysis.table.tree_text import tree_text
from simlab.tree import DraftTree

TREE = DraftTree(np.array([9, 1, 2, 3, 4, 5], np.int32), np.array([-1, 0, 0, 1, 3, 1], np.int32))


def test_a_tree_is_drawn_with_its_path_marked() -> None:
    labels = ["root", "a", "b", "c", "d", "e"]
    notes = ["", "0.60", "0.20", "0.40", "0.10", "0.05"]
    assert tree_text(TREE, labels, notes, path=(1, 3)).splitlines() == [
        "  root",
        "* ├─ a        0.60",
        "* │  ├─ c     0.40",
        "  │  │  └─ d  0.10",
        "  │  └─ e     0.05",
        "  └─ b        0.20",
    ]


def test_a_lone_root_is_one_line() -> None:
    assert tree_text(DraftTree.root_only(3), ["root"], ["here"], path=()) == "  root  here"


def test_a_deep_chain_is_no_deeper_call() -> None:
    chain = DraftTree.chain(0, list(range(3000)))
    assert tree_text(chain, ["x"] * 3001, [""] * 3001, path=()).count("\n") == 3000


def test_each_node_needs_a_label_and_a_note() -> None:
    with pytest.raises(ValueError, match="6 nodes need as many"):
        tree_text(TREE, ["root"], [""] * 6, path=())
