"""Corrections for many comparisons: worked by hand, against their definitions, and in simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simlab.analysis.statistics.significance import CORRECTIONS, benjamini_hochberg, holm

P_VALUES = st.lists(st.sampled_from([0.0, 1e-9, 0.001, 0.01, 0.02, 0.04, 0.05, 0.3, 0.9, 1.0]), max_size=8)


def test_holm_by_hand() -> None:
    """In order .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and none below an earlier one."""
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_benjamini_and_hochberg_by_hand() -> None:
    """The first example of their paper: of 15 p-values four are findings at 5 %, and three by Holm."""
    listed = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
    p_values = np.array([*listed, 0.4262, 0.5719, 0.6528, 0.7590, 1.0])
    assert (benjamini_hochberg(p_values) <= 0.05).sum() == 4
    assert (holm(p_values) <= 0.05).sum() == 3
    assert benjamini_hochberg(p_values)[:4] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625])


@given(P_VALUES, st.sampled_from([0.01, 0.05, 0.2]))
def test_adjusted_values_decide_as_the_procedures_do(listed: list[float], level: float) -> None:
    p_values = np.array(listed)
    order, num = np.argsort(p_values, kind="stable"), len(listed)
    found = set()
    for place, which in enumerate(order):  # Holm steps down until the first that fails
        if p_values[which] * (num - place) > level:
            break
        found.add(int(which))
    assert set(np.flatnonzero(holm(p_values) <= level)) == found
    # Benjamini and Hochberg step up: all to the last that passes
    passing = [place for place, which in enumerate(order) if p_values[which] * num / (place + 1) <= level]
    expected = {int(which) for which in order[: passing[-1] + 1]} if passing else set()
    assert set(np.flatnonzero(benjamini_hochberg(p_values) <= level)) == expected


@pytest.mark.parametrize("name", CORRECTIONS)
def test_what_was_not_tested_does_not_count(name: str) -> None:
    correct = CORRECTIONS[name]
    with_gap = correct(np.array([0.01, np.nan, 0.03]))
    assert with_gap[[0, 2]] == pytest.approx(correct(np.array([0.01, 0.03])))
    assert np.isnan(with_gap[1])
    assert len(correct(np.array([]))) == 0
    assert np.isnan(correct(np.array([np.nan]))).all()


def families(num_true: int, repeats: int = 4000, size: int = 12) -> np.ndarray:
    """p-values of comparisons with one shared rival, ``[repeats, size]``; the first ones are of true differences."""
    rng = np.random.default_rng([3, num_true])
    distance = (rng.normal(size=(repeats, size)) - rng.normal(size=(repeats, 1))) / np.sqrt(2)
    distance[:, :num_true] += 3.5
    return np.asarray(2 * stats.norm.sf(np.abs(distance)))


@pytest.mark.parametrize("num_true", [0, 4])
def test_holm_rarely_finds_anything_false(num_true: int) -> None:
    found = [holm(one) < 0.05 for one in families(num_true)]
    assert np.mean([one[num_true:].any() for one in found]) <= 0.055
    assert num_true == 0 or np.mean([one[:num_true].mean() for one in found]) > 0.5


@pytest.mark.parametrize("num_true", [0, 4, 8])
def test_few_findings_of_benjamini_and_hochberg_are_false(num_true: int) -> None:
    found = [benjamini_hochberg(one) < 0.05 for one in families(num_true)]
    assert np.mean([one[num_true:].sum() / max(1, one.sum()) for one in found]) <= 0.055
