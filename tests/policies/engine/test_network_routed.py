"""Routers with a network at prices: every round pays for what the network takes, the bound does not."""

from dataclasses import replace

import numpy as np
import pytest
from channel_texts import with_channels
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import random_table

from simlab.columns import columns_of
from simlab.cost import STAGES, ChannelSeconds, CostTable, price
from simlab.errors import CostError
from simlab.policies.engine.replay import Replay
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.eagle3 import Eagle3
from simlab.policies.named.router import seconds_of_largest
from simlab.policies.routing.cut_rule import NetworkRule
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import rounds
from simlab.testing.random_texts import random_sequence

ROUTES: tuple[AnyPolicy, ...] = (DDTree(5), Eagle3(5, beam=3, top_k=4, steps=2), Autoregressive(), Chain(2))
NAMES = ("ddtree:budget=5", "eagle3", "ar", "chain:length=2")


def table_for(seed: int, with_network: bool = True) -> CostTable:
    generator = np.random.default_rng(seed)
    table = random_table(generator, 9, 200)
    num = len(table.contexts)
    channels = {"eagle3": ChannelSeconds(np.array([1, 3]), generator.random((num, 2)))}
    if with_network:
        channels["router"] = ChannelSeconds(np.array([1]), generator.random((num, 1)))
    return replace(table, channels=channels)


def router_for(cost: CostTable) -> RoutedPolicy:
    return RoutedPolicy(ROUTES, NetworkRule("router", NAMES, seconds_of_largest(cost, ROUTES), 0.5))


def recorded_for(router: RoutedPolicy, seed: int) -> RecordedSequence:
    return with_channels(random_sequence(np.random.default_rng(seed), 5), [router])


@given(seed=st.integers(0, 10**6))
def test_every_round_pays_for_the_network(seed: int) -> None:
    cost = table_for(seed % 5)
    router = router_for(cost)
    recorded = recorded_for(router, seed)
    played, length = list(rounds(router, recorded)), len(recorded.prompt.token_ids)
    network = cost.channels["router"].seconds[:, 0]
    wanted = 0.0
    for one in played:
        assert one.route is not None
        route = ROUTES[one.route]
        stages = STAGES if route.needs.draft else STAGES[1:]
        context, number = np.array([length + one.position]), np.array([one.num_drafted])
        wanted += float(cost.charged(route).sums(stages, context, number, np.array([1])).sum())
        wanted += float(np.interp(length + one.position, cost.contexts, network))
    found = Replay([(router, cost)]).sums(texts_of([recorded])).seconds[0].sum()
    assert found == pytest.approx(wanted)
    assert price(router, columns_of(played), length, cost).total_s == pytest.approx(wanted)


def test_a_network_without_a_price_is_said() -> None:
    cost = table_for(1, with_network=False)
    with pytest.raises(CostError, match=r"what the channel router takes; measure it with `simlab profile --channel"):
        cost.charged(router_for(cost))
    with pytest.raises(CostError, match="the channel router takes"):
        Replay([(router_for(cost), cost)])
