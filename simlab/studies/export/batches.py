"""Which chain is fastest at each batch size, each replayed on the recording of its own block where there is one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from simlab.analysis.export.batch_choices import BatchChoice, batch_choice
from simlab.analysis.table.price_draws import BatchPrices
from simlab.errors import CostError, UsageError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import PricedPolicies, TraceArtefacts
from simlab.studies.inputs.prices import BatchPricing
from simlab.studies.replay.run import OwnBlocks, ReplayRun, replayed_on_own_blocks
from simlab.traces.reader import Trace
from simlab.traces.results.rows import results_at


@dataclass(frozen=True, slots=True)
class ExportedTexts:
    """The texts that are replayed.

    Attributes:
        trace: where they are.
        draft: the draft set.
        wanted: the sequences.
        progress: whether a bar is shown; None: on a terminal.
        limit: of the first so many prompts; None: of all.
        own_blocks: other traces of the same texts, each of the block that an engine drafts for so many tokens.
    """

    trace: Trace
    draft: str
    wanted: Sequence[int]
    progress: bool | None
    limit: int | None = None
    own_blocks: OwnBlocks = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Tokens that the trace's own block drafts."""
        return self.trace.manifest.draft_sets[self.draft].depth

    def policy(self, typed: str, artefacts: TraceArtefacts) -> NamedPolicy:
        """The one policy that was asked for, if the trace holds what it reads."""
        found = parse_policies([typed], artefacts)
        if len(found) != 1:
            raise UsageError(f"`{typed}` names {len(found)} policies; a file is of one, so name one")
        check_needs(found[0].policy, self.trace.holds(self.draft))
        return found[0]

    def lengths(self, most: int) -> tuple[int, ...]:
        """Lengths of chains that can be replayed: with traces of their own blocks those alone, else all of them."""
        known = {*self.own_blocks, self.depth} if self.own_blocks else range(1, self.depth + 1)
        return tuple(sorted(length for length in known if length <= most))


def batch_table(priced: Sequence[BatchPricing], texts: ExportedTexts) -> list[BatchChoice]:
    """The fastest chain at each batch size, of all lengths that have prices."""
    machines, lengths = [], dict[str, int]()
    for pricing in priced:
        cost = pricing.prices.cost
        if cost is None:
            raise CostError(f"a batch size needs a latency profile. {pricing.prices.why_none}")
        about = BatchPrices(pricing.batch, cost.cost_id, pricing.prices.heading, pricing.what_if)
        chains = parse_policies(["ar", *(f"chain:length={length}" for length in texts.lengths(cost.most_drafted))])
        lengths |= {one.policy_id: one.policy.budget or 0 for one in chains}
        machines.append((about, PricedPolicies(pricing.prices, tuple(chains))))
    run = ReplayRun(progress=texts.progress, bounds=False)
    rows = replayed_on_own_blocks(
        texts.trace, texts.draft, [asked for _, asked in machines], texts.own_blocks, texts.limit, run
    )
    return [batch_choice(results_at(rows, about.cost_id), lengths, about) for about, _ in machines]
