"""Valleys and regrets under noise of the prices: planted staircases, convex prices, and each draw alone."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from curve_oracles import curve_by_hand, kept_by_hand
from curve_texts import made_up_texts, two_at_a_time
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import random_table

from simlab.analysis.curves.rows import CurveRows, CurveSetting, curve_rows, roots_read_here
from simlab.analysis.curves.summaries import (
    CurveSummary,
    curve_summaries,
    drawn_behind_price,
    drawn_regrets,
    with_price_noise,
)
from simlab.analysis.curves.tallies import (
    CONVEX,
    FIRST,
    FIXED,
    NOTABLE_SHARE,
    PRICE,
    SCAN,
    CurveMachine,
    RootPart,
    curve_machine,
    scan_halves,
    split_halves,
)
from simlab.analysis.curves.text import unimodality_verdict
from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.estimates import Estimate
from simlab.cost import GRID_STAGES, PLAIN, CostTable, Visits
from simlab.grid import path_weight
from simlab.policies.costs.cell_prices import Cell
from simlab.policies.costs.curves import ALL_STAGES, cost_table, round_costs
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.ratio_curves import ROUNDING, tokens_of_roots
from simlab.recorded import RecordedSequence

MOST = 6
STAIRS = (1.0, 1.3, 1.3, 1.3, 1.9, 1.9, 1.9)
CONVEX_S = (1.0, 1.05, 1.11, 1.18, 1.27, 1.38, 1.5)


def profiled(prices: tuple[float, ...], noise: float, num_visits: int, seed: int = 0) -> CostTable:
    """A table from made-up samples: each visit to a cell is slower or faster by a share of its own."""
    generator, visits = np.random.default_rng(seed), Visits(2, 8, paired=True)
    samples: dict[Cell, list[float]] = {}
    for context in (4, 60):
        for n, price in enumerate(prices):
            slow = np.repeat(np.exp(noise * generator.standard_normal(num_visits)), 2)
            samples |= {(stage, n, context): (price / 4 * slow).tolist() for stage in GRID_STAGES}
            samples[PLAIN, n, context] = [1.0] * (8 * num_visits)
    return cost_table(f"noise {noise} {seed}", (4, 60), range(MOST + 1), samples, visits)


def rows_of(texts: list[RecordedSequence], machine: CurveMachine) -> tuple[CurveRows, CurveSetting]:
    rows, (setting,) = curve_rows(
        {"raw": BestFirst(Marginal())}, [machine], roots_read_here(lambda: two_at_a_time(texts)), MOST
    )
    return rows, setting


def summary_at(table: CostTable, texts: list[RecordedSequence]) -> CurveSummary:
    rows, setting = rows_of(texts, curve_machine(table, MOST))
    (whole,) = curve_summaries(rows, [setting])
    return whole


def test_noise_larger_than_the_valleys_takes_them_away() -> None:
    texts = made_up_texts(1, 12)
    kept = [summary_at(profiled(STAIRS, 0.6, 7, seed), texts).kept for seed in range(10)]
    assert np.mean([share.value if share else 0.0 for share in kept]) < 0.05


@pytest.mark.thorough
def test_convex_prices_have_almost_no_valley_that_stays_though_noise_makes_many() -> None:
    """Seven visits to a cell, each 5 % off."""
    texts = made_up_texts(2, 12)
    found = [summary_at(profiled(CONVEX_S, 0.05, 7, seed), texts) for seed in range(60)]
    assert np.mean([summary.several.value for summary in found]) > 0.15
    assert np.mean([summary.kept.value if summary.kept else 0.0 for summary in found]) < 0.02
    assert np.mean([summary.kept_deep or 0.0 for summary in found]) < 0.01


@pytest.mark.parametrize("seed", range(4))
def test_shares_of_draws_are_those_of_the_listing(seed: int) -> None:
    texts, table = made_up_texts(seed, 4), profiled(STAIRS, 0.1, 5, seed)
    rows, _ = rows_of(texts, curve_machine(table, MOST))
    order, index = BestFirst(Marginal()), 0
    first = rows.filter(rule=FIRST)
    for part in two_at_a_time(texts):
        layer = order.layer(part, MOST, with_scores=True)
        for scores, context in zip(layer.score_rows, part.contexts.tolist(), strict=True):
            weights = [Fraction(float(path_weight(score))) for score in scores[1:] if score > -math.inf]
            curves = [
                curve_by_hand(weights, [Fraction(value) for value in seconds_at(prices, context)])
                for prices in (table, *table.draws)
            ]
            stays, deep = kept_by_hand(curves[0], curves[1:], Fraction(ROUNDING), Fraction(NOTABLE_SHARE))
            assert first["kept_valley_share"][index] == pytest.approx(stays)
            assert first["kept_deep_valley_share"][index] == pytest.approx(deep)
            index += 1
    assert index == first.height


def seconds_at(table: CostTable, context: int) -> list[float]:
    """Of a round, by drafted tokens."""
    total = np.sum([table.curve(stage, min(context, 60)) for stage in GRID_STAGES], axis=0)
    return [float(one) for one in total]


@pytest.mark.parametrize("seed", range(3))
def test_each_draw_is_what_its_prices_are_alone(seed: int) -> None:
    """Sums by text, with budget and rate chosen anew; nothing is shared with the draws beside it."""
    texts, generator = made_up_texts(seed, 8), np.random.default_rng(seed)
    table = random_table(generator, MOST)
    draws = tuple(
        CostTable("draw", table.contexts, {stage: s * generator.uniform(0.5, 2) for stage, s in table.seconds.items()})
        for _ in range(3)
    )
    rows, setting = rows_of(texts, curve_machine(replace(table, draws=draws), MOST))
    assert rows.drop("kept_valley_share", "kept_deep_valley_share").equals(
        rows_of(texts, curve_machine(table, MOST))[0].drop("kept_valley_share", "kept_deep_valley_share")
    )
    assert setting.drawn is not None
    for index, draw in enumerate(draws):
        alone, _ = rows_of(texts, curve_machine(draw, MOST))
        rate = tokens_per_s(alone.filter(rule=PRICE))
        for rule in (FIRST, SCAN, CONVEX, FIXED, PRICE):
            own = alone.filter(rule=rule)
            assert drawn_regrets(setting.drawn, rule)[index] == pytest.approx(own["regret_share"].mean(), abs=1e-12)
            behind = 1 - tokens_per_s(own) / rate
            assert drawn_behind_price(setting.drawn, rule)[index] == pytest.approx(behind, abs=1e-12)
            sums = setting.drawn.sums[rule][:, index, 0]
            for sequence, tokens in zip(setting.drawn.sequences.tolist(), sums.tolist(), strict=True):
                assert tokens == pytest.approx(own.filter(sequence=sequence)["expected_tokens"].sum())
    slices = curve_summaries(rows, [setting], "dataset")
    assert [one.slice for one in slices] == ["left", "right"]


def tokens_per_s(rows: CurveRows) -> float:
    """Of the whole."""
    return float(rows["expected_tokens"].to_numpy().sum() / rows["round_s"].to_numpy().sum())


def test_draws_that_are_all_alike_leave_the_prompts_interval() -> None:
    texts, table = made_up_texts(5, 12), random_table(np.random.default_rng(5), MOST)
    rows, setting = rows_of(texts, curve_machine(table, MOST))
    again, same = rows_of(texts, curve_machine(replace(table, draws=(table,) * 4), MOST))
    (alone,), (beside,) = curve_summaries(rows, [setting]), curve_summaries(again, [same])
    # As text, in which what is not known is equal to itself.
    assert [str(share) for share in (alone.kept, beside.kept, beside.kept_deep)] == [
        str(share) for share in (None, beside.several, beside.deep)
    ]
    for rule, other in zip(alone.rules, beside.rules, strict=True):
        for name in ("regret_share", "behind_price_share"):
            ends, others = rule[name].interval, other[name].interval
            assert ends.high == pytest.approx(others.high, abs=1e-12)
            assert max(ends.low, 0) == pytest.approx(max(others.low, 0), abs=1e-12)


def test_noise_widens_and_what_it_adds_is_taken_off_below() -> None:
    prompts = Interval(0.08, 0.13)
    drawn = 0.1 + 0.01 * np.array([-1.0, 1.0] * 16)
    reach = 2.0395 * 0.01 * math.sqrt(32 / 31)
    found = with_price_noise(0.1, prompts, drawn)
    assert found.low == pytest.approx(0.1 - math.hypot(0.02, reach), rel=1e-4)
    assert found.high == pytest.approx(0.1 + math.hypot(0.03, reach), rel=1e-4)
    biased = with_price_noise(0.1, prompts, drawn + 0.03)
    assert (biased.low, biased.high) == pytest.approx((found.low - 0.03, found.high))
    assert with_price_noise(0.1, prompts, drawn + 0.2).low == 0
    assert with_price_noise(0.99, Interval(0.98, 1.0), drawn + 0.89).high == 1
    assert with_price_noise(0.1, UNKNOWN, drawn) == UNKNOWN


def test_halves_are_the_listing_both_ways() -> None:
    texts = made_up_texts(3, 6)
    halves = [profiled(STAIRS, 0.15, 1, seed) for seed in (1, 2)]
    costs = tuple(round_costs(one, ALL_STAGES, MOST) for one in halves)
    sums, found = np.zeros(8), []
    for part in two_at_a_time(texts):
        scores = BestFirst(Marginal()).layer(part, MOST, with_scores=True).score_rows
        sums += scan_halves(costs, RootPart(tokens_of_roots(scores, part.contexts), np.zeros(len(scores), np.int64)))
        for row, context in zip(scores, part.contexts.tolist(), strict=True):
            weights = [Fraction(float(path_weight(one))) for one in row[1:] if one > -math.inf]
            fraction, other = (
                curve_by_hand(weights, [Fraction(s) for s in seconds_at(half, context)]) for half in halves
            )
            shares = Fraction(ROUNDING), Fraction(NOTABLE_SHARE)
            own = [kept_by_hand(curve, [curve], *shares) for curve in (fraction, other)]
            crossed = [kept_by_hand(*pair, *shares) for pair in ((fraction, [other]), (other, [fraction]))]
            found.append([*own[0], *own[1], own[0][1] * own[1][1], *np.mean(crossed, axis=0)])
    result, mean = split_halves(sums), np.mean(found, axis=0).tolist()
    assert (*result["several"], *result["deep"]) == pytest.approx((mean[0], mean[2], mean[1], mean[3]))
    assert [result[name] for name in ("deep_twice", "found_again", "deep_again")] == pytest.approx(mean[4:])


WHOLE = summary_at(profiled(STAIRS, 0.01, 7), made_up_texts(1, 4))


@given(share=st.floats(0, 1), more=st.floats(0, 0.5), low=st.floats(-0.1, 0.2), cost_ids=st.sampled_from((1, 2)))
def test_the_verdict_follows_from_the_intervals(share: float, more: float, low: float, cost_ids: int) -> None:
    lost = Estimate(low + more / 2, Interval(low, low + more))
    kept = Estimate(share, Interval(max(share - more, 0.0), min(share + more, 1.0)))
    rules = tuple(rule | {"behind_price_share": lost} if rule["rule"] == FIRST else rule for rule in WHOLE.rules)
    names = {WHOLE.cost_id: "mine", "other": "theirs"} if cost_ids == 2 else {WHOLE.cost_id: "mine"}
    said = " ".join(unimodality_verdict([replace(WHOLE, kept=kept, rules=rules)], names).split())
    assert (": no, at " in said) == (kept.interval.low > 0)
    assert ("not distinguishable from noise" in said) == (kept.interval.low <= 0)
    assert ("(significant)" in said) == (lost.interval.low > 0)
    assert ("probabilities, mine:" in said) == (cost_ids == 2)
    assert f"loses {100 * lost.value + 0.0:.2f}".replace("-0.00", "0.00") in said.replace("-0.00", "0.00")
