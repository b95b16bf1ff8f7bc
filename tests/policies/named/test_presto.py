"""PRESTO's trees are those of a plain heap that scores every child, and counting their places builds none."""

from dataclasses import dataclass

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from ngram_oracle import PlainNGram, PlainPresto, Row, share_of_entropy

from simlab.columns import columns_of
from simlab.cost import CostTable
from simlab.policies.artefacts import NoArtefacts
from simlab.policies.composition import Composition
from simlab.policies.edges.children import empty_children, fill_marginal
from simlab.policies.edges.correction import Correction, cost_of, fit_weights
from simlab.policies.edges.models import Marginal, NGramCorrected
from simlab.policies.edges.ngram import NGramCounts, counts_from_rows, empty_counts, no_logs
from simlab.policies.edges.ngram_counting import count_texts
from simlab.policies.engine.replay import Replay, replay_policies
from simlab.policies.kernels.corrected_step import clear_cost
from simlab.policies.kernels.insertion import corrected_count_buffers_for, corrected_insertions_into
from simlab.policies.kernels.take_in_order import take_in_order
from simlab.policies.kernels.true_places import RANKS, TOKENS
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.presto import Presto
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import NEVER, NodeOrder, OrderedNodes, OrderLayer, layer_by_roots, true_path
from simlab.policies.rules.budgets import FixedBudget
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import draft_source, rounds
from simlab.testing.random_texts import random_sequence

VOCAB = 16


@dataclass(frozen=True)
class CountsAlone(NoArtefacts):
    """Artefacts of which there are counts alone."""

    counts: NGramCounts

    def ngram(self, name: str) -> tuple[NGramCounts, str]:
        return self.counts, "counts"

    def cost(self, name: str) -> tuple[CostTable, str]:
        raise AssertionError


def corpus_texts(generator: np.random.Generator) -> list[tuple[list[int], list[int]]]:
    # Tokens in steps follow each other more often than others do.
    walks = np.cumsum(generator.integers(-1, 2, size=(4, 40)), axis=1) % VOCAB
    return [([], walk.tolist()) for walk in walks]


def counts_for(texts: list[tuple[list[int], list[int]]]) -> NGramCounts:
    pairs = [(np.array(before, np.int32), np.array(text, np.int32)) for before, text in texts]
    return counts_from_rows(*count_texts(pairs, VOCAB), VOCAB)


def edge_of(kind: str, counts: NGramCounts, weight: float = 0.4, top_k: int = 6) -> NGramCorrected:
    share = {"corpus": 0.0, "text": 1.0}.get(kind, 0.25 if kind == "both" else 0.0)
    return NGramCorrected(
        weight,
        counts,
        "counts",
        text_share=share,
        renormalised=kind == "renormalised",
        adaptive=kind == "adaptive",
        top_k=top_k,
    )


KINDS = ("corpus", "text", "both", "renormalised", "adaptive")


def expected_paths(
    edge: NGramCorrected, plain: PlainNGram, recorded: RecordedSequence, t: int, budget: int
) -> list[tuple[int, tuple[int, ...]]]:
    draft = draft_source(BestFirst(edge).needs, recorded)(t)
    marginals, committed = draft.drafted(), draft.committed.tolist()
    in_text, share = PlainNGram([((), committed)], VOCAB), edge.text_share
    rows: list[Row] = [
        list(zip(*(values.tolist() for values in marginals.at(depth)), strict=True))
        for depth in range(1, marginals.depth + 1)
    ]

    def probability(context: tuple[int, ...], token: int) -> float:
        return float((1 - share) * plain.probability(context, token) + share * in_text.probability(context, token))

    weights = [edge.weight * (share_of_entropy(row) if edge.adaptive else 1.0) for row in rows]
    return PlainPresto(rows, tuple(committed[-2:]), probability, weights, edge.renormalised).best_paths(budget)


def paths_of(nodes: OrderedNodes) -> list[tuple[int, tuple[int, ...]]]:
    paths: list[tuple[int, ...]] = [()]
    for parent, rank in zip(nodes.parents[1:].tolist(), nodes.ranks[1:].tolist(), strict=True):
        paths.append((*paths[parent], rank))
    return [(round(-65536 * score), path) for score, path in zip(nodes.scores.tolist(), paths, strict=True)][1:]


def assert_layers_equal(layer: OrderLayer, other: OrderLayer) -> None:
    assert layer.insertions.tolist() == other.insertions.tolist()
    assert layer.num_available.tolist() == other.num_available.tolist()
    assert (layer.scores is None) == (other.scores is None)
    assert layer.scores is None or np.array_equal(layer.scores, other.scores)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 10_000), budget=st.integers(1, 60))
def test_it_is_the_plain_heap(kind: str, seed: int, budget: int) -> None:
    generator = np.random.default_rng(seed)
    texts, recorded = corpus_texts(generator), random_sequence(generator, VOCAB - 2)
    edge, plain = edge_of(kind, counts_for(texts)), PlainNGram(texts, VOCAB)
    source = draft_source(BestFirst(edge).needs, recorded)
    for t in range(len(recorded.text) - 1):
        assert paths_of(BestFirst(edge).nodes(source(t), budget)) == expected_paths(edge, plain, recorded, t, budget)


def test_it_is_the_plain_heap_when_everything_ties() -> None:
    # No counts: every candidate is corrected by as much, and candidates of a depth have few distinct log-probabilities.
    edge, plain = edge_of("corpus", empty_counts(VOCAB, 0)), PlainNGram([], VOCAB)
    for seed in range(30):
        recorded = random_sequence(np.random.default_rng(seed), VOCAB - 2)
        source = draft_source(BestFirst(edge).needs, recorded)
        for t in range(len(recorded.text) - 1):
            assert paths_of(BestFirst(edge).nodes(source(t), 90)) == expected_paths(edge, plain, recorded, t, 90)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000), most=st.integers(0, 70), weight=st.sampled_from([0.0, 0.2, 3.0]))
def test_the_layer_is_that_of_every_root(kind: str, seed: int, most: int, weight: float) -> None:
    generator = np.random.default_rng(seed)
    order = BestFirst(edge_of(kind, counts_for(corpus_texts(generator)), weight))
    alone = texts_of([random_sequence(generator, VOCAB - 2)])
    for with_scores in (False, True):
        assert_layers_equal(order.layer(alone, most, with_scores), layer_by_roots(order, alone, most, with_scores))


def exactly(counts: NGramCounts) -> NGramCounts:
    """Counts of which no logarithm was taken beforehand."""
    return counts._replace(logs=no_logs())


@given(st.integers(1, 255 * 65536 - 1), st.floats(-0.5, 0.5), st.integers(-40, 40))
def test_a_cost_is_clear_unless_the_last_bits_could_change_it(steps: int, part: float, bits: int) -> None:
    log_prob = -(steps + part) / 65536
    found = clear_cost(log_prob)
    assert found == -1 if abs(part) > 0.4991 else found == -1 or found == cost_of(log_prob * (1 + bits * 2.0**-52))
    assert found >= 0 or abs(part) > 0.4989


def test_places_are_the_trees_when_everything_ties() -> None:
    # No token of the corpus is a candidate's: all are corrected by as much, with logarithms and without.
    counts = counts_of_steps()
    for seed in range(40):
        alone = texts_of([random_sequence(np.random.default_rng(seed), VOCAB - 3)])
        for one in (counts, exactly(counts)):
            order = BestFirst(edge_of("corpus", one))
            for most in (5, 90):
                assert_layers_equal(order.layer(alone, most, False), layer_by_roots(order, alone, most, False))


def counts_of_steps() -> NGramCounts:
    return counts_for([([], [VOCAB - 1, VOCAB - 2, VOCAB - 1])])


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000), budget=st.integers(1, 70), top_k=st.integers(1, 20))
def test_without_weight_it_is_ddtree_on_the_same_ranks(seed: int, budget: int, top_k: int) -> None:
    recorded = random_sequence(np.random.default_rng(seed), 18)
    presto, marginal = Presto(budget, 0.0, top_k), BestFirst(Marginal(top_k))
    source = draft_source(presto.needs, recorded)
    assert presto.needs == marginal.needs
    for t in range(len(recorded.text) - 1):
        tree, nodes = presto.select(source(t)), marginal.nodes(source(t), budget)
        assert tree.tokens.tolist() == nodes.tokens.tolist()
        assert tree.parents.tolist() == nodes.parents.tolist()
    kept = max((int(recorded.rows.counts.max(initial=1)) if recorded.rows else 1), 1)
    columns, other = replay_policies([Presto(budget, 0.0, kept), DDTree(budget)], recorded)
    assert [column.tolist() for column in columns.columns()] == [column.tolist() for column in other.columns()]


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000), budget=st.integers(1, 70))
def test_a_weight_of_nothing_changes_nothing_in_the_corrected_kernel(seed: int, budget: int) -> None:
    generator = np.random.default_rng(seed)
    edge = edge_of("both", counts_for(corpus_texts(generator)))
    recorded = random_sequence(generator, VOCAB - 2)
    source = draft_source(BestFirst(edge).needs, recorded)
    for t in range(len(recorded.text) - 1):
        draft = source(t)
        marginals = draft.drafted()
        counts = np.diff(marginals.offsets)
        children = empty_children(marginals.depth, int(counts.max()))
        fill_marginal(children, marginals.ids, marginals.log_probs, counts, 0, 6)
        weightless = edge.correction(marginals.depth, 0)._replace(weights=np.zeros(marginals.depth))
        tree, scores = take_in_order(children, weightless, -1, draft.root_token, budget)
        nodes = BestFirst(Marginal(6)).nodes(draft, budget)
        assert tree[TOKENS].tolist() == nodes.tokens.tolist()
        assert tree[RANKS].tolist() == nodes.ranks.tolist()
        assert scores.tolist() == nodes.scores.tolist()
        rows, num_depths = recorded.rows, marginals.depth
        assert rows is not None
        counted, buffers, ranks = (
            np.empty(num_depths, np.uint16),
            corrected_count_buffers_for(num_depths, 6),
            rows.true_ranks[t],
        )
        given = (children, weightless, -1, draft.root_token, ranks, num_depths, budget, buffers)
        corrected_insertions_into(*given, counted)
        path = true_path(nodes, recorded.text[t + 1 :])
        assert counted.tolist() == path + [NEVER] * (num_depths - len(path))


def test_a_bound_goes_before_a_score_that_it_equals() -> None:
    # The second child of the root is worked out before its first child has children; one of those has the same score.
    log_probs = np.array([-1.0, -1.125, -0.125], np.float32)
    children = empty_children(2, 2)
    fill_marginal(children, np.array([3, 4, 5], np.int32), log_probs, np.array([2, 1], np.int32), 0, 6)
    edge = edge_of("corpus", empty_counts(VOCAB, 0))
    correction = edge.correction(2, 0)._replace(weights=np.array([0.4, 0.0]))
    tree, scores = take_in_order(children, correction, -1, 7, 3)
    assert scores[2] == scores[3]
    assert tree[TOKENS].tolist() == [7, 3, 5, 4]


def test_renormalised_children_and_the_rest_sum_to_one() -> None:
    generator = np.random.default_rng(5)
    texts = corpus_texts(generator)
    edge, plain = edge_of("renormalised", counts_for(texts)), PlainNGram(texts, VOCAB)
    for seed in range(20):
        recorded = random_sequence(np.random.default_rng(seed), VOCAB - 2)
        source = draft_source(BestFirst(edge).needs, recorded)
        for t in range(len(recorded.text) - 1):
            draft = source(t)
            ids, log_probs = (values.tolist() for values in draft.drafted().at(1))
            nodes = BestFirst(edge).nodes(draft, 2000)
            weights = np.exp(nodes.scores[nodes.depths == 1])
            tail = tuple(draft.committed.tolist()[-2:])
            products = [
                np.exp(q) * float(plain.probability(tail, v)) ** 0.4 for v, q in zip(ids, log_probs, strict=True)
            ]
            rest = max(1 - np.exp(log_probs).sum(), 0.0) * 1e-6**0.4
            # Tied rows are no distribution: candidates of more than 1 in all are made to sum to 1 too.
            assert weights.sum() + rest / (sum(products) + rest) == pytest.approx(1.0, abs=1e-4)


def test_the_weight_follows_the_entropy() -> None:
    edge = edge_of("adaptive", empty_counts(VOCAB, 0), weight=0.5)
    for shares, expected in ([1.0], 0.0), ([0.5], 1.0), ([0.25] * 3, 1.0), ([0.5, 0.25], 0.94639463):
        log_probs = np.log(np.array(shares, np.float32))
        children = empty_children(1, len(shares))
        fill_marginal(
            children, np.arange(len(shares), dtype=np.int32), log_probs, np.array([len(shares)], np.int32), 0, 64
        )
        correction: Correction = edge.correction(1, 0)
        fit_weights(correction, children)
        assert correction.weights[0] == pytest.approx(0.5 * expected, abs=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000), budgets=st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_only_roots_that_some_budget_comes_to_are_enough(kind: str, seed: int, budgets: list[int]) -> None:
    generator = np.random.default_rng(seed)
    edge, recorded = edge_of(kind, counts_for(corpus_texts(generator))), random_sequence(generator, VOCAB - 2)
    policies = [Composition(BestFirst(edge), FixedBudget(budget)) for budget in budgets]
    sums = Replay([(policy, None) for policy in policies]).sums(texts_of([recorded]))
    for policy, found in zip(policies, sums.counts[:, 0].tolist(), strict=True):
        expected = columns_of(rounds(policy, recorded)).totals()
        assert found[:3] == [expected.rounds, expected.drafted, expected.accepted]


def test_a_beam_as_wide_as_the_budget_is_best_first() -> None:
    artefacts = CountsAlone(counts_for(corpus_texts(np.random.default_rng(2))))
    orders: list[NodeOrder] = [
        Presto(budget=20, top_k=6, shape=shape, beam_width=20).compose(artefacts).order
        for shape in ("best-first", "beam")
    ]
    for seed in range(20):
        recorded = random_sequence(np.random.default_rng(seed), VOCAB - 2)
        assert_layers_equal(*(order.layer(texts_of([recorded]), 20, True) for order in orders))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"budget": 0}, "budget must be at least 1"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"ngram_weight": -0.1}, "ngram_weight must be at least 0"),
        ({"ngram_weight": float("nan")}, "ngram_weight must be at least 0"),
        ({"text_share": 1.5}, "text_share must be from 0 to 1"),
        ({"text_share": 0.3}, "text_share is read with counts=both alone"),
        ({"counts": "web"}, "counts is one of corpus, text, both"),
        ({"shape": "star"}, "shape is one of best-first, beam"),
    ],
)
def test_settings_without_sense_are_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Presto(**wrong)  # type: ignore[arg-type]
