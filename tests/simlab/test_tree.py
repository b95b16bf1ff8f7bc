"""Trees and drafts: what may exist, and the walk through a tree."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab import Draft, DraftTree, Marginals


def tree_of(tokens: list[int], parents: list[int]) -> DraftTree:
    return DraftTree(np.array(tokens, np.int32), np.array(parents, np.int32))


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Any tree of a few tokens; siblings are distinct."""
    tokens, parents = [draw(st.integers(0, 3))], [-1]
    for _ in range(draw(st.integers(0, 12))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, 3))
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
    return tree_of(tokens, parents)


def paths_of(tree: DraftTree) -> dict[tuple[int, ...], int]:
    """Each node's tokens from the root down, and the node."""
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    paths: list[tuple[int, ...]] = [()]
    for node in range(1, len(tokens)):
        paths.append((*paths[parents[node]], tokens[node]))
    return {path: node for node, path in enumerate(paths)}


@given(trees(), st.lists(st.integers(0, 3), max_size=8))
def test_accepted_path_is_the_longest_run_in_the_tree(tree: DraftTree, text: list[int]) -> None:
    paths = paths_of(tree)
    length = max(length for length in range(len(text) + 1) if tuple(text[:length]) in paths)
    expected = tuple(paths[tuple(text[: one + 1])] for one in range(length))
    assert tree.accepted_path(np.array(text, np.int32)) == expected


@given(trees())
def test_depths_and_mask_follow_the_parents(tree: DraftTree) -> None:
    ancestors: list[set[int]] = []
    for node, parent in enumerate(tree.parents.tolist()):
        ancestors.append({node} | (ancestors[parent] if parent >= 0 else set()))
    assert tree.depths().tolist() == [len(line) - 1 for line in ancestors]
    mask = tree.ancestor_mask()
    assert [set(np.flatnonzero(row).tolist()) for row in mask] == ancestors


@pytest.mark.parametrize(
    ("tokens", "parents", "sentence"),
    [
        ([], [], "equally long"),
        ([1, 2], [-1], "equally long"),
        ([1, 2], [0, 0], "root"),
        ([1, 2, 3], [-1, 2, 0], "before its child"),
        ([1, 2, 3], [-1, 0, 2], "before its child"),
        ([1, 2, 3], [-1, 0, -1], "before its child"),
        ([1, 2, 3, 2], [-1, 0, 0, 0], "distinct"),
        ([1, 2, 5, 3, 5], [-1, 0, 1, 0, 1], "distinct"),
    ],
)
def test_what_is_no_tree_is_refused(tokens: list[int], parents: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tree_of(tokens, parents)


def test_a_square_of_tokens_is_no_tree() -> None:
    square = np.zeros((2, 2), np.int32)
    with pytest.raises(ValueError, match=r"tokens \(2, 2\) and parents \(2, 2\) must be flat and equally long"):
        DraftTree(square, square - 1)


def test_cousins_may_be_the_same_token() -> None:
    assert tree_of([1, 2, 3, 4, 4], [-1, 0, 0, 1, 2]).num_nodes == 5


def test_a_tree_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        DraftTree.root_only(3).tokens[0] = 4


def test_chain_and_root_only() -> None:
    chain = DraftTree.chain(9, [1, 2, 3])
    assert (chain.tokens.tolist(), chain.parents.tolist()) == ([9, 1, 2, 3], [-1, 0, 1, 2])
    assert chain.accepted_path([1, 2, 4]) == (1, 2)
    assert (DraftTree.root_only(9).num_drafted, DraftTree.chain(9, []).num_nodes) == (0, 1)


def marginals_of(log_probs: list[list[float]]) -> Marginals:
    counts = [len(row) for row in log_probs]
    return Marginals(
        np.arange(sum(counts), dtype=np.int32),
        np.array([value for row in log_probs for value in row], np.float32),
        np.cumsum([0, *counts]).astype(np.int32),
    )


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 6))
def test_first_ranks_cuts_every_depth(counts: list[int], top_k: int) -> None:
    whole = marginals_of([[-1.0] * count for count in counts])
    cut = whole.first_ranks(top_k)
    for depth in range(1, len(counts) + 1):
        assert cut.at(depth)[0].tolist() == whole.at(depth)[0][:top_k].tolist()


def test_top_tokens_stop_where_candidates_run_out() -> None:
    rows = marginals_of([[-1.0, -2.0], [-1.0], [], [-1.0]])
    assert [rows.top_tokens(length).tolist() for length in (0, 1, 2, 9)] == [[], [0], [0, 2], [0, 2]]


@pytest.mark.parametrize("row", [[-2.0, -1.0], [0.5], [-1.0, float("nan")]])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_rows_out_of_order_are_refused(row: list[float], depth: int) -> None:
    rows = [[-1.0], [-1.0, -1.5], [-0.5]]
    assert marginals_of(rows).depth == 3
    with pytest.raises(ValueError, match="must not rise"):
        marginals_of([*rows[: depth - 1], row, *rows[depth:]])


def test_wrong_dtypes_and_offsets_are_refused() -> None:
    ids, values = np.zeros(2, np.int32), np.zeros(2, np.float32)
    doubles: Any = np.zeros(2, np.float64)
    with pytest.raises(ValueError, match="int32, float32"):
        Marginals(ids, doubles, np.array([0, 2], np.int32))
    for offsets in ([], [0], [1, 2], [0, 3, 2], [0, -1, 2], [0, 2, 1, 2]):
        with pytest.raises(ValueError, match="offsets must rise"):
            Marginals(ids, values, np.array(offsets, np.int32))


def test_entropies_are_one_for_each_depth() -> None:
    ids, values, offsets = np.zeros(2, np.int32), np.zeros(2, np.float32), np.array([0, 1, 2], np.int32)
    entropies = np.array([0.5, 2.0], np.float32)
    whole = Marginals(ids, values, offsets, entropies)
    assert whole.first_ranks(1).entropies is entropies
    wrong: Any = entropies.astype(np.float64)
    for one in (entropies[:1], wrong):
        with pytest.raises(ValueError, match=r"entropies must be float32 \[2\]"):
            Marginals(ids, values, offsets, one)


def test_a_draft_ends_with_its_root() -> None:
    committed = np.array([5, 6], np.int32)
    assert Draft(None, 6, committed, 1).root_token == 6
    for root_token, context_length in ((5, 1), (6, 2)):
        with pytest.raises(ValueError, match="must end with the root"):
            Draft(None, root_token, committed, context_length)
    with pytest.raises(ValueError, match="no marginals"):
        Draft(None, 6, committed, 1).drafted()
