"""What is asked of a study: policies, and the prices at which their rounds are reckoned."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.studies.inputs.prices import Prices, prices_of, prices_of_batch, what_if_prices
from simlab.studies.inputs.shelf import CommandShelf

if TYPE_CHECKING:
    from simlab.policies.artefacts import Artefacts
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.traces.reader import Trace


@dataclass(frozen=True, slots=True)
class Asked:
    """Policies, and the prices at which their rounds are reckoned; a machine each.

    Attributes:
        prices: of that machine.
        policies: in the order asked.
        in_sample: labels of those that were fitted on the very texts; see `simlab.studies.inputs.shelf`.
    """

    prices: Prices
    policies: "tuple[NamedPolicy, ...]"
    in_sample: tuple[str, ...] = ()


def largest_budget(policies: "Sequence[NamedPolicy]", depth: int) -> int:
    """The most tokens that any of the policies drafts in a round, and at least a whole block."""
    from simlab.policies.named.chain import most_drafted

    return max([depth, *(most_drafted(one.policy.budget, depth) for one in policies)])


def replay_prices(
    path: Path | None, trace: "Trace", draft: str, policies: "Sequence[NamedPolicy]", limit: int | None
) -> Prices:
    """The prices of a cost file, or without one those that come with simlab for the trace's models.

    Raises:
        CostError: the file that was asked for cannot price this trace.
    """
    wanted = set(first_prompts(trace, limit))
    texts = [record for record in trace.sequences() if record.index in wanted and len(record.text) > 1]
    longest = max((len(record.prompt.token_ids) + len(record.text) - 2 for record in texts), default=0)
    return prices_of(path, trace, draft, longest, largest_budget(policies, trace.manifest.draft_sets[draft].depth))


def first_prompts(trace: "Trace", limit: int | None) -> list[int]:
    """Indices of the sequences of the first prompts; turns and samples of a prompt stay together."""
    prompts: dict[tuple[str, str], None] = {}
    wanted = []
    for record in trace.sequences():
        key = (record.prompt.dataset, record.prompt.prompt_id)
        if limit is None or key in prompts or len(prompts) < limit:
            prompts[key] = None
            wanted.append(record.index)
    return wanted


def with_references(texts: Sequence[str], shelf: "Artefacts | None" = None) -> "list[NamedPolicy]":
    """The policies that were asked for, after plain decoding and the whole chain where these were not.

    The hindsight bound may be asked for by name; it is no policy and is always there.
    """
    from simlab.policies.parsing.parse import parse_policies

    asked = parse_policies([text for text in texts if text != HINDSIGHT], shelf)
    ids = {one.policy_id for one in asked}
    return [one for one in parse_policies(["ar", "chain"]) if one.policy_id not in ids] + asked


def asked_for(
    texts: Sequence[str],
    costs: Sequence[Path],
    trace: "Trace",
    draft: str,
    limit: int | None = None,
    changes: Sequence[str] = (),
    batch: int | None = None,
) -> list[Asked]:
    """Policies as they were typed, at the prices of each cost file; without one, at those that come with simlab.

    Each of ``changes`` adds, to each of these, a machine that nobody measured; see `simlab.policies.costs.what_if`.
    With ``batch`` all are prices of so many texts at a time.

    Raises:
        SimlabError: a policy cannot be made, or a cost file cannot price this trace.
    """
    found: dict[str | None, Asked] = {}
    for path, change in ((path, change) for path in costs or (None,) for change in (None, *changes)):
        prices = _prices(path, trace, draft, [], limit, change, batch)
        shelf = CommandShelf(prices, trace, draft)
        policies = with_references(texts, shelf)
        prices = _prices(path, trace, draft, policies, limit, change, batch)
        found.setdefault(prices.cost_id, Asked(prices, tuple(policies), shelf.in_sample(policies)))
    return list(found.values())


def _prices(
    path: Path | None,
    trace: "Trace",
    draft: str,
    policies: "Sequence[NamedPolicy]",
    limit: int | None,
    change: str | None,
    batch: int | None,
) -> Prices:
    prices = what_if_prices(replay_prices(path, trace, draft, policies, limit), change)
    return prices if batch is None else prices_of_batch(prices, batch)


HINDSIGHT, BEST_BUDGET = "hindsight", "hindsight-budget"


"""Names under which bounds stand beside policies: the fewest rounds, and the best budget in each round."""
