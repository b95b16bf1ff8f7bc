"""A channel that says no more than the marginals: every order and rule makes the trees of today's kernels on them."""

from dataclasses import replace

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts
from order_checks import check_columns
from random_channels import drafted_text, with_marginals_as

from simlab import DraftTree, rounds
from simlab.cost import ChannelSeconds, CostTable
from simlab.errors import PolicyError
from simlab.policies.engine.replay import Replay
from simlab.policies.named.tree import ORDERS, RULES
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import draft_source

MOST_KEPT = 4

CHANNELS = {
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
    return {*CHANNELS} <= {*ORDERS[order][0]} and rule != "doubt" and (rule != "survival" or order == "best-first")


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
    return [one.policy for one in parse_policies(["tree:" + ",".join(filter(None, parts))], ARTEFACTS)]


@pytest.mark.parametrize(("order", "shape", "rule"), RUNNING)
@settings(max_examples=examples(20, quick=6))
@given(st.integers(0, 1 << 30), st.sampled_from([*CHANNELS]), st.integers(1, 30))
def test_a_channel_of_the_marginals_gives_their_trees(
    order: str, shape: str, rule: str, seed: int, kind: str, budget: int
) -> None:
    # Rows of transitions are equally wide; pools have any number of children, or none.
    fewest = MOST_KEPT if kind == "transitions" else 0
    recorded = with_marginals_as(kind, drafted_text(np.random.default_rng(seed), fewest, MOST_KEPT))
    parts = f"budget={budget}..{budget + 2}", f"order={order}", shape, f"rule={rule}", STOPS.get(rule, "")
    on_marginals, on_channel = made("edges=marginal", *parts), made(CHANNELS[kind], *parts)
    for pair in zip(on_marginals, on_channel, strict=True):
        check_trees(*pair, recorded)
    check_columns([*on_marginals, *on_channel], recorded)
    texts = texts_of([recorded])
    mine, its = (Replay([(one, None) for one in some]).sums(texts).counts for some in (on_marginals, on_channel))
    np.testing.assert_array_equal(mine, its)


def check_trees(one: AnyPolicy, other: AnyPolicy, recorded: RecordedSequence) -> None:
    """Equal trees at every root without memory, and in every round with it; equal accepted paths."""
    at, other_at = draft_source(one.needs, recorded), draft_source(other.needs, recorded)
    first = one.start(recorded.prompt)
    for t in range(len(recorded.text) - 1):
        same_tree(one.select(at(t), first), other.select(other_at(t), first))
    for mine, its in zip(rounds(one, recorded), rounds(other, recorded), strict=True):
        same_tree(mine.tree, its.tree)
        assert (mine.position, mine.path) == (its.position, its.path)


def same_tree(one: DraftTree, other: DraftTree) -> None:
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.parents.tolist() == other.parents.tolist()


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize(("order", "shape", "rule"), REFUSED)
def test_what_takes_no_channel_is_refused_in_one_sentence(order: str, shape: str, rule: str, kind: str) -> None:
    said = rf"order={order} takes edges=|so it takes order=chain alone; got order={order}|do not enter in that order"
    with pytest.raises(PolicyError, match=said) as caught:
        made("budget=8", CHANNELS[kind], f"order={order}", shape, f"rule={rule}", STOPS.get(rule, ""))
    assert "\n" not in str(caught.value)
