"""Where prices look launch-bound: by the stated rule, on a roofline with and without a floor of launches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.policies.costs.roofline import FAR, RIDGES, UNKNOWN_RIDGE, flatness


def table(verify: list[float] | np.ndarray) -> CostTable:
    """A table with one context and these passes."""
    seconds = {stage: np.zeros((1, len(verify))) for stage in GRID_STAGES}
    seconds |= {"verify": np.array([verify], np.float64), PLAIN: np.ones((1, 1))}
    return CostTable("made-up", np.array([100]), seconds)


def roofline(ridge: float, tokens: int, launches: float) -> CostTable:
    """Weights take 1 second to move; arithmetic overtakes at the ridge; nothing takes less than its launches."""
    sizes = np.arange(1, tokens + 1)
    return table(np.maximum(np.maximum(1.0, sizes / ridge), launches))


@pytest.mark.parametrize("device", [*RIDGES, "made-up"])
def test_a_roofline_is_not_launch_bound_and_is_under_a_high_floor(device: str) -> None:
    ridge = RIDGES.get(device, UNKNOWN_RIDGE)
    tokens = int(2 * ridge)
    assert flatness(roofline(ridge, tokens, 0.0), f"NVIDIA {device}").looks_launch_bound is False
    slow = flatness(roofline(ridge, tokens, 8.0), f"NVIDIA {device}")
    assert slow.looks_launch_bound is True
    assert (slow.ratio, slow.tokens, slow.context) == (1.0, tokens, 100)
    assert slow.warning.startswith("looks launch-bound: with 100 tokens before it")


@given(st.floats(1.0, 4.0), st.integers(1, 900))
def test_the_rule(ratio: float, tokens: int) -> None:
    found = flatness(table(np.linspace(1.0, ratio, tokens)), "a device that nobody knows")
    if tokens < FAR * UNKNOWN_RIDGE:
        assert found.looks_launch_bound is None
    else:
        assert found.looks_launch_bound == (found.ratio < 0.75 * tokens / UNKNOWN_RIDGE)
    assert bool(found.warning) == (found.looks_launch_bound is True)


def test_prices_that_end_early_tell_nothing() -> None:
    assert flatness(table([1.0] * 200), "A100").looks_launch_bound is None
    assert flatness(table([1.0] * 242), "A100").looks_launch_bound is True
    assert flatness(table([0.0] * 600), "A100").looks_launch_bound is False
