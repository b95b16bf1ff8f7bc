"""Curves of expected tokens per second in exact fractions and plain loops; nothing is shared with the kernels."""

from collections.abc import Sequence
from fractions import Fraction


def curve_by_hand(weights: Sequence[Fraction], seconds: Sequence[Fraction]) -> list[Fraction]:
    """(1 + the first n weights) / seconds, for each n."""
    return [(1 + sum(weights[:n], Fraction(0))) / seconds[n] for n in range(len(weights) + 1)]


def maxima_by_hand(curve: Sequence[Fraction]) -> int:
    """Runs of equal values with less on both sides, where there is a side."""
    runs = [value for index, value in enumerate(curve) if index == 0 or curve[index - 1] != value]
    low = Fraction(-1)
    return sum(
        before < value > after for before, value, after in zip([low, *runs], runs, [*runs[1:], low], strict=False)
    )


def deep_maxima_by_listing(curve: Sequence[Fraction], share: Fraction) -> int:
    """The most points that can be chosen with, between each two, one that is lower than both by more than a share.

    The first is to fall, and the next to rise: v < p (1 - share), and q > v (1 + share).
    """
    best_peak = [1] * len(curve)
    for index, value in enumerate(curve):
        for valley in range(index):
            for peak in range(valley):
                fits = curve[valley] < curve[peak] * (1 - share) and value > curve[valley] * (1 + share)
                if fits:
                    best_peak[index] = max(best_peak[index], best_peak[peak] + 1)
    return max(best_peak)


def first_stop_by_hand(curve: Sequence[Fraction]) -> int:
    """One more as long as it is better."""
    for n in range(1, len(curve)):
        if curve[n] <= curve[n - 1]:
            return n - 1
    return len(curve) - 1


def best_by_hand(curve: Sequence[Fraction]) -> int:
    """The smallest of the best sizes."""
    return min(n for n in range(len(curve)) if curve[n] == max(curve))


def valleys_by_listing(curve: Sequence[Fraction], share: Fraction) -> list[tuple[int, int, int]]:
    """Floors lower than what is beside them, with the first best size below and above, if it falls and rises enough."""
    found = []
    for floor in range(1, len(curve) - 1):
        below = max(range(floor), key=lambda n: (curve[n], -n))
        above = max(range(floor, len(curve)), key=lambda n: (curve[n], -n))
        if curve[floor - 1] > curve[floor] <= curve[floor + 1] and is_valley(curve, (below, floor, above), share):
            found.append((below, floor, above))
    return found


def is_valley(curve: Sequence[Fraction], sizes: tuple[int, int, int], share: Fraction) -> bool:
    """Whether it falls from the first of three sizes to the second, and rises to the third, by more than a share."""
    below, floor, above = (curve[n] for n in sizes)
    return floor < below * (1 - share) and above > floor * (1 + share)


def kept_by_hand(
    curve: Sequence[Fraction],
    drawn: Sequence[Sequence[Fraction]],
    rounding: Fraction,
    share: Fraction,
) -> tuple[float, float]:
    """The largest share of drawn curves in which a valley stays, and stays deeper than a share; 0 without valleys."""
    valleys = valleys_by_listing(curve, rounding)
    return tuple(
        max(
            (sum(is_valley(fraction, sizes, least) for fraction in drawn) / len(drawn) for sizes in valleys),
            default=0.0,
        )
        for least in (rounding, share)
    )  # type: ignore[return-value]
