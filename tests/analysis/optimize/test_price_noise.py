"""A choice among finalists beside the noise of the latency profile, planted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searched_sums import Doubles, made_up, runs_of

from simlab.analysis.optimize.candidate_sums import ACCEPTANCE_LENGTH, TOKENS_PER_S, WORST_CASE
from simlab.analysis.optimize.finalists import judge_finalists, share_of_draws_best
from simlab.policies.costs.cell_prices import NUM_DRAWS


def factors(size: float, machines: int, seed: int, policies: int = 3) -> Doubles:
    """Factors of the seconds of each machine, policy and draw."""
    return np.random.default_rng(seed).lognormal(0, size, (machines, policies, NUM_DRAWS))


def test_prices_too_noisy_for_the_choice_leave_no_winner() -> None:
    found = made_up(np.random.default_rng(1), np.array([[1.0, 1.2, 1.3]]), 60)
    quiet = judge_finalists(runs_of(found, [0, 1, 2], factors(0.001, 1, 2)), TOKENS_PER_S)
    assert quiet.wins
    noisy = judge_finalists(runs_of(found, [0, 1, 2], factors(0.3, 1, 2)), TOKENS_PER_S)
    assert not noisy.wins
    assert noisy.verdict == (
        "no winner among policy 0, policy 1 and policy 2: "
        "their differences are within the noise of the latency profile."
    )


@pytest.mark.parametrize(("size", "wins"), [(0.001, True), (0.6, False)])
def test_the_worst_case_too(size: float, wins: bool) -> None:
    levels = np.array([[1.0, 2.5, 1.6], [2.5, 1.0, 1.6]])
    found = made_up(np.random.default_rng(4), levels, 60)
    planted = factors(size, 2, 5)
    standing = judge_finalists(runs_of(found, [2, 0, 1], planted), WORST_CASE)
    assert standing.wins is wins
    # By hand: at each draw the worst of the machines, of the policy over that of another.
    plain, seconds = found.plain_seconds.sum(axis=1), found.seconds.sum(axis=2)
    for one, place in zip(standing.comparisons, (0, 1), strict=True):
        logs = []
        for draw in range(NUM_DRAWS):
            worst = [
                min(plain[m] / (seconds[m, at] * planted[m, number, draw]) for m in range(2))
                for number, at in ((0, 2), (place + 1, place))
            ]
            logs.append(np.log(worst[0] / worst[1]))
        half = 2.0395134 * np.std(logs, ddof=1)
        assert np.log(one.price_interval.high / one.ratio) == pytest.approx(half, rel=1e-4)


@given(st.integers(0, 60), st.sampled_from([0.001, 0.05, 0.5]))
def test_the_share_of_draws_in_which_the_choice_is_best_is_counted(seed: int, size: float) -> None:
    found = made_up(np.random.default_rng(seed), np.array([[1.0, 1.05, 1.1], [1.2, 1.1, 1.0]]), 20)
    planted = factors(size, 2, seed)
    plain, seconds = found.plain_seconds.sum(axis=1), found.seconds.sum(axis=2)
    first = worst = 0
    for draw in range(NUM_DRAWS):
        speedups = plain[:, None] / (seconds * planted[:, :, draw])
        first += int(speedups[0].argmax() == 0)
        worst += int(speedups.min(axis=0).argmax() == 0)
    machines = runs_of(found, [0, 1, 2], planted)
    assert share_of_draws_best(machines[:1], TOKENS_PER_S) == first / NUM_DRAWS
    assert share_of_draws_best(machines, WORST_CASE) == worst / NUM_DRAWS


def test_without_draws_or_prices_there_is_no_share() -> None:
    found = made_up(np.random.default_rng(1), np.array([[1.0, 1.2, 1.3]]), 20)
    assert share_of_draws_best(runs_of(found, [0, 1]), TOKENS_PER_S) is None
    assert share_of_draws_best(runs_of(found, [0, 1, 2], factors(0.1, 1, 2)), ACCEPTANCE_LENGTH) is None
