"""Every policy in the engine: the same rounds as one by one, for any text and any number of threads."""

import dataclasses
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from channel_texts import joint_needs, with_channels
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts, channel_seconds
from made_up_costs import filled, random_table
from one_depth import of_one_depth
from order_checks import check_columns, check_layer
from synthetic_traces import write_synthetic_trace

from simlab.channels import BRANCHES, TARGET, TRANSITIONS
from simlab.channels.rows import WHOLE_CHAIN
from simlab.columns import columns_of
from simlab.cost import price
from simlab.policies import POLICIES
from simlab.policies.composition import Composition
from simlab.policies.engine.replay import Replay
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.policies.named.tree import Tree
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import AnyPolicy, ChannelNeed
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import COUNTS, check_needs, rounds
from simlab.studies.inputs.artefacts import PoliciesOnMachine
from simlab.studies.inputs.prices import Prices, cost_table_of
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.testing.random_texts import random_sequence, synthetic_branches, synthetic_pools, synthetic_transitions
from simlab.traces.adder import add_channel
from simlab.traces.channels.columns import BranchColumns, ChannelColumns, PoolColumns, TransitionColumns
from simlab.traces.format.manifest_entries import BASE_RANK, ChannelInfo, ModelInfo, branch_lengths
from simlab.traces.reader import Trace, open_trace, packaged_trace
from simlab.traces.results.rows import BOUNDS, channel_ids_text
from simlab.workers.threads import Threads

# Settings under which each policy is replayed; a policy that is not here is so with its defaults.
SETTINGS: dict[str, list[str]] = {
    "ar": [""],
    "chain": ["", "length=1/3"],
    "ddtree": ["budget=1/2/9/64/512"],
    "joint": ["budget=1/9/64"],
    "joint-throughput": ["budget=1/9/64", "budget=64,look_ahead=1"],
    "caddtree": ["", "look_ahead=0/3", "tile=8,look_ahead=2", "budget=20,overhead=true"],
    "bastion": ["", "floor=1,step=1,overhead=false", "floor=4,doubling=true", "top_k=5,floor=8,step=3"],
    "price": ["", "rate=0/20/300", "memory=0", "look_ahead=2,budget=30"],
    "survival": ["", "threshold=0", "threshold=0.3,budget=9"],
    "taps": ["budget=9,beam=3", "budget=24,beam=3,depth_price=0/0.5"],
    "jetspec": ["budget=9,beam=3,width=4", "budget=24,beam=3,width=4,order=best-first"],
    "jetspec-extended": ["tree_budget=9/24,gap=0.1,length=2", "tree_budget=60,width=2,gap=-1.0"],
    "d2sd": ["budget=1/9,branches=2", "budget=24,exclude=true", "budget=24,width=3"],
    "eagle3": ["budget=1/9,beam=3,top_k=4,steps=2", "budget=24,beam=3,top_k=4,steps=4"],
    "tree": [
        variant.replace("channel=taps", "channel=taps,pool_beam=3").replace(
            "pool_beam=10", "pool_beam=3,top_k=4,steps=4"
        )
        for variant in Tree.variants
    ],
    "router": [
        'routes="ddtree:budget=9|ar",cuts=0.8/1.5',
        'routes="ar|chain|ddtree:budget=16|survival:budget=9",by=accepted,cuts="-1|0|2"',
        'routes="chain:length=2|eagle3:budget=5,beam=3,top_k=4,steps=2|caddtree:budget=9",cuts="0.5|1.2"',
        'routes="jetspec-extended:tree_budget=9,gap=0.1,length=2|ddtree:budget=3",by=context,cuts=5',
        'routes="d2sd:budget=9,branches=2|chain",by=context,cuts=4',
    ],
    "whiflash": [
        'entropy=0.9,sure="ddtree:budget=8",unsure="eagle3:budget=5,beam=3,top_k=4,steps=2"',
        'entropy=0.4/1,unsure="eagle3:budget=5,beam=3,top_k=4,steps=2"',
    ],
    "self": list(SelfSpeculation.variants),
    "calibrated": ["", "stop=survival", "stop=ratio", "stop=floor", "stop=price", "budget=5,top_k=3"],
}


def text_of(name: str, given_settings: str) -> str:
    """What is typed; required settings that are not given are 9."""
    required = [
        field.name
        for field in dataclasses.fields(POLICIES[name])  # type: ignore[arg-type]
        if field.init and field.default is dataclasses.MISSING and f"{field.name}=" not in given_settings
    ]
    pairs = [*filter(None, [given_settings]), *(f"{one}=9" for one in required)]
    return f"{name}:{','.join(pairs)}" if pairs else name


def parsed(name: str) -> list[NamedPolicy]:
    texts = [text_of(name, one) for one in SETTINGS.get(name, [""])]
    return parse_policies(texts, FullArtefacts())


EVERY = {name: parsed(name) for name in POLICIES}


def policies_of(name: str) -> list[AnyPolicy]:
    return [one.policy for one in EVERY[name]]


ALL_POLICIES = [policy for name in EVERY for policy in policies_of(name)]


def orders(name: str) -> dict[str, NodeOrder]:
    """The orders of a policy's settings, by key."""
    composed = [one.policy for one in EVERY[name] if isinstance(one.policy, Composition)]
    return {composition.order.key: composition.order for composition in composed}


@pytest.fixture(scope="module")
def sample() -> list[RecordedSequence]:
    """The shortest texts of the packaged sample."""
    trace = open_trace(packaged_trace())
    texts = sorted(trace.sequences(), key=lambda record: len(record.text))
    recorded = trace.recorded("dflash", [record.index for record in texts[:3]])
    return [with_channels(sequence, ALL_POLICIES) for sequence in recorded]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(20, quick=3))
@given(seed=st.integers(0, 2**32), most_kept=st.integers(1, 20))
def test_the_engine_has_the_rounds_of_playing_it(name: str, seed: int, most_kept: int) -> None:
    recorded = random_sequence(np.random.default_rng(seed), most_kept)
    check_columns(policies_of(name), with_channels(recorded, policies_of(name), tied=seed % 2 == 0))


@pytest.mark.parametrize("name", POLICIES)
def test_the_engine_has_the_rounds_of_playing_it_on_real_rows(name: str, sample: list[RecordedSequence]) -> None:
    for recorded in sample:
        check_columns(policies_of(name), recorded)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(20, quick=3))
@given(seed=st.integers(0, 2**32), most_kept=st.integers(1, 20), most=st.integers(1, 40))
def test_a_layer_is_what_every_root_gives(name: str, seed: int, most_kept: int, most: int) -> None:
    recorded = with_channels(random_sequence(np.random.default_rng(seed), most_kept), policies_of(name))
    for order in orders(name).values():
        check_layer(order, recorded, most)


@pytest.mark.parametrize("name", POLICIES)
def test_a_layer_is_what_every_root_gives_on_real_rows(name: str, sample: list[RecordedSequence]) -> None:
    for order in orders(name).values():
        check_layer(order, sample[0], 64)


@settings(max_examples=examples(25, quick=5))
@given(seed=st.integers(0, 2**32), number=st.integers(1, 5))
def test_sums_of_texts_together_are_those_of_their_rounds(seed: int, number: int) -> None:
    """Every policy at once, priced and not: to the last bit."""
    sequences = [with_channels(one, ALL_POLICIES, vocab_size=8) for one in of_one_depth(seed, number)]
    table = random_table(np.random.default_rng(seed), 512, longest=60)
    texts, cost = texts_of(sequences), replace(table, channels=channel_seconds(len(table.contexts)))
    policies = ALL_POLICIES
    priced = [(policy, None if index % 3 == 0 else cost) for index, policy in enumerate(policies)]
    sums = Replay(priced).sums(texts)
    for index, (policy, own) in enumerate(priced):
        for text, sequence in enumerate(sequences):
            found = columns_of(rounds(policy, sequence))
            totals = found.totals()
            expected = [getattr(totals, name) for name in COUNTS]
            assert sums.counts[index, text].tolist() == expected, policy
            if own is None:
                assert np.all(np.isnan(sums.seconds[index, text]))
            else:
                seconds = astuple(price(policy, found, len(sequence.prompt.token_ids), own))
                assert tuple(sums.seconds[index, text].tolist()) == seconds, policy


@pytest.mark.parametrize("name", ["ddtree:budget", "calibrated:budget", "presto:budget"])
@settings(max_examples=examples(10, quick=5))
@given(seed=st.integers(0, 2**32), number=st.integers(3, 8), budgets=st.permutations([1, 6, 40]))
def test_budgets_at_different_prices_are_each_as_if_alone(
    name: str, seed: int, number: int, budgets: list[int]
) -> None:
    """What the roots of one latency profile were is known to the next, whose budget comes to other roots too."""
    texts, generator = texts_of(of_one_depth(seed, number)), np.random.default_rng(seed)
    policies = [one.policy for one in parse_policies([f"{name}={budget}" for budget in budgets], FullArtefacts())]
    costs = [replace(random_table(generator, 64, longest=60), cost_id=f"profile {index}") for index in range(3)]
    together = Replay(list(zip(policies, costs, strict=True))).sums(texts)
    for index, priced in enumerate(zip(policies, costs, strict=True)):
        alone = Replay([priced]).sums(texts)
        assert together.counts[index].tolist() == alone.counts[0].tolist()
        assert together.seconds[index].tolist() == alone.seconds[0].tolist()


def test_policies_of_all_kinds_at_once_are_each_as_if_alone(sample: list[RecordedSequence]) -> None:
    together = ALL_POLICIES
    check_columns(together[::-1], sample[1])
    check_columns([*together[:3], *together[:3]], sample[2])


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = write_synthetic_trace(tmp_path_factory.mktemp("engine") / "trace", num_sequences=9, length=30)
    trace = open_trace(folder)
    base, producer = ("synthetic", trace.draft_ids["synthetic"]), ModelInfo("synthetic", "", "synthetic-channels")
    depth, vocab_size = trace.manifest.draft_sets["synthetic"].depth, trace.manifest.vocab_size
    for need in (one for one in joint_needs(ALL_POLICIES) if one.kind != TARGET):
        order = {"order": BASE_RANK} if need.kind == TRANSITIONS else {}
        settings: dict[str, object] = {"depth": depth, **order, **dict(need.least), **dict(need.equal)}
        is_whole = WHOLE_CHAIN in dict(need.equal)
        if need.kind == BRANCHES:
            deepest = depth + 3 if is_whole else depth
            settings |= {"depth": deepest, "branches": len(branch_lengths(depth, deepest, is_whole))}

        def columns(recorded: RecordedSequence, need: ChannelNeed = need, is_whole: bool = is_whole) -> ChannelColumns:
            least = dict(need.least)
            if need.kind == BRANCHES:
                deepest, top_k = depth + 3 if is_whole else depth, least["top_k"]
                return BranchColumns(*synthetic_branches(recorded, deepest, top_k, vocab_size, is_whole=is_whole))
            if need.kind == TRANSITIONS:
                rows = synthetic_transitions(recorded, least["previous"], least["top_k"], vocab_size)
                return TransitionColumns(*rows)
            equal = dict(need.equal)
            pools = synthetic_pools(recorded, depth, equal.get("top_k", 3), vocab_size, equal["beam"])
            return PoolColumns.unlabelled(pools)

        add_channel(folder, need.name, ChannelInfo(need.kind, producer, *base, settings, "float32"), columns)
    return open_trace(folder)


def test_any_number_of_threads_gives_the_same_rows(trace: Trace) -> None:
    cost = cost_table_of(filled())
    kept = trace.manifest.draft_sets["synthetic"]
    policies = []
    for one in (one for some in EVERY.values() for one in some):
        if one.policy.budget > kept.exact_budget and one.policy.needs.top_k is None and one.name != "chain":
            continue
        if one.policy.needs.masked is not None:
            # The made-up drafter is no target that drafts for itself.
            continue
        check_needs(one.policy, trace.holds("synthetic"))
        policies.append(one)
    assert len(policies) > len(SETTINGS["ddtree"])
    for prices in (Prices(None, "none", ""), Prices(cost, "made-up", "")):
        fitting = [one for one in policies if prices.cost is None or one.policy.budget <= cost.most_drafted]
        asked = [PoliciesOnMachine(prices, tuple(fitting))]
        first, *others = (
            replay_trace(trace, "synthetic", asked, None, ReplayRun(Threads(threads))) for threads in (1, 2, 3)
        )
        assert all(first.equals(other) for other in others)
        # Beside channels there is no bound of best budgets on the marginals.
        assert any(one.policy.needs.channels for one in fitting)
        assert first.filter(~pl.col("name").is_in(BOUNDS)).height == 9 * len(fitting)
        assert first.filter(name="hindsight").height == 9
        named = {one.policy_id: [need.name for need in one.policy.needs.made] for one in fitting}
        read = dict(first.filter(~pl.col("name").is_in(BOUNDS)).select("policy_id", "channel_ids").iter_rows())
        ids = trace.channel_ids
        assert read == {one: channel_ids_text({name: ids[name] for name in names}) for one, names in named.items()}
        every = dict.fromkeys(name for names in named.values() for name in names)
        (bound,) = set(first.filter(name="hindsight")["channel_ids"])
        assert bound == channel_ids_text({name: ids[name] for name in every})


def test_every_policy_here_is_named(tmp_path: Path) -> None:
    """Settings of a policy that is gone are to be deleted."""
    assert set(SETTINGS) >= {"ar", "chain", "ddtree"}
    assert all(parsed(name) for name in SETTINGS if name in POLICIES)
