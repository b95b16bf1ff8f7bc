"""What the log of a confirmation keeps of a group of texts that were served together."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from simlab.real_runner.confirm.entries import FinishedSequence, finished_sequence
from simlab.real_runner.confirm.log import ConfirmLog
from simlab.traces.format.json_fields import Json, JsonFields

GROUP = "group"
"""The kind of the log's entries."""


@dataclass(frozen=True, slots=True)
class MachineRun:
    """All rounds of the batch in which a policy served a group.

    Attributes:
        policy_id: of the policy.
        committed: tokens that all texts wrote in them, company's too.
        total_s: seconds.
    """

    policy_id: str
    committed: int
    total_s: float


@dataclass(frozen=True, slots=True, eq=False)
class FinishedGroup:
    """A group under all policies.

    Attributes:
        repeat: from 0.
        group: its number.
        sequences: its texts, in the order in which they came.
        machine: a run for each policy.
    """

    repeat: int
    group: int
    sequences: tuple[FinishedSequence, ...]
    machine: tuple[MachineRun, ...]

    def to_json(self) -> Json:
        """As it stands in the log."""
        return {
            "repeat": self.repeat,
            "group": self.group,
            "sequences": [one.to_json() for one in self.sequences],
            "machine": [asdict(one) for one in self.machine],
        }


def finished_groups(log: ConfirmLog) -> Iterator[FinishedGroup]:
    """The groups in the log, in the order of measuring.

    Raises:
        TraceError: the log is damaged.
    """
    return (_group(entry) for entry in log.entries(GROUP))


def _group(entry: JsonFields) -> FinishedGroup:
    sequences = tuple(finished_sequence(one) for one in entry.objects("sequences"))
    machine = tuple(
        MachineRun(one.text("policy_id"), one.integer("committed"), one.number("total_s"))
        for one in entry.objects("machine")
    )
    return FinishedGroup(entry.integer("repeat"), entry.integer("group"), sequences, machine)
