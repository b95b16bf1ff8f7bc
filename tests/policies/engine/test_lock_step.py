"""Texts served together: against a plain-Python server, and what must hold for any batch."""

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from served_oracle import cost_table, random_texts, served_by_hand

from simlab.columns import TextRounds
from simlab.cost import STAGES
from simlab.draft import Draft
from simlab.errors import CostError
from simlab.policies.composition import select_together, shared_composition
from simlab.policies.engine.lock_step import rounds_of_policy, serve, served_sums, with_filler_requests
from simlab.policies.engine.replay import Replay
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.joint_budget import JointBudget
from simlab.policies.rules.budgets import shared_sizes
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of
from simlab.sequence_replay import draft_source


def listed(found: TextRounds, texts: RecordedTexts) -> list[list[tuple[int, int, int]]]:
    return [
        list(
            zip(column.positions.tolist(), column.num_drafted.tolist(), column.num_accepted.tolist(), strict=True),
        )
        for column in found.columns(texts)
    ]


@settings(max_examples=examples(60, quick=40))
@given(
    seed=st.integers(0, 1 << 20),
    num=st.integers(1, 7),
    batch=st.integers(1, 5),
    budget=st.integers(1, 40),
    coarse=st.booleans(),
)
def test_a_joint_budget_is_the_servers(seed: int, num: int, batch: int, budget: int, coarse: bool) -> None:
    texts = random_texts(seed, num, coarse)
    rounds, batches = served_by_hand(texts, batch, budget, lambda scores, contexts: budget)
    served = serve(texts, batch, rounds_of_policy(JointBudget(budget), texts), with_filler_requests(num))
    assert listed(served.text_rounds(texts), texts) == rounds
    assert served.mean_drafted.tolist() == [sum(sizes) / len(sizes) for sizes, _ in batches]
    assert served.mean_context.tolist() == pytest.approx([sum(places) / len(places) for _, places in batches])
    assert all(sum(sizes) == min(budget, len(sizes) * 84) for sizes, _ in batches)


POLICIES: tuple[AnyPolicy, ...] = (Autoregressive(), Chain(2), DDTree(5), JointBudget(6))


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 20), num=st.integers(1, 6), coarse=st.booleans(), policy=st.sampled_from(POLICIES))
def test_one_text_at_a_time_is_the_replay_of_each_alone(seed: int, num: int, coarse: bool, policy: AnyPolicy) -> None:
    texts, cost = random_texts(seed, num, coarse), cost_table()
    found = served_sums(policy, texts, 1, cost)
    single = DDTree(policy.budget) if isinstance(policy, JointBudget) else policy
    expected = Replay([(single, cost)]).sums(texts)
    assert found.counts.tolist() == expected.counts.tolist()
    assert np.allclose(found.seconds, expected.seconds)
    assert Replay([(policy, cost)]).sums(texts).counts.tolist() == expected.counts.tolist()


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 1 << 20),
    num=st.integers(1, 6),
    batch=st.integers(1, 5),
    policy=st.sampled_from(POLICIES[:3]),
)
def test_policies_of_single_texts_have_the_same_rounds_in_any_batch(
    seed: int, num: int, batch: int, policy: AnyPolicy
) -> None:
    texts = random_texts(seed, num, coarse=False)
    assert (
        served_sums(policy, texts, batch, None).counts.tolist() == Replay([(policy, None)]).sums(texts).counts.tolist()
    )


def test_a_text_waits_for_the_whole_round_of_its_batch() -> None:
    texts, cost, batch, budget = random_texts(3, 5, coarse=False), cost_table(), 3, 7
    served = serve(texts, batch, rounds_of_policy(JointBudget(budget), texts), with_filler_requests(5))
    expected = np.zeros((5, 5))
    for root, number in zip(served.roots.tolist(), served.of_batch.tolist(), strict=True):
        text = int(np.searchsorted(texts.roots.firsts, root, side="right")) - 1
        context, mean = round(float(served.mean_context[number])), budget / batch
        for index, stage in enumerate(STAGES):
            curve = cost.curve(stage, context)
            expected[text, index] += curve[2] + (mean - 2) * (curve[3] - curve[2])
    assert np.allclose(served.seconds(texts, cost, STAGES), expected)
    assert np.allclose(served_sums(JointBudget(budget), texts, batch, cost).seconds[0], expected)


def test_plain_decoding_pays_its_own_path_and_too_large_a_tree_is_refused() -> None:
    texts, cost = random_texts(4, 4, coarse=False), cost_table(2)
    plain = served_sums(Autoregressive(), texts, 2, cost).seconds[0]
    assert (plain[:, [0, 1, 2, 4]] == 0).all()
    assert (plain[:, 3] > 0).any()
    assert np.isnan(served_sums(DDTree(3), texts, 2, None).seconds).all()
    with pytest.raises(CostError, match="latencies up to 2"):
        served_sums(DDTree(3), texts, 2, cost)
    # Two texts share them, so each has two.
    served_sums(JointBudget(4), texts, 2, cost)


def test_texts_without_rounds_are_no_company() -> None:
    texts = texts_of([random_texts(0, 1, coarse=False).sequences[0]])
    sequence = texts.sequences[0]
    assert sequence.rows is not None
    empty = sequence.rows.part(0, 0, sequence.rows.starts())
    short = RecordedSequence(0, sequence.prompt, sequence.text[:1], "stop", empty)
    served = serve(texts_of([short]), 3, rounds_of_policy(JointBudget(2), texts_of([short])), with_filler_requests(1))
    assert len(served.roots) == len(served.mean_drafted) == 0


# Sharing out


@given(st.lists(st.lists(st.integers(-6, 0), max_size=8), min_size=1, max_size=5), st.integers(1, 12))
def test_the_best_of_all_texts_enter_and_the_first_text_wins_a_tie(rows: list[list[int]], budget: int) -> None:
    scores = np.full((len(rows), 13), -np.inf)
    for row, values in zip(scores, rows, strict=True):
        row[0], row[1 : len(values) + 1] = 0.0, sorted(values, reverse=True)
    nodes = sorted((-score, text) for text, values in enumerate(rows) for score in values)[:budget]
    assert shared_sizes(scores, budget).tolist() == [sum(text == n for _, text in nodes) for n in range(len(rows))]


def test_live_trees_are_those_of_the_replay() -> None:
    texts = random_texts(11, 3, coarse=True)
    long = [sequence for sequence in texts.sequences if len(sequence.text) > 2]
    assert len(long) > 1
    shared = shared_composition(JointBudget(10))
    assert shared is not None
    drafts: list[Draft] = [draft_source(shared.needs, one)(1) for one in long]
    trees = select_together(shared, drafts)
    assert sum(tree.num_drafted for tree in trees) == 10
    whole = texts_of(long)
    roots = whole.roots.firsts[:-1] + 1
    sizes, _ = rounds_of_policy(JointBudget(10), whole)(roots, np.arange(len(roots)))
    assert [tree.num_drafted for tree in trees] == sizes.tolist()
    for tree, draft in zip(trees, drafts, strict=True):
        alone = DDTree(10).select(draft)
        assert tree.tokens.tolist() == alone.tokens[: tree.num_nodes].tolist()
        assert tree.parents.tolist() == alone.parents[: tree.num_nodes].tolist()


def test_which_policies_are_of_the_batch() -> None:
    assert shared_composition(JointBudget(3)) is not None
    assert shared_composition(JointBudget(3).own) is not None
    assert shared_composition(DDTree(3)) is None
    assert shared_composition(Autoregressive()) is None
    with pytest.raises(ValueError, match="at least 1"):
        JointBudget(0)
