"""What ``simlab sparse`` reads, and what logs of each recorded policy predict."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.arrays import Longs
from simlab.errors import TraceError, UsageError
from simlab.replay import check_needs
from simlab.studies.inputs.asked import first_prompts, replay_prices
from simlab.studies.inputs.prices import Prices
from simlab.studies.inputs.shelf import CommandShelf
from simlab.studies.replay.rows import policy_row, results_of
from simlab.studies.replay.run import ROOTS_AT_ONCE

if TYPE_CHECKING:
    from simlab.analysis.sparse.table import SparseLog
    from simlab.columns import TextRounds
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.recorded import RecordedTexts
    from simlab.traces.reader import Trace
    from simlab.traces.results.rows import Results

RECORDED = ("chain",)
POLICIES = ("chain", "ddtree:budget=8/16/32/64")
"""What is recorded, and what predicted, where nothing is named."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was asked for, read and checked.

    Attributes:
        recorded: those whose rounds were logged.
        policies: all that are predicted; those of ``recorded`` are among them.
        measured: result rows of a runner; None: none were given.
    """

    trace: "Trace"
    draft: str
    prices: Prices
    recorded: "Sequence[NamedPolicy]"
    policies: "Sequence[NamedPolicy]"
    measured: "Results | None"
    wanted: Sequence[int]
    in_sample: tuple[str, ...]


def inputs_of(options: argparse.Namespace) -> Inputs:
    """What the options name.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    from simlab.policies.parsing.parse import parse_policies
    from simlab.traces.reader import open_trace, packaged_trace

    place = options.trace
    if place is None and options.measured is not None and (options.measured / "trace").is_dir():
        place = options.measured / "trace"
    trace = open_trace(place if place is not None else packaged_trace())
    draft = trace.draft_name(options.draft)
    shelf = CommandShelf(replay_prices(options.cost, trace, draft, [], options.limit), trace, draft)
    recorded = parse_policies(options.recorded or RECORDED, shelf)
    asked = parse_policies(options.policy or POLICIES, shelf)
    ids = {one.policy_id for one in asked}
    policies = [*(one for one in recorded if one.policy_id not in ids), *asked]
    by_id = {one.policy_id: one for one in policies}
    recorded = [by_id[one.policy_id] for one in recorded]
    kept = trace.manifest.draft_sets[draft]
    for one in policies:
        _check(one)
        check_needs(one.policy, kept.exact_budget, kept.min_width)
    prices = replay_prices(options.cost, trace, draft, policies, options.limit)
    wanted = first_prompts(trace, options.limit)
    if not any(len(trace.sequences()[index].text) > 1 for index in wanted):
        raise TraceError(f"{trace.place} holds no rounds, so there is nothing to log")
    measured = None if options.measured is None else _measured(options.measured, policies)
    return Inputs(trace, draft, prices, recorded, policies, measured, wanted, shelf.in_sample(policies))


def _check(one: "NamedPolicy") -> None:
    from simlab.analysis.sparse.logs import depends_on_root_alone

    if not depends_on_root_alone(one.policy):
        raise UsageError(
            f"what {one.label} does at a root cannot be read from a log of other rounds: it drafts nothing, is code of "
            "its own, or remembers its earlier rounds; name a policy whose tree depends on the root alone, such as "
            "ddtree:budget=16"
        )


def _measured(place: Path, policies: "Sequence[NamedPolicy]") -> "Results":
    """The measured rows of the policies, under the labels they have here."""
    from simlab.traces.results.rows import read_results

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

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._rows = [policy_row(one, inputs.prices) for one in inputs.policies]
        self.num_roots = 0
        self.dense: list[Results] = []
        self.estimated: dict[tuple[str, str], list[Results]] = {}
        self.num_rows: dict[str, int] = {}
        self.starts: dict[tuple[str, str], list[int]] = {}
        self.borrowed: dict[tuple[str, str], Longs] = {}

    def add(self, texts: "RecordedTexts") -> None:
        """Some more texts."""
        from simlab.analysis.sparse.logs import ESTIMATORS, at_every_root, borrowed_rows, estimated
        from simlab.policies.engine.replay import Replay

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

    def _results(self, found: "Sequence[TextRounds]", texts: "RecordedTexts") -> "Results":
        from simlab.policies.engine.replay import ReplaySums, stages_paid, sums_of_rounds

        cost, policies = self._inputs.prices.cost, self._inputs.policies
        sums = [
            sums_of_rounds(rounds, texts, cost, stages_paid(one.policy))
            for one, rounds in zip(policies, found, strict=True)
        ]
        counts, seconds = (
            np.concatenate(parts) for parts in zip(*((one.counts, one.seconds) for one in sums), strict=True)
        )
        return results_of(self._rows, ReplaySums(counts, seconds), texts, self._inputs.trace, self._inputs.draft)

    def log(self, one: "NamedPolicy") -> "SparseLog":
        """What the rounds of one policy predict."""
        from simlab.analysis.sparse.logs import ESTIMATORS
        from simlab.analysis.sparse.table import DENSE, SparseLog
        from simlab.traces.results.rows import joined_results

        predicted = {DENSE: joined_results(self.dense)}
        predicted |= {name: joined_results(self.estimated[one.label, name]) for name in ESTIMATORS}
        shares = {
            each.label: self.starts[one.label, each.label][0] / self.starts[one.label, each.label][1]
            for each in self._inputs.policies
        }
        borrowed = {each.label: self.borrowed[one.label, each.label] for each in self._inputs.policies}
        measured = self._inputs.measured
        return SparseLog(one.label, self.num_rows[one.label], self.num_roots, predicted, measured, shares, borrowed)


def logs_of(inputs: Inputs, progress: bool | None) -> "list[SparseLog]":
    """What the rounds of each recorded policy predict; ``progress`` as `simlab.studies.replay.run.Manner` has it."""
    from tqdm import tqdm

    gathered = _Gathered(inputs)
    shown = sys.stderr.isatty() if progress is None else progress
    total = sum(len(inputs.trace.sequences()[index].text) for index in inputs.wanted)
    with tqdm(total=total, desc="sparse", unit="token", unit_scale=True, delay=2, disable=not shown) as bar:
        for texts in inputs.trace.recorded_texts(inputs.draft, inputs.wanted, ROOTS_AT_ONCE):
            gathered.add(texts)
            bar.update(sum(len(one.text) for one in texts.sequences))
    return [gathered.log(one) for one in inputs.recorded]
