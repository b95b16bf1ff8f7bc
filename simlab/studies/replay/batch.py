"""``simlab replay --batch N``: texts that are served N at a time, each round a round of all of them."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tqdm import tqdm

from simlab.channels.needs import channels_read
from simlab.ids import content_id
from simlab.policies.composition import check_batch
from simlab.policies.engine.lock_step import served_sums
from simlab.policies.parsing.parse import NamedPolicy
from simlab.recorded import texts_of
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import PoliciesOnMachine
from simlab.studies.inputs.trace import TraceJob, first_prompts, trace_handle
from simlab.studies.replay.rows import ReplayRow, policy_row, results_of
from simlab.studies.replay.run import ReplayRun
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results, joined_results, rows_in_order
from simlab.workers.threads import ignore_progress


def replay_batches(
    trace: Trace, draft: str, asked: Sequence[PoliciesOnMachine], limit: int | None, batch: int, options: ReplayRun
) -> Results:
    """Result rows, for each sequence and each machine one per policy; the seconds of a row are what its text waited.

    Args:
        trace: the recording.
        draft: the draft set.
        asked: policies, and prices of ``batch`` texts at a time.
        limit: the first so many prompts only.
        batch: texts at a time; they come in the order of the trace.
        options: workers and progress; nothing is kept before the end.

    Raises:
        MissingChannelError: the trace does not hold what a policy reads; nothing was replayed.
        CostError: a round has a longer context or larger trees than has a price.
        PolicyError: a policy of the batch has no latency profile of as many texts; nothing was replayed.
    """
    for policy in (policy for machine in asked for policy in machine.policies):
        check_needs(policy.policy, trace.holds(draft))
        check_batch(policy.policy, batch)
    rows = [policy_row(policy, machine.prices) for machine in asked for policy in policies_at(machine.policies, batch)]
    wanted = first_prompts(trace, limit)
    channels = channels_read(policy.policy for machine in asked for policy in machine.policies)
    job = _BatchJob(trace_handle(trace, options.workers), draft, tuple(rows), tuple(wanted), channels, batch)
    shown = sys.stderr.isatty() if options.progress is None else options.progress
    with tqdm(total=len(rows), desc="replay", unit="policy", delay=2, disable=not shown) as bar:
        parts = []
        for results in options.workers.results(job, range(len(rows)), ignore_progress):
            parts.append(results)
            bar.update()
    order = [(row.prices.cost_id, row.policy_id, row.identity["policy"]) for row in rows]
    return rows_in_order(joined_results(parts), order, wanted)


@dataclass
class _BatchJob(TraceJob):
    """A replay in batches, with all texts in memory; a unit is the number of a row.

    Attributes:
        rows: one for each policy and machine.
        wanted: the sequences, in the order of the trace.
        channels: that are read.
        batch: texts at a time.
    """

    rows: tuple[ReplayRow, ...]
    wanted: tuple[int, ...]
    channels: tuple[str, ...]
    batch: int

    def make_ready(self) -> None:
        """Read all texts into memory."""
        self._texts = texts_of(list(self.trace.recorded(self.draft, self.wanted, self.channels)))

    def parts(self, unit: int) -> Iterator[ReplayRow]:
        """The row of that number."""
        yield self.rows[unit]

    def work(self, part: ReplayRow) -> Results:
        """One policy on all texts."""
        assert part.policy is not None
        sums = served_sums(part.policy.policy, self._texts, self.batch, part.cost)
        return results_of([part], sums, self._texts, self.trace, self.draft)


def policies_at(policies: Sequence[NamedPolicy], batch: int) -> tuple[NamedPolicy, ...]:
    """Policies where so many texts run at a time: the number is a setting, and with more than one ids differ.

    Their rounds may be other ones then, and their seconds mean something else.
    """
    if batch == 1:
        return tuple(policies)
    return tuple(
        replace(policy, policy_id=policy_id_at(policy.policy_id, batch), settings={**policy.settings, "batch": batch})
        for policy in policies
    )


def policy_id_at(policy_id: str, batch: int) -> str:
    """The id of a policy where so many texts, more than one, run at a time; from its id alone."""
    return content_id({"policy": policy_id, "batch": batch})


def batch_note(batch: int) -> str:
    """What to know of such a table."""
    return (
        f"{batch} texts at a time, in the order of the trace; where one ends the next begins, and behind the last,\n"
        "some from the beginning run uncounted. A text waits for the whole round of its batch; speeds are of each;\n"
        "autoregressive decoding is one token of each in a pass."
    )
