"""What the rounds of one text come to, as result rows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from simlab.channels import TARGET
from simlab.channels.needs import channels_made, channels_read
from simlab.cost import STAGES, CostTable
from simlab.ids import VERSION, content_id
from simlab.policies.engine.hindsight import (
    best_budgets_in_hindsight,
    best_routes_in_hindsight,
    fewest_rounds,
    without_catch_up,
)
from simlab.policies.engine.replay import Replay, ReplaySums, empty_replay_sums, sums_of_policy, sums_of_rounds
from simlab.policies.engine.routed import can_walk
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policies.routing.cut_rule import some_rule
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import AnyPolicy, ChannelNeed
from simlab.recorded import RecordedSequence, RecordedTexts
from simlab.studies.inputs.artefacts import PoliciesOnMachine, largest_budget
from simlab.studies.inputs.prices import Prices
from simlab.traces.reader import Trace
from simlab.traces.results.rows import (
    BEST_BUDGET,
    BEST_ROUTES,
    HINDSIGHT,
    Results,
    channel_ids_text,
    results_of_texts,
)


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """What a result row is of: one policy or bound at one machine's prices.

    Attributes:
        identity: the columns policy, policy_id, name and settings.
        prices: of that machine.
        policy: None for a bound.
        budget: of a bound; 0 for a policy.
        channels: whose lists a bound reads too.
        router: whose routes a bound takes; None: it takes none.
    """

    identity: Mapping[str, str]
    prices: Prices
    policy: NamedPolicy | None
    budget: int
    channels: tuple[ChannelNeed, ...] = ()
    router: RoutedPolicy | None = None

    @property
    def policy_id(self) -> str:
        """The content id of the policy or bound."""
        return self.identity["policy_id"]

    def channel_ids(self, trace: Trace) -> str:
        """The column of that name: the ids of the channels of a trace that are read."""
        return channel_ids_text({name: trace.channel_ids[name] for name in self.channels_read if name != TARGET})

    @property
    def cost(self) -> CostTable | None:
        """What its rounds cost; None where a channel of the policy has no price. A bound pays for no channel."""
        return self.prices.cost if self.policy is None else self.prices.cost_of(self.policy.policy)

    @property
    def channels_read(self) -> tuple[str, ...]:
        """The names of the channels that are read."""
        if self.policy is not None:
            return channels_read([self.policy.policy])
        return tuple(dict.fromkeys(need.name for need in self.channels))


def policy_row(policy: NamedPolicy, prices: Prices) -> ReplayRow:
    """The row of a policy."""
    settings = json.dumps(dict(policy.settings), sort_keys=True)
    identity = {"policy": policy.label, "policy_id": policy.policy_id, "name": policy.name, "settings": settings}
    return ReplayRow(identity, prices, policy, 0)


def bound_rows(asked: PoliciesOnMachine, exact_budget: int, depth: int, best_budgets: bool) -> list[ReplayRow]:
    """The rows of the bounds.

    Beside policies that read channels, hindsight may take tokens from their lists too. The best budgets of one order
    bound no policy of another, and are left out there.

    Args:
        asked: what they stand beside.
        exact_budget: of the trace.
        depth: of the draft set.
        best_budgets: whether the best budget in each round is wanted, where there are prices.
    """
    channels = tuple(dict.fromkeys(need for policy in asked.policies for need in policy.policy.needs.scored))
    budget = largest_budget(asked.policies, depth)
    lists = {"channels": repr(channels)} if channels else {}
    label = f"{HINDSIGHT}:budget={budget}"
    rows = [replace(_bound(HINDSIGHT, label, {"budget": budget}, lists, asked.prices, budget), channels=channels)]
    cost = asked.prices.cost
    if cost is not None and best_budgets and not channels:
        most = min(budget, exact_budget, cost.most_drafted)
        label = f"{HINDSIGHT}:best<={most}"
        settings = {"budget": most, "order": "ddtree"}
        rows.append(_bound(BEST_BUDGET, label, settings, {"cost": cost.cost_id}, asked.prices, most))
    return [*rows, *_route_bounds(asked)]


def _route_bounds(asked: PoliciesOnMachine) -> Iterator[ReplayRow]:
    """One for the routes of each router, where all of them have layers and prices."""
    cost, seen = asked.prices.cost, set[tuple[str, ...]]()
    for policy in asked.policies:
        router = policy.policy
        if cost is None or not isinstance(router, RoutedPolicy) or not can_walk(router):
            continue
        ids = tuple(router.route_ids.values())
        if ids in seen or asked.prices.why_unpriced(router):
            continue
        seen.add(ids)
        label = f"{HINDSIGHT}:routes={router.described_routes}"
        row = _bound(BEST_ROUTES, label, {"routes": router.described_routes}, dict(router.route_ids), asked.prices, 0)
        # No bound pays for what only a rule reads.
        free = replace(router, rule=some_rule(len(router.routes)))
        yield replace(row, channels=free.needs.made, router=free)


def _bound(
    name: str, label: str, settings: Mapping[str, object], artefacts: dict[str, str], prices: Prices, budget: int
) -> ReplayRow:
    bound_id = content_id({"name": name, "settings": settings, "artefacts": artefacts})
    text = json.dumps(settings, sort_keys=True)
    return ReplayRow({"policy": label, "policy_id": bound_id, "name": name, "settings": text}, prices, None, budget)


class ReadyRows:
    """Rows made ready to be worked out on any texts.

    Args:
        rows: what each is of.
    """

    def __init__(self, rows: Sequence[ReplayRow]) -> None:
        self.rows = tuple(rows)
        self._played = [index for index, row in enumerate(rows) if row.policy is not None]
        self._replay = Replay([(row.policy.policy, row.cost) for row in rows if row.policy is not None])

    def sums(self, texts: RecordedTexts) -> ReplaySums:
        """The sums of each row over the rounds of each text."""
        played = self._replay.sums(texts)
        sums = empty_replay_sums(len(self.rows), len(texts.sequences))
        sums.counts[self._played], sums.seconds[self._played] = played.counts, played.seconds
        sums.draws_s[self._played] = played.draws_s
        for index, row in enumerate(self.rows):
            if row.policy is None:
                sums.fill(index, _bound_sums(row, texts))
        return sums


def _bound_sums(row: ReplayRow, texts: RecordedTexts) -> ReplaySums:
    cost = row.prices.cost
    if row.router is not None and cost is not None:
        rounds, free = best_routes_in_hindsight(texts, cost, row.router.routes), without_catch_up(cost)
        return sums_of_policy(row.router, rounds, texts, free)
    if row.identity["name"] == BEST_BUDGET and cost is not None:
        rounds = best_budgets_in_hindsight(texts, cost, row.budget)
    else:
        rounds = fewest_rounds(texts, row.budget, row.channels)
    return sums_of_rounds(rounds, texts, cost, STAGES)


def results_of(rows: Sequence[ReplayRow], sums: ReplaySums, texts: RecordedTexts, trace: Trace, draft: str) -> Results:
    """Result rows of some texts.

    Args:
        rows: what each is of.
        sums: over its rounds on each text.
        texts: the texts.
        trace: which holds them.
        draft: the draft set.
    """
    policies: dict[str, list[str | None]] = {name: [row.identity[name] for row in rows] for name in rows[0].identity}
    policies["cost_id"] = [row.prices.cost_id for row in rows]
    policies["channel_ids"] = [row.channel_ids(trace) for row in rows]
    return results_of_texts(policies, _text_columns(texts), sums.columns(), columns_of_trace(trace, draft))


def channel_ids_read(policies: Iterable[AnyPolicy], trace: Trace) -> str:
    """The column ``channel_ids`` of result rows: the ids of those channels of a trace that policies read."""
    return channel_ids_text({name: trace.channel_ids[name] for name in channels_made(policies)})


def _text_columns(texts: RecordedTexts) -> dict[str, list[object]]:
    columns = [columns_of_text(sequence) for sequence in texts.sequences]
    return {name: [column[name] for column in columns] for name in columns[0]}


def columns_of_text(recorded: RecordedSequence) -> dict[str, object]:
    """The columns that all rows of a sequence share."""
    prompt = recorded.prompt
    return {
        "sequence": recorded.index,
        "prompt_id": prompt.prompt_id,
        "dataset": prompt.dataset,
        "turn": prompt.turn,
        "sample": prompt.sample,
        "context_length": len(prompt.token_ids),
        "stop_reason": recorded.stop_reason,
    }


def columns_of_trace(trace: Trace, draft: str) -> dict[str, object]:
    """The columns that all rows of a trace share."""
    ids = {"text_id": trace.text_id, "draft_id": trace.draft_ids[draft]}
    return {**ids, "kind": "predicted", "simlab_version": VERSION}
