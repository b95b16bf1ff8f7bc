"""What edge models say of the candidates below true paths, and which of these came true.

At a root the true path is what the text goes on with. Below each of its nodes an edge model gives the candidates
probabilities, and one of them, or none, is the true token. The sums here are all that reliability curves, calibration
errors and losses of any slice of depths, ranks and places are made of; they are kept prompt by prompt, so that prompts
can be drawn again.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.edges.channel_lattice import empty_lattice, fill_lattice
from simlab.policies.edges.children import (
    ELSEWHERE,
    EVERY_COST,
    SPINE,
    Children,
    empty_children,
    fill_marginal,
    find_rank,
)
from simlab.policies.edges.correction import Correction, class_of, fill_children, fit_weights
from simlab.policies.edges.lattice import (
    LEAF,
    Lattice,
    PoolLists,
    TransitionLists,
    find_token,
)
from simlab.policies.edges.models import EdgeModel
from simlab.policies.edges.ngram_counting import count_up_to, longest_text, root_token, token_before
from simlab.policies.edges.redrafts import BranchLists
from simlab.policies.kernels.corrected_step import candidate_cost, parent_context
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder
from simlab.policies.orders.lattice_sources import LatticeSource, PoolSource
from simlab.policies.orders.node_order import NodeOrder, StaticOrder
from simlab.recorded import RecordedTexts, Roots

LOST = 2
"""Beside `SPINE` and `ELSEWHERE` of `simlab.policies.edges.children`: below a token that is no candidate, so below no
node. Only probabilities that do not depend on the path are known there."""

NUM_PLACES = 3

RANK_CLASSES = ("0", "1", "2-3", "4-7", "8+")
"""Ranks that are told apart."""

EDGES, PREDICTED, TRUE, LOG_LOSS, SQUARES = 0, 1, 2, 3, 4
"""What is summed: candidates, their probabilities, those that were the true token, their negative log-likelihoods in
nats, their squared errors."""

_SURE = 1e-9
_LOWEST, _HIGHEST, _BINS_PER_LOGIT = -16, 16, 8
NUM_BINS = (_HIGHEST - _LOWEST) * _BINS_PER_LOGIT
"""Bins of an eighth of a logit, from -16 to 16; what is beyond is in the last one."""


class EdgeSums(NamedTuple):
    """Sums over candidates of nodes of true paths; P prompts, three places, D depths, five classes of ranks.

    Attributes:
        nodes: float64 ``[P, 3, D]``, nodes of true paths, whether or not their true token is a candidate.
        cells: float64 ``[P, 3, D, 5, 5]``, `EDGES`, `PREDICTED`, `TRUE`, `LOG_LOSS`, `SQUARES`.
        by_depth: float64 ``[P, 3, D, NUM_BINS, 3]``, the first three of them by the bin of the probability.
        by_rank: float64 ``[P, 3, 5, NUM_BINS, 3]``, the same by class of rank.
    """

    nodes: Doubles
    cells: Doubles
    by_depth: Doubles
    by_rank: Doubles


@dataclass(frozen=True, slots=True, eq=False)
class EdgeScoring:
    """What gives edges their scores in some order of nodes.

    Attributes:
        key: equal keys give equal scores.
        has_probabilities: whether exp(score) is meant as a probability.
        edge: an edge model, or
        frequencies: float64 ``[D, R]``, one for each rank at each depth; or
        source: of the lists of a channel, whose scores are probabilities; see
            `simlab.policies.fits.edge_sums`.
    """

    key: str
    has_probabilities: bool
    edge: EdgeModel | None
    frequencies: Doubles | None
    source: LatticeSource | None = None

    @property
    def reads_prefix(self) -> bool:
        """Whether the path above a candidate matters; not for the drafter's own marginals."""
        return self.edge is None or self.edge.is_corrected or len(self.edge.edge_map) > 0


def edge_scoring_of(order: NodeOrder) -> EdgeScoring | None:
    """What scores the edges of an order; None where it takes candidates by something else."""
    if isinstance(order, StaticOrder):
        return EdgeScoring(order.key, order.has_probabilities, None, order.frequencies)
    if isinstance(order, LatticeOrder):
        # A 3-gram on top is scored by no list, and families enter whole whatever their scores are.
        source = order.source
        source = replace(source, depth_price=0.0) if isinstance(source, PoolSource) else source
        return EdgeScoring(source.key, True, None, None, source) if order.shape == BestPaths() else None
    edge = getattr(order, "edge", None)
    return None if edge is None else EdgeScoring(edge.key, edge.has_probabilities, edge, None)


def no_edge_sums(num_prompts: int, num_depths: int) -> EdgeSums:
    """Sums over candidates, all still 0."""
    shape, ranks = (num_prompts, NUM_PLACES), len(RANK_CLASSES)
    return EdgeSums(
        np.zeros((*shape, num_depths)),
        np.zeros((*shape, num_depths, ranks, 5)),
        np.zeros((*shape, num_depths, NUM_BINS, 3)),
        np.zeros((*shape, ranks, NUM_BINS, 3)),
    )


def add_edges(sums: EdgeSums, texts: RecordedTexts, edges: EdgeScoring, width: int, prompts: Longs) -> None:
    """Add the candidates of all roots of some texts, in place.

    A path is true as far as its tokens are candidates of the edge model, and known as far as the text goes. Below a
    token that is none only marginals are looked at, at the place `LOST`.

    Args:
        sums: to be added to.
        texts: with draft rows.
        edges: what scores them.
        width: at most so many ranks are looked at, those that a trace holds at every depth.
        prompts: int64 ``[S]``, the place in ``sums`` of each text's prompt.
    """
    roots, edge = texts.drafted(), edges.edge
    table = None if edges.frequencies is None else _costs(edges.frequencies)
    top_k, edge_map, correction = width, None, None
    if edge is not None:
        top_k = width if edge.top_k is None else min(width, edge.top_k)
        edge_map = edge.edge_map
        correction = edge.correction(roots.counts.shape[1], longest_text(roots)) if edge.is_corrected else None
    _add(roots, top_k, edge_map, correction, table, not edges.reads_prefix, prompts, sums)


def _costs(frequencies: Doubles) -> Ints:
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(frequencies), LOWEST)
    costs: Ints = np.rint(-logs * STEPS_PER_NAT).astype(np.int32)
    return costs


@kernel
def _add(
    roots: Roots,
    top_k: int,
    edge_map: Doubles | None,
    correction: Correction | None,
    table: Ints | None,
    goes_on: bool,
    prompts: Longs,
    sums: EdgeSums,
) -> None:
    """All roots; what is None is not even compiled."""
    children = empty_children(roots.counts.shape[1], max(1, top_k))
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            counts, start = roots.counts[root], roots.starts[root]
            if edge_map is not None:
                fill_children(children, roots.ids, roots.log_probs, counts, start, top_k, edge_map)
            else:
                fill_marginal(children, roots.ids, roots.log_probs, counts, start, top_k)
            if table is not None:
                _score_by_table(children.costs, children.starts, children.ends, table)
            if correction is not None:
                count_up_to(correction, roots, text, root)
                fit_weights(correction, children)
            _add_path(children, correction, roots, text, root, goes_on, prompts[text], sums)


@kernel
def _add_path(
    children: Children,
    correction: Correction | None,
    roots: Roots,
    text: int,
    root: int,
    goes_on: bool,
    prompt: int,
    sums: EdgeSums,
) -> None:
    """The candidates below each node of the true path of one root."""
    before, token = token_before(roots, text, root), root_token(roots, root)
    kind, index = SPINE, SPINE
    for depth in range(min(roots.counts.shape[1], roots.firsts[text + 1] - root)):
        true_rank = roots.true_ranks[root, depth]
        sums.nodes[prompt, index, depth] += 1
        _add_node(children, correction, before, token, kind, depth, true_rank, sums, prompt, index)
        at = find_rank(children, kind, depth, true_rank)
        if at < 0 and not goes_on:
            break
        if at < 0:
            index = LOST
        else:
            before, token = token, int(children.tokens[at])
            if true_rank != 0:
                kind, index = ELSEWHERE, max(index, ELSEWHERE)


@kernel
def _add_node(
    children: Children,
    correction: Correction | None,
    before: int,
    token: int,
    kind: int,
    depth: int,
    true_rank: int,
    sums: EdgeSums,
    prompt: int,
    place: int,
) -> None:
    """The candidates below one node, whose token is given with the one above."""
    first, last = children.starts[kind, depth], children.ends[kind, depth]
    if correction is not None:
        above = parent_context(children, correction, before, token, kind, depth)
        for at in range(first, last):
            cost = candidate_cost(children, correction, above, at, EVERY_COST)
            count_candidate(sums, prompt, place, depth, children.ranks[at], cost, children.ranks[at] == true_rank)
    else:
        for at in range(first, last):
            is_true = children.ranks[at] == true_rank
            count_candidate(sums, prompt, place, depth, children.ranks[at], children.costs[at], is_true)


@kernel
def _score_by_table(costs: Ints, starts: Ints, ends: Ints, table: Ints) -> None:
    """Candidates as a table scores their ranks; those beyond it are left out."""
    for depth in range(starts.shape[1]):
        start, num = starts[SPINE, depth], ends[SPINE, depth] - starts[SPINE, depth]
        num = min(num, table.shape[1]) if depth < table.shape[0] else 0
        ends[SPINE, depth] = ends[ELSEWHERE, depth] = start + num
        for rank in range(num):
            costs[start + rank] = table[depth, rank]


@kernel
def count_candidate(sums: EdgeSums, prompt: int, place: int, depth: int, rank: int, cost: int, is_true: bool) -> None:
    """Add one candidate to the sums: how it was scored, in grid steps below 0, and whether it came true."""
    log_prob, group = cost / -STEPS_PER_NAT, min(class_of(rank), 4)
    prob = math.exp(log_prob)
    log_miss = math.log1p(-min(prob, 1.0 - _SURE))
    bin_ = int(min(max((log_prob - log_miss - _LOWEST) * _BINS_PER_LOGIT, 0), NUM_BINS - 1))
    cell = sums.cells[prompt, place, depth, group]
    cell[EDGES] += 1.0
    cell[PREDICTED] += prob
    cell[TRUE] += is_true
    cell[LOG_LOSS] -= log_prob if is_true else log_miss
    cell[SQUARES] += (prob - is_true) ** 2
    for bins in (sums.by_depth[prompt, place, depth, bin_], sums.by_rank[prompt, place, group, bin_]):
        bins[EDGES] += 1.0
        bins[PREDICTED] += prob
        bins[TRUE] += is_true


# What the lists of a channel say of the candidates below true paths, and which of these came true.
#
# As `simlab.policies.fits.edge_sums` has it for models of edges by depth; here every node has a list of its own.


def add_lattice_edges(sums: EdgeSums, texts: RecordedTexts, source: LatticeSource, width: int, prompts: Longs) -> None:
    """Add the candidates of all roots of some texts, in place.

    A path is true as far as its tokens stand in lists that lie one below the other, and known as far as the text goes.
    A node without a list is not asked. Ranks are places in the list; a node is on the spine where the drafter's first
    candidates alone reach it.

    Args:
        sums: to be added to.
        texts: with draft rows and the channel.
        source: whose lists they are; its scores are log-probabilities.
        width: at most so many candidates of a list are looked at.
        prompts: int64 ``[S]``, the place in ``sums`` of each text's prompt.
    """
    lists = source.at_roots(texts)
    _add_lattice_edges(texts.drafted(), *lists, width, prompts, sums)


@kernel
def _add_lattice_edges(
    roots: Roots,
    transitions: TransitionLists | None,
    pools: PoolLists | None,
    branches: BranchLists | None,
    width: int,
    prompts: Longs,
    sums: EdgeSums,
) -> None:
    """All roots; what is None is not even compiled."""
    lattice = empty_lattice(transitions, pools, branches)
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            fill_lattice(lattice, transitions, pools, branches, root)
            _add_lattice_path(lattice, width, roots, text, root, prompts[text], sums)


@kernel
def _add_lattice_path(
    lattice: Lattice, width: int, roots: Roots, text: int, root: int, prompt: int, sums: EdgeSums
) -> None:
    """The candidates below each node of the true path of one root."""
    number, index, first = 0, SPINE, roots.token_indices[root] + 1
    for depth in range(min(roots.counts.shape[1], roots.firsts[text + 1] - root)):
        true_token = int(roots.tokens[first + depth])
        start, end = lattice.starts[number], min(lattice.ends[number], lattice.starts[number] + width)
        sums.nodes[prompt, index, depth] += 1
        for at in range(start, end):
            is_true = lattice.tokens[at] == true_token
            count_candidate(sums, prompt, index, depth, at - start, lattice.costs[at], is_true)
        child = find_token(lattice, number, true_token)
        if child < 0 or child >= end or lattice.below[child] == LEAF:
            break
        number = lattice.below[child]
        if roots.true_ranks[root, depth] != 0:
            index = max(index, ELSEWHERE)
