"""Ways to make an interval of a product of sums over prompts, side by side: simlab's own, and those that it is not.

Written out for many made-up sets of prompts at once; sums are float64 ``[prompts, sets, C]``, powers ``[C]``.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from simlab.analysis.statistics.intervals import Spread
from simlab.arrays import Doubles

Ends = tuple[Doubles, Doubles]
NUM_RESAMPLES = 2000
TAIL = 0.025


def rules_side_by_side(sums: Doubles, powers: Doubles) -> dict[str, Ends]:
    """Both ends of each set's interval of the logarithm, by the name of the rule."""
    num_prompts, num_sets, _ = sums.shape
    spread = spread_of(sums, powers)
    errors, whole = spread.standard_errors(), spread.whole

    def student(degrees: Doubles | float) -> Ends:
        reach = stdtrit(degrees, 1 - TAIL) * errors
        return whole - reach, whole + reach

    counts = resample_counts(num_prompts)
    drawn = (counts @ sums.reshape(num_prompts, -1)).reshape(len(counts), num_sets, -1)
    logs = np.log(drawn) @ powers
    quantile = _quantiles(np.sort(logs, axis=0))
    expanded = np.sqrt(num_prompts / (num_prompts - 1)) * float(stdtrit(num_prompts - 1, TAIL))
    distances = np.sort((logs - whole) / _errors_of_resamples(sums, powers, counts, drawn), axis=0)
    of_distances = _quantiles(distances)
    size = np.quantile(np.abs(distances), 1 - 2 * TAIL, axis=0)
    ones = np.ones(num_sets)
    return {
        "bootstrap, percentiles": (quantile(TAIL * ones), quantile((1 - TAIL) * ones)),
        "bootstrap, expanded percentiles": (quantile(ndtr(expanded) * ones), quantile(ndtr(-expanded) * ones)),
        "bootstrap, BCa": _bias_corrected(spread, logs, quantile),
        "bootstrap, studentised": (
            whole - of_distances((1 - TAIL) * ones) * errors,
            whole - of_distances(TAIL * ones) * errors,
        ),
        "bootstrap, studentised, symmetric": (whole - size * errors, whole + size * errors),
        "Student, prompts less one": student(num_prompts - 1.0),
        "Student, Kish's number less one": student(np.maximum(spread.num_effective - 1, 1)),
        "Student, as simlab": student(spread.degrees_of_freedom()),
    }


def spread_of(sums: Doubles, powers: Doubles) -> Spread:
    """As `simlab.analysis.statistics.intervals.log_products` has it of each set."""
    total = sums.sum(axis=0)
    shares = (sums / total)[..., powers != 0]
    effective = (1 / (shares**2).sum(axis=0)).min(axis=-1)
    return Spread(np.log(total) @ powers, np.log(total - sums) @ powers, effective)


def resample_counts(num_prompts: int) -> Doubles:
    """How often each prompt is drawn, float64 ``[NUM_RESAMPLES, prompts]``."""
    drawn = np.random.default_rng([5, num_prompts]).multinomial(
        num_prompts, np.full(num_prompts, 1 / num_prompts), NUM_RESAMPLES
    )
    return drawn.astype(np.float64)


def _quantiles(ordered: Doubles) -> Callable[[Doubles], Doubles]:
    """Of each column another quantile."""

    def found(levels: Doubles) -> Doubles:
        places = np.clip(np.rint(levels * (len(ordered) - 1)), 0, len(ordered) - 1).astype(np.int64)
        return np.asarray(np.take_along_axis(ordered, places[None], axis=0)[0], np.float64)

    return found


def _bias_corrected(spread: Spread, logs: Doubles, quantile: Callable[[Doubles], Doubles]) -> Ends:
    """Efron (1987), Journal of the American Statistical Association 82:171-185."""
    moved = spread.without_each.mean(axis=0) - spread.without_each
    acceleration = (moved**3).sum(axis=0) / (6 * (moved**2).sum(axis=0) ** 1.5)
    below = np.clip((logs < spread.whole).mean(axis=0), 1 / len(logs), 1 - 1 / len(logs))
    bias = ndtri(below)
    low, high = (
        quantile(ndtr(bias + (bias + tail) / (1 - acceleration * (bias + tail))))
        for tail in (ndtri(TAIL), -ndtri(TAIL))
    )
    return low, high


def _errors_of_resamples(sums: Doubles, powers: Doubles, counts: Doubles, drawn: Doubles) -> Doubles:
    """Of each resample the standard error of its logarithm, by the delta method, float64 ``[resamples, sets]``."""
    num_prompts, found = len(sums), np.zeros(drawn.shape[:2])
    used = np.flatnonzero(powers)
    for one in used:
        for other in used:
            products = counts @ (sums[..., one] * sums[..., other])
            found += powers[one] * powers[other] * products / (drawn[..., one] * drawn[..., other])
    return np.asarray(np.sqrt(np.maximum(found, 1e-300) * num_prompts / (num_prompts - 1)), np.float64)
