"""AdaFlash's chains against the release's own count, which has the root in it."""

import math

import oracle
import shape_oracles
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import draft_of, real_rows, rows_strategy

from simlab.policies.named.adaflash import AdaFlash


def candidate_len(probs: list[float], threshold: float) -> int:
    """The release's count, the root included: the first place at which too much is doubted, from 2 to all.

    Place 0 is the root, whose probability is 1; where nothing is doubted too much the whole block counts.
    """
    right, passed = 1.0, []
    for index, prob in enumerate([1.0, *probs]):
        right *= prob
        if 1.0 - right > threshold:
            passed.append(index)
    return max(2, passed[0] if passed else len(probs) + 1)


@settings(max_examples=examples(200, quick=40))
@given(
    st.one_of(rows_strategy(6, 2), st.integers(0, 999).map(lambda seed: real_rows(seed, 9, 3))),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 0.999]),
    st.integers(1, 9),
)
def test_it_verifies_what_the_release_counts_less_the_root(
    rows: list[oracle.Row], threshold: float, budget: int
) -> None:
    length = len(shape_oracles.chain(rows))
    probs = [math.exp(row[0][1]) for row in rows[:length]]
    sums = [abs(1 - math.prod(probs[:k]) - threshold) for k in range(1, length + 1)]
    if min(sums, default=1.0) < 2**-15:
        return  # Whether it is above the threshold hangs on the grid.
    expected = min(candidate_len(probs, threshold) - 1, budget, length)
    assert AdaFlash(budget, threshold).select(draft_of(rows)).num_drafted == expected


def test_a_small_case() -> None:
    """Of 3/4, 9/16 and 9/16 the doubts are 0.25, 0.4375 and 0.4375."""
    rows = [[(1, math.log(0.75))], [(2, math.log(0.75))], [(3, 0.0)]]
    draft = draft_of([[(token, round(value * 65536) / 65536) for token, value in row] for row in rows])
    for threshold, verified in ((0.1, 1), (0.2, 1), (0.3, 1), (0.43, 1), (0.44, 3), (1.0, 3)):
        assert AdaFlash(threshold=threshold).select(draft).num_drafted == verified
    assert candidate_len([0.75, 0.75, 1.0], 0.3) == 2
    sure = draft_of([[(1, 0.0)], [(2, 0.0)], [(3, -3.0)], [(4, 0.0)]])
    assert AdaFlash().select(sure).num_drafted == 2
    assert AdaFlash(budget=1).select(sure).num_drafted == 1
