"""Rules that weigh seconds, on channels: what the channel takes is in the rounds that they weigh."""

from dataclasses import replace

import numpy as np
import pytest
from made_up_artefacts import FullArtefacts, MadeUpArtefacts
from made_up_costs import random_table

from simlab.cost import CHANNEL
from simlab.errors import PolicyError
from simlab.policies.composition import rule_of
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.budgets import BestRatio

ON_ROWS = "tree:edges=transitions,channel=treeflash,rule=ratio"


def test_a_rule_on_a_channel_weighs_what_the_channel_takes() -> None:
    artefacts = FullArtefacts()
    with_channel, without = parse_policies(
        ["tree:edges=transitions,channel=treeflash,rule=ratio", "tree:rule=ratio"], artefacts
    )
    one, other = rule_of(with_channel.policy), rule_of(without.policy)
    assert isinstance(one, BestRatio)
    assert isinstance(other, BestRatio)
    assert (one.cost.curve(CHANNEL, 20) > 0).all()
    assert (other.cost.curve(CHANNEL, 20) == 0).all()


def test_prices_without_the_channel_are_refused_with_the_command_that_measures_it() -> None:
    prices = replace(random_table(np.random.default_rng(0), 64), cost_id="no-channels")
    with pytest.raises(PolicyError, match="simlab profile --channel treeflash"):
        parse_policies([ON_ROWS], MadeUpArtefacts(prices))
