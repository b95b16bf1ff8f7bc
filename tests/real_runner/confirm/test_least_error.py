"""The least error that explains a token under top-k and top-p: never more than it took, and no less than it must."""

import itertools

import numpy as np
import pytest
from depth import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab.arrays import Floats
from simlab.real_runner.confirm.audit import least_error
from simlab.sampling.choice import Sampling, choose, choose_rows, gap_of

FILTERS = [(0, 1.0), (5, 1.0), (0, 0.7), (12, 0.8), (1, 1.0)]
VOCAB_SIZE = 40


def law(seed: int, spread: float = 3.0) -> Floats:
    return (np.random.default_rng(seed).normal(size=VOCAB_SIZE) * spread).astype(np.float32)


def raised(logits: Floats, token: int, by: float) -> Floats:
    """One logit raised; in float32, so ``by`` must be more than its rounding."""
    changed = logits.copy()
    changed[token] += np.float32(by)
    return changed


@settings(max_examples=examples(300))
@given(
    seed=st.integers(0, 1 << 30),
    filters=st.sampled_from(FILTERS),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    error=st.floats(1e-3, 2.0),
)
def test_never_more_than_it_took(seed: int, filters: tuple[int, float], temperature: float, error: float) -> None:
    """Differences off by at most ``error``: whatever they lead to, the result does not blame more."""
    top_k, top_p = filters
    sampling = Sampling(temperature, top_k, top_p, 0)
    logits = law(seed)
    rng = np.random.default_rng(seed + 1)
    signs = rng.choice([-0.5, 0.5], size=VOCAB_SIZE) if seed % 2 else rng.uniform(-0.5, 0.5, size=VOCAB_SIZE)
    wrong = (logits + error * signs).astype(np.float32)
    token = choose(wrong, sampling, seed, 9)
    if token != choose(logits, sampling, seed, 9):
        assert least_error(logits, token, sampling, seed, 9) <= error + 1e-5


@pytest.mark.parametrize("seed", some(range(20), quick=4))
def test_without_a_filter_it_is_the_gap(seed: int) -> None:
    sampling, logits = Sampling(0.8, 0, 1.0, 0), law(seed)
    winner = choose(logits, sampling, seed, 3)
    for token in range(VOCAB_SIZE):
        if token != winner:
            gap = gap_of(logits, token, sampling, seed, 3)
            assert least_error(logits, token, sampling, seed, 3) == pytest.approx(-gap, abs=1e-12)


def test_of_a_masked_token_it_is_the_raise_that_lets_it_in() -> None:
    """Top-k leaves one token: a token's place is all that counts, and the noise nothing."""
    sampling, logits = Sampling(1.0, 1, 1.0, 0), law(0)
    winner = int(logits.argmax())
    for token in range(VOCAB_SIZE):
        if token != winner:
            error = least_error(logits, token, sampling, 7, 3)
            assert error == pytest.approx(float(logits[winner] - logits[token]), abs=1e-5)
            assert choose(raised(logits, token, error + 1e-4), sampling, 7, 3) == token
            assert choose(raised(logits, token, error - 1e-4), sampling, 7, 3) != token


SIGNS = np.array(list(itertools.product((-0.5, 0.5), repeat=6)))
SMALL = 0.6


def searched(logits: Floats, token: int, sampling: Sampling, key: int) -> float:
    """The least error found by trying: each logit off by half of it, up or down; inf where it is not small."""

    def explains(error: float) -> bool:
        rows = (logits + error * SIGNS).astype(np.float32)
        keys, positions = np.full(len(rows), key, np.uint64), np.full(len(rows), 3, np.int64)
        return bool((choose_rows(rows, sampling, keys, positions).tokens == token).any())

    if not explains(SMALL):
        return np.inf
    low, high = 0.0, SMALL
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if explains(middle) else (middle, high)
    return high


@pytest.mark.parametrize(("top_k", "top_p"), some([(4, 0.8), (0, 0.95), (3, 1.0), (0, 0.7)]), ids=str)
def test_errors_as_small_as_real_ones_are_found_in_full(top_k: int, top_p: float) -> None:
    """It may be less than what it takes, but where that is little it seldom is."""
    sampling, pairs = Sampling(1.0, top_k, top_p, 0), []
    for seed in range(60):
        logits = law(seed, 2.0)[:6]
        winner = choose(logits, sampling, seed, 3)
        pairs += [
            (searched(logits, token, sampling, seed), least_error(logits, token, sampling, seed, 3))
            for token in range(6)
            if token != winner
        ]
    tried, found = np.array([pair for pair in pairs if pair[0] < SMALL]).T
    assert len(tried) > 15
    assert (found <= tried + 1e-3).all()
    assert np.mean(found > 0.95 * tried) >= 0.85


def put_out(seed: int, sampling: Sampling, error: float) -> tuple[int, int] | None:
    """A winner that a small error puts out of what is allowed, and the token that wins in its place."""
    logits = law(seed)
    winner = choose(logits, sampling, seed, 3)
    lowered = choose(raised(logits, winner, -error), sampling, seed, 3)
    plain = Sampling(sampling.temperature, 0, 1.0, 0)
    is_close = gap_of(logits, winner, plain, seed, 3) < 0.5
    return None if lowered == winner or is_close else (winner, lowered)


@pytest.mark.parametrize("sampling", [Sampling(1.0, 5, 1.0, 0), Sampling(1.0, 0, 0.8, 0)], ids=["top-k", "top-p"])
def test_a_winner_at_the_edge_is_put_out_by_little(sampling: Sampling) -> None:
    """It had won by far more: to ask for a raise of the other's own logit would call the text wrong."""
    cases = {seed: found for seed in range(2000) if (found := put_out(seed, sampling, 0.05)) is not None}
    assert len(cases) >= 3
    for seed, (_, other) in cases.items():
        assert least_error(law(seed), other, sampling, seed, 3) <= 0.05 + 1e-5
