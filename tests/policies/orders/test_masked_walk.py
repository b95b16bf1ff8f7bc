"""Rounds of a target that drafts for itself: the kernel against plain Python, and its ends."""

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import check_columns, texts

from simlab.arrays import Ints, Longs, Shorts
from simlab.errors import PolicyError
from simlab.policies.composition import Composition
from simlab.policies.edges.models import Marginal
from simlab.policies.engine.replay import replay_policies
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import NEVER, walk_layer
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import AnyPolicy


def plainly(insertions: Shorts, sizes: Ints, firsts: Longs, masked: int) -> list[tuple[int, int, int]]:
    """Root, drafted and accepted tokens of each round."""
    found = []
    for first, last in zip(firsts.tolist()[:-1], firsts.tolist()[1:], strict=True):
        root, has_draft = first, masked > -2
        while root < last:
            places = [place for place in insertions[root].tolist() if place <= sizes[root]] if has_draft else []
            found.append((root, int(sizes[root]) if has_draft else 0, len(places)))
            has_draft = not has_draft or (places[-1] if places else 0) <= masked
            root += len(places) + 1
    return found


def made_up(seed: int) -> tuple[Shorts, Ints, Longs]:
    """Rising places, some of nodes that there are not; sizes; several texts, also empty ones."""
    generator = np.random.default_rng(seed)
    firsts = np.cumsum([0, *generator.integers(0, 30, 4)])
    num = int(firsts[-1])
    places = np.cumsum(generator.integers(1, 4, (num, 5)), axis=1)
    places[np.arange(5) >= generator.integers(0, 6, (num, 1))] = NEVER
    return places.astype(np.uint16), generator.integers(0, 9, num).astype(np.int32), firsts.astype(np.int64)


@given(seed=st.integers(0, 1 << 20), masked=st.integers(-2, 10))
def test_the_kernel_has_the_rounds_of_plain_python(seed: int, masked: int) -> None:
    insertions, sizes, firsts = made_up(seed)
    found = walk_layer(insertions, sizes, firsts, max(masked, -1), masked > -2)
    expected = plainly(insertions, sizes, firsts, masked)
    rows = zip(found.roots.tolist(), found.num_drafted.tolist(), found.num_accepted.tolist(), strict=True)
    assert list(rows) == expected
    roots = [root for root, _, _ in expected]
    assert found.ends.tolist() == [sum(root < last for root in roots) for last in firsts.tolist()[1:]]


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 1 << 20), masked=st.integers(-1, 9), budget=st.integers(1, 9))
def test_the_engine_has_the_rounds_of_playing_it(seed: int, masked: int, budget: int) -> None:
    policies: list[AnyPolicy] = [SelfSpeculation(budget, masked), SelfSpeculation(budget, masked, "chain")]
    policies += [policy.policy for policy in parse_policies([f"tree:budget={budget},rule=survival,masked={masked}"])]
    for recorded in texts(seed, 3):
        check_columns([*policies, DDTree(budget)], recorded)


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 1 << 20), budget=st.integers(1, 9))
def test_the_two_ends(seed: int, budget: int) -> None:
    """Masks behind every node: the policy within. None: every other round drafts nothing and commits one token."""
    for recorded in texts(seed, 2):
        within, whole = replay_policies([DDTree(budget), SelfSpeculation(budget, budget)], recorded)
        assert [column.tolist() for column in within.columns()] == [column.tolist() for column in whole.columns()]
        chain, whole = replay_policies([Chain(budget), SelfSpeculation(budget, budget, "chain")], recorded)
        assert chain.num_accepted.tolist() == whole.num_accepted.tolist()
        (linear,) = replay_policies([SelfSpeculation(budget, -1)], recorded)
        assert linear.num_drafted[1::2].tolist() == [0] * (linear.num_rounds // 2)
        assert (linear.num_committed[1::2] == 1).all()


def test_settings_and_compositions_that_cannot_be() -> None:
    for typed, said in (
        ("self:budget=0", "budget must be at least 1"),
        ("self:masked=-3", "-1 for none, or -2 for none, nor behind the prompt; got -3"),
        ("self:order=beam", "order is one of best-first, chain"),
        ("tree:masked=-3", "nor behind the prompt; got -3"),
    ):
        with pytest.raises(PolicyError, match=said):
            parse_policies([typed])
    order = BestFirst(Marginal())
    assert Composition(order, FixedBudget(3), masked=1).needs.masked == 1
    assert Composition(order, FixedBudget(3)).needs.masked is None
