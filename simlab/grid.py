"""The one grid that log-probabilities lie on, and the one weight of a path.

Every log-probability, edge score and threshold passes `to_grid` (or `grid_scalar` inside a
kernel). On the grid, float64 sums of scores are exact, so a sum is the same in any order, and
the order of paths is total. A path's weight is a multiple of 2**-40, so sums of weights are
exact too (up to 8192 paths, far more than any tree has nodes).

The array functions use numpy alone and the scalar ones are numba kernels; both give the same
bits, on every machine: each step is either exact or one correctly rounded multiplication.
"""

from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt

from simlab.arrays import Doubles, Floats, read_only
from simlab.jit import kernel

STEPS_PER_NAT = 65536
"""Grid steps in one nat: a log-probability is a multiple of ``2**-16``."""

LOWEST = -255.0
"""The lowest log-probability on the grid; what is masked out lies here."""

ROUNDING_NOISE = 2.0**-10
"""A float32 log-softmax may come out this much above 0; more is a mistake, not noise."""

_WEIGHT_UNITS = 2.0**40
_STEPS_END = 1 << 24


def _exp_table(steps_per_entry: int) -> Doubles:
    """exp(-b * steps / 65536) for each byte b, float64 ``[256]``, correctly rounded."""
    fifty_digits = Context(prec=50)
    exact = (fifty_digits.exp(fifty_digits.divide(Decimal(-b * steps_per_entry), 65536)) for b in range(256))
    return read_only(np.array([float(value) for value in exact], dtype=np.float64))


_EXP_NATS = _exp_table(1 << 16)
_EXP_MIDDLE = _exp_table(1 << 8)
_EXP_LOW = _exp_table(1)


@kernel
def grid_scalar(log_prob: float) -> float:
    """One log-probability on the grid; `to_grid` for use inside kernels.

    Args:
        log_prob: natural logarithm, float32 or float64.

    Returns:
        float64 that a float32 holds exactly; never -0.0.
    """
    if not log_prob <= ROUNDING_NOISE:
        raise ValueError("a log-probability must be a number that is at most 0")
    steps = np.rint(max(min(np.float64(log_prob), 0.0), LOWEST) * STEPS_PER_NAT)
    return float(steps / STEPS_PER_NAT + 0.0)


@kernel
def weight_scalar(score: float) -> float:
    """exp(score) of one path score; `path_weight` for use inside kernels.

    Args:
        score: float64, a sum of numbers on the grid.

    Returns:
        float64, a multiple of ``2**-40`` from 0 to 1.
    """
    if not score <= 0.0:
        raise ValueError("a path score must be a number that is at most 0")
    exact_steps = np.rint(-score * STEPS_PER_NAT)
    if exact_steps >= _STEPS_END:
        return 0.0
    steps = int(exact_steps)
    product = _EXP_NATS[steps >> 16] * _EXP_MIDDLE[(steps >> 8) & 255] * _EXP_LOW[steps & 255]
    return float(np.rint(product * _WEIGHT_UNITS) / _WEIGHT_UNITS)


def to_grid(log_probs: npt.ArrayLike) -> Floats:
    """Log-probabilities on the grid: clamped to [-255, 0], rounded to a multiple of ``2**-16``.

    Halves go to even. -inf, a masked token, goes to -255.

    Args:
        log_probs: natural logarithms, float32 or float64, any shape.

    Returns:
        float32, the same shape; never -0.0.

    >>> to_grid([-0.5, -1000.0]).tolist()
    [-0.5, -255.0]
    """
    values = np.asarray(log_probs, dtype=np.float64)
    if not np.all(values <= ROUNDING_NOISE):
        raise ValueError(f"log-probabilities must be numbers that are at most 0; the largest is {values.max()}")
    steps = np.rint(np.clip(values, LOWEST, 0.0) * STEPS_PER_NAT)
    return np.asarray(steps / STEPS_PER_NAT + 0.0, dtype=np.float32)


def path_weight(scores: npt.ArrayLike) -> Doubles:
    """exp(score) of path scores: a product, in fixed order, of three table entries.

    The integer ``-score * 2**16`` has one entry for each of its bytes: exp(-b), exp(-b/256) and
    exp(-b/65536), multiplied from the highest byte down and rounded, half to even, to a multiple
    of ``2**-40``. A score of more than three bytes weighs 0, as does, by the rounding, every
    score below about -28.4 nats.

    Args:
        scores: float64, sums of numbers on the grid, any shape. Off the grid they are rounded to it.

    Returns:
        float64, the same shape, from 0 to 1.

    >>> path_weight([0.0, -300.0]).tolist()
    [1.0, 0.0]
    """
    values = np.asarray(scores, dtype=np.float64)
    if not np.all(values <= 0.0):
        raise ValueError(f"path scores must be numbers that are at most 0; the largest is {values.max()}")
    exact_steps = np.rint(-np.maximum(values, -1024.0) * STEPS_PER_NAT)
    steps = np.minimum(exact_steps, _STEPS_END - 1).astype(np.int64)
    product = _EXP_NATS[steps >> 16] * _EXP_MIDDLE[(steps >> 8) & 255] * _EXP_LOW[steps & 255]
    weights = np.rint(product * _WEIGHT_UNITS) / _WEIGHT_UNITS
    return np.asarray(np.where(exact_steps < _STEPS_END, weights, 0.0), dtype=np.float64)
