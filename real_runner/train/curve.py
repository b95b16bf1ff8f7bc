"""What a training run has measured so far, point by point."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NotRequired, TypedDict

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
class HeldOut:
    """How well a head does on texts that it does not learn from, the token above known.

    Attributes:
        loss: as in training.
        cross_entropy: per depth, of the true tokens that the loss is taken over; nats.
        agreement: per depth, share of these where the most probable token is the true one.
    """

    loss: float
    cross_entropy: tuple[float, ...]
    agreement: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The run at one step.

    Attributes:
        loss: mean over the steps since the point before; None before the first step.
        dev: score by the name of the dev set.
        held_out: None where no texts are held out.
    """

    step: int
    loss: float | None
    dev: Mapping[str, DevScore]
    held_out: HeldOut | None = None


class ScoreRow(TypedDict):
    """A `DevScore` in JSON."""

    acceptance_length: float
    agreement: list[float]


class HeldOutRow(TypedDict):
    """A `HeldOut` in JSON."""

    loss: float
    cross_entropy: list[float]
    agreement: list[float]


class CurveRow(TypedDict):
    """A `CurvePoint` in JSON."""

    step: int
    loss: float | None
    dev: dict[str, ScoreRow]
    held_out: NotRequired[HeldOutRow]


def row_of(point: CurvePoint) -> CurveRow:
    """The point in JSON."""
    dev: dict[str, ScoreRow] = {
        name: {"acceptance_length": score.acceptance_length, "agreement": list(score.agreement)}
        for name, score in point.dev.items()
    }
    row: CurveRow = {"step": point.step, "loss": point.loss, "dev": dev}
    if (held := point.held_out) is not None:
        row["held_out"] = {
            "loss": held.loss,
            "cross_entropy": list(held.cross_entropy),
            "agreement": list(held.agreement),
        }
    return row


def point_of(row: JsonFields) -> CurvePoint:
    """The point that a row stands for."""
    loss = None if row.values.get("loss") is None else row.number("loss")
    dev = {
        name: DevScore(score.number("acceptance_length"), score.numbers("agreement"))
        for name, score in row.inners("dev").items()
    }
    held_out = _held_out(row.inner("held_out")) if "held_out" in row.values else None
    return CurvePoint(row.integer("step"), loss, dev, held_out)


def _held_out(row: JsonFields) -> HeldOut:
    return HeldOut(row.number("loss"), row.numbers("cross_entropy"), row.numbers("agreement"))
