"""Sums over the candidates of a channel's lists, against plain Python."""

import math

import lattice_oracle
import numpy as np
import pytest
from channel_texts import with_channels
from depth import some
from order_checks import texts
from random_channels import draft_at
from scoring_oracles import rank_class

from simlab.channels import Pool, Transitions
from simlab.policies.composition import Composition
from simlab.policies.edges.models import NGramCorrected
from simlab.policies.edges.ngram import counts_from_rows
from simlab.policies.edges.ngram_counting import count_texts
from simlab.policies.fits.edge_sums import EDGES, TRUE, edge_scoring_of, no_edge_sums
from simlab.policies.fits.lattice_edge_sums import add_lattice_edges
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder, WholeFamilies
from simlab.policies.orders.lattice_sources import LatticeSource, PoolSource, TransitionSource
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import ChannelNeed
from simlab.recorded import RecordedSequence, texts_of

POOL = PoolSource(ChannelNeed("pool", "pool"), depth_price=0.5)
SOURCES: list[LatticeSource] = [
    TransitionSource("rows", previous=2, top_k=3),
    TransitionSource("rows", previous=4, top_k=6),
    POOL,
]


def below_at(source: LatticeSource, recorded: RecordedSequence, t: int) -> lattice_oracle.Below:
    (name,) = recorded.channels
    one = draft_at(recorded, t).channels[name]
    if isinstance(one, Transitions):
        assert isinstance(source, TransitionSource)
        rows = one.num_rows.tolist(), one.previous.tolist(), one.ids.tolist(), one.log_probs.tolist()
        return lattice_oracle.below_transitions(*rows, source.previous, source.top_k)
    assert isinstance(one, Pool)
    return lattice_oracle.below_pool(one.tokens.tolist(), one.parents.tolist(), one.log_probs.tolist())


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.key)
@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("recorded", some(list(texts(14, 24)), 3))
def test_lists_are_counted_along_true_paths(recorded: RecordedSequence, width: int, source: LatticeSource) -> None:
    whole = with_channels(recorded, [Composition(LatticeOrder(source), FixedBudget(4))])
    found = texts_of([whole])
    sums = no_edge_sums(2, found.roots.counts.shape[1])
    edges = edge_scoring_of(LatticeOrder(source))
    assert edges is not None
    assert edges.source is not None
    add_lattice_edges(sums, found, edges.source, width, np.array([1]))
    nodes, cells = np.zeros_like(sums.nodes), np.zeros_like(sums.cells)
    assert whole.rows is not None
    text, true_ranks = whole.text.tolist(), whole.rows.true_ranks.tolist()
    for t in range(len(text) - 1):
        below, place = below_at(source, whole, t), 0
        for depth, true_token in enumerate(text[t + 1 : t + 1 + len(true_ranks[t])]):
            offered = below(tuple(text[t + 1 : t + 1 + depth]))[:width]
            if not offered:
                break
            nodes[1, place, depth] += 1
            for rank, (token, cost) in enumerate(offered):
                prob, hit = math.exp(cost / -65536), token == true_token
                loss = cost / 65536 if hit else -math.log1p(-min(prob, 1 - 1e-9))
                cells[1, place, depth, rank_class(rank)] += [1.0, prob, float(hit), loss, (prob - hit) ** 2]
            if true_token not in [token for token, _ in offered]:
                break
            place = max(place, int(true_ranks[t][depth] != 0))
    np.testing.assert_array_equal(sums.nodes, nodes)
    np.testing.assert_allclose(sums.cells, cells, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(sums.cells[..., [EDGES, TRUE]], cells[..., [EDGES, TRUE]])
    np.testing.assert_allclose(sums.by_depth.sum(axis=3), sums.cells.sum(axis=3)[..., :3])
    np.testing.assert_allclose(sums.by_rank.sum(axis=3), sums.cells.sum(axis=2)[..., :3])


def test_what_a_list_does_not_score_is_not_asked_of_it() -> None:
    """A 3-gram on top, and families that enter whole; a price on depths is left out of the probabilities."""
    source = SOURCES[0]
    empty, text = np.empty(0, np.int32), np.array([1, 2, 3], np.int32)
    counts = counts_from_rows(*count_texts([(empty, text)], 5), 5)
    assert edge_scoring_of(LatticeOrder(source, WholeFamilies(2))) is None
    assert edge_scoring_of(LatticeOrder(source, BestPaths(NGramCorrected(0.2, counts, "counts")))) is None
    edges = edge_scoring_of(LatticeOrder(POOL))
    assert edges is not None
    assert edges.source is not None
    assert edges.source.has_probabilities
    assert not POOL.has_probabilities
