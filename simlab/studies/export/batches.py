"""Which chain is fastest at each batch size, for ``simlab export``: prices of each, and the replay that asks them."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from simlab.analysis.export.batch_choices import BatchChoice, BatchPrices, batch_choice
from simlab.errors import CostError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.prices import Prices, prices_for_trace, what_if_prices
from simlab.studies.inputs.trace import first_prompts
from simlab.studies.replay.rows import ReadyRows, policy_row, results_of
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.reader import Trace, open_trace, packaged_trace
from simlab.traces.results.rows import Results, joined_results

HOW = (
    "Give a cost file of each batch size with --cost (`simlab profile` measures one text at a time; "
    "`simlab import-cost --batch N` takes timings of N texts), or ask for a what-if with --batches 1,2,4"
)


@dataclass(frozen=True, slots=True)
class Priced:
    """Prices of one batch size.

    Attributes:
        batch: texts at a time.
        prices: of a round in which each of them goes one round further.
        what_if: whether they were worked out from those of one text.
    """

    batch: int
    prices: Prices
    what_if: bool


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts that are replayed.

    Attributes:
        trace: where they are.
        draft: the draft set.
        wanted: the sequences.
        progress: whether a bar is shown; None: on a terminal.
    """

    trace: "Trace"
    draft: str
    wanted: Sequence[int]
    progress: bool | None

    @property
    def hidden(self) -> bool:
        """Whether no bar is shown."""
        return not (sys.stderr.isatty() if self.progress is None else self.progress)


def texts_of_options(options: argparse.Namespace) -> Texts:
    """What the options name.

    Raises:
        SimlabError: there is no such trace or draft set.
    """
    trace = open_trace(options.trace if options.trace is not None else packaged_trace())
    return Texts(trace, trace.draft_name(options.draft), first_prompts(trace, options.limit), options.progress)


def priced_batches(
    costs: Sequence[Path], batches: Sequence[int] | None, texts: Texts, limit: int | None
) -> list[Priced]:
    """Prices by batch size, ascending; without --batches those of the cost files, which may be one.

    Raises:
        CostError: two files are of one batch size, there are no prices of one text to work others out from, or these
            do not reach far enough.
    """
    measured: dict[int, Priced] = {}
    for path in costs or (None,):
        prices = prices_for_trace(path, texts.trace, texts.draft, limit)
        batch = _batch_of(path)
        if batch in measured:
            raise CostError(f"two cost files have the prices of {batch} texts at a time; give one of each batch size")
        measured[batch] = Priced(batch, prices, what_if=False)
    if batches is None:
        return [measured[batch] for batch in sorted(measured)]
    return [measured[batch] if batch in measured else _worked_out(batch, measured) for batch in batches]


def _batch_of(path: Path | None) -> int:

    return 1 if path is None else read_cost_file(path).batch


def _worked_out(batch: int, measured: dict[int, Priced]) -> Priced:
    if 1 not in measured:
        raise CostError(
            f"no prices of {batch} texts at a time, and none of one text to work them out from; give those with --cost"
        )
    if measured[1].prices.cost is None:
        raise CostError(f"a batch size needs prices. {measured[1].prices.why_none}")
    return Priced(batch, what_if_prices(measured[1].prices, f"batch={batch}"), what_if=True)


def has_table(priced: Sequence[Priced], batches: Sequence[int] | None) -> bool:
    """Whether a table over batch sizes was asked for: by name, or by prices of several."""
    return batches is not None or len(priced) > 1


def batch_table(priced: Sequence[Priced], texts: Texts) -> "list[BatchChoice]":
    """The fastest chain at each batch size, of all lengths that have prices.

    Raises:
        CostError: prices are missing, or do not reach a text's length.
    """
    found = []
    for one in priced:
        cost = one.prices.cost
        if cost is None:
            raise CostError(f"a batch size needs prices. {one.prices.why_none}")
        named = chains(min(texts.trace.manifest.draft_sets[texts.draft].depth, cost.most_drafted))
        lengths = {policy.policy_id: length for length, policy in enumerate(named)}
        about = BatchPrices(one.batch, cost.cost_id, one.prices.heading, one.what_if)
        found.append(batch_choice(_results(named, one.prices, texts), lengths, about))
    return found


def chains(longest: int) -> "list[NamedPolicy]":
    """Plain decoding and the chains of every length, so that a policy's place is how many tokens it drafts."""
    return parse_policies(["ar", *([f"chain:length=1..{longest}"] if longest > 0 else [])])


def _results(named: "Sequence[NamedPolicy]", prices: Prices, texts: Texts) -> "Results":

    ready = ReadyRows([policy_row(one, prices) for one in named])
    found = []
    with tqdm(total=len(texts.wanted), desc="batch sizes", unit="sequence", delay=2, disable=texts.hidden) as bar:
        for some in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE):
            found.append(results_of(ready.rows, ready.sums(some), some, texts.trace, texts.draft))
            bar.update(len(some.sequences))
    return joined_results(found)
