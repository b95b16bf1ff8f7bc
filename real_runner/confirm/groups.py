"""Groups of texts that are served together from start to end, and what the log of a confirmation keeps of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simlab.real_runner.confirm.log import ConfirmLog, FinishedSequence, finished_sequence
from simlab.recorded import RecordedSequence
from simlab.traces.format.documents import Json, JsonFields
from simlab.traces.format.frames import SequenceRecord

ResampledUnit = tuple[str, str]
"""What is run whole, and what intervals are over: dataset and name of a prompt, or a group of several of them."""

TextGroup = tuple[SequenceRecord, ...]

ROUNDS_OF_BATCH = 2
"""A group has at least so many texts for each place of the batch."""


Read = TypeVar("Read", SequenceRecord, RecordedSequence)


def groups_of(records: Sequence[SequenceRecord], batch: int) -> tuple[TextGroup, ...]:
    """Prompts, whole and in their order, in groups of at least twice as many texts as run at a time.

    A last group of fewer texts than run at a time joins the one before it.

    Args:
        records: in the order in which prompts are served.
        batch: texts at a time; with 1 each prompt is a group.
    """
    prompts: dict[ResampledUnit, list[SequenceRecord]] = {}
    for record in records:
        prompts.setdefault(_prompt_of(record), []).append(record)
    least = 1 if batch == 1 else ROUNDS_OF_BATCH * batch
    groups: list[list[SequenceRecord]] = []
    for prompt in prompts.values():
        if groups and len(groups[-1]) < least:
            groups[-1] += prompt
        else:
            groups.append(prompt)
    if len(groups) > 1 and len(groups[-1]) < batch:
        last = groups.pop()
        groups[-1] += last
    return tuple(tuple(group) for group in groups)


def of_groups(groups: Iterable[TextGroup], read: Iterable[Read]) -> Iterator[tuple[Read, ...]]:
    """The texts of one group after the other, from a single pass over what was read of all of them.

    Args:
        groups: in any order; in that of the trace no text waits for an earlier one.
        read: of each text of the groups once.
    """
    coming, waiting = iter(read), dict[int, Read]()
    for group in groups:
        while any(record.index not in waiting for record in group):
            text = next(coming)
            waiting[text.index] = text
        yield tuple(waiting.pop(record.index) for record in group)


def units_of(records: Sequence[SequenceRecord], batch: int) -> dict[int, ResampledUnit]:
    """What each sequence is run whole with, by its place in the trace."""
    if batch == 1:
        return {record.index: _prompt_of(record) for record in records}
    groups = enumerate(groups_of(records, batch))
    return {record.index: ("group", str(number)) for number, group in groups for record in group}


def _prompt_of(record: SequenceRecord) -> ResampledUnit:
    return record.prompt.dataset, record.prompt.prompt_id


GROUP = "group"
"""The kind of the log's entries."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedGroup:
    """A group under all policies.

    Attributes:
        repeat: from 0.
        group: its number.
        sequences: its texts, in the order in which they came.
        machine: by the id of each policy the tokens that all texts wrote in all rounds of its batch, company's too, and
            the seconds of these rounds.
    """

    repeat: int
    group: int
    sequences: tuple[FinishedSequence, ...]
    machine: Mapping[str, tuple[int, float]]

    def to_json(self) -> Json:
        """The group as it stands in the log."""
        return {
            "repeat": self.repeat,
            "group": self.group,
            "sequences": [sequence.to_json() for sequence in self.sequences],
            "machine": [
                {"policy_id": policy_id, "committed": committed, "total_s": total_s}
                for policy_id, (committed, total_s) in self.machine.items()
            ],
        }


def finished_groups(log: ConfirmLog) -> Iterator[FinishedGroup]:
    """The groups in the log, in the order of measuring."""
    return (_group(entry) for entry in log.entries(GROUP))


def _group(entry: JsonFields) -> FinishedGroup:
    sequences = tuple(finished_sequence(sequence) for sequence in entry.objects("sequences"))
    machine = {
        fields.text("policy_id"): (fields.integer("committed"), fields.number("total_s"))
        for fields in entry.objects("machine")
    }
    return FinishedGroup(entry.integer("repeat"), entry.integer("group"), sequences, machine)
