"""What a channel takes is in every round of a policy that reads it, and in no other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import with_channel
from synthetic_traces import add_synthetic_channels, write_synthetic_trace

from simlab.channels import TRANSITIONS
from simlab.columns import columns_of
from simlab.cost import GRID_STAGES, PLAIN, STAGES, ChannelSeconds, CostTable, price
from simlab.errors import CostError
from simlab.policies.costs.curves import ALL_STAGES, convex_view, round_costs
from simlab.policies.costs.what_if import parse_what_if, what_if
from simlab.policies.engine.replay import Replay
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.treeflash import TreeFlash
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedTexts, texts_of
from simlab.sequence_replay import rounds
from simlab.traces.reader import open_trace

UNITS = (2, 4)
TREES: list[AnyPolicy] = [TreeFlash(budget, previous=3, top_k=3, channel=TRANSITIONS) for budget in (1, 4, 9)]
PLAINER: list[AnyPolicy] = [DDTree(4), DDTree(9)]


def priced(seed: int, longest: int = 200) -> CostTable:
    return with_channel(np.random.default_rng(seed), 9, longest, TRANSITIONS, UNITS)


def channel_s(cost: CostTable, units: float, context: int) -> float:
    """Seconds of the channel, bilinear between contexts and units."""
    low, high = cost.channels[TRANSITIONS].seconds.T
    by_context = [a + (b - a) * (units - UNITS[0]) / (UNITS[1] - UNITS[0]) for a, b in zip(low, high, strict=True)]
    return float(np.interp(context, cost.contexts, by_context))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> RecordedTexts:
    folder = write_synthetic_trace(tmp_path_factory.mktemp("prices") / "trace", num_sequences=4, length=30)
    add_synthetic_channels(folder)
    return texts_of(list(open_trace(folder).recorded("synthetic", None, (TRANSITIONS,))))


@pytest.mark.parametrize("seed", range(4))
def test_a_round_costs_the_sum_of_its_cells(texts: RecordedTexts, seed: int) -> None:
    """Round by round, in plain Python; the engine and `price` say the same."""
    cost = priced(seed, longest=int(texts.contexts.max()))
    sums = Replay([(one, cost) for one in (*TREES, *PLAINER)]).sums(texts)
    for index, policy in enumerate((*TREES, *PLAINER)):
        for number, sequence in enumerate(texts.sequences):
            found, length = list(rounds(policy, sequence)), len(sequence.prompt.token_ids)
            wanted = {str(stage): 0.0 for stage in STAGES}
            for played in found:
                context = length + played.position
                for stage in GRID_STAGES:
                    wanted[stage] += float(cost.curve(stage, context)[played.num_drafted])
                if policy in TREES:
                    wanted["channel"] += channel_s(cost, 3, context)
            assert sums.seconds[index, number].tolist() == pytest.approx(list(wanted.values()))
            alone = price(policy, columns_of(found), length, cost)
            assert alone.by_stage == pytest.approx(tuple(wanted.values()))
            assert (alone.channel_s > 0) == (policy in TREES)


def test_prices_drawn_again_have_channels_of_their_own(texts: RecordedTexts) -> None:
    cost = priced(1, longest=int(texts.contexts.max()))
    drawn = replace(cost.draws[0], draws=())
    for tree in TREES:
        wanted = Replay([(tree, drawn)]).sums(texts).seconds[0].sum(axis=1)
        charged = cost.charged(tree)
        assert charged.draws[0].seconds["channel"].tolist() == drawn.charged(tree).seconds["channel"].tolist()
        assert Replay([(tree, cost)]).sums(texts).draws_s[0, :, 0].tolist() == pytest.approx(wanted.tolist())


def test_a_rule_that_reads_prices_sees_the_channel() -> None:
    cost, policy = priced(3), TREES[0]
    more = round_costs(cost.charged(policy), ALL_STAGES, 9).seconds - round_costs(cost, ALL_STAGES, 9).seconds
    assert more == pytest.approx(np.repeat(cost.channels[TRANSITIONS].at(3)[:, None], 10, axis=1))


@pytest.mark.parametrize("previous", [1, 5])
def test_units_that_were_not_measured_have_no_price(previous: int) -> None:
    policy = TreeFlash(4, previous=previous, top_k=3, channel=TRANSITIONS)
    with pytest.raises(CostError, match=rf"read with {previous} previous, .* of 2, 4; .*--units {previous}"):
        priced(0).charged(policy)


@given(st.integers(0, 10**6), st.floats(0.1, 10))
def test_a_hypothetical_machine_makes_channels_faster_or_slower(seed: int, factor: float) -> None:
    cost, policy = priced(seed), TREES[0]
    changed = what_if(cost, parse_what_if(f"channel*{factor:.9f}"))
    for costs, other in ((cost, changed), (cost.draws[0], changed.draws[0])):
        before, after = costs.charged(policy), other.charged(policy)
        assert after.seconds["channel"] == pytest.approx(before.seconds["channel"] * round(factor, 9))
        for stage in (*GRID_STAGES, PLAIN):
            assert after.seconds[stage].tolist() == before.seconds[stage].tolist()
    turned = what_if(cost.charged(policy), parse_what_if(f"channel*{factor:.9f}"))
    assert turned.seconds["channel"] == pytest.approx(changed.charged(policy).seconds["channel"])


@pytest.mark.parametrize("change", ["draft*0.5", "verify*0.5", "tile=4", "batch=2", "convex"])
def test_other_changes_leave_channels_as_they_are(change: str) -> None:
    cost, policy = priced(5), TREES[0]
    changed = what_if(cost, parse_what_if(change)).charged(policy)
    width = changed.most_drafted + 1
    assert changed.seconds["channel"].tolist() == cost.charged(policy).seconds["channel"][:, :width].tolist()


def test_the_convex_view_has_channels(tmp_path: Path) -> None:
    cost, policy = priced(6), TREES[0]
    assert convex_view(cost).charged(policy).seconds["channel"].tolist() == (
        cost.charged(policy).seconds["channel"].tolist()
    )


@pytest.mark.parametrize("units", [[], [0], [2, 2], [3, 1]])
def test_units_of_a_table_rise(units: list[int]) -> None:
    with pytest.raises(ValueError, match="units of a channel must rise"):
        ChannelSeconds(np.array(units), np.ones((1, len(units))))


def test_a_channel_has_seconds_at_each_context_and_number_of_units() -> None:
    with pytest.raises(ValueError, match="a column for each of its units"):
        ChannelSeconds(np.array([1, 2]), np.ones((2, 3)))
    with pytest.raises(ValueError, match="finite and not negative"):
        ChannelSeconds(np.array([1]), -np.ones((2, 1)))
    cost = priced(0)
    seconds = ChannelSeconds(np.array([1]), np.ones((len(cost.contexts) + 1, 1)))
    with pytest.raises(ValueError, match="for each of the"):
        replace(cost, channels={"one": seconds}, draws=())
