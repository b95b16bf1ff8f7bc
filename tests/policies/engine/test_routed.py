"""Routers at prices: rounds pay for their routes, catching up costs what it is said to, no rule beats hindsight."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from channel_texts import with_channels
from depth import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts
from made_up_costs import random_table

from simlab.channels import TARGET, TargetLawRows
from simlab.columns import columns_of
from simlab.cost import STAGES, ChannelSeconds, CostTable, price
from simlab.cost.table import IMPORTED
from simlab.draft import Draft
from simlab.errors import CostError
from simlab.policies.engine.hindsight import best_routes_in_hindsight, without_catch_up
from simlab.policies.engine.replay import Replay, sums_of_policy
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.eagle3 import Eagle3
from simlab.policies.named.router import seconds_of_largest
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.routing.cut_rule import CutRule, NetworkRule
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import DRAFTER, AnyPolicy, Needs, Stateless, catch_up_name, drafters_of
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import Round, rounds
from simlab.testing.random_texts import random_sequence
from simlab.tree import DraftTree

EAGLE = Eagle3(5, beam=3, top_k=4, steps=2)
ROUTES: tuple[AnyPolicy, ...] = (DDTree(5), EAGLE, Autoregressive())
MISSED = (1, 4, 9)


def router_of(cuts: tuple[float, ...] = (0.5, 1.0), by: str = "entropy") -> RoutedPolicy:
    return RoutedPolicy(ROUTES, CutRule(by, cuts))


def recorded_for(seed: int) -> RecordedSequence:
    generator = np.random.default_rng(seed)
    recorded = with_channels(random_sequence(generator, 4), [router_of()])
    law = TargetLawRows(generator.choice(np.array([0.25, 0.75, 1.5], np.float32), len(recorded.text) - 1))
    return replace(recorded, channels={**recorded.channels, TARGET: law})


def table_for(seed: int, late: bool = True) -> CostTable:
    """Prices of everything, and once more from samples drawn again."""
    generator = np.random.default_rng(seed)
    table = random_table(generator, 9, 200)

    def priced(costs: CostTable) -> CostTable:
        num = len(table.contexts)
        channels = {"eagle3": ChannelSeconds(np.array([1, 2, 3]), generator.random((num, 3)))}
        for name in (catch_up_name(DRAFTER), catch_up_name("eagle3")) if late else ():
            rising = np.cumsum(generator.random((num, len(MISSED))), axis=1)
            channels[name] = ChannelSeconds(np.array(MISSED), rising)
        return replace(costs, channels=channels)

    drawn = {stage: generator.random(values.shape) for stage, values in table.seconds.items() if stage != "channel"}
    return replace(priced(table), draws=(priced(replace(table, seconds=drawn)),))


def extra_s(cost: CostTable, drafter: str, context: int, missed: int) -> float:
    """Linear between what was measured, and on behind the last; at one context after the other."""
    if missed == 0:
        return 0.0
    curves = cost.channels[catch_up_name(drafter)].seconds
    at_context = [float(np.interp(context, cost.contexts, column)) for column in curves.T]
    if missed > MISSED[-1]:
        slope = (at_context[-1] - at_context[-2]) / (MISSED[-1] - MISSED[-2])
        return at_context[-1] - at_context[0] + slope * (missed - MISSED[-1])
    return float(np.interp(missed, MISSED, at_context)) - at_context[0]


def catching_up(cost: CostTable, router: RoutedPolicy, played: list[Round], length: int) -> float:
    """Round by round: every drafter notes which tokens it has read."""
    read: dict[str, int] = {DRAFTER: 0, "eagle3": 0}
    total = 0.0
    for before, round_ in pairwise([None, *played]):
        assert round_ is not None
        assert round_.route is not None
        for drafter in drafters_of(router.routes[round_.route]):
            # Of the tokens up to the root those of the round before are what every drafter reads.
            usual = 0 if before is None else before.num_committed
            total += extra_s(cost, drafter, length + round_.position, round_.position - usual - read[drafter])
            read[drafter] = round_.position
    return total


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 10**6), by=st.sampled_from(["entropy", "accepted", "context"]))
def test_a_round_pays_for_its_route_and_for_catching_up(seed: int, by: str) -> None:
    recorded, cost = recorded_for(seed), table_for(seed % 7)
    router = router_of((0.5, 4.0), by)
    played = list(rounds(router, recorded))
    texts, length = texts_of([recorded, recorded]), len(recorded.prompt.token_ids)
    sums = Replay([(router, cost)]).sums(texts)
    for table, found in ((cost, sums.seconds[0].sum(axis=1)), (cost.draws[0], sums.draws_s[0][:, 0])):
        by_route = price(router, columns_of(played), length, table).total_s if played else 0.0
        wanted = by_route + catching_up(table, router, played, length)
        assert found.tolist() == pytest.approx([wanted, wanted])
    free = Replay([(router, without_catch_up(cost))]).sums(texts).seconds[0].sum(axis=1)
    alone = price(router, columns_of(played), length, cost).total_s if played else 0.0
    assert free.tolist() == pytest.approx([alone, alone])


@pytest.mark.parametrize("place", range(3))
@given(seed=st.integers(0, 10**6))
def test_one_route_costs_what_that_policy_costs(place: int, seed: int) -> None:
    """But for plain decoding, whose tokens in a speculative loop are passes of the root alone."""
    recorded, cost = recorded_for(seed), table_for(3)
    texts = texts_of([recorded])
    router = RoutedPolicy((ROUTES[place],), CutRule("entropy", ()))
    ours, theirs = (Replay([(one, cost)]).sums(texts) for one in (router, ROUTES[place]))
    assert ours.counts.tolist() == theirs.counts.tolist()
    if place < 2:
        assert ours.seconds[0].tolist() == pytest.approx(theirs.seconds[0])
    else:
        contexts, nothing = texts.contexts, np.zeros(len(texts.contexts), np.int64)
        wanted = cost.sums(STAGES[1:], contexts, nothing, texts.roots.firsts[1:]).sum(axis=1)
        assert ours.seconds[0].sum(axis=1).tolist() == pytest.approx(wanted.tolist())


def fewest_s(recorded: RecordedSequence, cost: CostTable) -> float:
    """Every choice of routes is tried."""
    last, length = len(recorded.text) - 1, len(recorded.prompt.token_ids)
    steps: list[list[tuple[float, int]]] = []
    for root in range(last):
        choices = []
        for route in ROUTES:
            # A round of this route at this root.
            only = RoutedPolicy((route,), CutRule("entropy", ()))
            assert recorded.rows is not None
            part = replace(
                recorded,
                text=recorded.text[root:],
                prompt=replace(
                    recorded.prompt,
                    token_ids=np.concatenate([recorded.prompt.token_ids, recorded.text[:root]]).astype(np.int32),
                ),
                rows=recorded.rows.part(root, last, recorded.rows.starts()),
                channels={
                    name: channel.part(root, last, channel.starts()) for name, channel in recorded.channels.items()
                },
            )
            round_ = next(rounds(only, part))
            seconds = price(only, columns_of([round_]), length + root, cost).total_s
            choices.append((seconds, root + round_.num_committed))
        steps.append(choices)

    def least(root: int) -> float:
        return min((seconds + least(to) for seconds, to in steps[root]), default=0.0) if root < last else 0.0

    return least(0)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10**6))
def test_no_choice_of_routes_takes_less(seed: int) -> None:
    recorded, cost = recorded_for(seed), table_for(seed % 5, late=False)
    assume(len(recorded.text) <= 9)
    texts, router = texts_of([recorded]), router_of()
    best = best_routes_in_hindsight(texts, cost, ROUTES)
    found = sums_of_policy(router, best, texts, cost).seconds[0].sum()
    assert found == pytest.approx(fewest_s(recorded, cost))
    ours = Replay([(router, cost), *((route, cost) for route in ROUTES[:2])]).sums(texts).seconds.sum(axis=(1, 2))
    assert (found <= ours + 1e-9).all()


@dataclass(frozen=True)
class _Wrapped(Stateless):
    """Another policy, of a class that has no layer."""

    policy: AnyPolicy

    @property
    def needs(self) -> Needs:
        return self.policy.needs

    @property
    def budget(self) -> int:
        return self.policy.budget

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return self.policy.select(draft, None)


def test_routes_of_ones_own_class_are_replayed_round_by_round() -> None:
    """The same rounds and sums as by layers."""

    recorded, cost = recorded_for(11), table_for(1)
    texts = texts_of([recorded])
    ours, theirs = (
        Replay([(RoutedPolicy((one, EAGLE), CutRule("entropy", (0.5,))), cost)]).sums(texts)
        for one in (_Wrapped(Chain()), Chain())
    )
    assert ours.counts.tolist() == theirs.counts.tolist()
    assert ours.seconds.tolist() == pytest.approx(theirs.seconds)


def test_a_channel_of_a_route_without_a_price_is_missed() -> None:
    cost = random_table(np.random.default_rng(1), 9, 200)
    with pytest.raises(CostError, match="does not say what the channel eagle3 takes"):
        Replay([(router_of(), cost)])
    with pytest.raises(CostError, match=r"imported timings, which say nothing of what this channel takes.*eagle3"):
        Replay([(router_of(), replace(cost, origin=IMPORTED))])


def test_rules_that_read_prices_are_routes_too() -> None:
    (named,) = parse_policies(['router:routes="caddtree:budget=9|ddtree:budget=4",cuts=0.5'], FullArtefacts())
    recorded = recorded_for(5)
    alone = [(one.position, one.path) for one in rounds(named.policy, recorded)]
    texts = texts_of([recorded])
    (found,) = Replay([(named.policy, None)]).rounds(texts)
    assert found.columns(texts)[0].positions.tolist() == [position for position, _ in alone]


# Routers with a network at prices: every round pays for what the network takes, the bound does not


FORESEEN_ROUTES: tuple[AnyPolicy, ...] = (
    DDTree(5),
    Eagle3(5, beam=3, top_k=4, steps=2),
    Autoregressive(),
    Chain(2),
)
NAMES = ("ddtree:budget=5", "eagle3", "ar", "chain:length=2")


def table_of_network(seed: int, with_network: bool = True) -> CostTable:
    generator = np.random.default_rng(seed)
    table = random_table(generator, 9, 200)
    num = len(table.contexts)
    channels = {"eagle3": ChannelSeconds(np.array([1, 3]), generator.random((num, 2)))}
    if with_network:
        channels["router"] = ChannelSeconds(np.array([1]), generator.random((num, 1)))
    return replace(table, channels=channels)


def router_for(cost: CostTable) -> RoutedPolicy:
    return RoutedPolicy(FORESEEN_ROUTES, NetworkRule("router", NAMES, seconds_of_largest(cost, FORESEEN_ROUTES), 0.5))


def recorded_with_network(router: RoutedPolicy, seed: int) -> RecordedSequence:
    return with_channels(random_sequence(np.random.default_rng(seed), 5), [router])


@given(seed=st.integers(0, 10**6))
def test_every_round_pays_for_the_network(seed: int) -> None:
    cost = table_of_network(seed % 5)
    router = router_for(cost)
    recorded = recorded_with_network(router, seed)
    played, length = list(rounds(router, recorded)), len(recorded.prompt.token_ids)
    network = cost.channels["router"].seconds[:, 0]
    wanted = 0.0
    for round_ in played:
        assert round_.route is not None
        route = FORESEEN_ROUTES[round_.route]
        stages = STAGES if route.needs.draft else STAGES[1:]
        context, number = np.array([length + round_.position]), np.array([round_.num_drafted])
        wanted += float(cost.charged(route).sums(stages, context, number, np.array([1])).sum())
        wanted += float(np.interp(length + round_.position, cost.contexts, network))
    found = Replay([(router, cost)]).sums(texts_of([recorded])).seconds[0].sum()
    assert found == pytest.approx(wanted)
    assert price(router, columns_of(played), length, cost).total_s == pytest.approx(wanted)


def test_a_network_without_a_price_is_said() -> None:
    cost = table_of_network(1, with_network=False)
    with pytest.raises(CostError, match=r"what the channel router takes; measure it with `simlab profile --channel"):
        cost.charged(router_for(cost))
    with pytest.raises(CostError, match="the channel router takes"):
        Replay([(router_for(cost), cost)])
