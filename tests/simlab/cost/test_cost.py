"""Stage seconds, cost tables, and rounds priced with them."""

from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import random_table

from simlab.channels.needs import TraceCapabilities
from simlab.columns import columns_of
from simlab.cost import GRID_STAGES, PLAIN, STAGES, CostTable, StageSeconds, price, price_rounds
from simlab.cost.table import rows_of_pass, seconds_by_rows
from simlab.draft import Draft
from simlab.errors import CostError, MissingChannelError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.policy import Needs, Stateless, is_plain_decoding
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs, hindsight_rounds, rounds
from simlab.testing.random_texts import random_sequence
from simlab.tree import DraftTree

SEEDS = st.integers(0, 10**6)


@dataclass(frozen=True, slots=True)
class RepeatsRoot(Stateless):
    """Drafts the root again, without a drafter."""

    @property
    def needs(self) -> Needs:
        return Needs(draft=False)

    @property
    def budget(self) -> int:
        return 1

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, [draft.root_token])


def table() -> CostTable:
    seconds = {stage: np.array([[1.0, 2.0, 4.0], [3.0, 6.0, 8.0]]) for stage in GRID_STAGES}
    return CostTable("made-up", np.array([10, 20]), seconds | {PLAIN: np.array([[5.0], [7.0]])})


def test_stage_seconds_add_and_refuse_negative_time() -> None:
    seconds, other = StageSeconds(1.0, 8.0, 2.0, 3.0, 4.0), StageSeconds(0.5, 1.0, 0.25, 0.125, 0.0625)
    assert seconds + other == StageSeconds(1.5, 9.0, 2.25, 3.125, 4.0625)
    assert seconds.total_s == 18.0
    for name in (field.name for field in fields(StageSeconds)):
        for wrong in (-1e-9, float("nan")):
            with pytest.raises(ValueError, match="negative time"):
                StageSeconds(**{name: wrong})


def test_a_curve_is_linear_between_contexts_and_flat_below_the_first() -> None:
    assert table().curve("verify", 10).tolist() == [1.0, 2.0, 4.0]
    assert table().curve("verify", 15).tolist() == [2.0, 4.0, 6.0]
    assert table().curve("verify", 20).tolist() == [3.0, 6.0, 8.0]
    assert table().curve("verify", 0).tolist() == [1.0, 2.0, 4.0]
    assert table().curve(PLAIN, 18).tolist() == pytest.approx([6.6])
    assert (table().most_drafted, table().longest_context) == (2, 20)


def test_what_was_not_measured_is_refused() -> None:
    with pytest.raises(CostError, match=r"21 tokens before its root.* 20; .*simlab profile --contexts"):
        table().curve("verify", 21)
    with pytest.raises(CostError, match=r"drafts 3 tokens.* up to 2; .*simlab profile --node-counts"):
        table().at("verify", np.array([10, 10]), np.array([0, 3]))
    with pytest.raises(CostError, match="one text at a time"):
        table().curve("verify", 10, batch=4)
    with pytest.raises(ValueError, match="stage must be one of"):
        table().curve("prefill", 10)


@pytest.mark.parametrize(
    ("contexts", "change", "said"),
    [
        ([20, 10], {}, "must rise"),
        ([10, 10], {}, "must rise"),
        ([-1, 10], {}, "must rise"),
        ([10], {}, "shape"),
        ([10, 20], {"verify": np.zeros((2, 0))}, "shape"),
        ([10, 20], {"draft": np.zeros((2, 4))}, "shape"),
        ([10, 20], {"verify": np.zeros(3)}, "shape"),
        ([10, 20], {PLAIN: np.zeros((2, 3))}, "shape"),
        ([10, 20], {"commit": np.array([[1.0, 2.0, 4.0], [3.0, 6.0, -8.0]])}, "not negative"),
        ([10, 20], {"commit": np.array([[1.0, 2.0, 4.0], [3.0, 6.0, np.nan]])}, "finite"),
        ([10, 20], {"prefill": np.zeros((2, 3))}, "must be given for"),
    ],
)
def test_a_table_that_does_not_fit_itself_is_refused(
    contexts: list[int], change: dict[str, np.ndarray], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        CostTable("made-up", np.array(contexts), {**table().seconds, **change})


def test_a_table_is_read_only_and_keeps_its_own_copy() -> None:
    mine = {stage: np.ones((1, 2)) for stage in GRID_STAGES} | {PLAIN: np.ones((1, 1))}
    cost = CostTable("made-up", np.array([10]), mine)
    mine["verify"][0, 0] = 9.0
    assert cost.curve("verify", 10).tolist() == [1.0, 1.0]
    assert not cost.contexts.flags.writeable
    assert not any(values.flags.writeable for values in cost.seconds.values())


@given(SEEDS)
def test_many_rounds_at_once_are_each_its_own_curve(seed: int) -> None:
    generator = np.random.default_rng(seed)
    cost = random_table(generator)
    contexts = generator.integers(0, cost.longest_context + 1, 30)
    counts = generator.integers(0, cost.most_drafted + 1, 30)
    for stage in GRID_STAGES:
        singly = [cost.curve(stage, int(context))[n] for context, n in zip(contexts, counts, strict=True)]
        assert cost.at(stage, contexts, counts).tolist() == singly
    assert cost.at(PLAIN, contexts, 0 * counts).tolist() == [cost.curve(PLAIN, int(one))[0] for one in contexts]


def made_up(seed: int) -> tuple[RecordedSequence, CostTable]:
    generator = np.random.default_rng(seed)
    return random_sequence(generator, most_kept=6), random_table(generator)


@given(SEEDS)
def test_a_price_is_the_sum_over_rounds(seed: int) -> None:
    recorded, cost = made_up(seed)
    length = len(recorded.prompt.token_ids)
    found = columns_of(rounds(DDTree(5), recorded))
    priced = price(DDTree(5), found, length, cost)
    for stage in GRID_STAGES:
        singly = sum(cost.curve(stage, length + one.position)[one.num_drafted] for one in rounds(DDTree(5), recorded))
        assert getattr(priced, f"{stage}_s") == pytest.approx(singly, rel=1e-12)
    assert priced == price_rounds(found, length, cost, with_draft=True)


@given(SEEDS)
def test_prices_of_parts_add_up(seed: int) -> None:
    recorded, cost = made_up(seed)
    found = list(rounds(Chain(), recorded))
    cut = len(found) // 2
    first, second, all_of_them = (columns_of(part) for part in (found[:cut], found[cut:], found))
    parts = price(Chain(), first, 3, cost) + price(Chain(), second, 3, cost)
    whole = price(Chain(), all_of_them, 3, cost)
    for stage in GRID_STAGES:
        assert getattr(parts, f"{stage}_s") == pytest.approx(getattr(whole, f"{stage}_s"), rel=1e-12)


@given(SEEDS)
def test_plain_decoding_pays_its_own_path_and_nothing_else(seed: int) -> None:
    recorded, cost = made_up(seed)
    length, last = len(recorded.prompt.token_ids), len(recorded.text) - 1
    priced = price(Autoregressive(), columns_of(rounds(Autoregressive(), recorded)), length, cost)
    singly = sum(cost.curve(PLAIN, length + t)[0] for t in range(last))
    assert (priced.draft_s, priced.select_s, priced.commit_s) == (0.0, 0.0, 0.0)
    assert priced.verify_s == pytest.approx(singly, rel=1e-12)


@given(SEEDS)
def test_without_a_drafter_there_is_no_draft_to_pay(seed: int) -> None:
    recorded, cost = made_up(seed)
    found = list(rounds(RepeatsRoot(), recorded))
    priced = price(RepeatsRoot(), columns_of(found), 1, cost)
    assert priced.draft_s == 0.0
    assert priced.verify_s == pytest.approx(
        sum(cost.curve("verify", 1 + round_.position)[1] for round_ in found), rel=1e-12
    )


def test_plain_decoding_is_told_from_a_tree_of_the_root_alone() -> None:
    assert is_plain_decoding(Autoregressive())
    assert not any(is_plain_decoding(policy) for policy in (RepeatsRoot(), Chain(), DDTree(5)))


def test_a_round_beyond_the_table_is_refused() -> None:
    recorded, _ = made_up(3)
    with pytest.raises(CostError, match="--contexts"):
        price(Autoregressive(), columns_of(rounds(Autoregressive(), recorded)), 20, table())
    bound = columns_of(hindsight_rounds(recorded, 64))
    assert bound.num_rounds
    with pytest.raises(CostError, match="--contexts"):
        price_rounds(bound, 10**6, table(), with_draft=True)


# Rows of passes with masks, and prices that are read off by them


NUM_MASKS = 4


def by_listing(num_drafted: int, masked: int) -> int:
    """Nodes, and masks behind each that carries some; a root without a draft does."""
    carriers = [node for node in range(num_drafted + 1) if node <= masked] or ([0] if num_drafted == 0 else [])
    return num_drafted + 1 + NUM_MASKS * len(carriers)


def test_rows_are_nodes_and_the_masks_behind_the_first() -> None:
    drafted = np.arange(20)
    for masked in range(-1, 25):
        expected = [by_listing(num, masked) for num in drafted.tolist()]
        assert rows_of_pass(drafted, masked, NUM_MASKS).tolist() == expected


def table_mask_rows(block_size: int = NUM_MASKS + 1) -> CostTable:
    made = random_table(np.random.default_rng(4), 24)
    return CostTable(made.cost_id, made.contexts, made.seconds, made.draws, block_size=block_size)


def test_masks_behind_every_node_cost_what_was_measured() -> None:
    cost = table_mask_rows()
    charged = cost.charged(SelfSpeculation(24, 24))
    for stage in STAGES:
        np.testing.assert_allclose(charged.seconds[stage], cost.seconds[stage])
    assert cost.charged(DDTree(24)) is cost


def test_fewer_rows_cost_what_as_many_did() -> None:
    """24 drafted tokens with masks behind the root alone are 29 rows; 4 and 5 with masks all over are 25 and 30."""
    cost = table_mask_rows()
    charged, verify = cost.charged(SelfSpeculation(24, 0)), cost.seconds["verify"]
    np.testing.assert_allclose(charged.seconds["verify"][:, 24], 0.2 * verify[:, 4] + 0.8 * verify[:, 5])
    linear = cost.charged(SelfSpeculation(24, -1)).seconds["verify"]
    np.testing.assert_allclose(linear[:, 24], verify[:, 4])
    np.testing.assert_allclose(linear[:, 1], verify[:, 0])
    for stage in set(STAGES) - {"verify"}:
        np.testing.assert_array_equal(charged.seconds[stage], cost.seconds[stage])
    for draw, other in zip(charged.draws, cost.draws, strict=True):
        expected = seconds_by_rows(other.seconds["verify"], 0, NUM_MASKS)
        np.testing.assert_array_equal(draw.seconds["verify"], expected)


def test_a_drafters_draft_set_knows_no_masks() -> None:
    check_needs(SelfSpeculation(), TraceCapabilities(512, 64, draft="self", root_seen=False))
    check_needs(DDTree(8), TraceCapabilities(512, 64, draft="self", root_seen=False))
    with pytest.raises(MissingChannelError, match=r"draft set dflash is a drafter's.*--add-draft self=ADAPTER"):
        check_needs(SelfSpeculation(), TraceCapabilities(512, 64, draft="dflash"))
