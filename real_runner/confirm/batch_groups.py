"""Groups of texts that a confirmation serves from start to end, several at a time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from simlab.traces.format.records import SequenceRecord

Unit = tuple[str, str]
"""What is run whole and resampled: dataset and name of a prompt, or a group of several of them."""

Group = tuple[SequenceRecord, ...]

ROUNDS_OF_BATCH = 2
"""A group has at least so many texts for each place of the batch."""


class OfSequence(Protocol):
    """What was read of a sequence."""

    @property
    def index(self) -> int:
        """The place of the sequence in the trace."""
        ...


Read = TypeVar("Read", bound=OfSequence)


def groups_of(records: Sequence[SequenceRecord], batch: int) -> tuple[Group, ...]:
    """Prompts, whole and in their order, in groups of at least twice as many texts as run at a time.

    A last group of fewer texts than run at a time joins the one before it.

    Args:
        records: in the order in which prompts are served.
        batch: texts at a time; with 1 each prompt is a group.
    """
    prompts: dict[Unit, list[SequenceRecord]] = {}
    for record in records:
        prompts.setdefault(_prompt_of(record), []).append(record)
    least = 1 if batch == 1 else ROUNDS_OF_BATCH * batch
    found: list[list[SequenceRecord]] = []
    for prompt in prompts.values():
        if found and len(found[-1]) < least:
            found[-1] += prompt
        else:
            found.append(prompt)
    if len(found) > 1 and len(found[-1]) < batch:
        last = found.pop()
        found[-1] += last
    return tuple(tuple(group) for group in found)


def of_groups(groups: Iterable[Group], read: Iterable[Read]) -> Iterator[tuple[Read, ...]]:
    """The texts of one group after the other, from a single pass over what was read of all of them.

    Args:
        groups: in any order; in that of the trace no text waits for an earlier one.
        read: of each text of the groups once.
    """
    coming, waiting = iter(read), dict[int, Read]()
    for group in groups:
        while any(record.index not in waiting for record in group):
            one = next(coming)
            waiting[one.index] = one
        yield tuple(waiting.pop(record.index) for record in group)


def units_of(records: Sequence[SequenceRecord], batch: int) -> dict[int, Unit]:
    """What each sequence is run whole with, by its place in the trace."""
    if batch == 1:
        return {record.index: _prompt_of(record) for record in records}
    groups = enumerate(groups_of(records, batch))
    return {record.index: ("group", str(number)) for number, group in groups for record in group}


def _prompt_of(record: SequenceRecord) -> Unit:
    return record.prompt.dataset, record.prompt.prompt_id
