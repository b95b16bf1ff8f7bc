"""What the rounds of one text come to, as result rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from simlab.columns import RoundColumns, columns_of
from simlab.command_cost import Prices
from simlab.cost import StageSeconds, price, price_rounds
from simlab.replay import hindsight_rounds

if TYPE_CHECKING:
    from simlab.policies.spec import NamedPolicy
    from simlab.recorded import RecordedSequence
    from simlab.traces.reader import Trace
    from simlab.traces.results import Results

HINDSIGHT, BEST_BUDGET = "hindsight", "hindsight-budget"
"""Names under which bounds stand beside policies: the fewest rounds, and the best budget in each round."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Policies, and the prices at which their rounds are reckoned; a machine each."""

    prices: Prices
    policies: "tuple[NamedPolicy, ...]"


@dataclass(frozen=True, slots=True)
class Row:
    """What a result row is of: one policy or bound at one machine's prices.

    Attributes:
        identity: the columns policy, policy_id, name and settings.
        prices: of that machine.
        policy: None for a bound.
        budget: of a bound; 0 for a policy.
    """

    identity: Mapping[str, str]
    prices: Prices
    policy: "NamedPolicy | None"
    budget: int

    @property
    def policy_id(self) -> str:
        """Of the policy or bound."""
        return self.identity["policy_id"]


def policy_row(one: "NamedPolicy", prices: Prices) -> Row:
    """The row of a policy."""
    settings = json.dumps(dict(one.settings), sort_keys=True)
    identity = {"policy": one.label, "policy_id": one.policy_id, "name": one.name, "settings": settings}
    return Row(identity, prices, one, 0)


def bound_rows(asked: Asked, exact_budget: int, depth: int, best_budgets: bool) -> list[Row]:
    """The rows of the bounds; none beside policies that read more than the draft set.

    Args:
        asked: what they stand beside.
        exact_budget: of the trace.
        depth: of the draft set.
        best_budgets: whether the best budget in each round is wanted, where there are prices.
    """
    if any(one.policy.needs.channels for one in asked.policies):
        return []
    budget = largest_budget(asked.policies, depth)
    found = [_bound(HINDSIGHT, f"{HINDSIGHT}:budget={budget}", {"budget": budget}, {}, asked.prices, budget)]
    cost = asked.prices.cost
    if cost is not None and best_budgets:
        most = min(budget, exact_budget, cost.most_drafted)
        label = f"{HINDSIGHT}:best<={most}"
        settings = {"budget": most, "order": "ddtree"}
        found.append(_bound(BEST_BUDGET, label, settings, {"cost": cost.cost_id}, asked.prices, most))
    return found


def _bound(
    name: str, label: str, settings: dict[str, object], artefacts: dict[str, str], prices: Prices, budget: int
) -> Row:
    from simlab.ids import content_id

    bound_id = content_id({"name": name, "settings": settings, "artefacts": artefacts})
    text = json.dumps(settings, sort_keys=True)
    return Row({"policy": label, "policy_id": bound_id, "name": name, "settings": text}, prices, None, budget)


def largest_budget(policies: "Sequence[NamedPolicy]", depth: int) -> int:
    """The most tokens that any of the policies drafts in a round, and at least a whole block.

    A chain that is as long as any block names a budget above all of them, and drafts no more than the block.
    """
    from simlab.policies.chain import LONGEST_BLOCK

    return max([depth] + [one.policy.budget for one in policies if one.policy.budget < LONGEST_BLOCK])


def bound_columns(row: Row, recorded: "RecordedSequence") -> RoundColumns:
    """The rounds of a bound on one text."""
    from simlab.policies.hindsight_budget import best_budgets_in_hindsight

    if row.identity["name"] == BEST_BUDGET and row.prices.cost is not None:
        return best_budgets_in_hindsight(recorded, row.prices.cost, row.budget)
    return columns_of(hindsight_rounds(recorded, row.budget))


def seconds_of(row: Row, rounds: RoundColumns, prompt_length: int) -> StageSeconds | None:
    """What the rounds cost at the row's prices; None without any.

    Raises:
        CostError: a policy drafted more tokens than have a price.
    """
    cost = row.prices.cost
    if cost is None:
        return None
    if row.policy is None:
        return price_rounds(rounds, prompt_length, cost, with_draft=True)
    return price(row.policy.policy, rounds, prompt_length, cost)


def results_of(
    rows: Sequence[Row],
    found: Sequence[RoundColumns],
    seconds: Sequence[StageSeconds | None],
    shared: dict[str, object],
) -> "Results":
    """Result rows of one text.

    Args:
        rows: what each is of.
        found: its rounds.
        seconds: what they cost.
        shared: columns with one value for all.
    """
    from simlab.traces.results import results_of_columns

    columns: dict[str, object] = {name: [row.identity[name] for row in rows] for name in rows[0].identity}
    sums = [asdict(one.totals()) for one in found]
    columns |= {name: [one[name] for one in sums] for name in sums[0]}
    stages = [None if one is None else asdict(one) for one in seconds]
    columns |= {
        name: [None if one is None else one[name] for one in stages]
        for name in ("draft_s", "select_s", "verify_s", "commit_s")
    }
    columns["cost_id"] = [row.prices.cost_id for row in rows]
    return results_of_columns({**shared, **columns})


def shared_columns(trace: "Trace", draft: str, recorded: "RecordedSequence", prices: Prices) -> dict[str, object]:
    """The columns that all rows of a sequence share."""
    prompt = recorded.prompt
    return {
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[draft],
        "cost_id": prices.cost_id,
        "sequence": recorded.index,
        "prompt_id": prompt.prompt_id,
        "dataset": prompt.dataset,
        "turn": prompt.turn,
        "sample": prompt.sample,
        "context_length": len(prompt.token_ids),
        "stop_reason": recorded.stop_reason,
        "kind": "predicted",
        "simlab_version": metadata.version("simlab"),
    }
