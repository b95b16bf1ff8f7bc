"""Sums over rounds and their names; the ratios of a table are derived from them.

A new sum is a field of `Totals` and a name beside `ROUNDS`, and is filled where rounds are added up: in
`simlab.sequence_replay.totals_of`, in `simlab.columns` and in `simlab.policies.engine.replay`. A result column
that follows from other sums is a field of `Totals` and a line of `sum_columns`. Either stands in the schema of
`simlab.traces.results.rows`.
"""

import math
from dataclasses import dataclass, fields

from simlab.arrays import Longs


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
        return Totals(**{name: getattr(self, name) + getattr(other, name) for name in SUMS})

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


SUMS = tuple(field.name for field in fields(Totals))
"""The names of all sums, as result rows have them."""

COUNTS = tuple(name for name in SUMS if name != "verified")
"""The names of the sums that a replay counts, in the order in which arrays hold them; the others follow from them."""

ROUNDS, DRAFTED, ACCEPTED, COMMITTED, CLIPPED = range(len(COUNTS))
"""Places in `COUNTS`. Kernels read them as constants: after a change delete ``__pycache__/*.nb*``."""


def sum_columns(counts: Longs) -> dict[str, Longs]:
    """Every sum of `SUMS` by its name, int64 ``[...]``.

    Args:
        counts: int64 ``[..., C]``, the last axis as `COUNTS` has it.
    """
    columns = {name: counts[..., index] for index, name in enumerate(COUNTS)}
    columns["verified"] = counts[..., DRAFTED] + counts[..., ROUNDS]
    return {name: columns[name] for name in SUMS}


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
