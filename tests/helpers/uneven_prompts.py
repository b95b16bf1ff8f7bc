"""Made-up prompts that differ in length and in how well they are drafted, to see how often intervals hold the truth."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from simlab.analysis.table.prompt_sums import COLUMNS, PolicyRun, prompt_sums
from simlab.analysis.table.summaries import BASELINE
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.studies.replay.replay import replay

TOKENS, ROUNDS, SECONDS, RIVAL_SECONDS, PLAIN_SECONDS = range(5)
"""What is summed of each prompt: of one policy, and seconds of another and of plain decoding for the same tokens."""

MEASURES: dict[str, Doubles] = {
    "acceptance length": np.array([1.0, -1, 0, 0, 0]),
    "speedup": np.array([0.0, 0, -1, 0, 1]),
    "ratio of two policies": np.array([0.0, 0, -1, 1, 0]),
}
"""Each a product of powers of sums over prompts; tokens are the same on both sides of the last two."""

_DRAWS_FOR_TRUTH = 4
_PROMPTS_PER_DRAW = 750_000


@dataclass(frozen=True, slots=True)
class MadeUpPrompts:
    """Prompts of lognormal lengths.

    Attributes:
        sigma: standard deviation of the logarithm of the length.
        rho: correlation of the length with how many tokens a round commits, and with how far the policy is ahead of
            the other one; both as logarithms.
    """

    sigma: float
    rho: float = 0.0

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
        """Sums of prompts, float64 ``[*shape, 5]``."""
        length = rng.normal(size=shape)
        tokens = np.exp(4.5 + self.sigma * length)
        rest = np.sqrt(1 - self.rho**2)
        drafted_well, ahead = (self.rho * length + rest * rng.normal(size=shape) for _ in range(2))
        per_round = 1 + 1.8 * np.exp(0.35 * drafted_well)
        machine = rng.lognormal(0.0, 0.05, (3, *shape))
        rounds = tokens / per_round
        rival = tokens / (per_round * np.exp(0.08 * ahead))
        columns = tokens, rounds, 0.1 * rounds * machine[0], 0.11 * rival * machine[1], 0.04 * tokens * machine[2]
        return np.stack(columns, axis=-1)

    def totals(self) -> Doubles:
        """Sums over very many prompts, float64 ``[5]``."""
        return many_summed(self)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPrompts:
    """Prompts of a trace drawn again.

    Attributes:
        sums: float64 ``[prompts, 5]``, of the trace.
        is_perturbed: whether what is drawn is stretched by chance, so that no two prompts are alike.
    """

    sums: Doubles
    is_perturbed: bool

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
        """Sums of prompts, float64 ``[*shape, 5]``."""
        drawn = self.sums[rng.integers(0, len(self.sums), shape)]
        if not self.is_perturbed:
            return np.asarray(drawn, np.float64)
        length, hardness = rng.lognormal(0.0, 0.5, shape), rng.lognormal(0.0, 0.15, shape)
        machine = rng.lognormal(0.0, 0.05, (3, *shape))
        stretched = length, length * hardness, *(length * hardness * machine[:2]), length * machine[2]
        return np.asarray(drawn * np.stack(stretched, axis=-1), np.float64)

    def totals(self) -> Doubles:
        """Sums over all prompts of the trace, or over very many perturbed ones, float64 ``[5]``."""
        if not self.is_perturbed:
            return np.asarray(self.sums.sum(axis=0), np.float64)
        return many_summed(self)


def many_summed(population: MadeUpPrompts | RecordedPrompts) -> Doubles:
    """Sums over three million prompts, float64 ``[5]``."""
    rng = np.random.default_rng(1)
    draws = [population.draw(rng, (_PROMPTS_PER_DRAW,)).sum(axis=0) for _ in range(_DRAWS_FOR_TRUTH)]
    return np.asarray(np.sum(draws, axis=0), np.float64)


def packaged_sums() -> Doubles:
    """Sums of the prompts of the packaged trace, float64 ``[prompts, 5]``: trees of 16 tokens beside trees of 32."""
    policies = "ddtree:budget=16", "ddtree:budget=32"
    rows = replay(policies=policies).rows
    plain = rows.filter(pl.col("name") == BASELINE)
    runs = [PolicyRun(policy, rows.filter(pl.col("policy") == policy), plain) for policy in policies]
    columns = [COLUMNS.index(name) for name in ("committed", "rounds", "seconds", "plain_seconds")]
    sums = prompt_sums(runs).sums[:, :, columns]
    return np.insert(sums[:, 0], RIVAL_SECONDS, sums[:, 1, SECONDS], axis=1)


def no_prices(num_runs: int) -> tuple[Doubles, tuple[None, ...]]:
    """What result sums hold of the noise of prices where there are none."""
    return np.full((num_runs, 2, NUM_DRAWS), np.nan), (None,) * num_runs
