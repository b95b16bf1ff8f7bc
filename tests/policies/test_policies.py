"""The contract, for every policy in the table; and policies that break it, each in its own way."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from channel_texts import with_channels
from depth import examples
from every_policy import EVERY_POLICY, LongerAfterSuccess
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab import Draft, DraftTree, Needs, Outcome, Policy, Prompt, Stateless, replay_sequence, rounds
from simlab.draft import Marginals
from simlab.policies import POLICIES
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.parsing.describe import describe_policies
from simlab.policy import AnyPolicy, ChannelNeed
from simlab.testing import check_policy, check_sequence
from simlab.testing.random_texts import random_sequence


@pytest.mark.parametrize("policy", EVERY_POLICY, ids=repr)
def test_keeps_the_contract(policy: AnyPolicy) -> None:
    check_policy(policy, draws=examples(20, quick=8))


@pytest.mark.parametrize("policy", EVERY_POLICY, ids=repr)
@settings(max_examples=examples(25, quick=8))
@given(seed=st.integers(0, 2**63), most_kept=st.integers(1, 30))
def test_keeps_the_contract_on_any_text(policy: AnyPolicy, seed: int, most_kept: int) -> None:
    check_sequence(policy, with_channels(random_sequence(np.random.default_rng(seed), most_kept), [policy]))


@given(seed=st.integers(0, 2**63))
def test_every_policy_commits_the_same_text(seed: int) -> None:
    recorded = with_channels(random_sequence(np.random.default_rng(seed), 12), EVERY_POLICY)
    for policy in EVERY_POLICY:
        text = recorded.text[:1].tolist()
        for one in rounds(policy, recorded):
            assert one.position == len(text) - 1
            text += recorded.text[one.position + 1 : one.position + 1 + one.num_committed].tolist()
            path = list(one.path)
            assert one.tree.tokens[path].tolist() == recorded.text[one.position + 1 :][: len(path)].tolist()
        assert text == recorded.text.tolist()


@given(seed=st.integers(0, 2**63), budgets=st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_a_larger_tree_accepts_at_least_as_much_at_every_root(seed: int, budgets: tuple[int, int]) -> None:
    recorded = random_sequence(np.random.default_rng(seed), 12)
    assert recorded.rows is not None
    small, large = sorted(budgets)
    for t, marginals in enumerate(recorded.rows.rows()):
        draft = Draft(marginals, int(recorded.text[t]), recorded.text[: t + 1], t)
        accepted = [len(DDTree(one).select(draft).accepted_path(recorded.text[t + 1 :])) for one in (small, large)]
        assert accepted[0] <= accepted[1]
        # Every path of the chain is in a best-first tree that is as deep as the chain.
        tree = DDTree(large).select(draft)
        chain = Chain(int(tree.depths().max())).select(draft)
        assert len(chain.accepted_path(recorded.text[t + 1 :])) <= accepted[1]


def test_one_candidate_a_depth_makes_best_first_the_chain() -> None:
    generator = np.random.default_rng(1)
    for _ in range(30):
        recorded = random_sequence(generator, 1)
        assert replay_sequence(DDTree(64), recorded) == replay_sequence(Chain(), recorded)


def test_a_chain_of_no_given_length_is_as_long_as_the_block() -> None:
    offsets = np.arange(101, dtype=np.int32)
    draft = Draft(Marginals(offsets[:100] % 9, np.zeros(100, np.float32), offsets), 3, np.array([3], np.int32), 0)
    assert Chain().select(draft).num_drafted == 100
    assert Chain(64).select(draft).num_drafted == 64


def test_every_policy_is_described() -> None:
    found = describe_policies()
    assert [policy.name for policy in found] == list(POLICIES)
    assert all(
        "not stated" not in (policy.source, policy.exactness, policy.reads) and policy.summary for policy in found
    )
    assert next(policy.settings for policy in found if policy.name == "ddtree") == ("budget: int",)


@dataclass(frozen=True, slots=True)
class Faulty(Stateless):
    """A policy made of one function."""

    choose: Callable[[Draft], object]
    budget: int = 8
    top_k: int | None = 4
    draft: bool = True

    @property
    def needs(self) -> Needs:
        return Needs(draft=self.draft, top_k=self.top_k)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return self.choose(draft)  # type: ignore[return-value]


def first_of(draft: Draft, tokens: object) -> DraftTree:
    return DraftTree.chain(draft.root_token, tokens)  # type: ignore[arg-type]


def overwriting(draft: Draft) -> DraftTree:
    draft.drafted().ids.flags.writeable = True
    draft.drafted().ids[0] = 0
    return DraftTree.root_only(draft.root_token)


def twins(draft: Draft) -> DraftTree:
    token = int(draft.drafted().ids[0])
    return DraftTree(np.array([draft.root_token, token, token]), np.array([-1, 0, 0]))


def last_candidate(draft: Draft) -> DraftTree:
    return first_of(draft, draft.drafted().at(1)[0][-1:])


def by_mass(draft: Draft) -> DraftTree:
    """Drafts only where the kept candidates hold much; no such thing is recorded."""
    return first_of(draft, draft.drafted().top_tokens(1 if len(draft.drafted().at(1)[0]) > 4 else 0))


CHANCE = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Faulty(lambda draft: DDTree(9).select(draft), budget=8, top_k=None), "its budget is 8"),
        (Faulty(lambda draft: first_of(draft, [10_000])), "not among the candidates"),
        (Faulty(lambda draft: first_of(draft, [*draft.drafted().top_tokens(9), 1]), budget=64), "tokens deep"),
        (Faulty(lambda draft: first_of(draft, draft.drafted().at(draft.drafted().depth)[0][:1])), "at depth 1"),
        (Faulty(twins), "siblings must be distinct"),
        (Faulty(last_candidate, top_k=2), "reads beyond the first 2 ranks"),
        (Faulty(by_mass, top_k=2), "reads beyond the first 2 ranks"),
        (Faulty(last_candidate, top_k=None), "would not keep"),
        (Faulty(by_mass, top_k=None), "would not keep"),
        (Faulty(lambda draft: DDTree(8).select(draft), budget=20, top_k=2), "reads beyond the first 2 ranks"),
        (Faulty(lambda draft: first_of(draft, draft.drafted().top_tokens(int(CHANCE.integers(3))))), "another tree"),
        (Faulty(overwriting), "changed the draft"),
        (Faulty(lambda draft: DraftTree.root_only(draft.root_token + 1)), "the root is"),
        (Faulty(lambda draft: [draft.root_token]), "not a DraftTree"),
        (Faulty(lambda draft: first_of(draft, [1]), draft=False), "declares that it needs no drafter"),
        (Faulty(lambda draft: DraftTree.root_only(draft.root_token), budget=-1), "has the budget -1"),
        (Faulty(lambda draft: 1 // 0), "raised ZeroDivisionError"),
    ],
)
def test_a_broken_promise_is_named(policy: AnyPolicy, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_policy(policy, draws=40)


@dataclass(frozen=True, slots=True)
class InPlace:
    """A chain that remembers rounds in a list, and changes the list."""

    budget: int = 8
    needs: Needs = field(default_factory=lambda: Needs(top_k=1))

    def start(self, prompt: Prompt) -> list[int]:
        return [0]

    def select(self, draft: Draft, state: list[int]) -> DraftTree:
        state[0] += 1
        return first_of(draft, draft.drafted().top_tokens(state[0] % 3))

    def update(self, state: list[int], outcome: Outcome) -> list[int]:
        return state


def test_memory_changed_in_place_is_named() -> None:
    policy: Policy[list[int]] = InPlace()
    with pytest.raises(AssertionError, match="changes its memory in place"):
        check_policy(policy)


def test_memory_handed_on_is_fine() -> None:
    check_policy(LongerAfterSuccess())


def test_a_channel_of_an_unknown_kind_cannot_be_made_up() -> None:
    @dataclass(frozen=True, slots=True)
    class Wants(Stateless):
        budget: int = 1
        needs: Needs = field(default_factory=lambda: Needs(channels=(ChannelNeed("hidden", "sketches"),)))

        def select(self, draft: Draft, state: None = None) -> DraftTree:
            return DraftTree.root_only(draft.root_token)

    with pytest.raises(ValueError, match="sketches cannot be made up"):
        check_policy(Wants())
