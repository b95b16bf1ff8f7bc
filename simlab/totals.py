"""Sums over rounds; the ratios of a table are derived from them."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the rounds of one text or of many; the sums of disjoint parts add up.

    Attributes:
        rounds: verification passes.
        drafted: tokens drafted, the roots not counted.
        verified: tokens that went through the target, the roots counted: ``drafted + rounds``.
        accepted: drafted tokens the target agreed with.
        committed: tokens added to the text.
        clipped: rounds whose bonus token was dropped because the text ended at an accepted token.

    >>> (Totals(rounds=10, committed=20) + Totals(rounds=90, committed=450)).acceptance_length
    4.7
    """

    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    committed: int = 0
    clipped: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            self.rounds + other.rounds,
            self.drafted + other.drafted,
            self.verified + other.verified,
            self.accepted + other.accepted,
            self.committed + other.committed,
            self.clipped + other.clipped,
        )

    @property
    def acceptance_length(self) -> float:
        """Tokens committed per round, bonus token included; NaN without a round."""
        return _ratio(self.committed, self.rounds)

    @property
    def nodes_per_round(self) -> float:
        """Tokens drafted per round, the root not counted; NaN without a round."""
        return _ratio(self.drafted, self.rounds)

    @property
    def accepted_per_verified(self) -> float:
        """Accepted tokens per token that went through the target; NaN without a round."""
        return _ratio(self.accepted, self.verified)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
