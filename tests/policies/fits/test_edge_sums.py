"""Sums over the candidates of true paths, against plain Python."""

import math

import numpy as np
import pytest
import scoring_oracles as oracle
from calibration_oracle import class_by_hand, mapped_by_hand
from depth import some
from made_up_artefacts import FullArtefacts
from ngram_oracle import PlainNGram, PlainPresto
from order_checks import texts

from simlab.grid import to_grid
from simlab.policies.composition import Composition
from simlab.policies.edges.models import Calibrated, Marginal, NGramCorrected
from simlab.policies.edges.ngram import counts_of
from simlab.policies.edges.rank_classes import NUM_CLASSES
from simlab.policies.fits.edge_sums import EDGES, TRUE, EdgeScoring, EdgeSums, add_edges, edge_scoring_of, no_edge_sums
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.orders.static_order import StaticOrder
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import RecordedSequence, texts_of

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
    for (place, depth), number in nodes.items():
        expected_nodes[1, place, depth] = number
    for (place, depth, group), values in cells.items():
        expected[1, place, depth, group] = values
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
    plain = PlainNGram([((), one.tolist()) for one in corpus], VOCAB)
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
