"""A prediction beside its measurement, and the noise of the latency profile: planted."""

import math

import numpy as np
import polars as pl
import pytest
from confirm_results import results
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.confirm.errors import PredictionErrors, prediction_errors
from simlab.analysis.confirm.text import prediction_verdict
from simlab.policies.costs.cell_prices import NUM_DRAWS


def noisy(size: float, seed: int = 0, wrong: float = 1.0) -> pl.DataFrame:
    """The made-up results with draws: each policy's seconds have noise of this size, and trees are this much slower."""
    rng = np.random.default_rng(seed)
    found = results()
    found = found.with_columns(
        verify_s=pl.when(pl.col("kind") == "measured", pl.col("name") == "ddtree")
        .then(pl.col("verify_s") * wrong)
        .otherwise(pl.col("verify_s"))
    )
    factors = {label: rng.lognormal(0, size, NUM_DRAWS) for label in found["policy"].unique(maintain_order=True)}
    lists = [
        (row["verify_s"] * factors[row["policy"]]).tolist() if row["kind"] == "predicted" else None
        for row in found.iter_rows(named=True)
    ]
    return found.with_columns(pl.Series("draws_s", lists, pl.List(pl.Float32)))


def errors_of(rows: pl.DataFrame) -> dict[str, PredictionErrors]:
    return {error.policy: error for error in prediction_errors(rows)}


def test_the_error_has_a_price_interval() -> None:
    rows = noisy(0.02)
    found = errors_of(rows)["ddtree:budget=8"]
    ours, plain = (
        np.log(
            np.array(rows.filter(pl.col("policy") == label, pl.col("kind") == "predicted")["draws_s"].to_list()).sum(0)
        )
        for label in ("ddtree:budget=8", "autoregressive")
    )
    half = 2.0395134 * np.std(plain - ours, ddof=1)
    value = found.errors["speedup"].value
    assert math.log((1 + found.price_interval.high) / (1 + value)) == pytest.approx(half, rel=1e-4)
    row = found.row()
    assert row["error_speedup_price_low"] == found.price_interval.low
    assert row["within_noise"] is True


@given(st.integers(0, 30), st.sampled_from([0.001, 0.02, 0.1]), st.sampled_from([1.0, 1.03, 1.2]))
def test_within_noise_is_within_both_reaches_added_as_squares(seed: int, size: float, wrong: float) -> None:
    for one in prediction_errors(noisy(size, seed, wrong)):
        error = one.errors["speedup"]
        if one.is_plain:
            assert one.is_within_noise is None
            continue
        value = math.log(1 + error.value)
        side = "low" if value > 0 else "high"
        by_prompts, by_prices = (math.log(1 + getattr(of, side)) - value for of in (error.interval, one.price_interval))
        assert one.is_within_noise == (value**2 <= by_prompts**2 + by_prices**2)


def test_more_noise_of_prices_covers_a_wrong_prediction() -> None:
    quiet, loud = errors_of(noisy(0.001, wrong=1.2)), errors_of(noisy(0.2, wrong=1.2))
    assert quiet["ddtree:budget=8"].is_within_noise is False
    assert loud["ddtree:budget=8"].is_within_noise is True
    assert "Measured within the intervals of prompts and prices: 1 of 3." in prediction_verdict(list(quiet.values()))
    assert "Measured within the intervals of prompts and prices: 3 of 3." in prediction_verdict(list(loud.values()))


def test_without_draws_nothing_is_said_of_the_noise() -> None:
    found = prediction_errors(results())
    assert all(errors.is_within_noise is None and errors.row()["within_noise"] is None for errors in found)
    assert "prices" not in prediction_verdict(found)
