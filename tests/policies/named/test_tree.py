"""Trees put together of parts: every combination keeps the contract, or is refused with the reason."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from channel_texts import with_channels
from depth import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts, MadeUpArtefacts
from made_up_costs import random_table
from order_checks import check_columns
from policy_variants import every_policy
from random_channels import drafted_text, with_marginals_as

from simlab import DraftTree, rounds
from simlab.cost import CHANNEL, ChannelSeconds, CostTable
from simlab.errors import PolicyError
from simlab.policies import POLICIES
from simlab.policies.composition import rule_of
from simlab.policies.engine.replay import Replay
from simlab.policies.named.calibrated import CalibratedTree
from simlab.policies.named.tree import EDGES, ORDERS, RULES, Preset, typed_tree
from simlab.policies.orders.engine_first import TIES
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policies.rules.budgets import BestRatio
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import draft_source
from simlab.testing import check_sequence
from simlab.testing.random_texts import random_sequence

CHANNELS = {
    "transitions": "channel=treeflash,previous=2,top_k=3",
    "pool": "channel=taps,pool_beam=3",
    "eagle3": "channel=eagle3,pool_beam=3,top_k=4,steps=2",
    "redrafts": "channel=d2sd,branches=2,top_k=3",
}


def tree_of(policy: NamedPolicy) -> str:
    """The policy as `tree` composes it; empty for one that is no tree."""
    recipe = POLICIES[policy.name](**policy.settings)
    return typed_tree(recipe.tree_settings()) if isinstance(recipe, Preset) else ""


def typed(edges: str, order: str, rule: str) -> str:
    return ",".join(filter(None, [f"tree:budget=12,edges={edges},order={order},rule={rule}", CHANNELS.get(edges, "")]))


@pytest.mark.parametrize(("edges", "order", "rule"), some([*itertools.product(EDGES, ORDERS, RULES)], quick=50))
def test_every_combination_keeps_the_contract_or_is_refused(edges: str, order: str, rule: str) -> None:
    fits = edges in ORDERS[order][0] and (rule != "doubt" or order == "chain")
    falls = order in ("best-first", "beam", "chain", *TIES)
    text = typed(edges, order, rule)
    if not fits or (rule == "survival" and not falls):
        with pytest.raises(PolicyError, match=r"takes|enter in that order|is read with") as caught:
            parse_policies([text], FullArtefacts())
        assert "\n" not in str(caught.value)
        return
    (named,) = parse_policies([text], FullArtefacts())
    generator = np.random.default_rng(3)
    for _ in range(2):
        check_sequence(named.policy, with_channels(random_sequence(generator, 8), [named.policy]))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("edges=nope", "edges is one of marginal, calibrated, transitions, pool"),
        ("rule=nope", "rule is one of"),
        ("order=nope", "order is one of"),
        ("edges=pool", "write channel=NAME"),
        ("edges=calibrated,ngram_weight=0.2", "ngram_weight is read with edges=marginal"),
        ("counts=text", "with an ngram_weight above 0"),
        ("threshold=0.1", "threshold is read with rule=survival or rule=doubt alone"),
        ("order=expand-parent,ngram_weight=0.1", "a 3-gram corrects scores of order=best-first or beam"),
        ("rule=ratio,ngram_weight=0.2", "normalise them"),
        ("edges=pool,channel=taps,depth_price=0.1,rule=ratio", "normalise them"),
        ("order=chain,top_k=3", "leave out top_k"),
        ("order=beam,width=0", "width must be at least 1"),
        ("rule=floor,step=0", "step must be at least 1"),
        ("budget=0", "budget must be at least 1"),
    ],
)
def test_what_does_not_fit_is_one_sentence(settings: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as caught:
        parse_policies([f"tree:{settings}"], FullArtefacts())
    assert "\n" not in str(caught.value)


def test_grids_go_over_parts_as_over_numbers() -> None:
    found = parse_policies(["tree:edges=marginal/calibrated,order=best-first/beam,budget=1..3"], FullArtefacts())
    assert len({policy.policy_id for policy in found}) == 12


APART = [one for one in every_policy(FullArtefacts()) if one.name in ("jetspec", "expand-parent") and tree_of(one)]


@pytest.mark.parametrize("named", APART, ids=[policy.label for policy in APART])
def test_a_policy_that_composes_apart_is_the_tree_that_it_says(named: NamedPolicy) -> None:
    """Equal trees, round by round."""
    (tree,) = parse_policies([tree_of(named)], FullArtefacts())
    generator = np.random.default_rng(8)
    for draw in range(6):
        recorded = with_channels(random_sequence(generator, 9), [named.policy], tied=draw % 2 == 0)
        for one, other in zip(rounds(named.policy, recorded), rounds(tree.policy, recorded), strict=True):
            same_tree(one.tree, other.tree)
            assert one.path == other.path


def test_all_but_some_named_policies_are_trees() -> None:
    texts = {policy.label: (policy.name, tree_of(policy)) for policy in every_policy(FullArtefacts())}
    of_a_batch = {"joint", "joint-throughput", "vllm-adaptive", "sglang-dspark", "eagle4"}
    others = {"ar", "mfd", "entropy-width", "sequoia", "jetspec-extended", "tree", "router", "whiflash"}
    assert {name for name, text in texts.values() if text} == set(POLICIES) - others - of_a_batch
    assert all(text for name, text in texts.values() if name == "calibrated")


def test_a_name_of_a_file_is_quoted_where_it_must_be() -> None:
    typed_text = typed_tree(CalibratedTree(table="../a, b/c.json").tree_settings())
    assert 'table="../a, b/c.json"' in typed_text
    (named,) = parse_policies([typed_text], FullArtefacts())
    assert named.settings["table"] == "../a, b/c.json"


# A channel that says no more than the marginals: every order and rule makes the trees of today's kernels on them


MOST_KEPT = 4

ALL_CHANNELS = {
    "transitions": f"edges=transitions,channel=made-up,previous={MOST_KEPT},top_k={MOST_KEPT}",
    "pool": "edges=pool,channel=made-up",
}

SHAPES = {
    "best-first": (
        "",
        "ngram_weight=0.3,counts=both,renormalised=true",
        "ngram_weight=0.3,counts=text,adaptive=true,renormalised=true",
    ),
    "expand-parent": ("width=1", "width=3"),
    "beam": ("width=2",),
    "boundaries": ("boundaries=2,below=1",),
}
"""Settings of orders; one that is not here has none."""

STOPS = {
    "survival": "threshold=0.1",
    "ratio": "look_ahead=0,tile=2",
    "floor": "floor=2,step=3",
    "price": "memory=0.5",
    "doubt": "threshold=0.1",
}

EVERY = [(order, shape, rule) for order in ORDERS for shape in SHAPES.get(order, ("",)) for rule in RULES]


def runs(order: str, rule: str) -> bool:
    """Whether it takes channels: chains, their branches and beams do not, nor does what only a chain or a heap ends."""
    return {*ALL_CHANNELS} <= {*ORDERS[order][0]} and rule != "doubt" and (rule != "survival" or order == "best-first")


RUNNING = [one for one in EVERY if runs(one[0], one[2])]
REFUSED = [one for one in EVERY if not runs(one[0], one[2])]


class FreeChannel(FullArtefacts):
    """Prices under which the channel takes no time, so that rules weigh the same seconds with it as without."""

    def cost(self, name: str) -> tuple[CostTable, str]:
        prices, cost_id = super().cost(name)
        free = ChannelSeconds(np.array([1, 32]), np.zeros((len(prices.contexts), 2)))
        return replace(prices, channels={"made-up": free}), cost_id


ARTEFACTS = FreeChannel()


def made(*parts: str) -> list[AnyPolicy]:
    return [policy.policy for policy in parse_policies(["tree:" + ",".join(filter(None, parts))], ARTEFACTS)]


@pytest.mark.parametrize(("order", "shape", "rule"), RUNNING)
@settings(max_examples=examples(20, quick=6))
@given(st.integers(0, 1 << 30), st.sampled_from([*ALL_CHANNELS]), st.integers(1, 30))
def test_a_channel_of_the_marginals_gives_their_trees(
    order: str, shape: str, rule: str, seed: int, kind: str, budget: int
) -> None:
    # Rows of transitions are equally wide; pools have any number of children, or none.
    fewest = MOST_KEPT if kind == "transitions" else 0
    recorded = with_marginals_as(kind, drafted_text(np.random.default_rng(seed), fewest, MOST_KEPT))
    parts = f"budget={budget}..{budget + 2}", f"order={order}", shape, f"rule={rule}", STOPS.get(rule, "")
    on_marginals, on_channel = made("edges=marginal", *parts), made(ALL_CHANNELS[kind], *parts)
    for pair in zip(on_marginals, on_channel, strict=True):
        check_trees(*pair, recorded)
    check_columns([*on_marginals, *on_channel], recorded)
    texts = texts_of([recorded])
    mine, its = (Replay([(policy, None) for policy in some]).sums(texts).counts for some in (on_marginals, on_channel))
    np.testing.assert_array_equal(mine, its)


def check_trees(policy: AnyPolicy, other: AnyPolicy, recorded: RecordedSequence) -> None:
    """Equal trees at every root without memory, and in every round with it; equal accepted paths."""
    at, other_at = draft_source(policy.needs, recorded), draft_source(other.needs, recorded)
    first = policy.start(recorded.prompt)
    for t in range(len(recorded.text) - 1):
        same_tree(policy.select(at(t), first), other.select(other_at(t), first))
    for mine, its in zip(rounds(policy, recorded), rounds(other, recorded), strict=True):
        same_tree(mine.tree, its.tree)
        assert (mine.position, mine.path) == (its.position, its.path)


def same_tree(tree: DraftTree, other: DraftTree) -> None:
    assert tree.tokens.tolist() == other.tokens.tolist()
    assert tree.parents.tolist() == other.parents.tolist()


@pytest.mark.parametrize("kind", ALL_CHANNELS)
@pytest.mark.parametrize(("order", "shape", "rule"), REFUSED)
def test_what_takes_no_channel_is_refused_in_one_sentence(order: str, shape: str, rule: str, kind: str) -> None:
    said = rf"order={order} takes edges=|so it takes order=chain alone; got order={order}|do not enter in that order"
    with pytest.raises(PolicyError, match=said) as caught:
        made("budget=8", ALL_CHANNELS[kind], f"order={order}", shape, f"rule={rule}", STOPS.get(rule, ""))
    assert "\n" not in str(caught.value)


# Rules that weigh seconds, on channels: what the channel takes is in the rounds that they weigh


ON_ROWS = "tree:edges=transitions,channel=treeflash,rule=ratio"


def test_a_rule_on_a_channel_weighs_what_the_channel_takes() -> None:
    artefacts = FullArtefacts()
    with_channel, without = parse_policies(
        ["tree:edges=transitions,channel=treeflash,rule=ratio", "tree:rule=ratio"], artefacts
    )
    ratio, other = rule_of(with_channel.policy), rule_of(without.policy)
    assert isinstance(ratio, BestRatio)
    assert isinstance(other, BestRatio)
    assert (ratio.cost.curve(CHANNEL, 20) > 0).all()
    assert (other.cost.curve(CHANNEL, 20) == 0).all()


def test_prices_without_the_channel_are_refused_with_the_command_that_measures_it() -> None:
    prices = replace(random_table(np.random.default_rng(0), 64), cost_id="no-channels")
    with pytest.raises(PolicyError, match="simlab profile --channel treeflash"):
        parse_policies([ON_ROWS], MadeUpArtefacts(prices))
