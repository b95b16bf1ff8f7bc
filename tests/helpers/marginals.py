"""Drafts that hypothesis draws, and the paths of their trees."""

from collections.abc import Sequence

import numpy as np
import oracle
from hypothesis import strategies as st

from simlab import Marginals
from simlab.arrays import Floats
from simlab.policies.orders.node_order import OrderedNodes
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.ranked import kept_counts
from simlab.sampling.candidates import top_candidates
from simlab.tree import DraftTree

STEP = 2.0**-16


grid_values = st.one_of(
    st.sampled_from([-0.5, -0.5 - STEP, -1.0, -1.5]),  # sums tie across depths
    st.sampled_from([0.0, -255.0]),
    st.integers(-(1 << 20), 0).map(lambda steps: steps * STEP),
)


def rows_strategy(most_depths: int, most_ranks: int, fewest_ranks: int = 0) -> st.SearchStrategy[list[oracle.Row]]:
    row = st.lists(grid_values, min_size=fewest_ranks, max_size=most_ranks).map(
        lambda values: [(7 * rank + 1, value) for rank, value in enumerate(sorted(values, reverse=True))]
    )
    return st.lists(row, min_size=1, max_size=most_depths)


def marginals_of(rows: list[oracle.Row]) -> Marginals:
    flat = [pair for row in rows for pair in row]
    return Marginals(
        np.array([token for token, _ in flat], np.int32),
        np.array([value for _, value in flat], np.float32),
        np.cumsum([0, *map(len, rows)]).astype(np.int32),
    )


def kept_marginals(laws_log_probs: Floats, kept: KeptCandidates) -> Marginals:
    """The candidates that the recorder would keep of one root's laws ``[D, V]``: what a live round sees."""
    ids, on_grid = top_candidates(laws_log_probs, kept.most)
    counts = kept_counts(ids, on_grid, kept)
    kept_ids, log_probs = (
        np.concatenate([row[:num] for row, num in zip(rows, counts, strict=True)]) for rows in (ids, on_grid)
    )
    return Marginals(kept_ids, log_probs, np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def paths_of(nodes: OrderedNodes) -> list[oracle.Path]:
    paths: list[oracle.Path] = [()]
    for parent, rank in zip(nodes.parents[1:].tolist(), nodes.ranks[1:].tolist(), strict=True):
        paths.append((*paths[parent], rank))
    return paths[1:]


def token_paths(tokens: Sequence[int], parents: Sequence[int]) -> list[tuple[int, ...]]:
    """The tokens from below the root down to each node; the root is not among the nodes, and is parent 0."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def paths_of_tree(tree: DraftTree) -> list[tuple[int, ...]]:
    """The same of a tree, whose first node is its root."""
    return token_paths(tree.tokens[1:].tolist(), tree.parents[1:].tolist())
