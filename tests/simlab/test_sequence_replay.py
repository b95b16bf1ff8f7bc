"""The walk against a slow one, the hindsight bound, and totals."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab import (
    Draft,
    DraftRows,
    DraftTree,
    Needs,
    Outcome,
    Prompt,
    RecordedSequence,
    Stateless,
    Totals,
    check_needs,
    hindsight_rounds,
    hindsight_sequence,
    replay_sequence,
    rounds,
)
from simlab.channels.needs import TraceCapabilities
from simlab.errors import MissingChannelError, PolicyError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy, ChannelNeed
from simlab.testing.random_texts import random_sequence

seeds = st.integers(0, 2**63).map(np.random.default_rng)
policies = st.one_of(
    st.just(Autoregressive()),
    st.sampled_from([None, 1, 3]).map(Chain),
    st.integers(1, 40).map(DDTree),
)


def rows_of(recorded: RecordedSequence) -> DraftRows:
    assert recorded.rows is not None
    return recorded.rows


def token_paths(tree: DraftTree) -> set[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(tree.parents[1:].tolist(), tree.tokens[1:].tolist(), strict=True):
        paths.append((*paths[parent], token))
    return set(paths)


@given(seeds, policies)
def test_walk_is_the_slow_walk(generator: np.random.Generator, policy: AnyPolicy) -> None:
    recorded = random_sequence(generator, 8)
    marginals = list(rows_of(recorded).rows())
    trees = [
        token_paths(policy.select(Draft(row, int(recorded.text[t]), recorded.text[: t + 1], t), None))
        for t, row in enumerate(marginals)
    ]
    found = [(one.position, one.num_accepted, one.num_committed) for one in rounds(policy, recorded)]
    assert found == oracle.slow_walk(trees, recorded.text.tolist())


@given(seeds, policies)
def test_totals_are_the_sums_of_rounds(generator: np.random.Generator, policy: AnyPolicy) -> None:
    recorded = random_sequence(generator, 8)
    totals, each = replay_sequence(policy, recorded), list(rounds(policy, recorded))
    assert totals.committed == len(recorded.text) - 1
    assert totals.verified == totals.drafted + totals.rounds == sum(round_.tree.num_nodes for round_ in each)
    assert totals.committed == totals.accepted + totals.rounds - totals.clipped
    assert totals.clipped == sum(round_.clipped for round_ in each) <= 1
    assert not any(round_.clipped for round_ in each[:-1])


@given(seeds)
def test_plain_decoding_commits_one_token_a_round(generator: np.random.Generator) -> None:
    recorded = random_sequence(generator, 8)
    num = len(recorded.text) - 1
    assert replay_sequence(Autoregressive(), recorded) == Totals(num, 0, num, 0, num, 0)


@given(seeds, st.integers(0, 9))
def test_hindsight_has_the_fewest_rounds(generator: np.random.Generator, budget: int) -> None:
    recorded = random_sequence(generator, 8)
    rows = rows_of(recorded)
    expected = oracle.fewest_rounds(rows.true_ranks.tolist(), rows.counts.tolist(), len(recorded.text), budget)
    found = list(hindsight_rounds(recorded, budget))
    assert len(found) == expected
    text = recorded.text.tolist()
    for round_ in found:
        assert round_.tree.tokens.tolist() == text[round_.position : round_.position + round_.num_committed]
        assert round_.tree.accepted_path(recorded.text[round_.position + 1 :]) == round_.path
        assert round_.num_drafted == round_.num_accepted == round_.num_committed - 1 <= budget
        ranks, counts = rows.true_ranks[round_.position], rows.counts[round_.position]
        assert np.all((ranks >= 0)[: round_.num_drafted] & (ranks < counts)[: round_.num_drafted])
    assert sum(round_.num_committed for round_ in found) == len(text) - 1


@given(seeds, policies)
def test_hindsight_is_never_beaten(generator: np.random.Generator, policy: AnyPolicy) -> None:
    recorded = random_sequence(generator, 8)
    assert hindsight_sequence(recorded, policy.budget).rounds <= replay_sequence(policy, recorded).rounds


def sequence(text: list[int], candidates: list[list[int]], prompt: tuple[int, ...] = (50,)) -> RecordedSequence:
    """A text with one candidate a depth."""
    num_rows, num_depths = len(text) - 1, max(map(len, candidates), default=1)
    counts, ranks = np.zeros((num_rows, num_depths), np.int32), np.full((num_rows, num_depths), -1, np.int32)
    for t, row in enumerate(candidates):
        counts[t, : len(row)] = 1
        for d, token in enumerate(row):
            if t + d + 1 < len(text):
                ranks[t, d] = 0 if text[t + d + 1] == token else 1
    ids = np.array([token for row in candidates for token in row], np.int32)
    rows = DraftRows(ids, np.full(len(ids), -1.0, np.float32), counts, ranks)
    asked = Prompt("p", "d", 0, 0, np.array(prompt, np.int32))
    return RecordedSequence(0, asked, np.array(text, np.int32), "stop", rows)


def test_the_longest_run_is_not_always_best() -> None:
    """From root 0 three tokens are known, but root 2 sees the rest and roots 3 and 4 see nothing."""
    text = [0, 1, 2, 3, 4, 5, 6, 7]
    recorded = sequence(text, [[1, 2, 3], [9, 9, 9], [3, 4, 5, 6], *([[9]] * 4)])
    assert [(one.position, one.num_committed) for one in hindsight_rounds(recorded, 8)] == [(0, 2), (2, 5)]
    assert replay_sequence(Chain(), recorded).rounds == 4
    assert replay_sequence(Chain(length=1), recorded).rounds > 2


def test_the_end_of_a_text_clips_the_bonus_token() -> None:
    recorded = sequence([0, 1, 2, 3], [[1, 2, 3, 4], [2, 3], [3]])
    (only,) = rounds(Chain(), recorded)
    assert (only.num_accepted, only.num_committed, only.num_drafted, only.clipped) == (3, 3, 4, True)
    (only,) = rounds(Chain(length=2), recorded)
    assert (only.num_accepted, only.num_committed, only.num_drafted, only.clipped) == (2, 3, 2, False)


def test_a_text_of_one_token_has_no_rounds() -> None:
    recorded = sequence([3], [])
    found = [replay_sequence(one, recorded) for one in (Autoregressive(), Chain())]
    for totals in (*found, hindsight_sequence(recorded, 4)):
        assert totals == Totals()
        assert math.isnan(totals.acceptance_length)


@dataclass(frozen=True, slots=True)
class Watching:
    """Drafts a chain and remembers all it saw and all it was told."""

    budget: int = 64
    needs: Needs = field(default_factory=lambda: Needs(top_k=1))

    def start(self, prompt: Prompt) -> tuple[object, ...]:
        return ()

    def select(self, draft: Draft, state: tuple[object, ...]) -> DraftTree:
        SEEN.append((draft.root_token, draft.committed.tolist(), draft.context_length, state))
        return Chain().select(draft)

    def update(self, state: tuple[object, ...], outcome: Outcome) -> tuple[object, ...]:
        return (*state, (outcome.path, outcome.committed, outcome.ended))


SEEN: list[object] = []


def test_what_a_policy_is_shown_and_told() -> None:
    SEEN.clear()
    recorded = sequence([0, 1, 2, 3, 4], [[1, 9], [2, 3], [3, 4], [4, 5]], prompt=(50, 51))
    assert replay_sequence(Watching(), recorded).rounds == 2
    told = ((1,), (1, 2), False)
    assert [(0, [50, 51, 0], 2, ()), (2, [50, 51, 0, 1, 2], 4, (told,))] == SEEN


def test_what_a_policy_is_shown_cannot_be_written() -> None:
    @dataclass(frozen=True, slots=True)
    class Writing(Stateless):
        budget: int = 0
        needs: Needs = field(default_factory=lambda: Needs(draft=False))

        def select(self, draft: Draft, state: None = None) -> DraftTree:
            assert draft.marginals is None
            draft.committed[-1] = 5
            return DraftTree.root_only(draft.root_token)

    with pytest.raises(ValueError, match="read-only"):
        replay_sequence(Writing(), sequence([0, 1], [[1]]))


@dataclass(frozen=True, slots=True)
class Fixed(Stateless):
    """Always the same tree."""

    tree: DraftTree
    budget: int = 1
    needs: Needs = field(default_factory=Needs)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return self.tree


def test_a_tree_that_breaks_its_word_is_refused() -> None:
    recorded = sequence([0, 1], [[1]])
    with pytest.raises(PolicyError, match="its budget is 1"):
        replay_sequence(Fixed(DraftTree.chain(0, [1, 2])), recorded)
    with pytest.raises(PolicyError, match="the root is 0"):
        replay_sequence(Fixed(DraftTree.chain(7, [1])), recorded)


def test_missing_rows_and_channels_are_refused() -> None:
    recorded = replace(sequence([0, 1], [[1]]), rows=None)
    assert replay_sequence(Autoregressive(), recorded).rounds == 1
    with pytest.raises(MissingChannelError, match="draft set"):
        replay_sequence(Chain(), recorded)
    with pytest.raises(MissingChannelError, match="draft set"):
        hindsight_sequence(recorded, 4)
    needs = Needs(channels=(ChannelNeed("hidden", "pool"),))
    with pytest.raises(MissingChannelError, match="reads the channel hidden .* --add-channel hidden=CHECKPOINT`"):
        replay_sequence(Fixed(DraftTree.root_only(0), needs=needs), sequence([0, 1], [[1]]))


def test_what_a_trace_does_not_hold_is_refused_with_the_option() -> None:
    held = TraceCapabilities(exact_budget=512, min_width=64)
    for policy in (Autoregressive(), Chain(), DDTree(512), Fixed(DraftTree.root_only(0), needs=Needs(top_k=64))):
        check_needs(policy, held)
    with pytest.raises(MissingChannelError, match=r"record --exact-budget 1024"):
        check_needs(DDTree(513), held)
    with pytest.raises(MissingChannelError, match=r"record --min-width 128"):
        check_needs(Fixed(DraftTree.root_only(0), needs=Needs(top_k=65)), held)


def test_records_that_do_not_fit_are_refused() -> None:
    recorded = sequence([0, 1, 2], [[1], [2]])
    with pytest.raises(ValueError, match="at least one token"):
        replace(recorded, text=np.zeros(0, np.int32))
    with pytest.raises(ValueError, match="needs a row"):
        replace(recorded, text=np.zeros(5, np.int32))
    with pytest.raises(ValueError, match="as long as counts says"):
        replace(rows_of(recorded), ids=np.zeros(3, np.int32))


totals_strategy = st.builds(Totals, *([st.integers(0, 9)] * 6))


@given(totals_strategy, totals_strategy)
def test_totals_add(totals: Totals, other: Totals) -> None:
    both = totals + other
    assert both.rounds == totals.rounds + other.rounds
    assert both.verified == totals.verified + other.verified
    assert both + Totals() == both == other + totals


def test_ratios() -> None:
    totals = Totals(rounds=4, drafted=16, verified=20, accepted=5, committed=9)
    assert (totals.acceptance_length, totals.nodes_per_round, totals.accepted_per_verified) == (2.25, 4.0, 0.25)
