"""Calibrated trees against a plain heap, and fitted maps against counts by hand and planted maps."""

import heapq
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from calibration_oracle import STEPS, class_by_hand, mapped_by_hand
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import MadeUpArtefacts
from made_up_costs import random_table
from order_checks import same

from simlab import Marginals
from simlab.arrays import Doubles
from simlab.draft import Draft
from simlab.errors import PolicyError
from simlab.grid import to_grid
from simlab.policies.composition import Composition
from simlab.policies.edges.correction import NUM_CLASSES
from simlab.policies.edges.models import Calibrated, edge_map_of
from simlab.policies.engine.replay import replay_policies
from simlab.policies.fits.calibration import (
    FEWEST_TRUE,
    EdgeCounts,
    _quality,
    add_edges,
    fit_map,
    held_out_quality,
    no_edge_counts,
    pooled_classes,
    total_edge_counts,
)
from simlab.policies.named.calibrated import CalibratedTree
from simlab.policies.named.ddtree import DDTree
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import OrderedNodes, layer_by_roots
from simlab.recorded import DraftRows, texts_of
from simlab.testing.random_texts import random_sequence

Path = tuple[int, ...]
Row = list[tuple[int, int]]  # token and cost in grid steps, by rank

costs = st.one_of(st.sampled_from([0, 1, STEPS // 2, STEPS]), st.integers(0, 1 << 20), st.just(255 * STEPS))


def rows_strategy(most_depths: int, most_ranks: int) -> st.SearchStrategy[list[Row]]:
    row = st.lists(costs, max_size=most_ranks).map(
        lambda values: [(7 * rank + 1, cost) for rank, cost in enumerate(sorted(values))]
    )
    return st.lists(row, min_size=1, max_size=most_depths)


@st.composite
def maps(draw: st.DrawFn) -> Doubles:
    """Maps that reorder siblings, that leave them alone, and that make all of a class alike."""
    pairs = st.tuples(st.sampled_from([1.0, 0.0, 0.25, 0.6, 2.0]), st.sampled_from([0.0, -0.5, 1.0, 3.0]))
    num_depths = draw(st.integers(1, 3))
    size = num_depths * 2 * NUM_CLASSES
    return np.array(draw(st.lists(pairs, min_size=size, max_size=size))).reshape(num_depths, 2, NUM_CLASSES, 2)


def calibrated_paths(rows: list[Row], edge_map: Doubles, top_k: int, budget: int) -> tuple[list[Path], list[int]]:
    """Ranks of the nodes and costs of their paths, in order: all children of a node are offered when it enters."""
    heap: list[tuple[int, Path]] = []

    def offer(cost: int, path: Path) -> None:
        if len(path) < len(rows):
            index = 0 if all(rank == 0 for rank in path) else 1
            for rank, (_, own) in enumerate(rows[len(path)][:top_k]):
                pair = edge_map[min(len(path), len(edge_map) - 1), index, class_by_hand(rank)]
                heapq.heappush(heap, (cost + mapped_by_hand(own, *pair.tolist()), (*path, rank)))

    taken: list[Path] = []
    paid: list[int] = []
    offer(0, ())
    while heap and len(taken) < budget:
        cost, path = heapq.heappop(heap)
        taken.append(path)
        paid.append(cost)
        offer(cost, path)
    return taken, paid


def draft_of(rows: list[Row]) -> Draft:
    flat = [pair for row in rows for pair in row]
    marginals = Marginals(
        np.array([token for token, _ in flat], np.int32),
        np.array([-cost / STEPS for _, cost in flat], np.float32) + 0.0,
        np.cumsum([0, *map(len, rows)]).astype(np.int32),
    )
    return Draft(marginals, 5, np.array([5], np.int32), 0)


def paths_of(nodes: OrderedNodes) -> list[Path]:
    paths: list[Path] = [()]
    for parent, rank in zip(nodes.parents[1:].tolist(), nodes.ranks[1:].tolist(), strict=True):
        paths.append((*paths[parent], rank))
    return paths[1:]


@settings(max_examples=examples(300, quick=40))
@given(rows_strategy(4, 6), maps(), st.integers(1, 7), st.integers(0, 60))
def test_it_is_the_plain_heap(rows: list[Row], edge_map: Doubles, top_k: int, budget: int) -> None:
    nodes = BestFirst(Calibrated(edge_map, "drawn", top_k)).nodes(draft_of(rows), budget)
    taken, paid = calibrated_paths(rows, edge_map, top_k, budget)
    assert paths_of(nodes) == taken
    assert (nodes.scores[1:] * -STEPS).tolist() == paid
    assert nodes.tokens[1:].tolist() == [rows[len(path) - 1][path[-1]][0] for path in taken]


@settings(max_examples=examples(30))
@given(rows_strategy(3, 80), maps(), st.integers(1, 300))
def test_every_class_of_rank_is_mapped(rows: list[Row], edge_map: Doubles, budget: int) -> None:
    nodes = BestFirst(Calibrated(edge_map, "drawn", 64)).nodes(draft_of(rows), budget)
    assert paths_of(nodes) == calibrated_paths(rows, edge_map, 64, budget)[0]


def identity(num_depths: int) -> Doubles:
    return np.broadcast_to(np.array([1.0, 0.0]), (num_depths, 2, NUM_CLASSES, 2)).copy()


def random_map(generator: np.random.Generator) -> Doubles:
    edge_map = generator.normal(size=(4, 2, NUM_CLASSES, 2))
    edge_map[..., 0] = np.abs(edge_map[..., 0])
    return edge_map


def test_the_identity_has_the_rounds_of_ddtree() -> None:
    generator = np.random.default_rng(4)
    recipe = CalibratedTree(budget=20).compose(MadeUpArtefacts(values={"calibration": identity(8)}))
    for _ in range(50):
        recorded = random_sequence(generator, most_kept=12)
        calibrated, plain = replay_policies([recipe, DDTree(20)], recorded)
        assert same(calibrated, plain)


def test_the_layer_is_that_of_the_roots() -> None:
    generator = np.random.default_rng(5)
    for _ in range(200):
        order = BestFirst(Calibrated(random_map(generator), "drawn", int(generator.choice([3, 64]))))
        recorded = random_sequence(generator, most_kept=int(generator.choice([3, 12, 70])))
        if len(recorded.text) < 2:
            continue
        most = int(generator.choice([5, 30, 200]))
        found, expected = (
            order.layer(texts_of([recorded]), most, True),
            layer_by_roots(order, texts_of([recorded]), most, True),
        )
        assert np.array_equal(found.insertions, expected.insertions)
        assert np.array_equal(found.num_available, expected.num_available)
        assert found.scores is not None
        assert expected.scores is not None
        assert np.array_equal(found.scores, expected.scores)


def calibrated(given_settings: dict[str, Any]) -> Composition:
    generator = np.random.default_rng(6)
    artefacts = MadeUpArtefacts(random_table(generator, 40), {"calibration": random_map(generator)})
    return CalibratedTree(budget=40, **given_settings).compose(artefacts)


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"stop": "soon"}, "stop must be one of"),
        ({"threshold": 0.2}, "threshold is read with stop=survival alone"),
        ({"stop": "ratio", "rate": 3.0}, "rate is read with stop=price alone"),
        ({"stop": "floor", "look_ahead": 3}, "stop=ratio or price alone; stop is floor"),
        ({"stop": "survival", "threshold": 2.0}, "must be a probability"),
        ({"stop": "price", "rate": -1.0}, "at least 0"),
        ({"stop": "price", "memory": 1.0}, "below 1"),
        ({"stop": "ratio", "look_ahead": -1}, "look_ahead"),
        ({"budget": 0}, "budget must be at least 1"),
        ({"stop": "floor", "step": 0}, "step must be at least 1"),
    ],
)
def test_settings_that_say_nothing_are_refused(given_settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CalibratedTree(**given_settings)


def test_it_needs_a_table_of_its_classes() -> None:
    with pytest.raises(PolicyError, match="simlab train calibration"):
        CalibratedTree().compose(MadeUpArtefacts())
    with pytest.raises(ValueError, match="fit it again"):
        edge_map_of({"values": np.ones((3, 2, 5, 2)).tolist()})


def edges_by_hand(rows: DraftRows, top_k: int) -> tuple[Counter[tuple[int, int, int]], Counter[tuple[int, int, int]]]:
    """How many candidates there are below true nodes, and how many are true, by depth, place and class."""
    numbers, hits = Counter[tuple[int, int, int]](), Counter[tuple[int, int, int]]()
    for root, (counts, truth) in enumerate(zip(rows.counts.tolist(), rows.true_ranks.tolist(), strict=True)):
        for depth in range(min(len(counts), len(rows.counts) - root)):
            above = list(zip(truth[:depth], counts[:depth], strict=True))
            if all(0 <= rank < min(count, top_k) for rank, count in above):
                index = 0 if all(rank == 0 for rank, _ in above) else 1
                for rank in range(min(counts[depth], top_k)):
                    numbers[depth, index, class_by_hand(rank)] += 1
                    hits[depth, index, class_by_hand(rank)] += rank == truth[depth]
    return numbers, hits


@settings(max_examples=examples(60, quick=40))
@given(st.integers(0, 1 << 30), st.sampled_from([2, 12, 64]))
def test_edges_are_counted_as_by_hand(seed: int, top_k: int) -> None:
    generator = np.random.default_rng(seed)
    rows = random_sequence(generator, most_kept=int(generator.choice([3, 70]))).rows
    assert rows is not None
    found = no_edge_counts(rows.counts.shape[1])
    add_edges(found, rows, top_k)
    for values, expected in zip(found, edges_by_hand(rows, top_k), strict=True):
        sums = values.sum(axis=3)
        assert {tuple(map(int, key)): int(sums[tuple(key)]) for key in np.argwhere(sums)} == {
            key: value for key, value in expected.items() if value
        }


def planted_rows(generator: np.random.Generator, num_roots: int, planted: Doubles) -> DraftRows:
    """Two depths of 40 candidates; each is true as often as a planted map of its probability says."""
    num_depths, num_kept = 2, 40
    values = np.sort(generator.normal(size=(num_roots, num_depths, num_kept)) * 2.0, axis=2)[..., ::-1]
    log_probs = to_grid(values - np.log(np.exp(values).sum(axis=2, keepdims=True)))
    logits = log_probs - np.log1p(-np.exp(log_probs.astype(np.float64)))
    classes = np.array([class_by_hand(rank) for rank in range(num_kept)])
    true_ranks = np.zeros((num_roots, num_depths), np.int32)
    for depth in range(num_depths):
        place = np.zeros(num_roots, int) if depth == 0 else (true_ranks[:, 0] != 0).astype(int)
        slopes, intercepts = (planted[depth][place][:, classes, part] for part in (0, 1))
        probs = 1 / (1 + np.exp(-(slopes * logits[:, depth] + intercepts)))
        assert probs.sum(axis=1).max() < 1
        drawn = generator.random(num_roots)[:, None]
        true_ranks[:, depth] = (drawn > np.cumsum(probs, axis=1)).sum(axis=1)
    true_ranks[true_ranks == num_kept] = -1
    counts = np.full((num_roots, num_depths), num_kept, np.int32)
    return DraftRows(np.tile(np.arange(num_kept, dtype=np.int32), counts.size), log_probs.ravel(), counts, true_ranks)


def test_a_planted_map_is_found_again() -> None:
    generator = np.random.default_rng(8)
    planted = identity(2)
    # The drafter is too sure: its logits are those of the truth, doubled.
    planted[0, 0] = (0.5, -2.0)
    planted[1, 0] = (0.6, -2.0)
    planted[1, 1] = (0.4, -2.5)
    planted[:, :, 0, 1] += 0.5
    parts = [no_edge_counts(2) for _ in range(2)]
    for part in parts:
        add_edges(part, planted_rows(generator, 60_000, planted), 64)
    found = fit_map(total_edge_counts(parts))
    tested = [(0, 0), (1, 0), (1, 1)]
    for depth, index in tested:
        assert found[depth, index, :5] == pytest.approx(planted[depth, index, :5], abs=0.25)
        # Where slope and intercept trade off, the probabilities are still those.
        for group, logit in ((0, 0.0), (1, -1.5), (3, -4.0), (5, -6.0)):
            slope, intercept = found[depth, index, group]
            planted_slope, planted_intercept = planted[depth, index, group]
            assert slope * logit + intercept == pytest.approx(planted_slope * logit + planted_intercept, abs=0.15)
    assert np.array_equal(found[0, 1], identity(1)[0, 1])  # below the root everything is the spine
    for before, after in held_out_quality(parts):
        assert after.nll < before.nll
        assert after.ece < 0.002 < before.ece
        assert after.first_ece < 0.01 < before.first_ece


def counted_by_hand(edges: list[tuple[float, bool]]) -> EdgeCounts:
    """First candidates at depth 1 with these probabilities, true or not."""
    found = no_edge_counts(1)
    for prob, is_true in edges:
        rows = DraftRows(
            np.zeros(1, np.int32),
            to_grid([math.log(prob)]),
            np.ones((1, 1), np.int32),
            np.full((1, 1), 0 if is_true else -1, np.int32),
        )
        add_edges(found, rows, 64)
    return found


def test_a_fit_is_where_the_loss_is_flat() -> None:
    generator = np.random.default_rng(10)
    edges = [(float(prob), bool(generator.random() < prob**2)) for prob in generator.uniform(0.05, 0.95, 400)]
    slope, intercept = fit_map(counted_by_hand(edges))[0, 0, 0]

    def loss(slope: float, intercept: float) -> float:
        scores = [(slope * math.log(prob / (1 - prob)) + intercept, true) for prob, true in edges]
        nats = sum(math.log1p(math.exp(-score if true else score)) for score, true in scores)
        return nats + ((slope - 1) ** 2 + intercept**2) / 2

    best = loss(slope, intercept)
    for off_slope, off_intercept in ((0.02, 0.0), (-0.02, 0.0), (0.0, 0.02), (0.0, -0.02)):
        assert loss(slope + off_slope, intercept + off_intercept) > best


def test_few_true_candidates_move_the_map_little_and_slopes_are_not_negative() -> None:
    assert fit_map(counted_by_hand([(0.5, True)]))[0, 0, 0] == pytest.approx((1.0, 0.3), abs=0.2)
    backwards = [(0.9, False)] * 200 + [(0.1, True)] * 200
    assert fit_map(counted_by_hand(backwards))[0, 0, 0, 0] == 0.0


@given(st.lists(st.integers(0, 2 * FEWEST_TRUE), min_size=NUM_CLASSES, max_size=NUM_CLASSES))
def test_sparse_classes_are_pooled_with_neighbours(num_true: list[int]) -> None:
    groups = pooled_classes(np.array(num_true))
    covered = [index for group in reversed(groups) for index in range(group.start, group.stop)]
    assert covered == list(range(NUM_CLASSES))
    sums = [sum(num_true[group]) for group in groups]
    assert len(groups) == 1 or min(sums) >= FEWEST_TRUE
    # None could be split from the back on: without its first class a group has too few.
    for group in groups[:-1]:
        assert sum(num_true[group.start + 1 : group.stop]) < FEWEST_TRUE


def test_pooled_classes_share_a_map() -> None:
    generator = np.random.default_rng(11)
    found = no_edge_counts(2)
    add_edges(found, planted_rows(generator, 300, np.full((2, 2, NUM_CLASSES, 2), (0.5, -2.0))), 64)
    groups = pooled_classes(found.hits[1, 1].sum(axis=1))
    fitted = fit_map(found)[1, 1]
    assert len(groups) < NUM_CLASSES
    for group in groups:
        assert np.all(fitted[group] == fitted[group.start])


def test_held_out_figures_are_of_maps_that_did_not_see_the_part() -> None:
    """Two parts that want opposite maps: each is judged under the other's, and is worse off than before."""
    sure, unsure = counted_by_hand([(0.7, True)] * 300), counted_by_hand([(0.7, False)] * 300)

    def nll(part: EdgeCounts, fitted_to: EdgeCounts) -> float:
        return _quality([part], [fit_map(fitted_to)], slice(0, len(part.numbers))).nll

    before, after = held_out_quality([sure, unsure])[-1]
    assert after.nll == pytest.approx((nll(sure, unsure) + nll(unsure, sure)) / 2)
    assert after.nll > before.nll > nll(sure, sure)
