"""Finalists, the verdict on prompts of another kind than those of the choice, and the optimism; null and planted."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searched_sums import Doubles, made_up, runs_of

from simlab.analysis.optimize.candidate_sums import (
    ACCEPTANCE_LENGTH,
    TOKENS_PER_S,
    WORST_CASE,
    CandidateSums,
    best_indices,
    objective_figures,
)
from simlab.analysis.optimize.finalists import (
    MOST_RIVALS,
    FinalistVerdict,
    choose_finalists,
    judge_finalists,
    optimism_figures,
    share_of_draws_best,
    take_sentence,
)
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.traces.artefacts.optimum import ChosenPolicy, Optimum, PromptSource, Scalar


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
    entries = [index // num_settings for index in range(num_entries * num_settings)]
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
    entries = [index // 10 for index in range(30)]
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
    assert best_indices(found, values) == list(range(16))
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
    assert best_indices(found, values)[0] == 2
    standing = judge_finalists(runs_of(found, [2, 0, 1]), WORST_CASE)
    assert standing.wins
    assert "has a larger worst speedup than each of 2 others" in standing.verdict
    for comparison, index in zip(standing.comparisons, (0, 1), strict=True):
        ratios = [worst_speedup(found, 2, at) / worst_speedup(found, index, at) for at in (None, *range(30))]
        assert comparison.ratio == pytest.approx(ratios[0])
        logs = np.log(ratios[1:])
        assert comparison.log_error == pytest.approx(np.sqrt(29 / 30 * ((logs - logs.mean()) ** 2).sum()))


def test_optimism_is_what_the_other_choice_claims() -> None:
    found = optimism_figures((120.0, 100.0), (100.0, 90.0), "b", 104.0)
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


# The sentence that says what to take


BEST = ChosenPolicy("ddtree:budget=8", "0123")
SOURCE = PromptSource("text", "draft", frozenset({("gsm8k", "1")}))
BEST_ROW: dict[str, Scalar] = {"policy": BEST.policy, "role": "best", "best_over_this": None, "p_adjusted": None}


def optimum_of(*rows: dict[str, Scalar]) -> Optimum:
    """A choice of `BEST` with these rows."""
    return Optimum(
        "0.1.0",
        "tokens_per_s",
        None,
        (),
        SOURCE,
        SOURCE,
        2,
        None,
        BEST,
        "no winner: level.",
        {},
        (BEST.policy, "chain"),
        rows,
    )


def row_of(policy: str, nodes: float, ratio: float, differs: bool, is_known: bool) -> dict[str, Scalar]:
    """What a row says that the sentence reads."""
    low: Scalar = ratio - 0.05 if is_known else None
    compared: dict[str, Scalar] = {"best_over_this": ratio, "best_over_this_ci_low": low, "differs": differs}
    return {"policy": policy, "evaluation_nodes_per_round": nodes, "evaluation_speedup": 1.5, **compared}


@given(
    st.fixed_dictionaries(
        {
            name: st.tuples(st.floats(0.5, 30), st.sampled_from([0.5, 0.9, 1.1, 2.0]), st.booleans(), st.booleans())
            for name in ("ar", "chain", "ddtree:budget=64")
        }
    )
)
def test_what_to_take_contradicts_no_comparison(found: dict[str, tuple[float, float, bool, bool]]) -> None:
    """Of random comparisons: what is significantly better is never called as good, nor taken, and none is left out."""
    found["ar"] = (0.0, *found["ar"][1:])
    best: dict[str, Scalar] = BEST_ROW | {"evaluation_nodes_per_round": 8.0, "evaluation_speedup": 2.0}
    said = take_sentence(optimum_of(best, *(row_of(name, *each) for name, each in found.items())))
    ahead = [name for name, (_, ratio, differs, known) in found.items() if known and differs and ratio < 1]
    level = [name for name, (_, _, differs, known) in found.items() if known and not differs]
    shown = {"ar": "autoregressive decoding"}
    if ahead:
        assert said.startswith(f"Do not take {BEST.policy}, which was chosen")
        named = said.split("prompts:")[1].split("significantly")[0]
        assert [name for name in found if shown.get(name, name) in named] == ahead
        return
    fewest = min([(8.0, BEST.policy), *((round(found[name][0], 1), name) for name in level)])[0]
    if "ar" in level:
        assert said == "Take autoregressive decoding: no policy is significantly faster."
        return
    first, _, rest = said.removeprefix("Take ").partition(": ")
    taken, nodes = first.removesuffix("."), {BEST.policy: 8.0, **{name: found[name][0] for name in level}}
    assert round(nodes[taken], 1) == fewest
    assert all(name in rest for name in nodes if name != taken)
    assert all(name not in rest for name in found if name != "ar" and name not in level)


# A choice among finalists beside the noise of the latency profile, planted


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
    for comparison, index in zip(standing.comparisons, (0, 1), strict=True):
        logs = []
        for draw in range(NUM_DRAWS):
            worst = [
                min(plain[m] / (seconds[m, at] * planted[m, number, draw]) for m in range(2))
                for number, at in ((0, 2), (index + 1, index))
            ]
            logs.append(np.log(worst[0] / worst[1]))
        half = 2.0395134 * np.std(logs, ddof=1)
        assert np.log(comparison.price_interval.high / comparison.ratio) == pytest.approx(half, rel=1e-4)


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
