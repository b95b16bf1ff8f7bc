"""A tree drawn as text, and as a picture."""

from xml.etree import ElementTree as ET

import networkx as nx
import numpy as np
import pytest

from simlab.analysis.trees import tree_svg, tree_text
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


def test_a_deep_chain_is_no_deeper_call() -> None:
    chain = DraftTree.chain(0, list(range(3000)))
    assert tree_text(chain, ["x"] * 3001, [""] * 3001, path=()).count("\n") == 3000


def test_each_node_needs_a_label_and_a_note() -> None:
    for draw in (tree_text, tree_svg):
        with pytest.raises(ValueError, match="6 nodes need as many"):
            draw(TREE, ["root"], [""] * 6, path=())


SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_has_every_node_and_lights_the_path() -> None:
    labels = ["root", "a", "<b>", "c & d", "d", "x" * 30]
    picture = ET.fromstring(tree_svg(TREE, labels, ["", "0.60", "", "", "", ""], path=(0, 1, 3)))
    words = picture.findall(f"{SVG}text")
    assert [word.find(f"{SVG}title").tail for word in words] == ["root", "a", "<b>", "c & d", "d", "x" * 23 + "…"]  # type: ignore[union-attr]
    assert [word.find(f"{SVG}title").text for word in words][1] == "a 0.60"  # type: ignore[union-attr]
    assert [word.get("fill") is not None for word in words] == [True, True, False, True, False, False]
    edges = picture.findall(f"{SVG}path")
    assert len(edges) == TREE.num_drafted
    assert sum(edge.get("stroke") != "currentColor" for edge in edges) == 2
    assert "5 drafted tokens, 2 on the path" in str(picture.get("aria-label"))


def test_each_depth_is_a_column_and_no_two_leaves_share_a_row() -> None:
    picture = ET.fromstring(tree_svg(TREE, list("rabcde"), [""] * 6, path=()))
    places = [(int(str(element.get("x"))), int(str(element.get("y")))) for element in picture.findall(f"{SVG}text")]
    lefts = [x for x, _ in places]
    assert [sorted(set(lefts)).index(x) for x in lefts] == TREE.depths().tolist()
    assert len({places[leaf][1] for leaf in (2, 4, 5)}) == 3
    width, height = (int(str(picture.get(name))) for name in ("width", "height"))
    assert all(0 < x < width and 0 < y < height for x, y in places)


def test_a_tree_is_a_graph_whose_ancestors_are_what_a_node_may_see() -> None:
    edges = [(parent, node) for node, parent in enumerate(TREE.parents.tolist()) if node]
    graph = nx.DiGraph(edges)
    assert nx.is_arborescence(graph)
    assert dict(enumerate(TREE.depths().tolist())) == nx.single_source_shortest_path_length(graph, 0)
    seen = [[other in nx.ancestors(graph, node) | {node} for other in sorted(graph)] for node in sorted(graph)]
    assert TREE.ancestor_mask().tolist() == seen
