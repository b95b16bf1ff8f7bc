"""Sums over the candidates of true paths, against plain Python."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scoring_oracles as oracle
from calibration_oracle import class_by_hand, mapped_by_hand
from channel_texts import with_channels
from counted_texts import counts_of
from depth import some
from hypothesis import given
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts
from ngram_oracle import PlainNGram, PlainPresto
from order_checks import texts
from random_channels import below_at, draft_at
from scoring_oracles import rank_class

from simlab.grid import to_grid
from simlab.policies.composition import Composition
from simlab.policies.edges.correction import NUM_CLASSES
from simlab.policies.edges.models import Calibrated, Marginal, NGramCorrected
from simlab.policies.edges.ngram import counts_from_rows
from simlab.policies.edges.ngram_counting import count_texts
from simlab.policies.fits.calibration import add_ranks, no_rank_counts, rank_frequencies
from simlab.policies.fits.edge_sums import (
    EDGES,
    TRUE,
    EdgeScoring,
    EdgeSums,
    add_edges,
    add_lattice_edges,
    edge_scoring_of,
    no_edge_sums,
)
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder, WholeFamilies
from simlab.policies.orders.lattice_sources import LatticeSource, PoolSource, TransitionSource
from simlab.policies.orders.node_order import NodeOrder, StaticOrder
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import ChannelNeed
from simlab.recorded import DraftRows, RecordedSequence, texts_of
from simlab.testing.random_texts import random_sequence

VOCAB = 40


def sums_of(recorded: RecordedSequence, edges: EdgeScoring, width: int) -> EdgeSums:
    found = texts_of([recorded])
    sums = no_edge_sums(2, found.roots.counts.shape[1])
    add_edges(sums, found, edges, width, np.array([1]))
    return sums


def check_edges(recorded: RecordedSequence, order: NodeOrder, scores: oracle.Scores, width: int) -> None:
    """All sums are those of plain Python, and the binned ones are the same candidates."""
    edges = edge_scoring_of(order)
    assert edges is not None
    sums = sums_of(recorded, edges, width)
    nodes, cells = oracle.edge_sums(recorded, scores, width, not edges.reads_prefix)
    expected_nodes, expected = np.zeros_like(sums.nodes), np.zeros_like(sums.cells)
    for (index, depth), number in nodes.items():
        expected_nodes[1, index, depth] = number
    for (index, depth, group), values in cells.items():
        expected[1, index, depth, group] = values
    np.testing.assert_array_equal(sums.nodes, expected_nodes)
    np.testing.assert_allclose(sums.cells, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(sums.cells[..., [EDGES, TRUE]], expected[..., [EDGES, TRUE]])
    np.testing.assert_allclose(sums.by_depth.sum(axis=3), sums.cells.sum(axis=3)[..., :3])
    np.testing.assert_allclose(sums.by_rank.sum(axis=3), sums.cells.sum(axis=2)[..., :3])


@pytest.mark.parametrize("recorded", some(list(texts(11, 24)), 6))
@pytest.mark.parametrize("top_k", [None, 3])
def test_marginals_are_counted_at_every_place(recorded: RecordedSequence, top_k: int | None) -> None:
    def marginal(rows: list[oracle.Row], path: oracle.Path, before: tuple[int, ...]) -> dict[int, float]:
        return {rank: value for rank, (_, value) in enumerate(rows[len(path)])}

    width = 6
    check_edges(recorded, BestFirst(Marginal(top_k)), marginal, min(width, top_k or width))


@pytest.mark.parametrize("recorded", some(list(texts(12, 24)), 6))
def test_mapped_and_static_probabilities(recorded: RecordedSequence) -> None:
    generator = np.random.default_rng(3)
    edge_map = np.stack([generator.uniform(0, 2, (3, 2, NUM_CLASSES)), generator.normal(size=(3, 2, NUM_CLASSES))], -1)
    table = generator.dirichlet(np.ones(5), size=4)
    table[1, 2] = 0.0

    def mapped(rows: list[oracle.Row], path: oracle.Path, before: tuple[int, ...]) -> dict[int, float]:
        depth = len(path)
        is_spine = all(row and row[0][0] == token for row, token in zip(rows, path, strict=False))
        pairs = edge_map[min(depth, 2), 0 if is_spine else 1]
        return {
            rank: mapped_by_hand(round(-value * 65536), *pairs[class_by_hand(rank)].tolist()) / -65536
            for rank, (_, value) in enumerate(rows[depth])
        }

    def static(rows: list[oracle.Row], path: oracle.Path, before: tuple[int, ...]) -> dict[int, float]:
        depth = len(path)
        row = rows[depth] if depth < len(table) else []
        return {rank: float(to_grid(math.log(table[depth, rank] or 1e-200))) for rank in range(min(len(row), 5))}

    check_edges(recorded, BestFirst(Calibrated(edge_map, "map", 4)), mapped, 4)
    check_edges(recorded, StaticOrder(table, "table"), static, 9)


@pytest.mark.parametrize("recorded", some(list(texts(13, 12)), 3))
@pytest.mark.parametrize("renormalised", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_probabilities_that_a_3_gram_corrects(recorded: RecordedSequence, renormalised: bool, share: float) -> None:
    generator = np.random.default_rng(5)
    corpus = [generator.integers(11, size=60, dtype=np.int32) for _ in range(3)]
    plain = PlainNGram([((), array.tolist()) for array in corpus], VOCAB)
    edge = NGramCorrected(0.7, counts_of(corpus, VOCAB), "corpus", text_share=share, renormalised=renormalised, top_k=5)

    def corrected(rows: list[oracle.Row], path: oracle.Path, before: tuple[int, ...]) -> dict[int, float]:
        own = PlainNGram([((), before)], VOCAB)

        def probability(context: tuple[int, ...], token: int) -> float:
            return float((1 - share) * plain.probability(context, token) + share * own.probability(context, token))

        ranks = [[token for token, _ in row].index(one) for row, one in zip(rows, path, strict=False)]
        presto = PlainPresto(rows, before[-2:], probability, [0.7] * len(rows), renormalised)
        return {rank: cost / -65536 for rank, cost in enumerate(presto.children(tuple(ranks)))}

    check_edges(recorded, BestFirst(edge), corrected, 5)


def test_orders_without_edges_have_none() -> None:
    (chain, tree) = parse_policies(["chain", "presto:ngram_weight=0,budget=4"], FullArtefacts())
    assert isinstance(chain.policy, Composition)
    assert isinstance(tree.policy, Composition)
    assert edge_scoring_of(chain.policy.order) is None
    edges = edge_scoring_of(tree.policy.order)
    assert edges is not None
    assert not edges.reads_prefix


# Sums over the candidates of a channel's lists, against plain Python


POOL = PoolSource(ChannelNeed("pool", "pool"), depth_price=0.5)
SOURCES: list[LatticeSource] = [
    TransitionSource("rows", previous=2, top_k=3),
    TransitionSource("rows", previous=4, top_k=6),
    POOL,
]


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
    unpriced = PoolSource(POOL.need) if source is POOL else source
    for t in range(len(text) - 1):
        below, index = below_at(unpriced, draft_at(whole, t)), 0
        for depth, true_token in enumerate(text[t + 1 : t + 1 + len(true_ranks[t])]):
            offered = below(tuple(text[t + 1 : t + 1 + depth]))[:width]
            if not offered:
                break
            nodes[1, index, depth] += 1
            for rank, (token, cost) in enumerate(offered):
                prob, hit = math.exp(cost / -65536), token == true_token
                loss = cost / 65536 if hit else -math.log1p(-min(prob, 1 - 1e-9))
                cells[1, index, depth, rank_class(rank)] += [1.0, prob, float(hit), loss, (prob - hit) ** 2]
            if true_token not in [token for token, _ in offered]:
                break
            index = max(index, int(true_ranks[t][depth] != 0))
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


# Frequencies of ranks against counts by hand


def frequencies_by_hand(texts: list[DraftRows], num_ranks: int) -> list[list[Fraction]]:
    """Each root and depth is looked at alone: was everything before it right, and which rank came next?"""
    num_depths = texts[0].counts.shape[1]
    found = []
    for depth in range(num_depths):
        seen = [
            truth[depth]
            for rows in texts
            for root, truth in enumerate(rows.true_ranks.tolist())
            if root + depth < len(rows.counts) and all(0 <= rank < num_ranks for rank in truth[:depth])
        ]
        found.append([Fraction(seen.count(rank), max(len(seen), 1)) for rank in range(num_ranks)])
    return found


@given(st.integers(0, 1 << 30), st.integers(1, 12))
def test_frequencies_are_those_counted_by_hand(seed: int, num_ranks: int) -> None:
    generator = np.random.default_rng(seed)
    drawn = [random_sequence(generator, most_kept=10).rows for _ in range(4)]
    depth = max(rows.counts.shape[1] for rows in drawn if rows is not None)
    texts = [rows for rows in drawn if rows is not None and rows.counts.shape[1] == depth]
    counts = no_rank_counts(depth, num_ranks)
    for rows in texts:
        add_ranks(counts, rows)
    found = rank_frequencies(counts)
    assert found.shape == (depth, num_ranks)
    assert found.tolist() == [[float(share) for share in row] for row in frequencies_by_hand(texts, num_ranks)]
    assert np.all(found.sum(axis=1) <= 1 + 1e-12)


def test_a_small_case() -> None:
    true_ranks = np.array([[0, 2, 1], [1, -1, -1], [0, -1, -1]], np.int32)
    kept = np.full((3, 3), 4, np.int32)
    counts = no_rank_counts(3, 2)
    add_ranks(counts, DraftRows(np.zeros(36, np.int32), np.zeros(36, np.float32), kept, true_ranks))
    # Root 0 knows three tokens, but rank 2 is none of two; root 1 knows two, root 2 one.
    assert counts.numbers.tolist() == [3, 2, 0]
    assert counts.hits.tolist() == [[2, 1], [0, 0], [0, 0]]
    assert rank_frequencies(counts)[0].tolist() == [2 / 3, 1 / 3]
