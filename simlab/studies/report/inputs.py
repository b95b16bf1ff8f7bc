"""What a report is of: result rows, the trace they come from, prices, and what was chosen beforehand."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simlab.cost import CostTable
from simlab.errors import SimlabError, UsageError
from simlab.studies.inputs.asked import asked_for, replay_prices
from simlab.studies.inputs.prices import Prices
from simlab.studies.inputs.shelf import CommandShelf
from simlab.studies.replay.run import replay_trace

if TYPE_CHECKING:
    from simlab.analysis.report.results import ReportResults
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.traces.artefacts.confirmation import Confirmation
    from simlab.traces.artefacts.optimum import Optimum
    from simlab.traces.format.records import SequenceRecord
    from simlab.traces.reader import Trace
    from simlab.traces.results.rows import Results

USUAL = (
    "ddtree:budget=1..32",
    "ddtree:budget=40/48/64/96/128",
    "presto:budget=4/8/12/16/24/32/48/64",
    "caddtree",
    "price",
    "bastion",
)
"""What is replayed where nothing is named."""

_WITHOUT_PRICES = ("ddtree:budget=1..32", "ddtree:budget=40/48/64/96/128/256")


@dataclass(frozen=True)
class ReportInputs:
    """What was asked for, read and checked.

    Attributes:
        rows: result rows, all of them.
        results: those at one machine's prices, and measured ones.
        trace: None where it is not at hand; likewise what hangs on it.
        draft: the draft set.
        prices: of the predicted rows, where the file is at hand.
        shelf: artefacts for policies.
        optimum: what `simlab optimize` chose.
        confirmed: summaries of the confirmations.
        missing: what cannot be shown, and why, and what must be known of the rest, a sentence each.
        wanted: sequences of the trace that have rows.
        served: how texts were served and what that does to intervals, where several were at a time; else empty.
    """

    rows: "Results"
    results: "ReportResults"
    trace: "Trace | None"
    draft: str | None
    prices: Prices | None
    shelf: CommandShelf | None
    optimum: "Optimum | None"
    confirmed: "tuple[Confirmation, ...]"
    missing: tuple[str, ...]
    wanted: tuple[int, ...]
    served: str

    @property
    def judged(self) -> tuple[tuple[str, str], ...]:
        """Of each policy that ran, its label and whether its text is the target's; of several confirmations all."""
        rows = [row for one in self.confirmed for row in one.rows if row.get("lossless")]
        return tuple(dict.fromkeys((str(row["policy"]), str(row["lossless"])) for row in rows))

    @property
    def cost(self) -> "CostTable | None":
        """The prices themselves."""
        return None if self.prices is None else self.prices.cost

    def texts(self) -> "list[SequenceRecord]":
        """Those of the trace that have rows."""
        wanted = set(self.wanted)
        return [] if self.trace is None else [one for one in self.trace.sequences() if one.index in wanted]

    def named(self, labels: Sequence[str]) -> "list[NamedPolicy]":
        """Policies by the labels of their rows; those that cannot be made again are left out."""
        from simlab.policies.parsing.parse import parse_policies

        found = []
        for label in labels:
            try:
                found += parse_policies([label], self.shelf)
            except SimlabError:
                continue
        return found


def inputs_of(options: argparse.Namespace) -> ReportInputs:
    """What the options name.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    from simlab.traces.artefacts.optimum import read_optimum

    optimum = None if options.optimum is None else read_optimum(options.optimum)
    found = _of_results(options) if options.results else _of_replay(options)
    return replace(found, optimum=optimum)


def _of_replay(options: argparse.Namespace) -> ReportInputs:
    from simlab.traces.reader import open_trace, packaged_trace

    trace = open_trace(options.trace if options.trace is not None else packaged_trace())
    draft = trace.draft_name(options.draft)
    priced = replay_prices(options.cost, trace, draft, [], options.limit)
    texts = options.policy or (_WITHOUT_PRICES if priced.cost is None else USUAL)
    (asked,) = asked_for(texts, [options.cost] if options.cost else [], trace, draft, options.limit)
    rows = replay_trace(trace, draft, [asked], options.limit)
    return _joined(rows, asked.prices.cost_id, trace, draft, asked.prices, (), "")


def _of_results(options: argparse.Namespace) -> ReportInputs:
    from simlab.traces.artefacts.confirmation import read_confirmation
    from simlab.traces.results.rows import joined_results, read_results

    files = [path / "results.parquet" if path.is_dir() else path for path in options.results]
    rows = joined_results([read_results(path) for path in files])
    if rows.is_empty():
        raise UsageError(f"{', '.join(map(str, files))}: there are no rows")
    texts = list(rows["text_id"].unique(maintain_order=True))
    if len(texts) > 1:
        raise UsageError(f"a report is of one set of texts; the results are of {', '.join(texts)}: give those of one")
    served = _served(rows)
    confirmed = tuple(read_confirmation(path) for path in options.results if path.is_dir())
    trace = _trace_of(options, texts[0])
    draft = None if trace is None else _draft_of(options, trace, rows)
    cost_id = _cost_id(rows)
    prices = None if trace is None or draft is None else _prices_of(options, trace, draft, cost_id)
    return _joined(rows, cost_id, trace, draft, prices, confirmed, served)


def _joined(
    rows: "Results",
    cost_id: str | None,
    trace: "Trace | None",
    draft: str | None,
    prices: Prices | None,
    confirmed: "tuple[Confirmation, ...]",
    served: str,
) -> ReportInputs:
    from simlab.analysis.report.results import split_rows

    missing = []
    if trace is None:
        missing.append("Sections about single rounds need the trace: give it with --trace DIR.")
    if prices is None or prices.cost is None:
        missing.append("Sections about prices need the cost file of the rows: give it with --cost FILE.")
    shelf = None if trace is None or draft is None else CommandShelf(prices or Prices(None, "none", ""), trace, draft)
    wanted = tuple(sorted(set(rows["sequence"].to_list())))
    missing += [served] if served else []
    return ReportInputs(
        rows, split_rows(rows, cost_id), trace, draft, prices, shelf, None, confirmed, tuple(missing), wanted, served
    )


def _served(rows: "Results") -> str:
    """What to know of rows of several texts at a time; empty where each ran alone.

    Raises:
        UsageError: the rows are of several numbers of texts at a time, under the same labels.
    """
    from simlab.analysis.table.summaries import BASELINE

    # Plain decoding has no setting of its own.
    settings = rows.filter(rows["name"] == BASELINE)["settings"].unique()
    batches = sorted({int(json.loads(one).get("batch", 1)) for one in settings})
    if len(batches) > 1:
        listed = " and ".join(map(str, batches))
        raise UsageError(f"a report is of one number of texts at a time; the results are of {listed}: give one's alone")
    if batches in ([], [1]):
        return ""
    if "measured" in set(rows["kind"]):
        narrow = "intervals here are over prompts and too narrow: those of confirm.json are over groups"
    else:
        narrow = "intervals are over prompts, and leave out that texts of a batch wait for each other"
    return f"Texts were served {batches[0]} at a time, under plain decoding too; {narrow}."


def _trace_of(options: argparse.Namespace, text_id: str) -> "Trace | None":
    """The trace that was named, or one at hand whose texts these are."""
    from simlab.traces.reader import open_trace, packaged_trace

    if options.trace is not None:
        trace = open_trace(options.trace)
        if trace.text_id != text_id:
            raise UsageError(f"--trace {options.trace} holds the texts {trace.text_id}; the results are of {text_id}")
        return trace
    for folder in (*(path / "trace" for path in options.results), packaged_trace()):
        if (folder / "manifest.json").is_file():
            trace = open_trace(folder)
            if trace.text_id == text_id:
                return trace
    return None


def _draft_of(options: argparse.Namespace, trace: "Trace", rows: "Results") -> str:
    ids = set(rows["draft_id"].drop_nulls())
    named = [name for name, draft_id in trace.draft_ids.items() if draft_id in ids]
    return trace.draft_name(options.draft if options.draft is not None else named[0] if len(named) == 1 else None)


def _cost_id(rows: "Results") -> str | None:
    """The prices of most predicted rows."""
    found = rows.filter(rows["kind"] == "predicted")["cost_id"].drop_nulls()
    return None if found.is_empty() else str(found.mode()[0])


def _prices_of(options: argparse.Namespace, trace: "Trace", draft: str, cost_id: str | None) -> Prices | None:
    """The prices of the rows, from the file that was named or from one that comes with simlab."""
    from simlab.traces.artefacts.cost import packaged_cost_files

    if options.cost is not None:
        prices = replay_prices(options.cost, trace, draft, [], None)
        if cost_id is not None and prices.cost_id != cost_id:
            raise UsageError(f"--cost {options.cost} holds the prices {prices.cost_id}; the rows are of {cost_id}")
        return prices
    for path in packaged_cost_files():
        try:
            prices = replay_prices(path, trace, draft, [], None)
        except SimlabError:
            continue
        if prices.cost_id == cost_id:
            return prices
    return None
