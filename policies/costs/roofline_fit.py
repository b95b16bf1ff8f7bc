"""The larger of two straight lines, fitted: max(a x + b, c y + d) with no constant below 0.

Least squares have many local minima here. For a given split of the points into those of the first line and those of
the second, both lines are plain least squares; and a split is made by a line in the plane of x and y. So the search
tries a fan of such lines at every place where they part the points, and goes downhill from the best ones by Nelder and
Mead's simplex, which takes the kinks between two splits as they are. It does the same arithmetic on every machine.
"""

import numpy as np
from scipy.optimize import minimize

from simlab.arrays import Doubles, Longs

NUM_SLOPES = 48
"""Directions of the fan."""

NUM_STARTS = 8
"""From so many of the best splits it goes downhill."""

DIGITS = 6
"""Constants are rounded to as many."""

_DOWNHILL = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}


def fit_larger_of_two(x: Doubles, y: Doubles, values: Doubles, sigma: Doubles) -> tuple[float, float, float, float]:
    """The constants with the smallest sum of squares of (max(a x + b, c y + d) - value) / sigma that was found.

    Args:
        x: float64 ``[P]``, not negative; so are all others.
        y: float64 ``[P]``.
        values: float64 ``[P]``, above 0.
        sigma: float64 ``[P]``, above 0.

    Returns:
        a, b, c and d, each at least 0.
    """
    scale_x, scale_y, scale = x.mean() or 1.0, y.mean() or 1.0, values.mean()
    x, y, values = x / scale_x, y / scale_y, values / scale

    def squares(constants: Doubles) -> float:
        a, b, c, d = constants.tolist()
        return float(np.square((np.maximum(a * x + b, c * y + d) - values) / sigma).sum())

    starts = _lines_of_splits(x, y, values, 1.0 / sigma**2)
    found = np.array([squares(one) for one in starts])
    best, least = starts[found.argmin()], found.min()
    for place in _distinct(found)[:NUM_STARTS]:
        end = minimize(squares, starts[place], method="Nelder-Mead", bounds=[(0.0, None)] * 4, options=_DOWNHILL)
        if end.fun < least:
            best, least = end.x, end.fun
    unscaled = best * scale / np.array([scale_x, 1.0, scale_y, 1.0])
    a, b, c, d = (float(f"{value:.{DIGITS - 1}e}") for value in unscaled)
    return a, b, c, d


def _distinct(squares: Doubles) -> Longs:
    """int64, places of sums of squares, the least first, of nearly equal ones the first."""
    order = np.argsort(squares, kind="stable")
    rising = squares[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = rising[1:] > rising[:-1] * (1 + 1e-9)
    return order[is_new]


def _lines_of_splits(x: Doubles, y: Doubles, values: Doubles, weights: Doubles) -> Doubles:
    """float64 ``[S, 4]``, the two lines of each split that is tried."""
    over, up = x[:, None] - x, y[:, None] - y
    slopes = up[over > 0] / over[over > 0]
    slopes = slopes[slopes >= 0]
    fan = np.unique(np.quantile(slopes, np.linspace(0, 1, NUM_SLOPES))) if len(slopes) else np.zeros(1)
    found = []
    for slope in fan:
        order = np.argsort(y - slope * x, kind="stable")
        below = _running_sums(x[order], values[order], weights[order])
        above = _running_sums(y[order][::-1], values[order][::-1], weights[order][::-1])[:, ::-1]
        found.append(np.stack([*_lines(below), *_lines(above)], axis=1))
    return np.concatenate(found)


def _running_sums(x: Doubles, values: Doubles, weights: Doubles) -> Doubles:
    """float64 ``[5, P + 1]``, what least squares need of the first points, for every number of them."""
    terms = np.stack([weights, weights * x, weights * x * x, weights * values, weights * x * values])
    return np.concatenate([np.zeros((5, 1)), np.cumsum(terms, axis=1)], axis=1)


def _lines(sums: Doubles) -> tuple[Doubles, Doubles]:
    """Slopes and intercepts of least squares, none below 0; both 0 where there is no point."""
    weight, x, xx, value, xvalue = sums
    spread = weight * xx - x * x
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.where(spread > 1e-12 * weight * xx, (weight * xvalue - x * value) / spread, 0.0)
        slopes = np.maximum(np.nan_to_num(slopes), 0.0)
        intercepts = np.nan_to_num((value - slopes * x) / weight)
        # Where a line would begin below 0 the best one begins there; values are above 0, so it rises.
        slopes = np.where(intercepts < 0, np.nan_to_num(xvalue / xx), slopes)
    return slopes, np.maximum(intercepts, 0.0)
