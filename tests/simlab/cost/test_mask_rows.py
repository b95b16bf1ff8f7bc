"""Rows of passes with masks, and prices that are read off by them."""

import numpy as np
import pytest
from made_up_costs import random_table

from simlab.channels.needs import Held
from simlab.cost import STAGES, CostTable
from simlab.cost.table import rows_of_pass, seconds_by_rows
from simlab.errors import MissingChannelError
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.sequence_replay import check_needs

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


def table(block_size: int = NUM_MASKS + 1) -> CostTable:
    made = random_table(np.random.default_rng(4), 24)
    return CostTable(made.cost_id, made.contexts, made.seconds, made.draws, block_size=block_size)


def test_masks_behind_every_node_cost_what_was_measured() -> None:
    cost = table()
    charged = cost.charged(SelfSpeculation(24, 24))
    for stage in STAGES:
        np.testing.assert_allclose(charged.seconds[stage], cost.seconds[stage])
    assert cost.charged(DDTree(24)) is cost


def test_fewer_rows_cost_what_as_many_did() -> None:
    """24 drafted tokens with masks behind the root alone are 29 rows; 4 and 5 with masks all over are 25 and 30."""
    cost = table()
    charged, verify = cost.charged(SelfSpeculation(24, 0)), cost.seconds["verify"]
    np.testing.assert_allclose(charged.seconds["verify"][:, 24], 0.2 * verify[:, 4] + 0.8 * verify[:, 5])
    linear = cost.charged(SelfSpeculation(24, -1)).seconds["verify"]
    np.testing.assert_allclose(linear[:, 24], verify[:, 4])
    np.testing.assert_allclose(linear[:, 1], verify[:, 0])
    for stage in set(STAGES) - {"verify"}:
        np.testing.assert_array_equal(charged.seconds[stage], cost.seconds[stage])
    for one, other in zip(charged.draws, cost.draws, strict=True):
        expected = seconds_by_rows(other.seconds["verify"], 0, NUM_MASKS)
        np.testing.assert_array_equal(one.seconds["verify"], expected)


def test_a_drafters_draft_set_knows_no_masks() -> None:
    check_needs(SelfSpeculation(), Held(512, 64, draft="self", root_seen=False))
    check_needs(DDTree(8), Held(512, 64, draft="self", root_seen=False))
    with pytest.raises(MissingChannelError, match=r"draft set dflash is a drafter's.*--add-draft self=ADAPTER"):
        check_needs(SelfSpeculation(), Held(512, 64, draft="dflash"))
