"""Orders on channels: against a plain heap, against today's orders where a channel says no more than marginals."""

from dataclasses import replace

import lattice_oracle
import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from ngram_oracle import PlainNGram
from order_checks import check_columns, check_layer
from random_channels import (
    VOCAB,
    as_nodes,
    below_at,
    draft_at,
    pool_rows,
    transition_rows,
    whole_pool,
    with_channel,
    zero_head,
)

from simlab.channels import PoolRows, TransitionRows
from simlab.errors import MissingChannelError
from simlab.policies.composition import Composition
from simlab.policies.edges.models import Marginal, NGramCorrected
from simlab.policies.edges.ngram import NGramCounts, counts_from_rows
from simlab.policies.edges.ngram_counting import count_texts
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.expand_parent import ExpandParent
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder, LatticeShape, WholeFamilies
from simlab.policies.orders.lattice_sources import LatticeSource, PoolSource, TransitionSource, true_reaches
from simlab.policies.orders.node_order import NEVER, NodeOrder, OrderLayer, true_path
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import ChannelNeed
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import draft_source
from simlab.testing.random_texts import random_sequence

seeds = st.integers(0, 1 << 30)
pool_need = ChannelNeed("made-up", "pool")
SHAPES: list[LatticeShape] = [BestPaths(), WholeFamilies(3)]


def grown(below: lattice_oracle.Below, shape: LatticeShape, most: int) -> list[lattice_oracle.Node]:
    if isinstance(shape, WholeFamilies):
        return lattice_oracle.expand_parent(below, shape.width, most)
    return lattice_oracle.best_first(below, most)


def check_rows(layer: OrderLayer, expected: list[list[lattice_oracle.Node]], text: list[int]) -> None:
    """A layer says of each root what these nodes say."""
    assert layer.scores is not None
    for t, found in enumerate(expected):
        places = lattice_oracle.true_places(found, text[t + 1 :])
        num_depths = layer.insertions.shape[1]
        assert layer.insertions[t].tolist() == places + [NEVER] * (num_depths - len(places))
        assert layer.num_available[t] == len(found)
        scores = [0.0, *(-cost / 65536 for cost, _, _ in found)]
        assert layer.scores[t].tolist() == scores + [-np.inf] * (layer.scores.shape[1] - len(scores))


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=examples(100, quick=40))
@given(seeds, st.integers(1, 6), st.integers(1, 6), st.integers(0, 40))
def test_transitions_are_the_plain_heap(shape: LatticeShape, seed: int, previous: int, top_k: int, most: int) -> None:
    recorded = with_channel(np.random.default_rng(seed), "transitions")
    check_source(TransitionSource("made-up", previous=previous, top_k=top_k), shape, recorded, most)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=examples(100, quick=40))
@given(seeds, st.sampled_from([0.0, 0.002, 0.5]), st.sampled_from([(), (("depth", 2),)]), st.integers(0, 40))
def test_pools_are_the_plain_heap(
    shape: LatticeShape, seed: int, price: float, least: tuple[tuple[str, int], ...], most: int
) -> None:
    recorded = with_channel(np.random.default_rng(seed), "pool")
    check_source(PoolSource(replace(pool_need, least=least), depth_price=price), shape, recorded, most)


def check_source(source: LatticeSource, shape: LatticeShape, recorded: RecordedSequence, most: int) -> None:
    """Nodes and layer are those of the plain way, and so is the reach; a layer of two texts is that of each."""
    order, texts, roots = LatticeOrder(source, shape), texts_of([recorded]), range(len(recorded.text) - 1)
    below = [below_at(source, draft_at(recorded, t)) for t in roots]
    expected = [grown(function, shape, most) for function in below]
    for t in roots:
        nodes = order.nodes(draft_at(recorded, t), most)
        assert as_nodes(nodes) == expected[t]
        assert nodes.tokens[0] == recorded.text[t]
        text = recorded.text[t + 1 :]
        assert true_path(nodes, text) == lattice_oracle.true_places(expected[t], text.tolist())
    layer = order.layer(texts, most, True)
    check_rows(layer, expected, recorded.text.tolist())
    bare = order.layer(texts_of([recorded, recorded]), most, False)
    assert bare.scores is None
    np.testing.assert_array_equal(bare.insertions, np.concatenate([layer.insertions] * 2))
    np.testing.assert_array_equal(bare.num_available, np.concatenate([layer.num_available] * 2))
    reaches = [lattice_oracle.reach(below[t], recorded.text[t + 1 :].tolist()) for t in roots]
    assert true_reaches(source, texts_of([recorded, recorded])).tolist() == reaches * 2


@settings(max_examples=examples(60, quick=40))
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.integers(1, 30))
def test_less_of_a_recording_is_a_smaller_recording(seed: int, previous: int, top_k: int, most: int) -> None:
    recorded = with_channel(np.random.default_rng(seed), "transitions")
    rows = recorded.channels["made-up"]
    assert isinstance(rows, TransitionRows)
    cut = transition_rows([row.first(previous, top_k) for row in rows.rows()])
    narrow = replace(recorded, channels={"made-up": cut})
    wide, whole = TransitionSource("made-up", previous=previous, top_k=top_k), TransitionSource("made-up")
    for shape in SHAPES:
        layer = LatticeOrder(wide, shape).layer(texts_of([recorded]), most, True)
        assert_same(layer, LatticeOrder(whole, shape).layer(texts_of([narrow]), most, True))


def assert_same(layer: OrderLayer, other: OrderLayer) -> None:
    assert layer.scores is not None
    assert other.scores is not None
    np.testing.assert_array_equal(layer.insertions, other.insertions)
    np.testing.assert_array_equal(layer.num_available, other.num_available)
    width = min(layer.scores.shape[1], other.scores.shape[1])
    np.testing.assert_array_equal(layer.scores[:, :width], other.scores[:, :width])


def marginals_twice(seed: int, kind: str) -> tuple[RecordedSequence, int, int] | None:
    """A text with draft rows, and a channel that says no more than they do; how many rows and candidates it has."""
    generator = np.random.default_rng(seed)
    recorded = random_sequence(generator, VOCAB - 2)
    rows = recorded.rows
    assert rows is not None
    if len(recorded.text) < 2:
        return None
    fewest = int(rows.counts.min())
    width = int(generator.integers(1, fewest + 1))
    most_rows = int(generator.integers(width, fewest + 1))
    roots = [(row.ids, row.log_probs, np.diff(row.offsets)) for row in rows.rows()]
    channel: TransitionRows | PoolRows
    if kind == "transitions":
        channel = transition_rows([zero_head(*root, most_rows, width) for root in roots])
    else:
        width = min(width, 2)
        channel = pool_rows([whole_pool(*root, width) for root in roots])
    return replace(recorded, channels={"made-up": channel}), most_rows, width


@pytest.mark.parametrize("kind", ["transitions", "pool"])
@settings(max_examples=examples(100, quick=40))
@given(seeds, st.integers(1, 60))
def test_a_channel_that_says_no_more_than_marginals_gives_their_trees(kind: str, seed: int, most: int) -> None:
    made = marginals_twice(seed, kind)
    if made is None:
        return
    recorded, most_rows, width = made
    source: LatticeSource = PoolSource(pool_need)
    if kind == "transitions":
        source = TransitionSource("made-up", previous=most_rows, top_k=width)
    pairs: list[tuple[LatticeShape, NodeOrder]] = [
        (BestPaths(), BestFirst(Marginal(width))),
        (WholeFamilies(width), ExpandParent(width)),
        (WholeFamilies(max(width - 1, 1)), ExpandParent(max(width - 1, 1))),
    ]
    for shape, other in pairs:
        order = LatticeOrder(source, shape)
        drafts = draft_source(order.needs, recorded), draft_source(other.needs, recorded)
        for t in range(len(recorded.text) - 1):
            nodes, two = order.nodes(drafts[0](t), most), other.nodes(drafts[1](t), most)
            for name, values in nodes._asdict().items():
                np.testing.assert_array_equal(values, getattr(two, name))
        texts = texts_of([recorded])
        mine, theirs = order.layer(texts, most, True), other.layer(texts, most, True)
        deepest = mine.insertions.shape[1]
        assert (theirs.insertions[:, deepest:] == NEVER).all()
        theirs = OrderLayer(theirs.insertions[:, :deepest], theirs.num_available, theirs.scores)
        assert_same(mine, theirs)


def counts_of(generator: np.random.Generator) -> tuple[NGramCounts, PlainNGram]:
    walks = np.cumsum(generator.integers(-1, 2, size=(4, 40)), axis=1) % VOCAB
    texts: list[tuple[list[int], list[int]]] = [([], walk.tolist()) for walk in walks]
    pairs = [(np.array(before, np.int32), np.array(text, np.int32)) for before, text in texts]
    return counts_from_rows(*count_texts(pairs, VOCAB), VOCAB), PlainNGram(texts, VOCAB)


EDGES = ("corpus", "text", "both", "renormalised", "adaptive")


def edge_of(kind: str, counts: NGramCounts) -> NGramCorrected:
    share = {"text": 1.0, "both": 0.25}.get(kind, 0.0)
    given = {"renormalised": kind == "renormalised", "adaptive": kind == "adaptive"}
    return NGramCorrected(0.4, counts, "counts", text_share=share, top_k=64, **given)


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("channel", ["transitions", "pool"])
@settings(max_examples=examples(25))
@given(seeds, st.integers(1, 40))
def test_a_corrected_lattice_is_the_plain_heap(channel: str, kind: str, seed: int, most: int) -> None:
    generator = np.random.default_rng(seed)
    counts, corpus = counts_of(generator)
    edge, recorded = edge_of(kind, counts), with_channel(generator, channel)
    source: LatticeSource = TransitionSource("made-up") if channel == "transitions" else PoolSource(pool_need)
    order, share, expected = LatticeOrder(source, BestPaths(edge)), edge.text_share, []
    for t in range(len(recorded.text) - 1):
        draft = draft_at(recorded, t)
        committed = draft.committed.tolist()
        so_far = PlainNGram([((), committed)], VOCAB)

        def probability(context: tuple[int, ...], token: int, so_far: PlainNGram = so_far) -> float:
            return float((1 - share) * corpus.probability(context, token) + share * so_far.probability(context, token))

        tail, settings_of = tuple(committed[-2:]), (edge.weight, edge.renormalised, edge.adaptive)
        below = lattice_oracle.corrected(below_at(source, draft_at(recorded, t)), tail, probability, *settings_of)
        expected.append(lattice_oracle.best_first(below, most))
        assert as_nodes(order.nodes(draft, most)) == expected[t]
    check_rows(order.layer(texts_of([recorded]), most, True), expected, recorded.text.tolist())


@pytest.mark.parametrize("kind", EDGES)
@settings(max_examples=examples(25))
@given(seeds, st.integers(1, 40))
def test_a_corrected_channel_that_says_no_more_than_marginals_gives_their_trees(
    kind: str, seed: int, most: int
) -> None:
    made = marginals_twice(seed, "transitions")
    if made is None:
        return
    recorded, most_rows, width = made
    edge = edge_of(kind, counts_of(np.random.default_rng(seed))[0])
    order = LatticeOrder(TransitionSource("made-up", previous=most_rows, top_k=width), BestPaths(edge))
    texts = texts_of([recorded])
    assert_same(order.layer(texts, most, True), BestFirst(replace(edge, top_k=width)).layer(texts, most, True))


@pytest.mark.parametrize("seed", range(12))
def test_a_layer_is_its_roots_and_the_engine_its_rounds(seed: int) -> None:
    made = marginals_twice(seed, "transitions")
    if made is None:
        return
    recorded, most_rows, width = made
    source = TransitionSource("made-up", previous=most_rows, top_k=width)
    for shape in SHAPES:
        order = LatticeOrder(source, shape)
        for most in (1, 7, 40):
            check_layer(order, recorded, most)
        check_columns([Composition(order, FixedBudget(budget)) for budget in (1, 5, 30)], recorded)


def test_what_has_no_sense_is_refused() -> None:
    counts, _ = counts_of(np.random.default_rng(0))
    with pytest.raises(ValueError, match="at least 1; got 0 and 16"):
        TransitionSource("a", previous=0)
    with pytest.raises(ValueError, match="expected the need of a pool; got one of transitions"):
        PoolSource(ChannelNeed("a", "transitions"))
    for price in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="depth_price must be a number"):
            PoolSource(pool_need, depth_price=price)
    with pytest.raises(ValueError, match="width must be at least 1; got 0"):
        WholeFamilies(0)
    with pytest.raises(ValueError, match="a 3-gram corrects probabilities"):
        LatticeOrder(PoolSource(pool_need, depth_price=0.1), BestPaths(edge_of("corpus", counts)))


@pytest.mark.parametrize("kind", ["transitions", "pool"])
def test_a_channel_that_is_not_there_is_named(kind: str) -> None:
    recorded = with_channel(np.random.default_rng(1), kind)
    missing: list[LatticeSource] = [TransitionSource("other"), PoolSource(replace(pool_need, name="other"))]
    foreign: LatticeSource = PoolSource(pool_need) if kind == "transitions" else TransitionSource("made-up")
    for source, said in [(missing[0], "there is made-up here"), (missing[1], "other"), (foreign, "another kind")]:
        with pytest.raises(MissingChannelError, match=said):
            LatticeOrder(source).layer(texts_of([recorded]), 4, False)
        with pytest.raises(MissingChannelError, match=said):
            LatticeOrder(source).nodes(draft_at(recorded, 0), 4)
