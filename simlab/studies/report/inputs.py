"""What a report is of: result rows, the trace they come from, prices, and what was chosen beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import polars as pl

from simlab.analysis.crosscheck.summary import CrosscheckSummary
from simlab.analysis.report.results import ReportResults, split_rows
from simlab.analysis.table.summaries import BASELINE
from simlab.channels.needs import check_channels
from simlab.cost import CostTable
from simlab.errors import SimlabError, TraceError, UsageError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policies.parsing.user_file import names_code
from simlab.policy import GivenPolicies
from simlab.studies.inputs.artefacts import PoliciesOnMachine, TraceArtefacts, priced_policies
from simlab.studies.inputs.prices import Prices, no_prices, prices_for_trace
from simlab.studies.inputs.progress import step
from simlab.studies.inputs.trace import TraceSource, opened
from simlab.studies.replay.run import replay_trace
from simlab.traces.artefacts.confirmation import Confirmation, read_confirmation, results_of
from simlab.traces.artefacts.cost import example_cost_files, packaged_cost_files, read_packaged_cost
from simlab.traces.artefacts.optimum import Optimum
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.reader import Trace, open_trace, packaged_trace
from simlab.traces.results.files import read_results
from simlab.traces.results.rows import Results, joined_results, settings_of

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
        trace: None where it is not at hand; the same for what depends on it.
        draft: the draft set.
        prices: of the predicted rows, where the file is at hand.
        optimum: what `simlab optimize` chose.
        confirmed: summaries of the confirmations.
        missing: what cannot be shown, and why, and what must be known of the rest, a sentence each.
        wanted: sequences of the trace that have rows.
        crosschecks: what live engines did with these texts.
        replayed: policies of rows that were replayed for this report; of others the label is known.
    """

    rows: Results
    results: ReportResults
    trace: Trace | None
    draft: str | None
    prices: Prices | None
    optimum: Optimum | None
    confirmed: tuple[Confirmation, ...]
    missing: tuple[str, ...]
    wanted: tuple[int, ...]
    crosschecks: tuple[CrosscheckSummary, ...] = ()
    replayed: tuple[NamedPolicy, ...] = ()

    @property
    def judged(self) -> tuple[tuple[str, str], ...]:
        """Label of each policy that ran, and whether its text is the target's; of several confirmations all."""
        rows = [row for confirmation in self.confirmed for row in confirmation.rows if row.get("lossless")]
        return tuple(dict.fromkeys((str(row["policy"]), str(row["lossless"])) for row in rows))

    @property
    def cost(self) -> CostTable | None:
        """The cost table of the rows; None where it is not at hand."""
        return None if self.prices is None else self.prices.cost

    def texts(self) -> list[SequenceRecord]:
        """Those of the trace that have rows."""
        wanted = set(self.wanted)
        return (
            [] if self.trace is None else [sequence for sequence in self.trace.sequences() if sequence.index in wanted]
        )

    def named(self, labels: Sequence[str]) -> list[NamedPolicy]:
        """Policies by the labels of their rows; those that cannot be made or seen again are left out.

        A label out of a file never runs code.
        """
        known = {policy.label: policy for policy in self.replayed}
        artefacts = None
        if self.trace is not None and self.draft is not None:
            artefacts = TraceArtefacts(self.prices or no_prices(), self.trace, self.draft)
        policies: list[NamedPolicy] = []
        for label in labels:
            if label not in known and names_code(label):
                continue
            try:
                made = [known[label]] if label in known else parse_policies([label], artefacts)
                if self.trace is not None and self.draft is not None:
                    for policy in made:
                        check_channels(policy.policy, self.trace.holds(self.draft))
            except SimlabError:
                continue
            policies += made
        return policies


def inputs_of_replay(
    trace: Trace, draft_name: str | None, cost: Path | None, typed: GivenPolicies, limit: int | None
) -> ReportInputs:
    """Rows of policies that are replayed for the report."""
    if not trace.sequences():
        raise TraceError(f"{trace.location} holds no sequences, so there is nothing to report")
    draft = trace.draft_name(draft_name)
    chosen = typed or (_WITHOUT_PRICES if prices_for_trace(cost, trace, draft, limit).cost is None else USUAL)
    (machine,) = priced_policies(chosen, [] if cost is None else [cost], trace, draft, limit, by_default=not typed)
    with step("report", f"replay of {len(machine.policies)} policies"):
        rows = replay_trace(trace, draft, [machine], limit)
    return inputs_of_rows(rows, machine, trace, draft)


def inputs_of_rows(rows: Results, machine: PoliciesOnMachine, trace: Trace, draft: str) -> ReportInputs:
    """Rows that were replayed here: of the policies of one machine, and maybe of others."""
    inputs = _joined(rows, machine.prices.cost_id, trace, draft, machine.prices, (), "")
    more = tuple(filter(None, (trace.left_out, machine.left_out)))
    return replace(inputs, replayed=tuple(machine.policies), missing=(*inputs.missing, *more))


def inputs_of_results(
    paths: Sequence[Path], trace: TraceSource | None, draft_name: str | None, cost: Path | None
) -> ReportInputs:
    """Rows of result files, and of folders of confirm with their summaries."""
    files = [results_of(path) for path in paths]
    rows = joined_results([read_results(path) for path in files])
    if rows.is_empty():
        raise UsageError(f"{', '.join(map(str, files))}: there are no rows")
    texts = list(rows["text_id"].unique(maintain_order=True))
    if len(texts) > 1:
        raise UsageError(f"a report is of one set of texts; the results are of {', '.join(texts)}: give those of one")
    served = _served(rows)
    confirmed = tuple(read_confirmation(path) for path in paths if path.is_dir())
    recording = _trace_of(trace, paths, texts[0])
    draft = None if recording is None else _draft_of(recording, rows, draft_name)
    cost_id = _cost_id(rows)
    prices = None if recording is None or draft is None else _prices_of(cost, recording, draft, cost_id)
    inputs = _joined(rows, cost_id, recording, draft, prices, confirmed, served)
    _check_same_texts(inputs.results.predicted)
    _check_same_texts(inputs.results.measured)
    return inputs


def _check_same_texts(rows: Results) -> None:
    """Refuse rows of policies that are not all of the same texts, since what differs might be the texts."""
    texts_of = rows.group_by("policy", maintain_order=True).agg(pl.col("sequence").unique().sort())
    for (first, ours), (other, theirs) in pairwise(texts_of.iter_rows()):
        if ours != theirs:
            raise UsageError(
                f"the rows of {first} are of {len(ours):,} texts and those of {other} of {len(theirs):,}, not the "
                "same: give files of the same prompts; with --limit `simlab replay` has as many as a confirmation ran"
            )


def _joined(
    rows: Results,
    cost_id: str | None,
    trace: Trace | None,
    draft: str | None,
    prices: Prices | None,
    confirmed: tuple[Confirmation, ...],
    served: str,
) -> ReportInputs:
    missing = []
    if trace is None:
        missing.append("Sections about single rounds need the trace: give it with --trace DIR.")
    if prices is None or prices.cost is None:
        missing.append("Sections about latency need the cost file of the rows: give it with --cost FILE.")
    missing += [served] if served else []
    return ReportInputs(
        rows=rows,
        results=split_rows(rows, cost_id),
        trace=trace,
        draft=draft,
        prices=prices,
        optimum=None,
        confirmed=confirmed,
        missing=tuple(missing),
        wanted=tuple(sorted(set(rows["sequence"].to_list()))),
    )


def _batch_of(settings: str) -> int:
    """Texts at a time, from the settings of a row of autoregressive decoding."""
    batch = settings_of(settings).get("batch", 1)
    if not isinstance(batch, int) or batch < 1:
        raise TraceError(f"the number of texts at a time is a whole number, at least 1; a result row has {batch!r}")
    return batch


def _served(rows: Results) -> str:
    """What to know of rows of several texts at a time; empty where each ran alone."""
    # Plain decoding has no setting of its own.
    settings = rows.filter(rows["name"] == BASELINE)["settings"].unique()
    batches = sorted({_batch_of(setting) for setting in settings})
    if len(batches) > 1:
        listed = " and ".join(map(str, batches))
        raise UsageError(f"a report is of one number of texts at a time; the results are of {listed}: give one's alone")
    if batches in ([], [1]):
        return ""
    if "measured" in set(rows["kind"]):
        narrow = "intervals here are over prompts and too narrow: those of confirm.json are over groups"
    else:
        narrow = "intervals are over prompts, and leave out that texts of a batch wait for each other"
    return f"Texts were decoded {batches[0]} at a time, in autoregressive decoding too; {narrow}."


def _trace_of(source: TraceSource | None, paths: Sequence[Path], text_id: str) -> Trace | None:
    """The trace that was named, or one at hand whose texts these are."""
    if source is not None:
        trace = opened(source)
        if trace.text_id != text_id:
            raise UsageError(f"--trace {trace.location} holds the texts {trace.text_id}; the results are of {text_id}")
        return trace
    for folder in (*(path / "trace" for path in paths), packaged_trace()):
        if (folder / "manifest.json").is_file():
            trace = open_trace(folder)
            if trace.text_id == text_id:
                return trace
    return None


def _draft_of(trace: Trace, rows: Results, draft_name: str | None) -> str:
    ids = set(rows["draft_id"].drop_nulls())
    named = [name for name, draft_id in trace.draft_ids.items() if draft_id in ids]
    return trace.draft_name(draft_name if draft_name is not None else named[0] if len(named) == 1 else None)


def _cost_id(rows: Results) -> str | None:
    """The prices of most predicted rows."""
    cost_ids = rows.filter(rows["kind"] == "predicted")["cost_id"].drop_nulls()
    return None if cost_ids.is_empty() else str(cost_ids.mode()[0])


def _prices_of(cost: Path | None, trace: Trace, draft: str, cost_id: str | None) -> Prices | None:
    """The prices of the rows, from the file that was named or from one that comes with simlab."""
    if cost is not None:
        prices = prices_for_trace(cost, opened(trace, [cost]), draft)
        if cost_id is not None and prices.cost_id != cost_id:
            raise UsageError(f"--cost {cost} holds the latency profile {prices.cost_id}; the rows are of {cost_id}")
        return prices
    for path in [*packaged_cost_files(), *example_cost_files()]:
        if read_packaged_cost(path).cost_id == cost_id:
            return prices_for_trace(path, opened(trace, [path]), draft)
    return None
