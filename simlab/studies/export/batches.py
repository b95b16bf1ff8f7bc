"""Which chain is fastest at each batch size, for ``simlab export``: prices of each, and the replay that asks them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simlab.analysis.export.batch_choices import BatchChoice, batch_choice
from simlab.analysis.table.price_draws import BatchPrices
from simlab.errors import CostError, UsageError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import BatchPricing, Prices
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.replay.rows import ReadyRows, policy_row, results_of
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results, joined_results


@dataclass(frozen=True, slots=True)
class ExportedTexts:
    """The texts that are replayed.

    Attributes:
        trace: where they are.
        draft: the draft set.
        wanted: the sequences.
        progress: whether a bar is shown; None: on a terminal.
        own_blocks: by drafted tokens, other traces of the same texts and their draft sets, each of the block that an
            engine drafts for so many.
    """

    trace: Trace
    draft: str
    wanted: Sequence[int]
    progress: bool | None
    own_blocks: Mapping[int, tuple[Trace, str]] = field(default_factory=dict)

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
    found = []
    for pricing in priced:
        cost = pricing.prices.cost
        if cost is None:
            raise CostError(f"a batch size needs a latency profile. {pricing.prices.why_none}")
        chains = {length: _chain(length) for length in (0, *texts.lengths(cost.most_drafted))}
        lengths = {policy.policy_id: length for length, policy in chains.items()}
        about = BatchPrices(pricing.batch, cost.cost_id, pricing.prices.heading, pricing.what_if)
        found.append(batch_choice(_results(chains, pricing.prices, texts), lengths, about))
    return found


def _chain(length: int) -> NamedPolicy:
    """The chain of so many drafted tokens; of none, plain decoding."""
    (found,) = parse_policies([f"chain:length={length}" if length else "ar"])
    return found


def _results(chains: Mapping[int, NamedPolicy], prices: Prices, texts: ExportedTexts) -> Results:
    """Rows of all chains, each on the trace of its own block where there is one."""
    own = {length: block for length, block in texts.own_blocks.items() if length in chains}
    groups = [(texts.trace, texts.draft, [chain for length, chain in chains.items() if length not in own])]
    groups += [(trace, draft, [chains[length]]) for length, (trace, draft) in own.items()]
    found = []
    with progress_bar(texts.progress, "batch sizes", "sequence", len(texts.wanted) * len(groups)) as bar:
        for trace, draft, named in groups:
            ready = ReadyRows([policy_row(policy, prices) for policy in named])
            for some in trace.recorded_texts(draft, texts.wanted, ROOTS_AT_ONCE):
                found.append(results_of(ready.rows, ready.sums(some), some, trace, draft))
                bar.update(len(some.sequences))
    return joined_results(found)
