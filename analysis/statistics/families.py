"""p-values of several comparisons at once: without a correction, one of twenty equal policies would seem to differ."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from simlab.arrays import Doubles


def holm(p_values: Doubles) -> Doubles:
    """Adjusted so that any false finding among all is as rare as the level says.

    Holm (1979), Scandinavian Journal of Statistics 6:65-70; holds however the comparisons depend on each other.

    Args:
        p_values: float64 ``[family]``; nan where nothing was tested, which does not count.

    Returns:
        float64 ``[family]``, nan in the same places.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    return _adjusted(p_values, lambda ordered: np.maximum.accumulate(ordered * np.arange(len(ordered), 0, -1)))


def benjamini_hochberg(p_values: Doubles) -> Doubles:
    """Adjusted so that of all findings the share of false ones is, on average, no more than the level says.

    Benjamini and Hochberg (1995), Journal of the Royal Statistical Society B 57:289-300; holds for comparisons that
    are independent or depend on each other positively, as those of policies with a shared rival do.

    Args:
        p_values: as for `holm`.

    Returns:
        likewise.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.02])).tolist()
    [0.03, 0.04, 0.03]
    """
    return _adjusted(p_values, _least_from_above)


CORRECTIONS: Mapping[str, Callable[[Doubles], Doubles]] = MappingProxyType({"holm": holm, "bh": benjamini_hochberg})
"""By the names under which they are asked for."""


def _least_from_above(ordered: Doubles) -> Doubles:
    scaled = ordered * len(ordered) / np.arange(1, len(ordered) + 1)
    return np.asarray(np.minimum.accumulate(scaled[::-1])[::-1], np.float64)


def _adjusted(p_values: Doubles, of_ordered: Callable[[Doubles], Doubles]) -> Doubles:
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    found = np.full(len(p_values), np.nan)
    found[order] = np.minimum(of_ordered(p_values[order]), 1.0)
    return found
