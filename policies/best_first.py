"""Best-first trees: the drafted tokens with the largest path scores.

Ringel and Romano, "DDTree" (2026), arXiv 2604.12989. Path scores are sums on the grid of
`simlab.grid`, so they are exact; equal scores are resolved by the smaller tuple of ranks, a
prefix first. It is the released code's order up to D grid steps.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.columns import RoundColumns
from simlab.draft import Draft, Marginals
from simlab.jit import kernel
from simlab.policies.best_scores import ROOM, best_scores_into
from simlab.policies.budget_rules import Fixed
from simlab.policies.children import Children, fill_marginal, room_for_children
from simlab.policies.composition import Composed, Composition
from simlab.policies.corrected_insertion import corrected_insertions_into, room_to_count
from simlab.policies.correction import Correction, fit_weights, no_correction
from simlab.policies.edge_models import NO_MAP, EdgeModel, Marginal, counted
from simlab.policies.insertion import insertions_into, num_paths
from simlab.policies.ngram import add_token
from simlab.policies.node_order import NEVER, Layer, Nodes
from simlab.policies.rank_classes import apply_map
from simlab.policies.shelf import Shelf
from simlab.policies.take_in_order import DEPTHS, PARENTS, RANKS, TOKENS, insert_path, take_in_order
from simlab.policies.visited_roots import walk_budgets
from simlab.policy import Needs
from simlab.recorded import DraftRows, RecordedSequence

_EVERY_RANK = 1 << 30


@dataclass(frozen=True, slots=True)
class BestFirst:
    """Candidates in the order of their path scores."""

    edge: EdgeModel
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """Shape and edge model."""
        return f"best-first:{self.edge.key}"

    @property
    def needs(self) -> Needs:
        """The ranks that the edge model reads."""
        return Needs(top_k=self.edge.top_k)

    @property
    def has_probabilities(self) -> bool:
        """As the edge model says."""
        return self.edge.has_probabilities

    def nodes(self, draft: Draft, most: int) -> Nodes:
        """The first nodes at one root."""
        marginals, committed = draft.drafted(), draft.committed
        correction = counted(self.edge.correction(marginals.depth, len(committed)), committed)
        before = int(committed[-2]) if len(committed) > 1 else -1
        return _nodes(marginals, self._top_k, self.edge.edge_map, correction, before, draft.root_token, most)

    def layer(self, recorded: RecordedSequence, most: int, with_scores: bool) -> Layer:
        """The same for all roots of a text."""
        rows, prompt = recorded.rows, recorded.prompt.token_ids
        if rows is None:
            raise ValueError("best-first trees need a drafter's rows, and none were read")
        num_roots, num_depths = rows.counts.shape
        insertions = np.full((num_roots, num_depths), NEVER, np.uint16)
        available = np.zeros(num_roots, np.int32)
        scores = np.full((num_roots, most + 1 if with_scores else 0), -np.inf)
        tokens = np.concatenate([prompt, recorded.text]).astype(np.int32)
        correction = self.edge.correction(num_depths, len(tokens))
        _fill_layer(
            rows.ids,
            rows.log_probs,
            rows.counts,
            rows.true_ranks,
            tokens,
            len(prompt),
            self._top_k,
            self.edge.edge_map,
            correction,
            most,
            insertions,
            available,
            scores,
        )
        return Layer(insertions, available, scores if with_scores else None)

    def walk_budgets(self, rows: DraftRows, budgets: Ints) -> list[RoundColumns]:
        """The rounds of fixed budgets, int32 ``[B]``, from uncorrected scores; only roots that are met are read."""
        return walk_budgets(rows, budgets, self._top_k, self.edge.edge_map)

    @property
    def _top_k(self) -> int:
        return _EVERY_RANK if self.edge.top_k is None else self.edge.top_k


@dataclass(frozen=True)
class DDTree(Composed):
    """The ``budget`` drafted tokens with the largest path probabilities under the marginals.

    No tree of as many tokens has a larger sum of path probabilities. Smaller budgets are
    prefixes of larger ones.
    """

    budget: int

    source: ClassVar[str] = "Ringel and Romano 2026, arXiv 2604.12989"
    exactness: ClassVar[str] = "exact (from released code)"
    reads: ClassVar[str] = "every kept candidate, up to the exact budget of the trace"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")

    def compose(self, shelf: Shelf) -> Composition:
        """Best-first on the marginals, a fixed budget."""
        return Composition(BestFirst(Marginal()), Fixed(self.budget))


def best_first(root_token: int, marginals: Marginals, budget: int) -> Nodes:
    """The best-first tree of at most ``budget`` drafted tokens; fewer where the candidates run out."""
    return _nodes(marginals, _EVERY_RANK, NO_MAP, no_correction(), -1, root_token, budget)


def ranks_used(marginals: Marginals, budget: int) -> Ints:
    """How many ranks the best-first tree of ``budget`` drafted tokens reads at each depth.

    Returns:
        int32 ``[D]``; the tree is the same when each depth is cut to so many candidates.
    """
    nodes = best_first(0, marginals, budget)
    return _ranks_used(nodes.depths, nodes.ranks, marginals.depth)


@kernel
def _ranks_used(depths: Ints, ranks: Ints, num_depths: int) -> Ints:
    used = np.zeros(num_depths, np.int32)
    for node in range(1, depths.size):
        used[depths[node] - 1] = max(used[depths[node] - 1], ranks[node] + 1)
    return used


def _nodes(
    marginals: Marginals,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    before_root: int,
    root_token: int,
    most: int,
) -> Nodes:
    tree, scores = _taken(
        marginals.ids,
        marginals.log_probs,
        marginals.offsets,
        top_k,
        edge_map,
        correction,
        before_root,
        root_token,
        most,
    )
    return Nodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)


@kernel
def _taken(
    ids: Ints,
    log_probs: Floats,
    offsets: Ints,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    before_root: int,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    counts = offsets[1:] - offsets[:-1]
    children = room_for_children(counts.size, min(counts.max(), top_k) if counts.size else 0)
    fill_children(children, ids, log_probs, counts, 0, top_k, edge_map)
    return take_in_order(children, correction, before_root, root_token, most)


@kernel
def fill_children(
    children: Children, ids: Ints, log_probs: Floats, counts: Ints, start: int, top_k: int, edge_map: Doubles
) -> None:
    """The drafter's own candidates, after a map if there is one."""
    fill_marginal(children, ids, log_probs, counts, start, top_k)
    if edge_map.shape[0] > 0:
        apply_map(children, edge_map)


@kernel
def _fill_layer(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    true_ranks: Ints,
    tokens: Ints,
    prompt_length: int,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root; trees are built for corrected scores alone."""
    num_roots, num_depths = counts.shape
    widest = 0
    for root in range(num_roots):
        widest = max(widest, counts[root].max())
    children = room_for_children(num_depths, min(widest, top_k))
    stack, room, guess = np.empty((3, num_depths + 1), np.int32), np.empty((2, ROOM * most), np.int32), 1 << 18
    if correction.weights.size > 0 and correction.text_share > 0:
        for place in range(prompt_length):
            add_token(correction.text, tokens, place)
    counting, start = room_to_count(num_depths, min(widest, top_k)), 0
    for root in range(num_roots):
        place = prompt_length + root
        fill_children(children, ids, log_probs, counts[root], start, top_k, edge_map)
        start += counts[root].sum()
        if correction.weights.size == 0:
            insertions_into(children, true_ranks[root], num_roots - root, most, stack, insertions[root])
            available[root] = num_paths(children, most)
            if scores.shape[1] > 0:
                guess = best_scores_into(children, most, guess, stack, room, scores[root])
        else:
            if correction.text_share > 0:
                add_token(correction.text, tokens, place)
            before, available[root] = tokens[place - 1] if place > 0 else -1, num_paths(children, most)
            if scores.shape[1] > 0:
                tree, found = take_in_order(children, correction, before, tokens[place], most)
                insert_path(tree, tokens[place + 1 :], insertions[root])
                scores[root, : found.size] = found
            else:
                fit_weights(correction, children)
                corrected_insertions_into(
                    children,
                    correction,
                    before,
                    tokens[place],
                    true_ranks[root],
                    num_roots - root,
                    most,
                    counting,
                    insertions[root],
                )
