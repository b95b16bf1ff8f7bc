"""The limit of costs within which the true path is looked for."""

import pytest

from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.policies.kernels.true_places import grown_limit

HIGHEST = int(-LOWEST) * STEPS_PER_NAT * 32


@pytest.mark.parametrize("first", [0, 1, STEPS_PER_NAT // 2, 4 * STEPS_PER_NAT, HIGHEST - 1])
def test_the_dearest_path_is_within_reach_of_a_few_limits(first: int) -> None:
    """As many searches are made as there are limits, so each limit must be well above the one before."""
    limit, tried = first, 0
    while limit < HIGHEST:
        grown = grown_limit(limit, HIGHEST)
        assert limit < grown <= HIGHEST
        limit, tried = grown, tried + 1
    assert tried <= 50


def test_a_limit_is_not_overshot() -> None:
    """Candidates are sent through a map up to the limit, which takes long."""
    assert grown_limit(100 * STEPS_PER_NAT, HIGHEST) <= 126 * STEPS_PER_NAT
    assert grown_limit(HIGHEST, HIGHEST) == HIGHEST
