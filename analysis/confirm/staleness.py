"""Whether a latency profile still holds: the seconds of rounds that ran, beside what it says of those very rounds.

Other rounds than were foreseen play no part here, unlike in `simlab.analysis.confirm.errors`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from simlab.arrays import Doubles, Longs
from simlab.cost import CHANNEL, PLAIN, STAGES, CostTable

FEWEST_ROUNDS = 20
"""Of so many drafted tokens, below which their seconds say little."""

_MOST_SHOWN = 6


@dataclass(frozen=True, slots=True, eq=False)
class TimedRounds:
    """Rounds that ran, and what they took.

    Attributes:
        texts: int64 ``[R]``, of which text each is.
        contexts: int64 ``[R]``, tokens before the root.
        num_drafted: int64 ``[R]``.
        seconds: float64 ``[R, 5]``, of each of `simlab.cost.STAGES`; plain decoding has all in ``verify``.
    """

    texts: Longs
    contexts: Longs
    num_drafted: Longs
    seconds: Doubles


@dataclass(frozen=True, slots=True)
class SizeStaleness:
    """Rounds of one number of drafted tokens.

    Attributes:
        rounds: how many ran.
        error: measured over priced seconds, both beside plain decoding's on the same texts, less 1.
        factors: measured over priced seconds of each stage; 1 where the profile has none.
    """

    num_drafted: int
    rounds: int
    error: float
    factors: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Staleness:
    """How far a latency profile is from the rounds of a run.

    Attributes:
        plain: measured over priced seconds of plain decoding, less 1: how much slower the whole machine was.
        sizes: those of `FEWEST_ROUNDS` rounds or more, from few drafted tokens to many; there is one.
        channel: measured over priced seconds of all channels together; 1 where none was made, or has a price.
    """

    plain: float
    sizes: tuple[SizeStaleness, ...]
    channel: float = 1.0

    @property
    def worst(self) -> SizeStaleness:
        """The size whose rounds are furthest off beside plain decoding."""
        return max(self.sizes, key=lambda one: abs(one.error))

    def text(self) -> str:
        """In a sentence, with its full stop."""
        return (
            f"What ran over what the latency profile says of the same rounds: autoregressive decoding "
            f"{_signed(self.plain)} %;\nrounds beside it {self._listed()}."
        )

    def _listed(self) -> str:
        """A few sizes; of many the most frequent, and how far the furthest is."""
        most = sorted(self.sizes, key=lambda one: -one.rounds)[:_MOST_SHOWN]
        shown = [f"{_signed(one.error)} % ({one.num_drafted} drafted)" for one in self.sizes if one in most]
        more = len(self.sizes) - len(shown)
        rest = f", {more} more sizes up to {_signed(self.worst.error)} % ({self.worst.num_drafted} drafted)"
        return ", ".join(shown) + (rest if more else "")

    def to_json(self) -> dict[str, object]:
        """The values of ``simlab confirm --json`` under ``stale``."""
        return {"plain": self.plain, "channel": self.channel, "rounds": [asdict(one) for one in self.sizes]}


def staleness(
    plain: TimedRounds, drafting: Sequence[tuple[TimedRounds, CostTable]], cost: CostTable
) -> Staleness | None:
    """Hold a latency profile against the rounds of a run.

    Args:
        plain: of plain decoding.
        drafting: of policies that draft, on some of the same texts; with each the profile, charged with its channels.
        cost: the profile; it reaches all of them.

    Returns:
        None where no number of drafted tokens has enough rounds.
    """
    rounds, priced = _joined(drafting)
    took, said = plain.seconds.sum(axis=1), cost.at(PLAIN, plain.contexts, np.zeros_like(plain.contexts))
    num_texts = int(max(plain.texts.max(initial=0), rounds.texts.max(initial=0))) + 1
    slower = np.bincount(plain.texts, took, num_texts) / np.maximum(np.bincount(plain.texts, said, num_texts), 1e-300)
    kept = slower[rounds.texts] > 0
    found = []
    for num_drafted in np.unique(rounds.num_drafted[kept]).tolist():
        own = kept & (rounds.num_drafted == num_drafted)
        if int(own.sum()) < FEWEST_ROUNDS:
            continue
        measured, expected = rounds.seconds[own], priced[own]
        beside = (expected.sum(axis=1) * slower[rounds.texts[own]]).sum()
        sums = zip(STAGES, measured.sum(axis=0).tolist(), expected.sum(axis=0).tolist(), strict=True)
        factors = {stage: took / said if said > 0 and took > 0 else 1.0 for stage, took, said in sums}
        found.append(SizeStaleness(num_drafted, int(own.sum()), float(measured.sum() / beside - 1), factors))
    if not found:
        return None
    channel = STAGES.index(CHANNEL)
    has_price = priced[:, channel] > 0
    made, foreseen = rounds.seconds[has_price, channel].sum(), priced[has_price, channel].sum()
    factor = float(made / foreseen) if made > 0 else 1.0
    return Staleness(float(took.sum() / said.sum() - 1), tuple(found), factor)


def _joined(drafting: Sequence[tuple[TimedRounds, CostTable]]) -> tuple[TimedRounds, Doubles]:
    """All rounds, and what the profile says of each of their stages, float64 ``[R, 5]``."""
    priced = [
        np.stack([cost.at(stage, some.contexts, some.num_drafted) for stage in STAGES], axis=1)
        for some, cost in drafting
    ]
    columns = [(some.texts, some.contexts, some.num_drafted, some.seconds) for some, _ in drafting]
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, len(STAGES)))
    joined = [np.concatenate(parts) for parts in zip(nothing, *columns, strict=True)]
    return TimedRounds(*joined), np.concatenate([nothing[3], *priced])


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")
