"""How large a difference must be to be found, before one says that there is none."""

import numpy as np
from scipy.special import stdtrit

from simlab.analysis.statistics.intervals import LEVEL
from simlab.arrays import Doubles

POWER = 0.8


def detectable_ratios(log_errors: Doubles, degrees: Doubles, num_comparisons: int = 1, power: float = POWER) -> Doubles:
    """The ratio of two policies, above 1, that as many prompts like these would find with the stated power.

    From the spread that was seen, not from the difference that was seen, so it is no statement about this result.

    Args:
        log_errors: float64 ``[M]``, standard errors of the logarithms of the ratios.
        degrees: float64 ``[M]``, of freedom.
        num_comparisons: in the family; each is tested at the level divided by it, which Holm never exceeds.
        power: the chance of finding it.

    Returns:
        float64 ``[M]``; 1 where every prompt shows the same ratio, nan where the error is not known.

    Raises:
        ValueError: the power is not between one half and 1, or there is no comparison.
    """
    if not 0.5 <= power < 1 or num_comparisons < 1:
        raise ValueError(
            f"expected a power from 0.5 to below 1 and at least one comparison; got {power} and {num_comparisons}"
        )
    beyond = stdtrit(degrees, 1 - (1 - LEVEL) / 2 / num_comparisons) + stdtrit(degrees, power)
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(beyond * log_errors), np.float64)


def prompts_needed(detectable: float, num_prompts: int, wanted: float) -> float:
    """About how many prompts would find a ratio, if so many find another one; errors shrink with their square root.

    Args:
        detectable: what ``num_prompts`` prompts find, as a ratio above 1.
        num_prompts: how many there are.
        wanted: the ratio to be found, above 1.

    Raises:
        ValueError: the wanted ratio is not above 1.

    >>> round(prompts_needed(1.04, 50, 1.02))
    196
    """
    if not wanted > 1:
        raise ValueError(f"expected a ratio above 1; got {wanted}")
    return float(num_prompts * (np.log(detectable) / np.log(wanted)) ** 2)
