"""Reliability curves and calibration errors on planted truth, and how they vary over prompts."""

import math

import numpy as np
import pytest

from simlab.analysis.scoring.reliability import (
    ON_SPINE,
    EdgeSlice,
    ScoredEdges,
    calibration,
    reliability,
)
from simlab.analysis.statistics.intervals import intervals_of, prompt_spread, ratios, share_intervals, sum_of_distances
from simlab.policies.fits.edge_sums import no_edge_sums


def planted(num_prompts: int, wrong: float, seed: int = 1, per_prompt: int = 400) -> ScoredEdges:
    """Nodes with one candidate each, at depth 1, whose frequency is its probability to the power ``wrong``."""
    generator = np.random.default_rng(seed)
    sums = no_edge_sums(num_prompts, 1)
    for prompt in range(num_prompts):
        probs = generator.uniform(0.02, 0.98, per_prompt)
        hits = generator.random(per_prompt) < probs**wrong
        bins = np.clip((np.log(probs / (1 - probs)) + 16) * 8, 0, 255).astype(int)
        for prob, hit, bin_ in zip(probs, hits, bins, strict=True):
            values = np.array([1.0, prob, hit])
            sums.nodes[prompt, 0, 0] += 1
            loss = -math.log(prob if hit else 1 - prob)
            sums.cells[prompt, 0, 0, 0] += [*values, loss, (prob - hit) ** 2]
            sums.by_depth[prompt, 0, 0, bin_] += values
            sums.by_rank[prompt, 0, 0, bin_] += values
    return ScoredEdges("planted", True, False, sums)


def test_a_calibrated_model_has_no_error_beyond_noise_and_an_overconfident_one_has_its_own() -> None:
    fair, bold = planted(50, 1.0), planted(50, 2.0, seed=2)
    good, bad = (calibration(one, EdgeSlice(ON_SPINE)) for one in (fair, bold))
    assert good is not None
    assert bad is not None
    assert good.ece is not None
    assert bad.ece is not None
    assert good.ece.interval.low == 0
    assert good.ece.value < good.ece.raw
    assert good.excess_interval.low < 0 < good.excess_interval.high
    true_error = float(np.mean([p - p**2 for p in np.linspace(0.02, 0.98, 10_001)]))
    assert bad.ece.interval.low < true_error < bad.ece.interval.high
    assert bad.excess == pytest.approx(true_error, abs=0.02)
    assert bad.excess_interval.low > 0.1
    curve = reliability(bold, EdgeSlice(ON_SPINE))
    assert len(curve) == 10
    assert [one.weight for one in curve] == pytest.approx([0.1] * 10, abs=0.03)
    assert sum(one.weight for one in curve) == pytest.approx(1)
    assert all(abs(one.observed - one.predicted**2) < 0.05 for one in curve)
    assert all(one.interval.low < one.observed < one.interval.high for one in curve)


def test_debiased_errors_cover_the_truth_on_few_noisy_prompts() -> None:
    """A model that is right has an error of 0; the raw one is never near, the corrected one's interval holds 0."""
    found = [calibration(planted(40, 1.0, seed, 12), EdgeSlice(ON_SPINE)) for seed in range(20)]
    errors = [one.ece for one in found if one is not None and one.ece is not None]
    assert sum(one.interval.low == 0 for one in errors) >= 17
    assert np.mean([one.raw for one in errors]) > 0.03
    assert np.mean([one.value for one in errors]) < 0.5 * np.mean([one.raw for one in errors])


def test_spreads_of_sums_over_prompts() -> None:
    sums = np.array([[1.0, 2.0], [3.0, 3.0], [0.0, 0.0]])
    spread = prompt_spread(sums, ratios)
    assert spread.whole.tolist() == [1.25]
    assert spread.without_each[:, 0].tolist() == pytest.approx([1.0, 2.0, 1.25])
    assert spread.num_effective.tolist() == pytest.approx([1 / (1 / 16 + 9 / 16)])
    with pytest.raises(ValueError, match="at least one prompt"):
        prompt_spread(sums[:0], ratios)
    few = sum_of_distances(spread)
    assert few.raw == 1.25
    assert 0 <= few.interval.low <= few.value <= few.interval.high
    (cut,) = share_intervals(prompt_spread(np.array([[4.0, 4.0], [4.0, 3.0], [4.0, 4.0]]), ratios))
    assert 0 < cut.low < 11 / 12 < cut.high == 1
    (alone,) = intervals_of(prompt_spread(sums[:1], ratios))
    assert math.isnan(alone.low)
