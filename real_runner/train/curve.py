"""What a training run has measured so far, point by point."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from simlab.traces.format.json_fields import JsonFields


@dataclass(frozen=True, slots=True)
class DevScore:
    """How well the drafter does on one dev set.

    Attributes:
        acceptance_length: of the chain, bonus token counted, pooled over rounds.
        agreement: per depth, share of roots where the most probable token is the target's.
    """

    acceptance_length: float
    agreement: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The run at one step.

    Attributes:
        loss: mean over the steps since the point before; None before the first step.
        dev: score by the name of the dev set.
    """

    step: int
    loss: float | None
    dev: Mapping[str, DevScore]


class ScoreRow(TypedDict):
    """A `DevScore` in JSON."""

    acceptance_length: float
    agreement: list[float]


class CurveRow(TypedDict):
    """A `CurvePoint` in JSON."""

    step: int
    loss: float | None
    dev: dict[str, ScoreRow]


def row_of(point: CurvePoint) -> CurveRow:
    """The point in JSON."""
    dev: dict[str, ScoreRow] = {
        name: {"acceptance_length": score.acceptance_length, "agreement": list(score.agreement)}
        for name, score in point.dev.items()
    }
    return {"step": point.step, "loss": point.loss, "dev": dev}


def point_of(row: JsonFields) -> CurvePoint:
    """The point that a row stands for.

    Raises:
        TraceError: a value is missing or of another type.
    """
    loss = None if row.values.get("loss") is None else row.number("loss")
    dev = {
        name: DevScore(score.number("acceptance_length"), score.numbers("agreement"))
        for name, score in row.inners("dev").items()
    }
    return CurvePoint(row.integer("step"), loss, dev)
