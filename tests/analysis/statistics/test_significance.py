"""How many prompts a difference takes: held against prompts that are drawn, and against itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.compare.comparisons import Comparison, compare_pairs
from simlab.analysis.statistics.intervals import LEVEL
from simlab.analysis.statistics.significance import POWER, detectable_at, detectable_ratios, prompts_to_detect
from simlab.analysis.table.prompt_sums import COLUMNS, PolicyRun, PromptSums, prompt_sums
from simlab.studies.replay.replay import replay

PAIR = ("ddtree:budget=16", "chain")


@pytest.fixture(scope="module")
def sums() -> PromptSums:
    """Of two policies on the prompts of the packaged trace."""
    rows = replay(policies=PAIR).rows
    plain = rows.filter(name="ar")
    return prompt_sums([PolicyRun(name, rows.filter(policy=name), plain) for name in PAIR])


def compared(sums: PromptSums) -> Comparison:
    return compare_pairs(sums, PAIR, [(0, 1)], "acceptance_length")[0]


@pytest.mark.parametrize("number", [20, 40, 80])
def test_a_difference_that_is_called_detectable_is_found_in_as_many_cases(sums: PromptSums, number: int) -> None:
    """Prompts are drawn again, and the first policy is made to be better by just that much."""
    seen = compared(sums)
    (ratio,) = detectable_at(seen.log_error, seen.degrees, seen.prompts, [number])
    planted, rounds = sums.sums.copy(), COLUMNS.index("rounds")
    planted[:, 0, rounds] *= seen.ratio / ratio
    drawn, cases = np.random.default_rng(0), 600
    found = 0
    for _ in range(cases):
        picked = drawn.integers(len(planted), size=number)
        again = replace(sums, prompts=tuple(("d", str(i)) for i in range(number)), sums=planted[picked])
        one = compared(again)
        found += one.ratio > 1 and one.p_value < 1 - LEVEL
    # Two standard errors of a share are 0.033, and the error that was seen is itself one of 41 prompts.
    assert found / cases == pytest.approx(POWER, abs=0.08)


def test_at_the_prompts_that_were_seen_it_is_what_compare_prints(sums: PromptSums) -> None:
    seen = compared(sums)
    (found,) = detectable_at(seen.log_error, seen.degrees, seen.prompts, [seen.prompts])
    assert found == pytest.approx(seen.detectable, rel=1e-12)


@given(
    log_error=st.floats(1e-4, 0.3),
    degrees=st.floats(1, 60),
    prompts=st.integers(2, 60),
    percent=st.floats(0.1, 50),
)
def test_the_prompts_that_are_named_are_the_fewest(
    log_error: float, degrees: float, prompts: int, percent: float
) -> None:
    ratio = 1 + percent / 100
    number = prompts_to_detect(log_error, degrees, prompts, ratio)
    if number is None:
        assert detectable_at(log_error, degrees, prompts, [100_000])[0] > ratio
        return
    assert detectable_at(log_error, degrees, prompts, [number])[0] <= ratio
    assert number == 2 or detectable_at(log_error, degrees, prompts, [number - 1])[0] > ratio


def test_what_is_not_known_stays_unknown() -> None:
    assert prompts_to_detect(math.nan, 5.0, 10, 1.1) is None
    assert np.isnan(detectable_ratios(np.array([math.nan]), np.array([5.0]))).all()
