"""The training loss against a plain loop that does what the words say."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simlab.real_runner.train.features import block_loss, judged
from simlab.real_runner.train.plan import LossWeights


def loss_by_hand(
    best: list[list[float]], true: list[list[float]], known: list[list[bool]], decay: float, focal: float, chain: float
) -> float:
    depth = len(best[0])
    raw = [math.exp(-k / decay) if decay > 0 else 1.0 for k in range(depth)]
    num_blocks = max(1, sum(row[0] for row in known))
    total = 0.0
    for block in range(len(best)):
        right, first_error_met, reached = True, False, 1.0
        for k in range(depth):
            right = right and known[block][k]
            if known[block][k]:
                total += -true[block][k] * raw[k] / sum(raw)
                if not first_error_met and true[block][k] < best[block][k]:
                    first_error_met = True
                    total += -focal * true[block][k]
            if right:
                reached *= math.exp(true[block][k])
                total -= chain * reached
    return total / num_blocks


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[float]], list[list[float]], list[list[bool]]]:
    num_blocks, depth = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    # Gaps of 0 make the true token the most probable one.
    value = st.floats(-8, -1 / 64)
    gap = st.just(0.0) | st.floats(1 / 64, 4)
    true = draw(st.lists(st.lists(value, min_size=depth, max_size=depth), min_size=num_blocks, max_size=num_blocks))
    best = [[min(0.0, v + draw(gap)) for v in row] for row in true]
    known = [[draw(st.booleans()) for _ in row] for row in true]
    return best, true, known


@given(batches(), st.sampled_from([0.0, 1.0, 4.0]), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 1.0, 40.0]))
def test_the_loss_is_what_a_loop_computes(
    batch: tuple[list[list[float]], list[list[float]], list[list[bool]]], decay: float, focal: float, chain: float
) -> None:
    best, true, known = batch
    true_log_probs = torch.tensor(true, dtype=torch.float64, requires_grad=True)
    weights = LossWeights(decay, focal, chain)
    right = true_log_probs.detach() >= torch.tensor(best, dtype=torch.float64)
    loss = block_loss(-true_log_probs, right, torch.tensor(known), weights)
    expected = loss_by_hand(best, true, known, decay, focal, chain)
    assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss, true_log_probs)
    assert torch.isfinite(gradient).all()
    assert torch.all(gradient[~torch.tensor(known)] == 0)


@given(batches())
def test_without_weights_it_is_the_mean_cross_entropy(
    batch: tuple[list[list[float]], list[list[float]], list[list[bool]]],
) -> None:
    _, true, _ = batch
    known = torch.ones(len(true), len(true[0]), dtype=torch.bool)
    loss = block_loss(-torch.tensor(true), known, known, LossWeights(0, 0, 0))
    assert loss.item() == pytest.approx(-torch.tensor(true).mean().item(), rel=1e-5)


def test_the_focal_term_counts_the_first_error_only() -> None:
    entropies, right = torch.tensor([[0.1, 1.0, 2.0]]), torch.tensor([[True, False, False]])
    known = torch.ones(1, 3, dtype=torch.bool)
    without = block_loss(entropies, right, known, LossWeights(0, 0, 0))
    with_focal = block_loss(entropies, right, known, LossWeights(0, 0.5, 0))
    assert (with_focal - without).item() == pytest.approx(0.5 * 1.0)


def test_what_laws_say_of_true_tokens() -> None:
    """The most probable, another, one that is not kept, and none; the kept tokens are 2, 5 and 6."""
    laws = torch.tensor([[0.5, 0.25, 0.25]] * 4).log()
    places = torch.tensor([-1, -1, 0, -1, -1, 1, 2])
    entropies, right, counts = judged(laws, torch.tensor([2, 6, 3, -1]), places)
    assert entropies[:2].tolist() == pytest.approx([math.log(2), math.log(4)])
    assert right[:2].tolist() == [True, False]
    assert counts.tolist() == [True, True, False, False]


def test_extreme_log_probabilities_have_finite_gradients() -> None:
    true = torch.tensor([[-200.0, -1e-7, -300.0], [0.0, 0.0, 0.0]], requires_grad=True)
    known = torch.ones(2, 3, dtype=torch.bool)
    loss = block_loss(-true, true.detach() >= 0, known, LossWeights(4, 0.3, 40))
    (gradient,) = torch.autograd.grad(loss, true)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("weights", [(-1.0, 0.3, 1.0), (4.0, -0.1, 1.0), (4.0, 0.3, math.nan), (math.inf, 0.0, 0.0)])
def test_negative_and_endless_weights_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="loss weight"):
        LossWeights(*weights)
