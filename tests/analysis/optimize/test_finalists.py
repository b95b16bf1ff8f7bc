"""Finalists, the verdict on prompts of another kind than those of the choice, and the optimism; null and planted."""

from collections.abc import Sequence

import numpy as np
import pytest
from searched_sums import Doubles, made_up, runs_of

from simlab.analysis.optimize.candidate_sums import (
    TOKENS_PER_S,
    WORST_CASE,
    CandidateSums,
    best_places,
    objective_figures,
)
from simlab.analysis.optimize.finalists import (
    MOST_RIVALS,
    FinalistFigures,
    FinalistVerdict,
    choose_finalists,
    judge_finalists,
    optimism_figures,
)


def chosen_then_stood(
    rng: np.random.Generator, levels: Doubles, entries: Sequence[int], same_prompts: bool = False, prompts: int = 40
) -> tuple[list[int], FinalistVerdict]:
    """Choose on made-up prompts, and report on others."""
    dev = made_up(rng, levels, prompts)
    evaluation = dev if same_prompts else made_up(rng, levels, prompts)
    places = choose_finalists(dev, objective_figures(dev, TOKENS_PER_S), entries, ())
    return places, judge_finalists(runs_of(evaluation, places), TOKENS_PER_S)


def claims(num_entries: int, num_settings: int, times: int, same_prompts: bool = False) -> float:
    """How often anything is said to be ahead of anything where all policies are alike."""
    levels = np.ones((1, num_entries * num_settings))
    entries = [place // num_settings for place in range(num_entries * num_settings)]
    said = 0
    for seed in range(times):
        _, standing = chosen_then_stood(np.random.default_rng(seed), levels, entries, same_prompts)
        said += not standing.verdict.startswith("no winner")
    return said / times


def test_where_all_are_alike_there_is_no_winner_at_the_nominal_rate() -> None:
    # One comparison at 5 %: 400 times give 5 % with a standard error of 1.1 %.
    assert 0.02 < claims(num_entries=2, num_settings=15, times=400) < 0.085
    # Four of a family by Holm's method: 5 % at the most.
    assert claims(num_entries=6, num_settings=10, times=200) < 0.09


def test_choosing_on_the_prompts_of_the_report_would_claim_too_much() -> None:
    # Of the best of 40 against one other setting: what the two sets of prompts are for.
    levels, said = np.ones((1, 41)), 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        _, standing = chosen_then_stood(rng, levels, [0] * 40 + [1], same_prompts=True)
        said += standing.wins
    assert said > 15


def test_a_planted_best_is_chosen_and_wins() -> None:
    levels = np.linspace(1.5, 1.1, 30)[None]
    levels[0, 13] = 1.0
    entries = [place // 10 for place in range(30)]
    for seed in range(20):
        places, standing = chosen_then_stood(np.random.default_rng(seed), levels, entries)
        assert places[0] == 13
        assert standing.wins
        assert standing.verdict.startswith("policy 13 is faster than each of 2 others")


def test_a_chosen_policy_that_others_beat_is_no_winner() -> None:
    rng = np.random.default_rng(1)
    evaluation = made_up(rng, np.array([[1.5, 1.0, 2.0]]), 40)
    standing = judge_finalists(runs_of(evaluation, [0, 1, 2]), TOKENS_PER_S)
    assert not standing.wins
    assert standing.verdict == "policy 1 is faster than policy 0."


def test_finalists_are_the_best_of_each_entry_and_the_references() -> None:
    rng = np.random.default_rng(2)
    found = made_up(rng, np.linspace(1, 2, 16)[None], 30, noise=0.01)
    values = objective_figures(found, TOKENS_PER_S)
    entries = [0, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7]
    assert best_places(found, values) == list(range(16))
    # 0 is the best; 1 and 14 are references.
    assert choose_finalists(found, values, entries, [1, 14]) == [0, 2, 5, 7, 9, 1, 14]
    assert MOST_RIVALS == 4
    # A reference may be the best.
    assert choose_finalists(found, values, entries, [0, 14]) == [0, 1, 2, 5, 7, 14]


def test_who_does_just_the_same_is_no_rival() -> None:
    found = made_up(np.random.default_rng(2), np.array([[1.0, 1.5, 2.0]]), 30)
    twice = found.take([0, 0, 1, 1, 2])
    values = objective_figures(twice, TOKENS_PER_S)
    assert choose_finalists(twice, values, [0, 1, 2, 3, 4], [3]) == [0, 4, 3]
    assert choose_finalists(twice.take([0, 1]), values[:2], [0, 1], [1]) == [0]
    alone = judge_finalists(runs_of(twice, [0]), TOKENS_PER_S)
    assert (alone.wins, alone.comparisons) == (False, ())
    assert alone.verdict == "no winner: every policy does the same as policy 0."


def worst_speedup(found: CandidateSums, place: int, without: int | None) -> float:
    """By hand, on all prompts but one."""
    prompts = [at for at in range(len(found.prompts)) if at != without]
    ratios = []
    for machine in range(len(found.seconds)):
        plain = sum(float(found.plain_seconds[machine, at]) for at in prompts)
        ratios.append(plain / sum(float(found.seconds[machine, place, at]) for at in prompts))
    return min(ratios)


def test_the_worst_case_is_compared_over_machines() -> None:
    rng = np.random.default_rng(4)
    # The first is the best on one machine, the second on the other; the third is good on both.
    levels = np.array([[1.0, 2.5, 1.6], [2.5, 1.0, 1.6]])
    found = made_up(rng, levels, 30)
    values = objective_figures(found, WORST_CASE)
    assert best_places(found, values)[0] == 2
    standing = judge_finalists(runs_of(found, [2, 0, 1]), WORST_CASE)
    assert standing.wins
    assert "has a larger worst speedup than each of 2 others" in standing.verdict
    for one, place in zip(standing.comparisons, (0, 1), strict=True):
        ratios = [worst_speedup(found, 2, at) / worst_speedup(found, place, at) for at in (None, *range(30))]
        assert one.ratio == pytest.approx(ratios[0])
        logs = np.log(ratios[1:])
        assert one.log_error == pytest.approx(np.sqrt(29 / 30 * ((logs - logs.mean()) ** 2).sum()))


def test_optimism_is_what_the_other_choice_claims() -> None:
    found = optimism_figures(
        FinalistFigures("a", 120.0, 100.0), FinalistFigures("chain", 100.0, 90.0), FinalistFigures("b", 110.0, 104.0)
    )
    assert found["best_on_evaluation"] == "b"
    by_hand = {
        "best_on_evaluation_figure": 104.0,
        "chosen_figure": 100.0,
        "optimism": 4.0,
        "optimism_share": 0.04,
        "dev_figure": 120.0,
        "shrinkage": 20.0,
        "shrinkage_share": 1 / 6,
        "dev_over_chain": 1.2,
        "evaluation_over_chain": 10 / 9,
        "shrinkage_over_chain_share": 1 - 10 / 9 / 1.2,
    }
    assert {key: value for key, value in found.items() if key in by_hand} == pytest.approx(by_hand)
    assert found.keys() - by_hand.keys() == {"best_on_evaluation"}
