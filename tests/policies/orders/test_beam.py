"""Beams against a beam search level by level in plain Python."""

from fractions import Fraction

import numpy as np
import oracle
import pytest
import shape_oracles
from counted_texts import counts_of
from depth import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import (
    check_columns,
    check_layer,
    check_nested,
    check_nodes,
    draft_of,
    paths_of,
    real_rows,
    rows_strategy,
    texts,
)

from simlab import Draft
from simlab.policies.artefacts import NoArtefacts
from simlab.policies.composition import Composition
from simlab.policies.edges.correction import NUM_CLASSES
from simlab.policies.edges.models import Calibrated, EdgeModel, Marginal, NGramCorrected
from simlab.policies.named.eagle2_beam import Eagle2Beam
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.rules.budgets import FixedBudget
from simlab.recorded import texts_of

GENERATOR = np.random.default_rng(8)
CORPUS = counts_of([GENERATOR.integers(20, size=400, dtype=np.int32)], 100)
EDGES: dict[str, EdgeModel] = {
    "marginal": Marginal(5),
    "every rank": Marginal(),
    "calibrated": Calibrated(GENERATOR.uniform(-1, 1, size=(3, 2, NUM_CLASSES, 2)), "made-up", 6),
    "n-gram": NGramCorrected(0.4, CORPUS, "made-up", top_k=6),
    "n-gram of the text": NGramCorrected(0.4, CORPUS, "made-up", text_share=0.5, top_k=6),
    "renormalised": NGramCorrected(0.6, CORPUS, "made-up", renormalised=True, top_k=6),
}
NO_END = 100_000


def drafts(seed: int) -> list[Draft]:
    return [draft_of(real_rows(seed, 3, 6)), draft_of([[(3 * rank, -0.5) for rank in range(5)]] * 3)]


@settings(max_examples=examples(200, quick=40))
@given(rows_strategy(4, 4), st.integers(1, 9), st.integers(1, 5), st.integers(0, 90))
def test_on_marginals_it_is_the_search_level_by_level(
    rows: list[oracle.Row], width: int, deepest: int, budget: int
) -> None:
    expected = shape_oracles.beam(shape_oracles.all_scores(rows), width, deepest, budget)
    check_nodes(BestFirst(Marginal(), width=width, deepest=deepest).nodes(draft_of(rows), budget), rows, expected)


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("width", some([2, 11, 1, 5]))
def test_under_every_edge_model_it_is_the_search_level_by_level(edge: EdgeModel, width: int) -> None:
    for draft in [one for seed in range(5) for one in drafts(seed)]:
        for deepest in (1, 2, 3):
            every = BestFirst(edge).nodes(draft, NO_END)
            scores = dict(zip(paths_of(every), map(Fraction, every.scores[1:].tolist()), strict=True))
            nodes = BestFirst(edge, width=width, deepest=deepest).nodes(draft, 40)
            expected = shape_oracles.beam(scores, width, deepest, 40)
            assert paths_of(nodes) == expected
            assert nodes.scores[1:].tolist() == [float(scores[path]) for path in expected]


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("budget", some([30, 7, 1]))
def test_as_wide_as_the_budget_it_is_best_first(edge: EdgeModel, budget: int) -> None:
    for recorded in texts(budget, 12):
        layer, other = (
            order.layer(texts_of([recorded]), budget, True)
            for order in (BestFirst(edge, width=budget), BestFirst(edge))
        )
        np.testing.assert_array_equal(layer.insertions, other.insertions)
        np.testing.assert_array_equal(layer.num_available, other.num_available)
        np.testing.assert_array_equal(layer.scores, other.scores)
    for draft in drafts(budget):
        for width in (budget, budget + 3):
            for values, others in zip(
                BestFirst(edge, width=width).nodes(draft, budget), BestFirst(edge).nodes(draft, budget), strict=True
            ):
                np.testing.assert_array_equal(values, others)


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
def test_a_layer_is_its_roots_and_the_engine_its_rounds(edge: EdgeModel) -> None:
    for recorded in texts(3, 12):
        orders: list[NodeOrder] = [BestFirst(edge, width=2), BestFirst(edge, width=3, deepest=2)]
        for order in orders:
            for most in (1, 25):
                check_layer(order, recorded, most)
        check_columns([Composition(order, FixedBudget(budget)) for order in orders for budget in (3, 12)], recorded)


@given(rows_strategy(5, 6), st.integers(0, 30), st.integers(0, 30))
def test_a_smaller_tree_is_the_beginning_of_a_larger_one(rows: list[oracle.Row], one: int, other: int) -> None:
    check_nested(BestFirst(Marginal(4), width=2), draft_of(rows), *sorted((one, other)))


def test_the_published_beam_of_ten() -> None:
    rows = real_rows(1, 9, 12)
    scores: dict[oracle.Path, Fraction] = {}
    level: list[oracle.Path] = [()]
    for _ in range(6):
        level = [(*path, rank) for path in level for rank in range(10)]
        scores |= {path: oracle.score(rows, path) for path in level}
        level = sorted(level, key=lambda path: (-scores[path], path))[:10]
    assert len(scores) == 10 + 100 * 5
    best = sorted(scores, key=lambda path: (-scores[path], path))
    for budget in (59, 400, 510):
        tree = Composition(BestFirst(Marginal(10), width=10, deepest=6), FixedBudget(budget)).select(draft_of(rows))
        nodes = Eagle2Beam(budget).compose(NoArtefacts()).order.nodes(draft_of(rows), budget)
        check_nodes(nodes, rows, best[:budget])
        assert tree.num_drafted == budget
    assert Eagle2Beam().select(draft_of(rows)).num_drafted == 59
    assert len(best) == len(Eagle2Beam(9999).compose(NoArtefacts()).order.nodes(draft_of(rows), 9999).tokens) - 1


@pytest.mark.parametrize(
    ("given", "said"),
    [({"budget": 0}, "budget must be"), ({"beam": 0}, "beam must be"), ({"depth": -1}, "depth must not be negative")],
)
def test_settings_without_sense_are_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Eagle2Beam(**given)
