"""The target's rows made on a device are those that the host's kernels make."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import first_largest
from simlab.real_runner.record import texts as module
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling

GREEDY = Sampling(0.0, 0, 1.0, 0)


def target_of(logits: torch.Tensor) -> Target:
    """A target whose states are their own logits."""
    target = Target.__new__(Target)
    model = torch.nn.Module()
    model.get_output_embeddings = torch.nn.Identity  # type: ignore[assignment]
    model.get_input_embeddings = lambda: torch.nn.Embedding(*logits.shape)  # type: ignore[assignment]
    for name, value in (("name", "made up"), ("model", model)):
        object.__setattr__(target, name, value)
    return target


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 40), st.integers(1, 9))
def test_greedy_rows_are_the_same_on_any_device(seed: int, num: int, vocab_size: int, num_values: int) -> None:
    chance = np.random.default_rng(seed)
    values = np.array([0.0, -0.0, 2.0**-17, 1.0, 1.0 + 2.0**-20, -3.0, 20.0, -400.0, -np.inf], np.float32)
    rows = values[chance.integers(0, num_values, (num, vocab_size))]
    rows[:, chance.integers(0, vocab_size)] = 0.0
    logits, text = torch.from_numpy(rows), torch.from_numpy(chance.integers(0, vocab_size, num))
    expected = module.token_rows(target_of(logits), logits, text, GREEDY, 0, 0)
    found = module._rows(*(row.numpy() for row in module.greedy_rows(logits, text)))
    for name in ("top_ids", "top_log_probs", "log_prob", "entropy", "decision_gap"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.log_normaliser, expected.log_normaliser, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(first_largest(target_of(logits), logits), rows.argmax(-1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_law_is_seen_on_any_device(value: float) -> None:
    logits = torch.tensor([[0.0, 1.0], [value, value if value < 0 else 0.0]])
    *_, normalisers, _ = module.greedy_rows(logits, torch.tensor([0, 1]))
    assert normalisers.isfinite().tolist() == [True, False]
    with pytest.raises(ModelError, match="the logits of made up are not numbers"):
        first_largest(target_of(logits), logits)
