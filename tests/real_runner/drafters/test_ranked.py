"""Candidates ranked where the laws lie are those that the CPU's kernels rank, ties included."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simlab.errors import ModelError
from simlab.real_runner.drafters.ranked import (
    CandidatesRead,
    LawBuffers,
    Laws,
    first_marginals,
    first_on_device,
    marginals_at,
    ranked_by_kernels,
    ranked_by_torch,
)


@st.composite
def logits(draw: st.DrawFn) -> np.ndarray:
    """Rows ``[R, D, V]`` out of few values, close ones among them, and some tokens masked out."""
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 40))
    values = np.array([0.0, 2.0**-17, 2.0**-16, 1.0, -3.0, -400.0, -np.inf], np.float32)
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = values[chance.integers(0, draw(st.integers(1, len(values))), shape)]
    rows[..., 0] = 0.0
    return rows


@given(logits(), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_both_devices_rank_alike(rows: np.ndarray, width: int, seed: int) -> None:
    laws = LawBuffers().laws(torch.from_numpy(rows))
    truth = np.random.default_rng(seed).integers(0, rows.shape[-1], rows.shape[:2]).astype(np.int32)
    one, other = ranked_by_kernels(laws, truth, width), ranked_by_torch(laws, truth, width)
    for name in ("ids", "log_probs", "probs", "true_ranks", "true_log_probs"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
        assert not (np.signbit(theirs) & (theirs == 0)).any()
    np.testing.assert_allclose(one.mass, other.mass, rtol=1e-14)
    assert other.mass.dtype == np.float64


@given(logits(), st.integers(1, 50))
def test_a_live_round_sees_what_the_record_keeps(rows: np.ndarray, width: int) -> None:
    """Candidates and entropies, on a CPU and as another device finds them; entropies only if they are read."""
    laws, logits_of_one = LawBuffers().laws(torch.from_numpy(rows)), torch.from_numpy(rows[0])
    first = ranked_by_kernels(laws, np.zeros(rows.shape[:2], np.int32), width)
    read = CandidatesRead(width, entropies=True)
    for found in (
        first_marginals(logits_of_one, read),
        marginals_at(*first_on_device(logits_of_one, read)),
    ):
        np.testing.assert_array_equal(found.ids, first.ids[0].ravel())
        np.testing.assert_array_equal(found.log_probs, first.log_probs[0].ravel())
        assert found.entropies is not None
        np.testing.assert_allclose(found.entropies, laws.entropy[0].numpy(), atol=1e-6)
    assert first_marginals(logits_of_one, CandidatesRead(width)).entropies is None


@pytest.mark.parametrize("value", [np.nan, 0.1])
def test_what_is_no_law_is_refused_by_both(value: float) -> None:
    log_probs = torch.full((1, 1, 3), value)
    laws = Laws(log_probs, log_probs, log_probs[..., 0])
    for ranked in (ranked_by_kernels, ranked_by_torch):
        with pytest.raises(ValueError, match="at most 0"):
            ranked(laws, np.zeros((1, 1), np.int32), 2)


def test_logits_that_are_not_numbers_are_said_to_be() -> None:
    with pytest.raises(ModelError, match="the drafter's logits are not numbers; give another --dtype"):
        LawBuffers().laws(torch.full((1, 1, 3), torch.nan))
