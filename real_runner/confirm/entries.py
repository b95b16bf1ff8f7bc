"""What the log of a confirmation keeps of each text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np

from simlab.arrays import Longs
from simlab.columns import RoundColumns
from simlab.cost import CHANNEL, STAGES, StageSeconds
from simlab.ids import content_id
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.totals import Totals
from simlab.traces.format.json_fields import Json, JsonFields

ROUND_COLUMNS = ("position", "drafted", "accepted", "committed", *(f"{stage}_us" for stage in STAGES))
"""What is kept of each round: its counts, and whole microseconds by stage."""

Difference = Mapping[str, str | int | float | bool | None]
"""Where a float32 run and the recorded trace part: flat values, the place among them."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """One text under one policy.

    Attributes:
        text: token ids.
        stop_reason: ``stop`` or ``length``.
        rounds: int64 ``[R, 9]``, the columns of ``ROUND_COLUMNS``.
        seconds: sums over the rounds.
        unequal: how its rounds differ from a replay of its own rows on its own text; empty: not at all.
        differences: from the recorded trace, where they were looked for.
    """

    policy_id: str
    text: tuple[int, ...]
    stop_reason: str
    rounds: Longs
    seconds: StageSeconds
    unequal: str
    differences: tuple[Difference, ...]

    @property
    def text_digest(self) -> str:
        """A digest of the token ids, equal for equal texts."""
        return content_id(list(self.text))

    @property
    def totals(self) -> Totals:
        """Sums over the rounds. A round that committed no bonus token was clipped."""
        names = ("position", "drafted", "accepted", "committed")
        position, drafted, accepted, committed = (self.rounds[:, ROUND_COLUMNS.index(name)] for name in names)
        return RoundColumns(position, drafted, accepted, committed, accepted == committed).totals()

    def to_json(self) -> Json:
        """The run as it stands in the log."""
        values = {name: getattr(self, name) for name in ("policy_id", "stop_reason", "unequal")}
        return {
            **values,
            "text": list(self.text),
            "rounds": self.rounds.tolist(),
            "seconds": asdict(self.seconds),
            "differences": [dict(one) for one in self.differences],
        }


def finished_run(policy_id: str, decoded: DecodedText, unequal: str, differences: Sequence[Difference]) -> FinishedRun:
    """What is kept of a decoded text."""
    rounds = [
        (
            *(ran.round.position, ran.round.num_drafted, ran.round.num_accepted, ran.round.num_committed),
            *(round(1e6 * seconds) for seconds in ran.seconds.by_stage),
        )
        for ran in decoded.rounds
    ]
    table = np.array(rounds, np.int64).reshape(-1, len(ROUND_COLUMNS))
    text = tuple(decoded.text.tolist())
    return FinishedRun(
        policy_id=policy_id,
        text=text,
        stop_reason=decoded.stop_reason,
        rounds=table,
        seconds=decoded.seconds,
        unequal=unequal,
        differences=tuple(differences),
    )


@dataclass(frozen=True, slots=True, eq=False)
class FinishedSequence:
    """One prompt under all policies; ``index`` is its place in the trace."""

    repeat: int
    index: int
    runs: tuple[FinishedRun, ...]

    def to_json(self) -> Json:
        """The sequence as it stands in the log."""
        return {"repeat": self.repeat, "sequence": self.index, "runs": [run.to_json() for run in self.runs]}


def finished_sequence(entry: JsonFields) -> FinishedSequence:
    """A sequence out of the log."""
    runs = tuple(_run(one) for one in entry.objects("runs"))
    return FinishedSequence(entry.integer("repeat"), entry.integer("sequence"), runs)


def _run(fields: JsonFields) -> FinishedRun:
    seconds = fields.inner("seconds")
    rounds = np.array(fields.values["rounds"], np.int64)
    if f"{CHANNEL}_s" not in seconds.values:
        rounds, seconds = _with_channel(rounds.reshape(-1, len(ROUND_COLUMNS) - 1), seconds)
    return FinishedRun(
        policy_id=fields.text("policy_id"),
        text=fields.integers("text"),
        stop_reason=fields.text("stop_reason"),
        rounds=rounds.reshape(-1, len(ROUND_COLUMNS)),
        seconds=StageSeconds(**{f"{stage}_s": seconds.number(f"{stage}_s") for stage in STAGES}),
        unequal=fields.text("unequal"),
        differences=tuple(cast(Difference, one.values) for one in fields.objects("differences")),
    )


def _with_channel(rounds: Longs, seconds: JsonFields) -> tuple[Longs, JsonFields]:
    """A run from a log of an older simlab, in which making channels was no stage."""
    column = np.insert(rounds, ROUND_COLUMNS.index(f"{CHANNEL}_us"), 0, axis=1)
    return column, JsonFields({**seconds.values, f"{CHANNEL}_s": 0.0}, seconds.where)
