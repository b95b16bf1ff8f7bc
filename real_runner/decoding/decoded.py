"""A decoded text, the rounds in which it was made, and where two texts of one prompt part."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Ints
from simlab.channels import Channel
from simlab.cost import StageSeconds
from simlab.draft import Marginals, Prompt
from simlab.sequence_replay import Round, totals_of
from simlab.totals import Totals


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRound:
    """A round that was run.

    Attributes:
        round: in the form in which replay gives it.
        marginals: exactly what the policy saw; None where no drafter was run.
        seconds: measured, by stage. Plain decoding has all of them in ``verify_s``.
        channels: exactly what the policy saw of them, by name.
    """

    round: Round
    marginals: Marginals | None
    seconds: StageSeconds
    channels: Mapping[str, Channel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedText:
    """One text under one policy.

    Attributes:
        text: int32 ``[T]``; token 0 is the prefill's, the last is a stop token or the last allowed.
        stop_reason: ``stop`` or ``length``.
        rounds: in order. Plain decoding has ``T - 1`` rounds of one token.
    """

    prompt: Prompt
    text: Ints
    stop_reason: str
    rounds: tuple[DecodedRound, ...]

    @property
    def totals(self) -> Totals:
        """Sums over the rounds."""
        return totals_of(ran.round for ran in self.rounds)

    @property
    def seconds(self) -> StageSeconds:
        """Sums over the rounds; prefill and token 0 are not in them."""
        return sum((ran.seconds for ran in self.rounds), start=StageSeconds())


def parting_of(text: Ints, other: Ints) -> int | None:
    """The first place at which two texts differ; None where they are equal.

    Args:
        text: int32 ``[T]``.
        other: int32, any length. Where one is the beginning of the other, they part behind it.
    """
    num = min(len(text), len(other))
    differing = np.flatnonzero(text[:num] != other[:num])
    if len(differing):
        return int(differing[0])
    return None if len(text) == len(other) else num
