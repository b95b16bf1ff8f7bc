"""Products of sums over prompts, and how they vary when prompts are drawn again.

The turns and samples of a prompt stay together: they enter as one sum. An acceptance length, a speed, a speedup, and
the ratio of any of these for two policies are products of powers of such sums, so a table of all of them takes one
matrix product: how often each prompt was drawn, by the sums of each prompt.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simlab.arrays import Doubles

NUM_RESAMPLES = 4000
BOOTSTRAP_FROM = 40
"""With fewer prompts nothing is resampled: there the bootstrap's intervals are too narrow."""
_SEED = 20261121
_ROUNDING = 1e-12
"""Logarithms of equal numbers may differ by so much, since sums are added in another order."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Some numbers M on all prompts, without each of them, and on prompts drawn again; nan where not known.

    Attributes:
        whole: float64 ``[M]``.
        without_each: float64 ``[prompts, M]``.
        resampled: float64 ``[resamples, M]``; no resamples with fewer than ``BOOTSTRAP_FROM`` prompts.
        num_effective: float64 ``[M]``, Kish's (1965) number of prompts: as many prompts of equal weight carry as much.
    """

    whole: Doubles
    without_each: Doubles
    resampled: Doubles
    num_effective: Doubles

    @property
    def num_prompts(self) -> int:
        """Number of prompts that the sums are over."""
        return len(self.without_each)

    def exp(self) -> "Spread":
        """The exponentials of numbers that were logarithms."""
        return Spread(np.exp(self.whole), np.exp(self.without_each), np.exp(self.resampled), self.num_effective)

    def take(self, places: list[int]) -> "Spread":
        """Some of the numbers, in this order."""
        parts = (self.whole, self.without_each, self.resampled, self.num_effective)
        return Spread(*(part[..., places] for part in parts))

    def minus(self, other: "Spread") -> "Spread":
        """Number by number, on the same prompts: paired."""
        return Spread(
            self.whole - other.whole,
            self.without_each - other.without_each,
            self.resampled - other.resampled,
            np.minimum(self.num_effective, other.num_effective),
        )

    def standard_errors(self) -> Doubles:
        """By the jackknife (Tukey 1958), float64 ``[M]``; nan where a prompt alone carries a number."""
        moved = self.without_each - self.without_each.mean(axis=0)
        moved = np.where(np.abs(moved) < _ROUNDING, 0.0, moved)
        share = (self.num_prompts - 1) / self.num_prompts
        return np.asarray(np.sqrt(share * (moved**2).sum(axis=0)), np.float64)


def log_products(sums: Doubles, powers: Doubles) -> Spread:
    """Logarithms of products of powers of sums over prompts.

    The resamples depend on the number of prompts alone: two calls draw the same prompts, so their results are paired,
    and two runs give the same intervals.

    Args:
        sums: float64 ``[prompts, C]``, of each prompt; not negative.
        powers: float64 ``[M, C]``, of the sum of each column in each product; 0: it is not in it.

    Raises:
        ValueError: there is no prompt.
    """
    num_prompts = len(sums)
    if not num_prompts:
        raise ValueError("expected at least one prompt; got none")
    total = sums.sum(axis=0)
    shares = sums / np.where(total > 0, total, 1)
    carried = np.where(total > 0, 1 / np.maximum((shares**2).sum(axis=0), 1 / num_prompts), 1.0)
    effective = np.where(powers != 0, carried, num_prompts).min(axis=1)
    without = np.where(np.abs(total - sums) > _ROUNDING * total, total - sums, 0)
    return Spread(
        _log_products(total[None, :], powers)[0],
        _log_products(without, powers),
        _log_products(_resampled(sums), powers),
        np.asarray(effective, np.float64),
    )


def _resampled(sums: Doubles) -> Doubles:
    """Sums over prompts drawn again, float64 ``[resamples, C]``."""
    return counts(len(sums)) @ sums if len(sums) >= BOOTSTRAP_FROM else sums[:0]


def _log_products(sums: Doubles, powers: Doubles) -> Doubles:
    """Logarithms of the products for each row ``[.., C]``, float64 ``[.., M]``; nan where a sum is not positive."""
    positive = sums > 0
    found = np.log(np.where(positive, sums, 1.0)) @ powers.T
    if positive.all():
        return np.asarray(np.where(np.abs(found) < _ROUNDING, 0.0, found), np.float64)
    unknown = (~positive).astype(np.float64) @ (powers != 0).astype(np.float64).T > 0
    return np.asarray(np.where(unknown, np.nan, np.where(np.abs(found) < _ROUNDING, 0.0, found)), np.float64)


@lru_cache(maxsize=2)  # 32 kB a prompt; the policies of a table follow each other
def counts(num_prompts: int) -> Doubles:
    """How often each prompt was drawn, float64 ``[resamples, prompts]``, read-only."""
    rng = np.random.default_rng([_SEED, num_prompts])
    drawn = rng.integers(0, num_prompts, (NUM_RESAMPLES, num_prompts))
    flat = drawn + np.arange(NUM_RESAMPLES)[:, None] * num_prompts
    found = np.bincount(flat.ravel(), minlength=NUM_RESAMPLES * num_prompts)
    weights = found.reshape(NUM_RESAMPLES, num_prompts).astype(np.float64)
    weights.flags.writeable = False
    return weights
