"""What a log of one policy's rounds would have predicted for others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simlab.analysis.sparse.logs import ESTIMATORS, at_every_root, borrowed_rows, depends_on_root_alone, estimated
from simlab.analysis.sparse.table import (
    DENSE,
    SparseChoice,
    SparseFigure,
    SparseLog,
    borrowed_row,
    num_left_out,
    sparse_choices,
    sparse_figures,
)
from simlab.analysis.sparse.text import sparse_notes, sparse_text
from simlab.analysis.table.text import within_width
from simlab.arrays import Longs
from simlab.channels.needs import channels_read
from simlab.columns import TextRounds
from simlab.errors import TraceError, UsageError
from simlab.policies.engine.replay import Replay, empty_replay_sums, sums_of_policy
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts, in_sample_note, largest_budget
from simlab.studies.inputs.prices import Prices, prices_for_trace, what_if_prices
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import TraceSource, first_prompts, opened
from simlab.studies.replay.rows import policy_row, results_of
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.studies.result import StudyResult
from simlab.traces.reader import Trace
from simlab.traces.results.files import read_results
from simlab.traces.results.rows import Results, joined_results

RECORDED = ("chain",)
POLICIES = ("chain", "ddtree:budget=8/16/32/64")
"""What is recorded, and what predicted, where nothing is named."""


@dataclass(frozen=True, slots=True)
class SparseInputs:
    """What was asked for, read and checked.

    Attributes:
        recorded: those whose rounds were logged.
        policies: all that are predicted; those of ``recorded`` are among them.
        measured: result rows of a runner; None: none were given.
        measured_at: where they are.
    """

    trace: Trace
    draft: str
    prices: Prices
    recorded: Sequence[NamedPolicy]
    policies: Sequence[NamedPolicy]
    measured: Results | None
    measured_at: Path | None
    wanted: Sequence[int]
    in_sample: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class SparseTable(StudyResult):
    """What each log predicts, beside the dense trace and a measurement.

    Attributes:
        inputs: what was read.
        logs: one of each recorded policy.
        figures: of each log, a figure of each policy and estimate.
        choices: of each log, which policy it would have chosen.
    """

    inputs: SparseInputs
    logs: tuple[SparseLog, ...]
    figures: tuple[tuple[SparseFigure, ...], ...]
    choices: tuple[tuple[SparseChoice, ...], ...]

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab sparse --json`` prints."""
        inputs, logs, figures = self.inputs, self.logs, self.figures
        return {
            "text_id": inputs.trace.text_id,
            "draft_ids": {inputs.draft: inputs.trace.draft_ids[inputs.draft]},
            "cost": inputs.prices.cost_id,
            "in_sample": list(inputs.in_sample),
            "logs": [{"recorded_policy": one.policy, "rows": one.num_rows, "roots": one.num_roots} for one in logs],
            "rows": [one.row() for some in figures for one in some],
            "borrowed": [borrowed_row(one, label) for one in logs for label in one.borrowed],
            "choices": [one.row() for some in self.choices for one in some],
        }

    def text(self) -> str:
        """The tables as ``simlab sparse`` prints them."""
        inputs, logs, figures = self.inputs, self.logs, self.figures
        lines = [f"trace    {inputs.trace.place} (text {inputs.trace.text_id}), {figures[0][0].prompts} prompts"]
        lines.append(f"latency  {inputs.prices.heading}")
        if inputs.measured is not None:
            lines.append(f"measured {inputs.measured_at}")
            missing = num_left_out(logs[0], [one.label for one in inputs.policies])
            if missing:
                lines.append(f"Left out, not measured with the same turns and samples: {missing} prompts of the trace.")
        parts = [within_width("\n".join(lines))]
        parts += [sparse_text(*one) for one in zip(logs, figures, self.choices, strict=True)]
        parts.append(sparse_notes([one for some in figures for one in some]))
        if inputs.prices.cost is None:
            parts.append(inputs.prices.why_none)
        if inputs.in_sample:
            parts.append(in_sample_note(inputs.in_sample))
        return "\n\n".join(parts)


def sparse(
    trace: TraceSource | None = None,
    policies: Sequence[str] = POLICIES,
    *,
    recorded: Sequence[str] = RECORDED,
    measured: str | Path | None = None,
    cost: str | Path | None = None,
    what_if: str | None = None,
    draft: str | None = None,
    limit: int | None = None,
    progress: bool | None = None,
) -> SparseTable:
    """What a log of one policy's rounds would have predicted for the others.

    Args:
        trace: a trace, or where one is; None: the one beside ``measured``, else the sample that comes with simlab.
        policies: what is predicted, as they are typed behind ``-p``.
        recorded: whose rounds were logged.
        measured: a folder of ``simlab confirm``, or its result file.
        cost: a cost file, or the name of a shipped one.
        what_if: changes of the latency profile, a hypothetical machine, not measured: ``"verify*0.5,tile=64"``.
        draft: the draft set; None: the only one.
        limit: the first so many prompts only.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    place = None if measured is None else Path(measured)
    if trace is None and place is not None and (place / "trace").is_dir():
        trace = place / "trace"
    if place is not None and what_if is not None:
        raise UsageError("--measured is of a real machine and --what-if of a hypothetical one; give one of the two")
    trace, path = opened(trace), None if cost is None else Path(cost)
    draft = trace.draft_name(draft)
    prices = what_if_prices(prices_for_trace(path, trace, draft, limit), what_if)
    inputs = _inputs(trace, draft, prices, policies or POLICIES, recorded or RECORDED, place, limit)
    labels = [one.label for one in inputs.policies]
    logs = _logs(inputs, progress)
    figures = tuple(tuple(sparse_figures(log, labels)) for log in logs)
    if not figures[0]:
        raise UsageError("there is no prompt that the trace and the measurement both have; nothing can be compared")
    return SparseTable(inputs, tuple(logs), figures, tuple(tuple(sparse_choices(some)) for some in figures))


def _inputs(
    trace: Trace,
    draft: str,
    prices: Prices,
    typed: Sequence[str],
    typed_recorded: Sequence[str],
    measured_at: Path | None,
    limit: int | None,
) -> SparseInputs:
    artefacts = TraceArtefacts(prices, trace, draft)
    recorded = parse_policies(typed_recorded, artefacts)
    predicted = parse_policies(typed, artefacts)
    ids = {one.policy_id for one in predicted}
    policies = [*(one for one in recorded if one.policy_id not in ids), *predicted]
    by_id = {one.policy_id: one for one in policies}
    kept = trace.manifest.draft_sets[draft]
    for one in policies:
        _check(one)
        check_needs(one.policy, trace.holds(draft))
    wanted = first_prompts(trace, limit)
    if not any(len(trace.sequences()[index].text) > 1 for index in wanted):
        raise TraceError(f"{trace.place} holds no rounds, so there is nothing to log")
    return SparseInputs(
        trace=trace,
        draft=draft,
        prices=prices.reaching(largest_budget(policies, kept.depth)),
        recorded=[by_id[one.policy_id] for one in recorded],
        policies=policies,
        measured=None if measured_at is None else _measured(measured_at, policies),
        measured_at=measured_at,
        wanted=wanted,
        in_sample=artefacts.in_sample(policies),
    )


def _check(one: NamedPolicy) -> None:

    if not depends_on_root_alone(one.policy):
        raise UsageError(
            f"what {one.label} does at a root cannot be read from a log of other rounds: it drafts nothing, is code of "
            "its own, or remembers its earlier rounds; name a policy whose tree depends on the root alone, such as "
            "ddtree:budget=16"
        )


def _measured(place: Path, policies: Sequence[NamedPolicy]) -> Results:
    """The measured rows of the policies, under the labels they have here."""
    rows = read_results(place / "results.parquet" if place.is_dir() else place)
    rows = rows.filter(rows["kind"] == "measured")
    labels = {one.policy_id: one.label for one in policies}
    found = rows.filter(rows["policy_id"].is_in(list(labels)))
    if found.is_empty():
        there = ", ".join(rows["policy"].unique(maintain_order=True)) or "no measured rows"
        raise UsageError(f"{place} measured none of {', '.join(labels.values())}; it has {there}")
    return found.with_columns(policy=found["policy_id"].replace_strict(labels))


class _Gathered:
    """Result rows by recorded policy and source, and how many starts were recorded."""

    def __init__(self, inputs: SparseInputs) -> None:
        self._inputs = inputs
        self._rows = [policy_row(one, inputs.prices) for one in inputs.policies]
        self.num_roots = 0
        self.dense: list[Results] = []
        self.estimated: dict[tuple[str, str], list[Results]] = {}
        self.num_rows: dict[str, int] = {}
        self.starts: dict[tuple[str, str], list[int]] = {}
        self.borrowed: dict[tuple[str, str], Longs] = {}

    def add(self, texts: RecordedTexts) -> None:
        """Add the rounds of some more texts."""
        policies, firsts = [one.policy for one in self._inputs.policies], texts.roots.firsts
        dense = Replay([(one, None) for one in policies]).rounds(texts)
        every = at_every_root(policies, texts)
        self.num_roots += int(firsts[-1])
        self.dense.append(self._results(dense, texts))
        by_label = dict(zip((one.label for one in self._inputs.policies), dense, strict=True))
        for label in (one.label for one in self._inputs.recorded):
            rounds = by_label[label]
            self.num_rows[label] = self.num_rows.get(label, 0) + len(rounds.roots)
            for one, own, each in zip(self._inputs.policies, dense, every, strict=True):
                sums = borrowed_rows(each, own, rounds, firsts)
                self.borrowed[label, one.label] = self.borrowed.get((label, one.label), 0) + sums
                met = self.starts.setdefault((label, one.label), [0, 0])
                met[0] += int(np.isin(own.roots, rounds.roots).sum())
                met[1] += len(own.roots)
            for name in ESTIMATORS:
                some = [estimated(name, each, rounds, firsts) for each in every]
                self.estimated.setdefault((label, name), []).append(self._results(some, texts))

    def _results(self, found: Sequence[TextRounds], texts: RecordedTexts) -> Results:

        sums = [
            sums_of_policy(one.policy, rounds, texts, row.cost)
            for one, row, rounds in zip(self._inputs.policies, self._rows, found, strict=True)
        ]
        together = empty_replay_sums(len(sums), len(texts.sequences))
        for place, one in enumerate(sums):
            together.fill(place, one)
        return results_of(self._rows, together, texts, self._inputs.trace, self._inputs.draft)

    def log(self, one: NamedPolicy) -> SparseLog:
        """What the rounds of one policy predict."""
        predicted = {DENSE: joined_results(self.dense)}
        predicted |= {name: joined_results(self.estimated[one.label, name]) for name in ESTIMATORS}
        shares = {
            each.label: self.starts[one.label, each.label][0] / self.starts[one.label, each.label][1]
            for each in self._inputs.policies
        }
        borrowed = {each.label: self.borrowed[one.label, each.label] for each in self._inputs.policies}
        measured = self._inputs.measured
        return SparseLog(one.label, self.num_rows[one.label], self.num_roots, predicted, measured, shares, borrowed)


def _logs(inputs: SparseInputs, progress: bool | None) -> list[SparseLog]:
    """What the rounds of each recorded policy predict."""
    gathered, channels = _Gathered(inputs), channels_read(one.policy for one in inputs.policies)
    total = sum(len(inputs.trace.sequences()[index].text) for index in inputs.wanted)
    with progress_bar(progress, "sparse", "token", total, unit_scale=True) as bar:
        for texts in inputs.trace.recorded_texts(inputs.draft, inputs.wanted, ROOTS_AT_ONCE, channels):
            gathered.add(texts)
            bar.update(sum(len(one.text) for one in texts.sequences))
    return [gathered.log(one) for one in inputs.recorded]
