"""Products of sums over prompts, and how they vary with the prompts: without each of them in turn.

The turns and samples of a prompt stay together: they enter as one sum. An acceptance length, a speed, a speedup, and
the ratio of any of these for two policies are products of powers of such sums, so a table of all of them takes one
matrix product.
"""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles

_ROUNDING = 1e-12
"""Logarithms of equal numbers may differ by so much, since sums are added in another order."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Some numbers M on all prompts, and without each of them; nan where not known.

    Attributes:
        whole: float64 ``[M]``.
        without_each: float64 ``[prompts, M]``.
        num_effective: float64 ``[M]``, Kish's (1965) number of prompts: as many prompts of equal weight carry as much.
    """

    whole: Doubles
    without_each: Doubles
    num_effective: Doubles

    @property
    def num_prompts(self) -> int:
        """Number of prompts that the sums are over."""
        return len(self.without_each)

    def exp(self) -> "Spread":
        """The exponentials of numbers that were logarithms."""
        return Spread(np.exp(self.whole), np.exp(self.without_each), self.num_effective)

    def take(self, places: list[int]) -> "Spread":
        """Some of the numbers, in this order."""
        return Spread(*(part[..., places] for part in (self.whole, self.without_each, self.num_effective)))

    def minus(self, other: "Spread") -> "Spread":
        """Number by number, on the same prompts: paired."""
        return Spread(
            self.whole - other.whole,
            self.without_each - other.without_each,
            np.minimum(self.num_effective, other.num_effective),
        )

    def standard_errors(self) -> Doubles:
        """By the jackknife (Tukey 1958), float64 ``[M]``; nan where a prompt alone carries a number."""
        share = (self.num_prompts - 1) / self.num_prompts
        return np.asarray(np.sqrt(share * (self._moved() ** 2).sum(axis=0)), np.float64)

    def degrees_of_freedom(self) -> Doubles:
        """What the standard errors are worth in Student's t, float64 ``[M]``, from 1 to one less than the prompts.

        The fewer of two counts. Unequal prompts: Kish's number less one. A few prompts that move a number far more
        than the others do: the degrees of a chi-squared variable that varies as much as the square of the standard
        error (Satterthwaite 1946, Biometrics Bulletin 2:110-114), by the kurtosis of what each prompt moves; of normal
        ones that is one less than the prompts. Needs two prompts.
        """
        num, squares = self.num_prompts, self._moved() ** 2
        second, fourth = squares.mean(axis=0), (squares**2).mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            kurtosis = np.where(second > 0, fourth / second**2, 1.0)
        by_kurtosis = 2 * num / (kurtosis - (num - 3) / (num - 1))
        return np.asarray(np.maximum(np.minimum(self.num_effective - 1, by_kurtosis), 1.0), np.float64)

    def _moved(self) -> Doubles:
        """By how much each prompt moves each number, float64 ``[prompts, M]``."""
        moved = self.without_each - self.without_each.mean(axis=0)
        return np.where(np.abs(moved) < _ROUNDING, 0.0, moved)


def log_products(sums: Doubles, powers: Doubles) -> Spread:
    """Logarithms of products of powers of sums over prompts.

    Args:
        sums: float64 ``[prompts, C]``, of each prompt; not negative.
        powers: float64 ``[M, C]``, of the sum of each column in each product; 0: it is not in it.
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
        np.asarray(effective, np.float64),
    )


def _log_products(sums: Doubles, powers: Doubles) -> Doubles:
    """Logarithms of the products for each row ``[.., C]``, float64 ``[.., M]``; nan where a sum is not positive."""
    positive = sums > 0
    found = np.log(np.where(positive, sums, 1.0)) @ powers.T
    if positive.all():
        return np.asarray(np.where(np.abs(found) < _ROUNDING, 0.0, found), np.float64)
    unknown = (~positive).astype(np.float64) @ (powers != 0).astype(np.float64).T > 0
    return np.asarray(np.where(unknown, np.nan, np.where(np.abs(found) < _ROUNDING, 0.0, found)), np.float64)
