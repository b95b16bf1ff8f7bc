"""A tree that contains another accepts at least as much: on recorded real rounds, and in the runner."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import random_trees
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_checks import Case, fixed_cases, plain_of
from marginals import paths_of_tree

from simlab.draft import Draft
from simlab.policies.named.chain import Chain
from simlab.policies.orders.best_first import best_first
from simlab.real_runner.decoding.decode import decode
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import Round, draft_source
from simlab.traces.reader import open_trace, packaged_trace
from simlab.tree import DraftTree

BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@pytest.fixture(scope="module")
def sample() -> list[RecordedSequence]:
    """One text of each data set of the packaged trace, those that end with a stop token first."""
    trace = open_trace(packaged_trace())
    texts = sorted(trace.sequences(), key=lambda record: record.stop_reason != "stop")
    indices = {record.prompt.dataset: record.index for record in reversed(texts)}
    found = list(trace.recorded(trace.draft_name(), list(indices.values())))
    assert len(found) == 4
    return found


def drafts_of(recorded: RecordedSequence) -> Iterator[tuple[Draft, list[int]]]:
    """What was drafted at each root, and what the target said after it."""
    source = draft_source(replace(Chain().needs, top_k=None), recorded)
    text = recorded.text.tolist()
    for t in range(len(text) - 1):
        yield source(t), text[t + 1 :]


def contains(tree: DraftTree, other: DraftTree) -> bool:
    return set(paths_of_tree(other)) <= set(paths_of_tree(tree))


def test_a_larger_budget_accepts_at_least_as_much_at_every_root(sample: list[RecordedSequence]) -> None:
    gained = 0
    for recorded in sample:
        for draft, follows in drafts_of(recorded):
            nodes = best_first(draft.root_token, draft.drafted(), BUDGETS[-1])
            trees = [DraftTree(nodes.tokens[: budget + 1], nodes.parents[: budget + 1]) for budget in BUDGETS]
            accepted = [len(tree.accepted_path(follows)) for tree in trees]
            assert accepted == sorted(accepted)
            gained += accepted[-1] - accepted[0]
    assert gained > 300


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 1 << 40), budget=st.sampled_from(BUDGETS))
def test_any_part_of_a_tree_accepts_at_most_as_much(sample: list[RecordedSequence], seed: int, budget: int) -> None:
    generator = np.random.default_rng(seed)
    recorded = sample[int(generator.integers(len(sample)))]
    everything = list(drafts_of(recorded))
    for number in generator.integers(len(everything), size=8).tolist():
        draft, follows = everything[number]
        nodes = best_first(draft.root_token, draft.drafted(), budget)
        tree = DraftTree(nodes.tokens, nodes.parents)
        part = random_trees.sub_tree(generator, tree)
        assert contains(tree, part)
        accepted = tree.accepted_path(follows)
        of_part = part.accepted_path(follows)
        assert len(of_part) <= len(accepted)
        # It accepts the beginning of the same path.
        assert part.tokens[list(of_part)].tolist() == tree.tokens[list(accepted[: len(of_part)])].tolist()


def live_rounds(case: Case, seed: int) -> Iterator[tuple[Round, Round]]:
    """Each round of a run with random trees, and the first round of a run from its root with a part of its tree.

    The second run's prompt ends before that root, under the same name, so it meets the same noise, and
    its first token is that root.
    """
    whole, plain = case.policy(), plain_of(case)
    decoded = decode(case.models, whole, case.prompt, case.sampling, case.max_new_tokens)
    for ran in decoded.rounds:
        t = ran.round.position
        prompt = replace(case.prompt, token_ids=np.append(case.prompt.token_ids, decoded.text[:t]).astype(np.int32))
        policy = random_trees.SubTrees(seed, replace(whole, truth=whole.truth[t:]))
        again = decode(case.models, policy, prompt, case.sampling, case.max_new_tokens - t)
        assert again.text.tolist() == plain[t:]
        yield ran.round, again.rounds[0].round


def test_in_the_runner_a_part_of_a_tree_accepts_at_most_as_much() -> None:
    fewer = equal = 0
    for case in fixed_cases(45, seed=3):
        for whole, part in live_rounds(case, seed=7):
            assert contains(whole.tree, part.tree)
            assert part.num_accepted <= whole.num_accepted
            assert part.num_committed <= whole.num_committed
            fewer += part.num_accepted < whole.num_accepted
            equal += 0 < part.num_accepted == whole.num_accepted
    assert min(fewer, equal) > 10
