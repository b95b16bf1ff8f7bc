"""The best budget per round in hindsight, against every choice of budgets there is."""

import numpy as np
import oracle
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_costs import random_table
from random_channels import with_channel

from simlab.cost import STAGES, CostTable, price_rounds
from simlab.policies.engine.hindsight import best_budgets_in_hindsight, fewest_rounds_within
from simlab.policies.engine.replay import replay_policies
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import TransitionSource, true_reaches
from simlab.policies.orders.node_order import walk_layer
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import RecordedSequence, texts_of
from simlab.studies.inputs.prices import cost_table_of
from simlab.testing.random_texts import random_sequence
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file
from simlab.traces.reader import open_trace, packaged_trace


def accepted_by_size(recorded: RecordedSequence, root: int, most: int) -> list[int]:
    """How many tokens are accepted at a root with 0, 1, 2, ... nodes of the listing, as far as there are any."""
    assert recorded.rows is not None
    row = list(recorded.rows.rows())[root]
    lists = [list(zip(*(part.tolist() for part in row.at(depth)), strict=True)) for depth in range(1, row.depth + 1)]
    paths = oracle.best_paths_by_heap(lists, most)
    follows = recorded.text[root + 1 :].tolist()
    counts = []
    for size in range(len(paths) + 1):
        tree = {tuple(lists[depth][rank][0] for depth, rank in enumerate(path)) for path in paths[:size]}
        number = 0
        while number < len(follows) and tuple(follows[: number + 1]) in tree:
            number += 1
        counts.append(number)
    return counts


def fewest_s(recorded: RecordedSequence, cost: CostTable, most: int) -> float:
    """The seconds of every choice of sizes are added up, and the smallest sum is taken."""
    last, length = len(recorded.text) - 1, len(recorded.prompt.token_ids)
    accepted = [accepted_by_size(recorded, root, most) for root in range(last)]
    seconds = [np.sum([cost.curve(stage, length + root) for stage in STAGES], axis=0) for root in range(last)]

    def least(root: int) -> float:
        if root >= last:
            return 0.0
        return min(float(seconds[root][size]) + least(root + number + 1) for size, number in enumerate(accepted[root]))

    return least(0)


@settings(max_examples=examples(40))
@given(st.integers(0, 10**6))
def test_no_choice_of_budgets_takes_less(seed: int) -> None:
    generator = np.random.default_rng(seed)
    recorded = random_sequence(generator, most_kept=3)
    cost, most = random_table(generator, most_drafted=6), int(generator.integers(1, 5))
    if len(recorded.text) > 7:
        return
    alone = texts_of([recorded])
    found = best_budgets_in_hindsight(alone, cost, most).columns(alone)[0]
    assert found.num_drafted.max(initial=0) <= most
    assert int(found.num_committed.sum()) == len(recorded.text) - 1
    for one in zip(found.positions.tolist(), found.num_drafted.tolist(), found.num_accepted.tolist(), strict=True):
        assert accepted_by_size(recorded, one[0], most)[one[1]] == one[2]
    priced = price_rounds(found, len(recorded.prompt.token_ids), cost, with_draft=True)
    assert priced.total_s == pytest.approx(fewest_s(recorded, cost, most), rel=1e-12)


def test_no_fixed_budget_is_faster_on_real_rows() -> None:
    trace = open_trace(packaged_trace())
    cost = cost_table_of(read_cost_file(packaged_cost_files()[0]))
    policies = [policy.policy for policy in parse_policies(["ddtree:budget=1..64"])]
    for recorded in trace.recorded("dflash", range(4)):
        length = len(recorded.prompt.token_ids)
        alone = texts_of([recorded])
        best = best_budgets_in_hindsight(alone, cost, 64).columns(alone)[0]
        bound = price_rounds(best, length, cost, with_draft=True).total_s
        fixed = [
            price_rounds(found, length, cost, with_draft=True).total_s for found in replay_policies(policies, recorded)
        ]
        assert 0 < bound < min(fixed)


@settings(max_examples=examples(60, quick=40))
@given(st.integers(0, 10**6), st.integers(0, 6))
def test_no_choice_of_trees_on_a_channel_has_fewer_rounds(seed: int, budget: int) -> None:
    recorded = with_channel(np.random.default_rng(seed), "transitions")
    texts, num_roots = texts_of([recorded, recorded]), len(recorded.text) - 1
    source = TransitionSource("made-up")
    reaches = true_reaches(source, texts)
    found = fewest_rounds_within(reaches, texts.roots.firsts, budget)
    # The oracle reads ranks: a true token is the first of one candidate, as far as the reach goes.
    ranks = [[0] * reach + [-1] for reach in reaches[:num_roots].tolist()]
    fewest = oracle.fewest_rounds(ranks, [[1] * len(row) for row in ranks], len(recorded.text), budget)
    assert np.diff(found.ends, prepend=0).tolist() == [fewest, fewest]
    layer = LatticeOrder(source).layer(texts, budget, False)
    assert len(walk_layer(layer.insertions, layer.num_available, texts.roots.firsts).roots) >= 2 * fewest
