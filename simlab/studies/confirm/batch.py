"""``simlab confirm --batch N``: texts that are served N at a time, group by group, predicted and run alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simlab.replay import check_needs
from simlab.studies.inputs.asked import Asked
from simlab.studies.replay.rows import policy_row, results_of

if TYPE_CHECKING:
    from simlab.analysis.confirm.groups import MachineSpeed
    from simlab.real_runner.confirm.groups import TextGroup
    from simlab.real_runner.confirm.log import ConfirmLog
    from simlab.real_runner.confirm.setup import ConfirmSetup
    from simlab.traces.reader import Trace
    from simlab.traces.results.rows import Results


@dataclass(frozen=True, slots=True, eq=False)
class BatchRan:
    """How texts were served.

    Attributes:
        batch: texts at a time.
        groups: that were served whole.
        group_runs: likewise, each repeat counted.
        machine: what the machine wrote under each policy.
    """

    batch: int
    groups: int
    group_runs: int
    machine: "tuple[MachineSpeed, ...]"

    def text(self) -> str:
        """For the heading, behind the number of prompts."""
        runs = "" if self.group_runs == self.groups else f", {self.group_runs} runs of a group"
        return f" in {self.groups} group{'' if self.groups == 1 else 's'}{runs}"

    def note(self) -> str:
        """What to know of the numbers."""
        return (
            f"{self.batch} texts at a time: a text waits for each whole round of its batch, and tokens/s are those of "
            "each text;\nthe machine writes all of them together. Where a text ends the next of its group begins, and "
            "behind the last the\nfirst run once more uncounted, in the prediction and in the run alike. Texts of a "
            "group share the seconds of their\nrounds, so [95 %] resample groups."
        )

    def value(self) -> dict[str, object]:
        """For scripts."""
        return {"batch": self.batch, "groups": self.groups, "group_runs": self.group_runs}


def predicted_groups(trace: "Trace", draft: str, asked: Asked, groups: "Sequence[TextGroup]", batch: int) -> "Results":
    """Result rows, for each sequence one per policy, of just the groups that run.

    Args:
        trace: the recording.
        draft: the draft set.
        asked: policies, and prices of ``batch`` texts at a time.
        groups: each is served by itself.
        batch: texts at a time.

    Raises:
        MissingChannelError: the trace does not hold what a policy reads; nothing was replayed.
        CostError: a round has a longer context or larger trees than has a price.
        PolicyError: a policy of the batch has no prices for as many texts; nothing was replayed.
    """
    from tqdm import tqdm

    from simlab.policies.engine.lock_step import served_sums
    from simlab.policies.rules.shared import check_batch
    from simlab.real_runner.confirm.groups import of_groups
    from simlab.recorded import texts_of
    from simlab.traces.results.rows import in_order_asked, joined_results

    kept, cost = trace.manifest.draft_sets[draft], asked.prices.cost
    for one in asked.policies:
        check_needs(one.policy, kept.exact_budget, kept.min_width)
        check_batch(one.policy, batch)
    rows = [policy_row(one, asked.prices) for one in asked.policies]
    served = [record.index for group in groups for record in group]
    parts: list[Results] = []
    with tqdm(total=len(groups), desc="replay", unit="group", delay=2) as bar:
        for read in of_groups(groups, trace.recorded(draft, served)):
            texts = texts_of(read)
            for row, one in zip(rows, asked.policies, strict=True):
                sums = served_sums(one.policy, texts, batch, cost)
                parts.append(results_of([row], sums, texts, trace, draft))
            bar.update()
    order = [(row.prices.cost_id, row.policy_id, row.identity["policy"]) for row in rows]
    return in_order_asked(joined_results(parts), order, served)


def batch_ran(setup: "ConfirmSetup", log: "ConfirmLog") -> BatchRan | None:
    """How the texts in the log were served; None where they ran one at a time."""
    from simlab.analysis.confirm.groups import machine_speed
    from simlab.real_runner.confirm.groups import finished_groups

    if setup.options.batch == 1:
        return None
    found = list(finished_groups(log))
    places = {number: place for place, number in enumerate(sorted({one.group for one in found}))}
    speeds = []
    for policy in setup.policies:
        tokens, seconds = np.zeros(len(places), np.int64), np.zeros(len(places))
        for one in found:
            for run in one.machine:
                if run.policy_id == policy.policy_id:
                    tokens[places[one.group]] += run.committed
                    seconds[places[one.group]] += run.total_s
        speeds.append(machine_speed(policy.label, policy.policy_id, tokens, seconds))
    return BatchRan(setup.options.batch, len(places), len(found), tuple(speeds))
