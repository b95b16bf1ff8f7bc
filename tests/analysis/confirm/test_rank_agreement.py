"""Whether predicted and measured orders agree, held against counting by hand."""

import itertools
import math
from functools import cache

import numpy as np
import polars as pl
import pytest
from confirm_results import SPEEDS, judged, results
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.confirm.table import (
    RankAgreement,
    TextFindings,
    agreement_text,
    confirmed_policies,
    measured_runs,
    rank_agreement,
)

FAILED = TextFindings(
    lossless="FAILED",
    num_ties=0,
    worst_gap=3.0,
    bound=1e-4,
    fault="token 7",
    num_equal=30,
    num_texts=30,
    unequal="",
    num_same_texts=30,
)


@cache
def measured(noise: float) -> pl.DataFrame:
    return results(noise=noise)


def found(predicted: dict[str, float], noise: float = 0.002, **changes: TextFindings) -> RankAgreement:
    """Measured: plain decoding, chain, 8 and 16 tokens at 10, 14, 20 and 20.2 tokens per second."""
    rows = measured(noise)
    return rank_agreement(measured_runs(confirmed_policies(rows, judged(**changes)), rows), predicted)


def test_a_swapped_pair_is_listed() -> None:
    """So is a pair that the prediction has level."""
    agreement = found(SPEEDS | {"ddtree:budget=16": 19.0})
    (pair,) = agreement.disagreeing
    assert [pair[name] for name in ("faster", "slower", "agrees")] == ["ddtree:budget=16", "ddtree:budget=8", False]
    measured, low, high = (float(str(pair[f"measured_ratio{end}"])) for end in ("", "_ci_low", "_ci_high"))
    assert pair["predicted_ratio"] == pytest.approx(19 / 20)
    assert 1 < low < measured < high
    assert agreement.kendall_tau == pytest.approx(4 / 6)
    assert "predicted otherwise: ddtree:budget=16 is 1.0" in agreement_text(agreement)
    assert [order["faster"] for order in found(SPEEDS | {"ddtree:budget=16": 20.0}).disagreeing] == ["ddtree:budget=16"]


def test_failures_and_what_is_not_predicted_are_left_out() -> None:
    agreement = found(SPEEDS, ddtree=FAILED)
    assert (agreement.num_policies, agreement.num_pairs) == (2, 1)
    agreement = found(
        {name: speed for name, speed in SPEEDS.items() if name != "chain"} | {"ddtree:budget=8": math.nan}
    )
    assert agreement.num_policies == 2
    none = found({})
    assert (none.num_policies, none.pairs) == (0, ())
    assert agreement_text(none) == ""
    assert none.value()["kendall_tau"] is None


def tau_by_counting(first: list[float], second: list[float]) -> float:
    """Kendall's tau-b: concordant less discordant pairs, over those that neither side ties."""
    balance, untied = 0, [0, 0]
    for (a, b), (c, d) in itertools.combinations(zip(first, second, strict=True), 2):
        balance += int(np.sign(a - c) * np.sign(b - d))
        untied[0] += a != c
        untied[1] += b != d
    product = untied[0] * untied[1]
    return balance / math.sqrt(product) if product else math.nan


@given(st.lists(st.sampled_from([9.0, 11.0, 15.0, 20.0]), min_size=4, max_size=4))
def test_tau_is_that_of_counting(speeds: list[float]) -> None:
    predicted = dict(zip(SPEEDS, speeds, strict=True))
    agreement = found(predicted)
    assert agreement.kendall_tau == pytest.approx(tau_by_counting(speeds, list(SPEEDS.values())), nan_ok=True)
    assert agreement.num_agreeing == sum(
        predicted[fast] > predicted[slow] for slow, fast in itertools.combinations(SPEEDS, 2)
    )
