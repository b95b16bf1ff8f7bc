"""D²SD's trees: against plain Python, against the release's walk on unmerged branches, and against the bound."""

from dataclasses import replace

import lattice_oracle
import numpy as np
import pytest
import redraft_oracle
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import check_columns, check_layer, check_nested
from random_channels import VOCAB, as_nodes, drafted_text, random_values
from redraft_oracle import Row

from simlab.arrays import Floats, Ints
from simlab.channels import Branches, BranchRows
from simlab.draft import Draft
from simlab.errors import MissingChannelError, PolicyError
from simlab.policies.named.chain import Chain
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.d2sd_boundary import D2SDBoundary
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import BranchSource, source_of, true_reaches
from simlab.policies.orders.node_order import NodeOrder, true_path
from simlab.policies.orders.redraft_order import RedraftOrder
from simlab.policy import branches_asked
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import draft_source, rounds, staged

seeds = st.integers(0, 1 << 30)
counts = st.integers(0, 5)
MANY = 200


def redrafted(seed: int, deeper: int) -> RecordedSequence:
    """A text with a drafter's rows and all branches of a second drafter, often with true tokens, often the chain's."""
    generator = np.random.default_rng(seed)
    recorded = drafted_text(generator, 1, 6)
    rows = recorded.rows
    assert rows is not None
    num_roots, num_depths = rows.counts.shape
    depth, width, tied = num_depths + deeper, int(generator.integers(1, 6)), bool(generator.random() < 0.5)
    lengths = np.arange(min(num_depths, depth - 1) + 1, dtype=np.int32)
    ids: list[Ints] = []
    log_probs: list[Floats] = []
    for t in range(num_roots):
        for length in lengths.tolist():
            for at in range(length, depth):
                index, tokens = t + at + 1, generator.permutation(VOCAB).astype(np.int32)
                if index < len(recorded.text) and generator.random() < 0.6:
                    tokens = np.concatenate([recorded.text[index : index + 1], tokens[tokens != recorded.text[index]]])
                ids.append(tokens[:width])
                log_probs.append(random_values(generator, VOCAB, tied)[:width] - np.float32(0.5))
    shape = (len(ids), width)
    table = np.array(ids, np.int32).reshape(shape), np.array(log_probs, np.float32).reshape(shape)
    branches = BranchRows(np.tile(lengths, (num_roots, 1)), depth, *table)
    return replace(recorded, channels={"d2sd": branches})


def parts(recorded: RecordedSequence, t: int) -> tuple[Row, dict[int, list[Row]]]:
    """Chain and branches of a root, as the oracle reads them."""
    assert recorded.rows is not None
    marginals, rows = list(recorded.rows.rows())[t], recorded.channels["d2sd"]
    assert isinstance(rows, BranchRows)
    chain: Row = []
    for depth in range(1, marginals.depth + 1):
        ids, values = marginals.at(depth)
        if not len(ids):
            break
        chain.append((int(ids[0]), float(values[0])))
    branches, found, row = list(rows.rows())[t], dict[int, list[Row]](), 0
    for length in branches.lengths.tolist():
        found[length] = []
        for _ in range(branches.depth - length):
            found[length].append(list(zip(branches.ids[row].tolist(), branches.log_probs[row].tolist(), strict=True)))
            row += 1
    return chain, found


def roots_of(recorded: RecordedSequence, order: NodeOrder) -> list[Draft]:
    source = draft_source(order.needs, recorded)
    return [source(t) for t in range(len(recorded.text) - 1)]


@settings(max_examples=examples(150, quick=40))
@given(seeds, counts, st.booleans(), st.booleans(), st.integers(0, 2), st.integers(0, 40))
def test_the_published_tree_is_the_plain_one(
    seed: int, count: int, whole: bool, exclude: bool, deeper: int, most: int
) -> None:
    recorded = redrafted(seed, deeper)
    order = RedraftOrder(BranchSource("d2sd", count=count, whole=whole, top_k=2 if exclude else 1), exclude)
    for t, draft in enumerate(roots_of(recorded, order)):
        found = parts(recorded, t)
        if exclude and found[1] and len(next(iter(found[1].values()))[0]) > 1:
            found = found[0], {length: [row[:2] for row in rows] for length, rows in found[1].items()}
        assert as_nodes(order.nodes(draft, most)) == redraft_oracle.published(*found, count, whole, exclude, most)
    check_layer(order, recorded, most)


@settings(max_examples=examples(150, quick=40))
@given(seeds, counts, st.booleans(), st.integers(1, 4), st.integers(0, 2), st.integers(0, 40))
def test_a_tree_of_some_width_is_the_plain_heap(
    seed: int, count: int, whole: bool, width: int, deeper: int, most: int
) -> None:
    recorded = redrafted(seed, deeper)
    source = BranchSource("d2sd", count=count, whole=whole, top_k=width)
    order = LatticeOrder(source)
    for t, draft in enumerate(roots_of(recorded, order)):
        below = redraft_oracle.below_branches(*parts(recorded, t), count, whole, width)
        expected, found = lattice_oracle.best_first(below, most), as_nodes(order.nodes(draft, most))
        assert [one[1:] for one in found] == [one[1:] for one in expected]
        assert all(abs(one[0] - other[0]) <= 1 for one, other in zip(found, expected, strict=True))
    check_layer(order, recorded, most)


@settings(max_examples=examples(100, quick=40))
@given(seeds, counts, st.booleans(), st.integers(0, 2))
def test_the_merged_tree_accepts_what_unmerged_branches_accept(seed: int, count: int, whole: bool, deeper: int) -> None:
    recorded = redrafted(seed, deeper)
    order = RedraftOrder(BranchSource("d2sd", count=count, whole=whole, top_k=1))
    for t, draft in enumerate(roots_of(recorded, order)):
        chain, branches = parts(recorded, t)
        lengths = redraft_oracle.likely(chain, count, whole)
        text = recorded.text[t + 1 :]
        merged = len(true_path(order.nodes(draft, MANY), text))
        assert merged == redraft_oracle.accepted(chain, branches, lengths, text.tolist())


@settings(max_examples=examples(100, quick=40))
@given(seeds, st.integers(0, 2))
def test_no_tree_holds_more_of_the_text_than_the_bound(seed: int, deeper: int) -> None:
    recorded = redrafted(seed, deeper)
    sources = [BranchSource("d2sd", count=9, whole=True, top_k=top_k) for top_k in (1, 2, 9)]
    orders: list[NodeOrder] = [
        *map(LatticeOrder, sources),
        *(RedraftOrder(source, source.top_k > 1) for source in sources),
    ]
    bound = true_reaches(source_of(sources[-1].needs.channels[0]), texts_of([recorded])).tolist()
    for t in range(len(recorded.text) - 1):
        chain, branches = parts(recorded, t)
        text = recorded.text[t + 1 :].tolist()
        reached = 0
        for length, rows in {**branches, len(chain): branches.get(len(chain), [])}.items():
            if [token for token, _ in chain[:length]] == text[:length] and length <= len(text):
                run = length
                while run < min(len(text), length + len(rows)) and text[run] in dict(rows[run - length]):
                    run += 1
                reached = max(reached, run)
        assert bound[t] == reached
        for order in orders:
            found = true_path(order.nodes(draft_source(order.needs, recorded)(t), MANY), recorded.text[t + 1 :])
            assert len(found) <= bound[t]


@settings(max_examples=examples(60, quick=40))
@given(seeds, st.integers(0, 2), st.integers(1, 20))
def test_engine_and_round_by_round_agree(seed: int, deeper: int, budget: int) -> None:
    policies = [
        D2SD(budget),
        D2SD(budget, branches=2, exclude=True),
        D2SD(budget, branches=3, width=2),
        D2SD(budget, branches=9, whole=True),
        D2SD(budget, branches=0),
    ]
    recorded = redrafted(seed, deeper)
    check_columns(list(policies), recorded)
    for policy in policies:
        order = policy.own.order
        for draft in roots_of(recorded, order):
            check_nested(order, draft, budget, 2 * budget)


@settings(max_examples=examples(60, quick=40))
@given(seeds)
def test_no_redraft_is_the_chain_and_needs_no_channel(seed: int) -> None:
    recorded = replace(redrafted(seed, 0), channels={})
    for policy in (D2SD(20, branches=0), D2SD(20, branches=0, width=3)):
        assert policy.needs.channels == ()
        for one, other in zip(rounds(policy, recorded), rounds(Chain(), recorded), strict=True):
            assert (one.position, one.tree.tokens.tolist()) == (other.position, other.tree.tokens.tolist())


@settings(max_examples=examples(60, quick=40))
@given(seeds, st.integers(1, 5))
def test_boundaries_are_those_of_the_shape_without_a_second_drafter(seed: int, count: int) -> None:
    recorded = redrafted(seed, 0)
    boundary = D2SDBoundary(MANY, boundaries=count, below=0)
    for t, draft in enumerate(roots_of(recorded, boundary.own.order)):
        chain, _ = parts(recorded, t)
        chances = redraft_oracle.likely(chain, count, whole=False)
        tree = boundary.select(draft)
        beside = [int(parent) for parent in tree.parents[len(chain) + 1 :]]
        marginals = draft.drafted()
        # Boundaries without a second candidate have no branch there; ties are another order's affair.
        if len(set(chances)) == count and all(len(marginals.at(i + 1)[0]) > 1 for i in range(marginals.depth)):
            assert len(beside) == min(count, len(chain))


def test_a_round_sees_what_it_asked_for_and_no_more() -> None:
    recorded, policy = redrafted(7, 1), D2SD(20, branches=2)
    draft = draft_source(policy.needs, recorded)(0)
    asked = branches_asked(policy, replace(draft, channels={}), None)["d2sd"]
    seen = staged(policy, draft, None).channels["d2sd"]
    assert isinstance(seen, Branches)
    assert seen.lengths.tolist() == sorted(asked)
    assert len(asked) == min(2, draft.drafted().depth)
    assert seen.ids.shape[1] == 1


class Greedy(D2SD):
    """It asks for more than it declares."""

    def ask(self, draft: Draft, state: object = None) -> dict[str, tuple[int, ...]]:
        return {"d2sd": (0, 1, 2)}


class Astray(D2SD):
    """It asks for a channel that it does not declare."""

    def ask(self, draft: Draft, state: object = None) -> dict[str, tuple[int, ...]]:
        return {"other": (0,)}


def test_what_may_not_be_asked_for_is_refused() -> None:
    recorded = redrafted(3, 2)
    with pytest.raises(PolicyError, match="asks for 3 branches, and declares that it reads 1"):
        next(rounds(Greedy(20, branches=1), recorded))
    with pytest.raises(PolicyError, match="does not declare"):
        next(rounds(Astray(20), recorded))
    rows = recorded.channels["d2sd"]
    assert isinstance(rows, BranchRows)
    none = [row.only([0]) for row in rows.rows()]
    parts = [BranchRows(branches.lengths[None], branches.depth, branches.ids, branches.log_probs) for branches in none]
    fewer = replace(recorded, channels={"d2sd": BranchRows.joined(parts)})
    with pytest.raises(MissingChannelError, match="there is no branch behind"):
        list(rounds(Greedy(20, branches=3), fewer))
