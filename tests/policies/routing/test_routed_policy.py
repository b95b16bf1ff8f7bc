"""A router has the rounds of the routes that it takes, and no route sees what it did not declare."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from channel_texts import with_channels
from hypothesis import given
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts

from simlab import Draft, DraftTree, Needs, Stateless
from simlab.channels import TARGET, TargetLawRows
from simlab.errors import PolicyError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.routing.cut_rule import CutRule
from simlab.policies.routing.routed_policy import RoutedPolicy, missed_tokens
from simlab.policy import AnyPolicy, is_plain_decoding, needs_together, route_taken, routes_of
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import rounds
from simlab.testing.random_texts import random_sequence

ROUTES: tuple[AnyPolicy, ...] = (DDTree(9), Chain(2), Autoregressive())


def text_for(policy: AnyPolicy, seed: int, entropies: tuple[float, ...] = (0.25, 0.75, 1.5)) -> RecordedSequence:
    """A text with all that a policy reads, and entropies of a few values."""
    generator = np.random.default_rng(seed)
    recorded = with_channels(random_sequence(generator, 6), [policy])
    law = TargetLawRows(generator.choice(np.array(entropies, np.float32), len(recorded.text) - 1))
    return replace(recorded, channels={**recorded.channels, TARGET: law})


@given(seed=st.integers(0, 10**6))
def test_each_round_is_that_of_its_route(seed: int) -> None:
    """By hand: the route by the root's entropy, and the tree that this policy chooses there by itself."""
    router = RoutedPolicy(ROUTES, CutRule("entropy", (0.5, 1.0)))
    recorded = text_for(router, seed)
    law = recorded.channels[TARGET]
    assert isinstance(law, TargetLawRows)
    for one in rounds(router, recorded):
        entropy = float(law.entropies[one.position])
        route = 0 if entropy <= 0.5 else 1 if entropy <= 1.0 else 2
        assert one.route == route
        whole = replace(recorded, text=recorded.text[one.position :], rows=None, channels={})
        assert recorded.rows is not None
        part = recorded.rows.part(one.position, len(recorded.text) - 1, recorded.rows.starts())
        alone = next(rounds(ROUTES[route], replace(whole, rows=part)))
        assert alone.tree.tokens.tolist() == one.tree.tokens.tolist()
        assert alone.path == one.path


@given(seed=st.integers(0, 10**6), by=st.sampled_from(["entropy", "accepted", "context"]))
def test_equal_routes_give_equal_rounds_under_any_rule(seed: int, by: str) -> None:
    router = RoutedPolicy((DDTree(7), DDTree(7), DDTree(7)), CutRule(by, (0.5, 1.0)))
    recorded = text_for(router, seed)
    alone = [(one.position, one.path, one.num_drafted) for one in rounds(DDTree(7), recorded)]
    assert [(one.position, one.path, one.num_drafted) for one in rounds(router, recorded)] == alone


@pytest.mark.parametrize("route", ROUTES, ids=repr)
@given(seed=st.integers(0, 10**6))
def test_one_route_is_that_policy(route: AnyPolicy, seed: int) -> None:
    router = RoutedPolicy((route,), CutRule("entropy", ()))
    recorded = text_for(router, seed)
    alone = [(one.position, one.path, one.num_drafted) for one in rounds(route, recorded)]
    assert [(one.position, one.path, one.num_drafted) for one in rounds(router, recorded)] == alone


def test_what_the_round_before_accepted_is_remembered() -> None:
    router = RoutedPolicy((Autoregressive(), Chain()), CutRule("accepted", (-0.5,)))
    for seed in range(30):
        before = None
        for one in rounds(router, text_for(router, seed)):
            assert one.route == (0 if before is None else 1)
            before = one.num_accepted


@pytest.mark.parametrize(("cuts", "is_refused"), [("0", True), ("-2", False), ("-1", False), ("-1|0", False)])
def test_a_router_that_never_leaves_plain_decoding_is_refused(cuts: str, is_refused: bool) -> None:
    """A round of ar accepts 0, so what serves a round behind 0 must not be ar."""
    routes = "ar|chain|ddtree:budget=4" if "|" in cuts else "ar|chain"
    typed = f'router:routes="{routes}",by=accepted,cuts="{cuts}"'
    if not is_refused:
        assert parse_policies([typed])
        return
    with pytest.raises(PolicyError, match=r"by=accepted never leaves ar .*first cut of -1"):
        parse_policies([typed])


@dataclass(frozen=True)
class Peeking(Stateless):
    """Says what it was given."""

    top_k: int
    seen: list[Draft] = field(default_factory=list, compare=False)
    budget: int = 4

    @property
    def needs(self) -> Needs:
        return Needs(top_k=self.top_k)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        self.seen.append(draft)
        return DraftTree.root_only(draft.root_token)


def test_a_route_sees_no_more_than_it_declares() -> None:
    narrow, wide = Peeking(1), Peeking(3)
    router = RoutedPolicy((narrow, wide), CutRule("entropy", (0.5,)))
    for seed in range(20):
        list(rounds(router, text_for(router, seed)))
    assert narrow.seen
    assert wide.seen
    assert max(int(np.diff(draft.drafted().offsets).max()) for draft in narrow.seen) == 1
    assert max(int(np.diff(draft.drafted().offsets).max()) for draft in wide.seen) == 3
    assert all(not draft.channels for draft in (*narrow.seen, *wide.seen))


def test_the_route_is_chosen_before_anything_is_drafted() -> None:
    seen: list[Draft] = []

    class Looks(CutRule):
        def route(self, draft: Draft, accepted: int) -> int:
            seen.append(draft)
            return super().route(draft, accepted)

    router = RoutedPolicy((DDTree(3), Chain()), Looks("context", (3.0,)))
    recorded = text_for(router, 4)
    list(rounds(router, recorded))
    assert any(one.marginals is None for one in seen)
    whole = Draft(None, 0, np.zeros(3, np.int32), 2)
    assert route_taken(router, whole, 0) == 0
    assert route_taken(Chain(), whole, None) is None
    assert routes_of(Chain()) == ()


def test_needs_of_several() -> None:
    both = needs_together([Needs(top_k=4), Needs(draft=False), Needs(top_k=9, entropies=True)])
    assert both == Needs(top_k=9, entropies=True)
    assert needs_together([Needs(top_k=4), Needs(top_k=None)]).top_k is None
    assert not needs_together([Needs(draft=False), Needs(draft=False)]).draft
    assert needs_together([Needs(draft=False), Needs(top_k=2)]).top_k == 2


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ('router:routes="chain|ddtree:budget=4"', "2 routes are told apart by 1 cuts; got 0"),
        ('router:routes="chain|ddtree:budget=4/8",cuts=1', "makes 2 policies; name one"),
        ('router:routes="chain|nothing",cuts=1', "there is no policy `nothing`"),
        ('router:routes="chain|joint:budget=4",cuts=1', "shares its budget over a batch"),
        ('router:routes="chain|price",cuts=1', "remembers earlier rounds"),
        ('router:routes="chain|eagle3:budget=9|eagle3:budget=9,steps=3",cuts="1|2"', "read it in one way"),
        ('router:routes="chain",by=weather', "by=weather"),
        ('router:routes="chain|router:routes=ar",cuts=1', "is a router"),
        ("router:routes=chain,cuts=high", "such as 0.5|2; got high"),
        ("whiflash:beta=2", "beta is from 0"),
        ('whiflash:entropy=1,sure="chain|ar"', "chain|ar"),
    ],
)
def test_what_is_no_router_is_refused_in_a_sentence(typed: str, says: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policies([typed], FullArtefacts())
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_routers_as_typed() -> None:
    policy, other, third = parse_policies(
        ['router:routes="ddtree:budget=16|ar",cuts=0.5/2', 'whiflash:entropy=1.5,unsure="eagle3:budget=24"'],
        FullArtefacts(),
    )
    assert policy.policy_id != other.policy_id
    assert policy.label == 'router:routes="ddtree:budget=16|ar",cuts=0.5'
    assert isinstance(policy.policy, RoutedPolicy)
    assert policy.policy.described_routes == "ddtree:budget=16|ar"
    assert [is_plain_decoding(route) for route in policy.policy.routes] == [False, True]
    assert isinstance(third.policy, RoutedPolicy)
    assert third.policy.described_routes == "chain|eagle3:budget=24"
    assert third.policy.rule == CutRule("entropy", (1.5,))
    assert {need.name for need in third.policy.needs.channels} == {TARGET, "eagle3"}


def test_another_route_makes_another_id() -> None:
    typed = [f'router:routes="ddtree:budget={budget}|caddtree",cuts=1' for budget in (4, 5)]
    assert len({policy.policy_id for policy in parse_policies(typed, FullArtefacts())}) == 2


# What a drafter missed when it runs again, against counting the tokens that it did not read in time


def missed_by_reading(used: list[bool], committed: list[int]) -> list[int]:
    """A reader that takes in everything when it runs: how much was left from before the last round."""
    unread, missed = list[int](), list[int]()
    for index, runs in enumerate(used):
        # Token ``n`` of the text, by the round that brought it.
        missed.append(sum(brought < index - 1 for brought in unread) if runs else 0)
        if runs:
            unread = []
        unread += [index] * committed[index]
    return missed


ROUNDS = st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=12)


@given(texts=st.lists(ROUNDS, max_size=3))
def test_what_was_missed_is_what_waited_longer_than_a_round(texts: list[list[tuple[bool, int]]]) -> None:
    wanted, flat = list[int](), [one for text in texts for one in text]
    for text in texts:
        wanted += missed_by_reading([used for used, _ in text], [num for _, num in text])
    used, committed = np.array([flag for flag, _ in flat], np.bool_), np.array([num for _, num in flat], np.int64)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    assert missed_tokens(used, committed, ends).tolist() == wanted


def test_who_runs_in_each_round_misses_nothing() -> None:
    assert missed_tokens(np.ones(5, np.bool_), np.full(5, 3, np.int64), np.array([2, 5])).tolist() == [0] * 5
