"""``simlab confirm --batch N``: texts that are served N at a time, group by group, predicted and run alike."""

import math
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from simlab.analysis.statistics.intervals import ratio_interval
from simlab.analysis.table.estimates import Estimate
from simlab.channels.needs import channels_read
from simlab.policies.composition import check_batch, check_runs_together
from simlab.policies.engine.lock_step import served_sums
from simlab.real_runner.confirm.groups import TextGroup, finished_groups, of_groups
from simlab.real_runner.confirm.log import ConfirmLog
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.recorded import texts_of
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import PoliciesOnMachine
from simlab.studies.replay.rows import policy_row, results_of
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results, joined_results, rows_in_order


def served_note(batch: int) -> str:
    """What to know of numbers that were measured with several texts at a time."""
    return (
        f"{batch} texts at a time: a text waits for each whole round of its batch, and tokens/s are those of "
        "each text;\nthe machine writes all of them together. Where a text ends the next of its group begins, and "
        "behind the last the\nfirst run once more uncounted, in the prediction and in the run alike. Texts of a "
        "group share the seconds of their\nrounds, so [95 %] are over groups."
    )


def predicted_groups(
    trace: Trace, draft: str, priced: PoliciesOnMachine, groups: Sequence[TextGroup], batch: int
) -> Results:
    """Replay just the groups that run: result rows, for each sequence one per policy.

    Args:
        trace: the recording.
        draft: the draft set.
        priced: policies, and prices of ``batch`` texts at a time.
        groups: each is served by itself.
        batch: texts at a time.
    """
    for policy in priced.policies:
        check_needs(policy.policy, trace.holds(draft))
        check_batch(policy.policy, batch)
        check_runs_together(policy.policy, batch)
    rows = [policy_row(policy, priced.prices) for policy in priced.policies]
    served = [record.index for group in groups for record in group]
    channels = channels_read(policy.policy for policy in priced.policies)
    parts: list[Results] = []
    with tqdm(total=len(groups), desc="replay", unit="group", delay=2, disable=None) as bar:
        for read in of_groups(groups, trace.recorded(draft, served, channels)):
            texts = texts_of(read)
            for row, policy in zip(rows, priced.policies, strict=True):
                sums = served_sums(policy.policy, texts, batch, row.cost)
                parts.append(results_of([row], sums, texts, trace, draft))
            bar.update()
    order = [(row.prices.cost_id, row.policy_id, row.identity["policy"]) for row in rows]
    return rows_in_order(joined_results(parts), order, served)


def served_speeds(setup: ConfirmSetup, log: ConfirmLog) -> tuple[int, int, dict[str, Estimate]]:
    """Tell how the texts in the log were served together.

    Returns:
        The groups that were served whole; the same, each repeat counted; and by the label of each policy the tokens per
        second of all texts together, filler requests among them, with intervals over groups.
    """
    finished = list(finished_groups(log))
    indices = {number: index for index, number in enumerate(sorted({group.group for group in finished}))}
    labels = {policy.policy_id: policy.label for policy in setup.policies}
    sums = {label: np.zeros((2, len(indices))) for label in labels.values()}
    for group in finished:
        for policy_id, tokens_and_seconds in group.machine.items():
            sums[labels[policy_id]][:, indices[group.group]] += tokens_and_seconds
    speeds = {}
    for label, (tokens, seconds) in sums.items():
        total_s = float(seconds.sum())
        pooled = float(tokens.sum()) / total_s if total_s else math.nan
        speeds[label] = Estimate(pooled, ratio_interval(tokens, seconds))
    return len(indices), len(finished), speeds
