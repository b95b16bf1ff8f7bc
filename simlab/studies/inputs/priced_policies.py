"""What a study is asked for: policies, and the prices at which their rounds are reckoned."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.policies.artefacts import Artefacts
from simlab.policies.named.chain import most_drafted
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices, prices_for_trace, prices_of_batch, what_if_prices
from simlab.traces.reader import Trace
from simlab.traces.results.rows import HINDSIGHT


@dataclass(frozen=True, slots=True)
class PricedPolicies:
    """Policies, and the prices at which their rounds are reckoned; a machine each.

    Attributes:
        prices: of that machine.
        policies: in the order asked.
        in_sample: labels of those that were fitted on the very texts; see `simlab.studies.inputs.artefacts`.
    """

    prices: Prices
    policies: tuple[NamedPolicy, ...]
    in_sample: tuple[str, ...] = ()

    @property
    def unpriced(self) -> dict[str, str]:
        """Why policies have no seconds where others have, a sentence each, by label."""
        found = {one.label: self.prices.why_unpriced(one.policy) for one in self.policies}
        return {label: why for label, why in found.items() if why}

    def unpriced_note(self) -> str:
        """What to know beside policies without seconds; empty without any."""
        reasons: dict[str, list[str]] = {}
        for label, why in self.unpriced.items():
            reasons.setdefault(why, []).append(label)
        return "\n".join(f"No seconds of {', '.join(labels)}: {why}" for why, labels in reasons.items())


def priced_policies(
    typed: Sequence[str],
    costs: Sequence[Path],
    trace: Trace,
    draft: str,
    limit: int | None = None,
    changes: Sequence[str] = (),
    batch: int | None = None,
) -> list[PricedPolicies]:
    """Policies as they were typed, at the prices of each cost file; without one, at those that come with simlab.

    Each of ``changes`` adds, to each of these, a machine that nobody measured; see `simlab.policies.costs.what_if`.
    With ``batch`` all are prices of so many texts at a time. A file is read once. Plain decoding and the chain come
    first.
    """
    by_machine: dict[str | None, PricedPolicies] = {}
    depth = trace.manifest.draft_sets[draft].depth
    for path in costs or (None,):
        measured = prices_for_trace(path, trace, draft, limit)
        for change in (None, *changes):
            prices = _changed(measured, change, batch)
            artefacts = TraceArtefacts(prices, trace, draft)
            policies = with_references(typed, artefacts)
            reaching = measured.reaching(largest_budget(policies, depth))
            if reaching is not measured:
                prices = _changed(reaching, change, batch)
            one = PricedPolicies(prices, tuple(policies), artefacts.in_sample(policies))
            by_machine.setdefault(prices.cost_id, one)
    return list(by_machine.values())


def _changed(prices: Prices, change: str | None, batch: int | None) -> Prices:
    """Prices of another machine, or of more texts at a time."""
    changed = what_if_prices(prices, change)
    return changed if batch is None else prices_of_batch(changed, batch)


def with_references(typed: Sequence[str], artefacts: Artefacts | None = None) -> list[NamedPolicy]:
    """The policies that were asked for, after plain decoding and the whole chain where these were not.

    The hindsight bound may be asked for by name; it is no policy and is always there.
    """
    policies = parse_policies([text for text in typed if text != HINDSIGHT], artefacts)
    ids = {one.policy_id for one in policies}
    return [one for one in parse_policies(["ar", "chain"]) if one.policy_id not in ids] + policies


def largest_budget(policies: Sequence[NamedPolicy], depth: int) -> int:
    """The most tokens that any of the policies drafts in a round, and at least a whole block."""
    return max([depth, *(most_drafted(one.policy.budget, depth) for one in policies)])
