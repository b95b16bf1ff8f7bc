"""Which chain is fastest at each batch size, for ``simlab export``: prices of each, and the replay that asks them."""

from collections.abc import Sequence
from dataclasses import dataclass

from simlab.analysis.export.batch_choices import BatchChoice, BatchPrices, batch_choice
from simlab.errors import CostError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.batch_prices import BatchPricing
from simlab.studies.inputs.prices import Prices
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
    """

    trace: Trace
    draft: str
    wanted: Sequence[int]
    progress: bool | None


def has_table(priced: Sequence[BatchPricing], batches: Sequence[int] | None) -> bool:
    """Whether a table over batch sizes was asked for: by name, or by prices of several."""
    return batches is not None or len(priced) > 1


def batch_table(priced: Sequence[BatchPricing], texts: ExportedTexts) -> list[BatchChoice]:
    """The fastest chain at each batch size, of all lengths that have prices.

    Raises:
        CostError: prices are missing, or do not reach a text's length.
    """
    found = []
    for one in priced:
        cost = one.prices.cost
        if cost is None:
            raise CostError(f"a batch size needs a latency profile. {one.prices.why_none}")
        named = chains(min(texts.trace.manifest.draft_sets[texts.draft].depth, cost.most_drafted))
        lengths = {policy.policy_id: length for length, policy in enumerate(named)}
        about = BatchPrices(one.batch, cost.cost_id, one.prices.heading, one.what_if)
        found.append(batch_choice(_results(named, one.prices, texts), lengths, about))
    return found


def chains(longest: int) -> list[NamedPolicy]:
    """Plain decoding and the chains of every length, so that a policy's place is how many tokens it drafts."""
    return parse_policies(["ar", *([f"chain:length=1..{longest}"] if longest > 0 else [])])


def _results(named: Sequence[NamedPolicy], prices: Prices, texts: ExportedTexts) -> Results:

    ready = ReadyRows([policy_row(one, prices) for one in named])
    found = []
    with progress_bar(texts.progress, "batch sizes", "sequence", len(texts.wanted)) as bar:
        for some in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE):
            found.append(results_of(ready.rows, ready.sums(some), some, texts.trace, texts.draft))
            bar.update(len(some.sequences))
    return joined_results(found)
