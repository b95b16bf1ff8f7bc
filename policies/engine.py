"""Replays of many policies on one text, without an object for each round.

What policies of one order share is worked out once: `Layer`. Budgets, prices and clipping then read whole numbers. A
policy of another kind, such as one of your own, is replayed round by round; that gives the same and takes longer.
"""

from collections.abc import Sequence

import numpy as np

from simlab.columns import RoundColumns, columns_of
from simlab.policies.best_first import BestFirst
from simlab.policies.budget_rules import Fixed
from simlab.policies.composition import Composed, Composition
from simlab.policies.shelf import EmptyShelf
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedSequence
from simlab.replay import rounds


def replay_policies(policies: Sequence[AnyPolicy], recorded: RecordedSequence) -> list[RoundColumns]:
    """The rounds of each policy on one text, in their order.

    Raises:
        SimlabError: as `simlab.replay.rounds` does.
    """
    composed = [_composition(policy) for policy in policies]
    found: dict[int, RoundColumns] = {}
    for key in dict.fromkeys(one.order.key for one in composed if one is not None):
        group = {place: one for place, one in enumerate(composed) if one is not None and one.order.key == key}
        found |= _replay_group(group, recorded)
    return [
        found[place] if place in found else columns_of(rounds(policy, recorded))
        for place, policy in enumerate(policies)
    ]


def _replay_group(group: dict[int, Composition], recorded: RecordedSequence) -> dict[int, RoundColumns]:
    """Policies of one order, from one layer."""
    order = next(iter(group.values())).order
    if isinstance(order, BestFirst) and not order.edge.is_corrected and recorded.rows is not None:
        budgets = [one.rule.most for one in group.values() if isinstance(one.rule, Fixed)]
        if len(budgets) == len(group):
            return dict(zip(group, order.walk_budgets(recorded.rows, np.array(budgets, np.int32)), strict=True))
    most = max(one.rule.most for one in group.values())
    scored = max((one.rule.most for one in group.values() if one.rule.needs_scores), default=0)
    layer = order.layer(recorded, max(most, scored), scored > 0)
    length, num_tokens = len(recorded.prompt.token_ids), len(recorded.text)
    return {place: one.walk(layer, length, num_tokens) for place, one in group.items()}


def _composition(policy: AnyPolicy) -> Composition | None:
    if isinstance(policy, Composition):
        return policy
    return policy.compose(EmptyShelf()) if isinstance(policy, Composed) else None
