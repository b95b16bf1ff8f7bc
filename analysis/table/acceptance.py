"""How many tokens rounds commit, counted: what serving engines call acceptance rates and acceptance length.

All follows from one count, rounds by committed tokens, so that nothing is rounded on the way and
``1 + sum(marginal_rates)`` is the acceptance length. A round in which the text ended at an accepted token counts with
the tokens that it committed: the last of them takes the place of the bonus token.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from simlab.analysis.statistics.intervals import Interval, ratio_interval
from simlab.arrays import Longs
from simlab.columns import RoundColumns
from simlab.draft import Prompt
from simlab.errors import SimlabError


@dataclass(frozen=True, slots=True)
class LengthCounts:
    """Rounds by the number of tokens that they committed.

    Attributes:
        counts: entry ``n`` is how many rounds committed ``n`` tokens, bonus token included; entry 0 is 0, and the last
            entry is not.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) < 2 or self.counts[0] != 0 or min(self.counts) < 0 or self.counts[-1] == 0:
            raise ValueError(f"expected rounds that committed at least one token each; got the counts {self.counts}")

    @property
    def rounds(self) -> int:
        """Number of rounds, each one verification pass."""
        return sum(self.counts)

    @property
    def committed(self) -> int:
        """Tokens added to the texts."""
        return sum(length * count for length, count in enumerate(self.counts))

    @property
    def longest(self) -> int:
        """The most tokens that a round committed."""
        return len(self.counts) - 1

    @property
    def acceptance_length(self) -> float:
        """Tokens committed per round, bonus token included."""
        return self.committed / self.rounds

    def marginal_rates(self, positions: int) -> tuple[float, ...]:
        """Share of all rounds that kept the drafted tokens up to each drafted position.

        Position ``i``, from 1, is kept by the rounds that committed at least ``i + 1`` tokens.
        """
        if positions + 1 < self.longest:
            raise ValueError(f"{positions} positions would cut off rounds that committed {self.longest} tokens")
        reached = np.cumsum(self.counts[::-1])[::-1].tolist()
        padded = [*reached, *[0] * (positions + 2 - len(reached))]
        return tuple(number / self.rounds for number in padded[2 : positions + 2])

    def conditional_rates(self, positions: int) -> tuple[float, ...]:
        """Share of the rounds that kept all before a drafted position that kept it too, for each; 0 of none."""
        marginal = self.marginal_rates(positions)
        pairs = zip((1.0, *marginal), marginal, strict=False)
        return tuple(rate / before if before else 0.0 for before, rate in pairs)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What one policy's rounds on some texts committed.

    Attributes:
        pooled: all rounds.
        interval: of the pooled acceptance length, over prompts.
        by_dataset: the rounds of each data set's texts.
        acceptance_length_macro: mean of the means of each response.
        clipped: rounds whose bonus token was dropped because the text ended at an accepted token.
    """

    pooled: LengthCounts
    interval: Interval
    by_dataset: Mapping[str, LengthCounts]
    acceptance_length_macro: float
    clipped: int


def acceptance_of(texts: Iterable[tuple[Prompt, RoundColumns]]) -> Acceptance:
    """What the rounds of some texts committed; texts without a round are left out.

    Args:
        texts: prompt and rounds of each.
    """
    counts: dict[str, Longs] = {}
    prompts: dict[tuple[str, str], Longs] = {}
    means, clipped = [], 0
    for prompt, rounds in texts:
        if rounds.num_rounds == 0:
            continue
        name, key = prompt.dataset, (prompt.dataset, prompt.prompt_id)
        counts[name] = _added(counts.get(name, np.zeros(0, np.int64)), np.bincount(rounds.num_committed))
        sums = np.array([rounds.num_committed.sum(), rounds.num_rounds], np.int64)
        prompts[key] = prompts.get(key, np.zeros(2, np.int64)) + sums
        means.append(float(rounds.num_committed.mean()))
        clipped += int(rounds.clipped.sum())
    if not counts:
        raise SimlabError("the texts hold no rounds, so there are no acceptance rates to write; take a longer trace")
    whole = np.zeros(0, np.int64)
    for one in counts.values():
        whole = _added(whole, one)
    by_dataset = {dataset: LengthCounts(tuple(one.tolist())) for dataset, one in counts.items()}
    committed, passes = np.stack([prompts[key] for key in sorted(prompts)], axis=1)
    interval = ratio_interval(committed, passes)
    return Acceptance(LengthCounts(tuple(whole.tolist())), interval, by_dataset, float(np.mean(means)), clipped)


def _added(one: Longs, other: Longs) -> Longs:
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total
