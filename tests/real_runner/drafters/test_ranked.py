"""Candidates ranked where the laws lie are those that the CPU's kernels rank, ties included."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.grid import STEPS_PER_NAT
from simlab.policies.orders.best_first import ranks_used
from simlab.real_runner.drafters.candidate_keys import (
    columns_on_device,
    exact_ranks,
    first_at,
    first_of,
    keys_of,
    on_host,
    steps_of,
)
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.ranked import (
    CandidatesRead,
    LawBuffers,
    columns_of,
    first_marginals,
    first_on_device,
    marginals_at,
    ranked,
)
from simlab.real_runner.drafters.vocabulary import DraftVocabulary


@st.composite
def logits(draw: st.DrawFn) -> np.ndarray:
    """Rows ``[R, D, V]`` out of few values, close ones among them, and some tokens masked out."""
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 40))
    values = np.array([0.0, 2.0**-17, 2.0**-16, 1.0, -3.0, -400.0, -np.inf], np.float32)
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = values[chance.integers(0, draw(st.integers(1, len(values))), shape)]
    rows[..., 0] = 0.0
    return rows


@st.composite
def texts(draw: st.DrawFn) -> tuple[np.ndarray, int, torch.Tensor, DraftVocabulary | None]:
    """Logits ``[T - 1, D, V]`` below the roots of a text, its prompt's length, its tokens, and whose ids these are."""
    rows = draw(logits())
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    prompt_length, vocab_size, own = draw(st.integers(1, 3)), rows.shape[-1], None
    if draw(st.booleans()):
        vocab_size += draw(st.integers(0, 10))
        ids = np.sort(chance.permutation(vocab_size)[: rows.shape[-1]]).astype(np.int32)
        own = DraftVocabulary(ids, vocab_size)
    tokens = torch.from_numpy(chance.integers(0, vocab_size, prompt_length + len(rows) + 1))
    return rows, prompt_length, tokens, own


@given(logits(), st.integers(1, 50))
def test_steps_alone_find_the_first_places(rows: np.ndarray, width: int) -> None:
    log_probs = torch.from_numpy(rows).clamp(max=0.0)
    found = first_at(steps_of(log_probs), width)
    assert torch.equal(found, first_of(keys_of(log_probs), width))


@given(texts(), st.integers(1, 12), st.integers(1, 50), st.integers(1, 3))
def test_rows_are_the_same_on_any_device(
    text: tuple[np.ndarray, int, torch.Tensor, DraftVocabulary | None], least: int, budget: int, per_pass: int
) -> None:
    rows, prompt_length, tokens, own = text
    roots = torch.arange(prompt_length, len(tokens) - 1)
    passes = list(zip(roots.split(per_pass), torch.from_numpy(rows).split(per_pass), strict=True))
    asked = own, rows.shape[1], tokens, KeptCandidates(least, budget)
    columns, other = columns_of(passes, *asked), columns_on_device(passes, *asked)
    for name in ("context_length", "counts", "ids", "log_probs", "true_rank", "valid"):
        np.testing.assert_array_equal(getattr(columns, name), getattr(other, name))
    there = columns.has_true_log_prob
    np.testing.assert_array_equal(columns.true_log_prob[there], other.true_log_prob[there])
    assert not (np.signbit(other.log_probs) & (other.log_probs == 0)).any()
    np.testing.assert_allclose(columns.entropy, other.entropy, rtol=1e-6)
    np.testing.assert_allclose(np.exp(columns.outside_log_mass), np.exp(other.outside_log_mass), atol=1e-14, rtol=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 30), st.integers(0, 8), st.integers(1, 60))
def test_exact_trees_are_counted_without_building_them(
    seed: int, depth: int, width: int, highest: int, budget: int
) -> None:
    """Costs of few values, so that paths of equal cost are told apart at the border of nearly every tree."""
    costs = np.sort(np.random.default_rng(seed).integers(0, highest + 1, (3, depth, width)), axis=-1)
    offsets = np.arange(0, depth * width + 1, width, dtype=np.int32)
    log_probs = (costs / -STEPS_PER_NAT + 0.0).astype(np.float32)
    ids = np.zeros(depth * width, np.int32)
    expected = [ranks_used(Marginals(ids, prob.ravel(), offsets), budget).tolist() for prob in log_probs]
    assert exact_ranks(torch.from_numpy(costs), budget).tolist() == expected


def test_a_text_of_one_token_has_no_rows_on_any_device() -> None:
    assert columns_on_device([], None, 3, torch.zeros(4, dtype=torch.int64), KeptCandidates()).counts.shape == (0, 3)


@given(logits(), st.integers(1, 50))
def test_a_live_round_sees_what_the_record_keeps(rows: np.ndarray, width: int) -> None:
    """Candidates and entropies, on a CPU and as another device finds them; entropies only if they are read."""
    (laws, probs, entropy), logits_of_one = LawBuffers().laws(torch.from_numpy(rows)), torch.from_numpy(rows[0])
    ids, log_probs, *_ = ranked(laws.numpy(), probs.numpy(), np.zeros(rows.shape[:2], np.int32), width)
    read = CandidatesRead(width, entropies=True)
    for found in (
        first_marginals(logits_of_one, read),
        marginals_at(*on_host(*first_on_device(logits_of_one, read))),
    ):
        np.testing.assert_array_equal(found.ids, ids[0].ravel())
        np.testing.assert_array_equal(found.log_probs, log_probs[0].ravel())
        assert found.entropies is not None
        np.testing.assert_allclose(found.entropies, entropy[0].numpy(), atol=1e-6)
    assert first_marginals(logits_of_one, CandidatesRead(width)).entropies is None


@pytest.mark.parametrize("value", [np.nan, 0.1])
def test_what_is_no_law_is_refused(value: float) -> None:
    log_probs = np.full((1, 1, 3), value, np.float32)
    with pytest.raises(ValueError, match="at most 0"):
        ranked(log_probs, log_probs, np.zeros((1, 1), np.int32), 2)


def test_logits_that_are_not_numbers_are_said_to_be() -> None:
    passes = [(torch.tensor([1]), torch.full((1, 1, 3), torch.nan))]
    for rows in (columns_of, columns_on_device):
        with pytest.raises(ModelError, match="the drafter's logits are not numbers; give another --dtype"):
            rows(passes, None, 1, torch.tensor([0, 1, 2]), KeptCandidates())
