"""What a confirmation measured, as result rows and as facts about each policy."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from simlab.analysis.confirm.table import TextFindings
from simlab.policies.parsing.parse import NamedPolicy
from simlab.real_runner.confirm.audit.verdict import Verdict
from simlab.real_runner.confirm.entries import FinishedRun, FinishedSequence
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.studies.replay.rows import channel_ids_read, columns_of_text, columns_of_trace


def measured_rows(setup: ConfirmSetup, sequences: Sequence[FinishedSequence]) -> list[dict[str, object]]:
    """Make a result row for each text that was decoded; a repeat is a further row of the same sequence."""
    records = {record.index: record for record in setup.records}
    rows: list[dict[str, object]] = []
    for sequence in sequences:
        own = columns_of_text(records[sequence.index].recorded())
        shared = {**columns_of_trace(setup.trace, setup.draft), **own, "cost_id": None}
        for one, run in _named(setup, sequence):
            rows.append(
                {
                    **shared,
                    "kind": "measured",
                    "stop_reason": run.stop_reason,
                    "policy": one.label,
                    "policy_id": one.policy_id,
                    "channel_ids": channel_ids_read([one.policy], setup.trace),
                    "name": one.name,
                    "settings": json.dumps(dict(one.settings), sort_keys=True),
                    **asdict(run.totals),
                    **asdict(run.seconds),
                }
            )
    return rows


def judged_by_policy(
    setup: ConfirmSetup, sequences: Sequence[FinishedSequence], verdicts: Mapping[str, Verdict]
) -> dict[str, TextFindings]:
    """Judge each policy by its texts: lossless, as the replay, as plain decoding; by the policy's id."""
    prompts = {record.index: record.prompt for record in setup.records}
    plain = [run.text for seq in sequences for run in seq.runs if run.policy_id == setup.plain_id]
    judged = {}
    for one in setup.policies:
        runs = [(seq.index, run) for seq in sequences for run in seq.runs if run.policy_id == one.policy_id]
        unequal = [
            f"prompt {prompts[index].prompt_id!r}, turn {prompts[index].turn}, {run.unequal}"
            for index, run in runs
            if run.unequal
        ]
        verdict = verdicts[one.policy_id]
        judged[one.policy_id] = TextFindings(
            lossless=str(verdict),
            num_ties=verdict.num_ties,
            worst_gap=verdict.worst_gap,
            bound=verdict.bound,
            fault=verdict.fault,
            num_equal=len(runs) - len(unequal),
            num_texts=len(runs),
            unequal=unequal[0] if unequal else "",
            num_same_texts=sum(run.text == text for (_, run), text in zip(runs, plain, strict=True)),
        )
    return judged


def differences_of(setup: ConfirmSetup, sequences: Sequence[FinishedSequence]) -> Iterator[dict[str, object]]:
    """List where the texts, rounds and rows of the run are not those of the trace, as flat values."""
    prompts = {record.index: record.prompt for record in setup.records}
    for sequence in sequences:
        prompt = prompts[sequence.index]
        for one, run in _named(setup, sequence):
            place = {"policy": one.label, "sequence": sequence.index, "repeat": sequence.repeat}
            place |= {"prompt_id": prompt.prompt_id, "turn": prompt.turn}
            yield from ({**place, **difference} for difference in run.differences)


def _named(setup: ConfirmSetup, sequence: "FinishedSequence") -> Iterator[tuple[NamedPolicy, FinishedRun]]:
    """Pair each run of a sequence with its policy."""
    policies = {one.policy_id: one for one in setup.policies}
    return ((policies[run.policy_id], run) for run in sequence.runs)
