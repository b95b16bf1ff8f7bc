"""JetSpec's extension: its nodes against plain Python, what is asked for, and that a round pays for that alone."""

from dataclasses import astuple, replace

import extension_oracle
import numpy as np
import oracle
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_costs import with_channel
from order_checks import as_rows, check_columns, check_layer, check_nested
from random_channels import VOCAB, as_nodes, drafted_text, random_values

from simlab.channels import Branches, BranchRows
from simlab.channels.needs import RecordedChannel, TraceCapabilities, check_channels
from simlab.columns import columns_of
from simlab.cost import price
from simlab.draft import Draft, Marginals
from simlab.errors import MissingChannelError
from simlab.policies.engine.replay import Replay, replay_policies
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.expand_parent import ExpandParentTree
from simlab.policies.named.jetspec_extended import ExtendedFamilies, JetSpecExtended
from simlab.policy import Needs
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import draft_source, rounds

seeds = st.integers(0, 1 << 30)
gaps = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0])
widths = st.integers(2, 4)
sizes = st.integers(1, 30)
lengths = st.integers(1, 4)


def extended(seed: int, deeper: int, every: bool = False) -> RecordedSequence:
    """A text with a drafter's rows and what stands behind the whole chain, and behind ``every`` beginning."""
    generator = np.random.default_rng(seed)
    recorded = drafted_text(generator, int(generator.integers(1, 3)), 6)
    assert recorded.rows is not None
    num_roots, depth = recorded.rows.counts.shape
    behind = np.arange(0 if every else depth, depth + 1, dtype=np.int32)
    rows = [(t, length, at) for t in range(num_roots) for length in behind for at in range(length, depth + deeper)]
    ids, log_probs = np.empty((len(rows), 2), np.int32), np.empty((len(rows), 2), np.float32)
    for row, (t, _, at) in enumerate(rows):
        tokens, true = generator.permutation(VOCAB).astype(np.int32), recorded.text[t + at + 1 : t + at + 2]
        if generator.random() < 0.6:
            tokens = np.concatenate([true, tokens[~np.isin(tokens, true)]])
        ids[row], log_probs[row] = tokens[:2], random_values(generator, VOCAB, tied=False)[:2]
    branches = BranchRows(np.tile(behind, (num_roots, 1)), depth + deeper, ids, log_probs)
    return replace(recorded, channels={"extension": branches})


def roots_of(recorded: RecordedSequence, needs: Needs) -> list[Draft]:
    source = draft_source(needs, recorded)
    return [source(t) for t in range(len(recorded.text) - 1)]


def whole_branch(draft: Draft) -> extension_oracle.Branch:
    """What stands behind the whole chain, as the oracle reads it."""
    branches = draft.channels["extension"]
    assert isinstance(branches, Branches)
    own = branches.only([draft.drafted().depth])
    return list(zip(own.ids[:, 0].tolist(), own.log_probs[:, 0].tolist(), strict=True))


def only_asked(recorded: RecordedSequence, order: ExtendedFamilies) -> RecordedSequence:
    """The same where nothing was made that is not asked for, as a round in the runner leaves it."""
    parts = []
    for draft in roots_of(recorded, order.needs):
        branches = draft.channels["extension"]
        assert isinstance(branches, Branches)
        parts.append(branches.only(order.asked(draft)["extension"]))
    kept = np.array([part.lengths[0] if len(part.lengths) else -1 for part in parts], np.int32)
    joined = np.concatenate([part.ids for part in parts]), np.concatenate([part.log_probs for part in parts])
    return replace(recorded, channels={"extension": BranchRows(kept[:, None], parts[0].depth, *joined)})


@settings(max_examples=examples(150, quick=40))
@given(seeds, st.integers(1, 4), widths, sizes, gaps, lengths, st.integers(0, 40), st.booleans())
def test_nodes_and_layer_are_the_plain_ones(
    seed: int, deeper: int, width: int, tree_budget: int, gap: float, length: int, most: int, every: bool
) -> None:
    recorded = extended(seed, deeper, every)
    order = ExtendedFamilies(width, tree_budget, gap, length, "extension")
    for draft in roots_of(recorded, order.needs):
        rows = as_rows(draft)
        expected = extension_oracle.nodes(rows, whole_branch(draft), width, tree_budget, gap, length)
        assert as_nodes(order.nodes(draft, most)) == expected[:most]
        wanted = (len(rows),) if extension_oracle.extends(rows, width, tree_budget, gap) else ()
        assert order.asked(draft) == {"extension": wanted}
        check_nested(order, draft, most, 2 * most)
    check_layer(order, recorded, most)
    asked = order.layer(texts_of([recorded]), most, with_scores=False).num_requested
    assert asked is not None
    assert asked.tolist() == [len(order.asked(draft)["extension"]) for draft in roots_of(recorded, order.needs)]
    if not every:
        check_layer(order, only_asked(recorded, order), most)


def test_a_text_extends_at_some_roots_and_not_at_others() -> None:
    """The properties above are about something."""
    counted = [0, 0]
    for seed in range(60):
        order = ExtendedFamilies(2, 20, 0.1, 3, "extension")
        for draft in roots_of(extended(seed, 3), order.needs):
            counted[len(order.asked(draft)["extension"])] += 1
    assert min(counted) > 20


@settings(max_examples=examples(60, quick=40))
@given(seeds, widths, sizes)
def test_with_a_gap_that_nothing_has_it_is_the_released_tree(seed: int, width: int, tree_budget: int) -> None:
    recorded = extended(seed, 2)
    never, tree = JetSpecExtended(tree_budget, width, gap=1e9), ExpandParentTree(tree_budget, width)
    for ours, theirs in zip(rounds(never, recorded), rounds(tree, recorded), strict=True):
        assert (ours.position, ours.num_requested, theirs.num_requested) == (theirs.position, 0, None)
        assert ours.tree.tokens.tolist() == theirs.tree.tokens.tolist()
        assert ours.tree.parents.tolist() == theirs.tree.parents.tolist()


@settings(max_examples=examples(60, quick=40))
@given(seeds)
def test_a_chain_that_is_not_in_the_tree_is_not_extended(seed: int) -> None:
    recorded = extended(seed, 2)
    assert recorded.rows is not None
    order = ExtendedFamilies(2, max(1, recorded.rows.counts.shape[1] - 1), -1.0, 3, "extension")
    if recorded.rows.counts.shape[1] > 1:
        assert {order.asked(draft)["extension"] for draft in roots_of(recorded, order.needs)} == {()}


def drafted(gap: float) -> Draft:
    """Two depths, whose gaps have this mean."""
    rows: list[oracle.Row] = [[(1, -0.5), (2, -0.5 - gap)], [(3, -0.25), (4, -0.25 - gap)]]
    pairs = [pair for row in rows for pair in row]
    ids, log_probs = np.array([token for token, _ in pairs], np.int32), np.array([q for _, q in pairs], np.float32)
    branch = Branches(np.array([2], np.int32), 4, np.array([[5], [6]], np.int32), np.full((2, 1), -1, np.float32))
    marginals = Marginals(ids, log_probs, np.array([0, 2, 4], np.int32))
    return Draft(marginals, 0, np.array([0], np.int32), 0, {"extension": branch})


@settings(max_examples=examples(80, quick=40))
@given(seeds, widths, sizes, gaps, lengths)
def test_engine_and_round_by_round_agree(seed: int, width: int, tree_budget: int, gap: float, length: int) -> None:
    recorded, policy = extended(seed, 3), JetSpecExtended(tree_budget, width, gap, length)
    check_columns([policy], recorded)
    (found,), expected = replay_policies([policy], recorded), columns_of(rounds(policy, recorded))
    assert found.num_requested is not None
    assert expected.num_requested is not None
    assert found.num_requested.tolist() == expected.num_requested.tolist()
    check_columns([policy], only_asked(recorded, policy.own.order))  # type: ignore[arg-type]


def check_prices(seed: int, width: int, gap: float) -> None:
    """The engine, the plain replay, and a sum in plain Python say the same."""
    texts = texts_of([extended(seed, 2), extended(seed, 2)])
    policy = JetSpecExtended(9, width, gap, 2)
    cost = with_channel(np.random.default_rng(seed), policy.budget, 60, "extension", [1])
    sums = Replay([(policy, cost), (JetSpecExtended(9, width, 1e9, 2), cost)]).sums(texts)
    for number, sequence in enumerate(texts.sequences):
        found, length = list(rounds(policy, sequence)), len(sequence.prompt.token_ids)
        assert sums.seconds[0, number].tolist() == list(astuple(price(policy, columns_of(found), length, cost)))
        by_context = cost.channels["extension"].seconds[:, 0]
        paid = [
            float(np.interp(length + each.position, cost.contexts, by_context)) for each in found if each.num_requested
        ]
        assert sums.seconds[0, number, 1] == pytest.approx(sum(paid))
        drawn = price(policy, columns_of(found), length, replace(cost.draws[0], draws=())).total_s
        assert sums.draws_s[0, number, 0] == pytest.approx(drawn)
    assert (sums.seconds[1, :, 1] == 0).all()


@settings(max_examples=examples(60, quick=40))
@given(seeds, widths, gaps)
def test_a_round_pays_for_what_it_asks_for(seed: int, width: int, gap: float) -> None:
    check_prices(seed, width, gap)


def test_a_branch_that_is_not_there_is_missed_by_both_replays() -> None:
    recorded, policy = extended(3, 2), JetSpecExtended(12, 2, gap=-1.0)
    rows = recorded.channels["extension"]
    assert isinstance(rows, BranchRows)
    empty = BranchRows(np.full_like(rows.lengths, -1), rows.depth, rows.ids[:0], rows.log_probs[:0])
    with pytest.raises(MissingChannelError, match="there is no branch behind"):
        list(rounds(policy, replace(recorded, channels={"extension": empty})))
    for channels in ({"extension": empty}, {}):
        with pytest.raises(MissingChannelError, match="record it: `simlab record .*whole=1`"):
            replay_policies([policy], replace(recorded, channels=channels))


def test_what_was_recorded_otherwise_is_refused_with_the_command() -> None:
    settings = {"depth": 14, "branches": 1, "top_k": 8, "block": 15, "whole": 1}
    whole = TraceCapabilities(
        64, 64, {"extension": RecordedChannel("branches", "jetspec", settings)}, "jetspec", "runs/mine"
    )
    check_channels(JetSpecExtended(), whole)
    with pytest.raises(MissingChannelError, match="it was recorded behind the whole chain alone; record it beside"):
        check_channels(D2SD(channel="extension"), whole)
    every = TraceCapabilities(
        64, 64, {"extension": RecordedChannel("branches", "jetspec", {"branches": 8, "top_k": 8})}, "jetspec", "x"
    )
    with pytest.raises(MissingChannelError, match=r"it wants whole 1 exactly, .*--add-channel extension-2=.*whole=1"):
        check_channels(JetSpecExtended(), every)
    with pytest.raises(MissingChannelError, match=r"has none of that name.*--add-channel extension=.*whole=1"):
        check_channels(JetSpecExtended(), TraceCapabilities(64, 64))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tree_budget": 0}, "at least 1"),
        ({"length": 0}, "at least 1"),
        ({"width": 1}, "at least 2"),
        ({"gap": np.inf}, "a number"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        JetSpecExtended(**given)  # type: ignore[arg-type]
