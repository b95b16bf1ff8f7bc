"""Rows and summaries of curves against plain loops, and the price rule against a listing of all choices."""

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from curve_oracles import best_by_hand, curve_by_hand, deep_maxima_by_listing, first_stop_by_hand
from curve_texts import made_up_texts, two_at_a_time
from made_up_costs import random_table

from simlab.analysis.curves.rows import SCHEMA, CurveSetting, curve_rows, roots_read_here, write_rows
from simlab.analysis.curves.summaries import CurveSummary, curve_summaries
from simlab.analysis.curves.tallies import FIRST, FIXED, NOTABLE_SHARE, PRICE, SCAN, CurveMachine
from simlab.analysis.curves.text import curves_text
from simlab.analysis.statistics.intervals import ratio_interval, speedup_interval
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.grid import path_weight
from simlab.policies.costs.curves import ALL_STAGES, round_costs
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst, best_first
from simlab.policies.rules.ratio_curves import ROUNDING
from simlab.recorded import RecordedSequence

MOST = 6


def exact_seconds(table: CostTable, context: int) -> list[Fraction]:
    """Of a round, by drafted tokens, at one context, linear between those of the table."""
    contexts = table.contexts.tolist()
    high = next((index for index, one in enumerate(contexts) if one >= context), len(contexts) - 1)
    low = max(high - 1, 0)
    width = max(contexts[high] - contexts[low], 1)
    share = min(max(Fraction(context - contexts[low], width), Fraction(0)), Fraction(1))
    parts = [
        [sum(Fraction(float(table.seconds[stage][row, n])) for stage in GRID_STAGES) for n in range(MOST + 1)]
        for row in (low, high)
    ]
    return [part * (1 - share) + other * share for part, other in zip(*parts, strict=True)]


def exact_roots(texts: list[RecordedSequence], table: CostTable) -> list[tuple[list[Fraction], list[Fraction]]]:
    """Expected tokens and seconds by size, root after root."""
    found = []
    for text in texts:
        assert text.rows is not None
        for t, marginals in enumerate(text.rows.rows()):
            nodes = best_first(int(text.text[t]), marginals, MOST)
            weights = [Fraction(float(path_weight(score))) for score in nodes.scores[1:]]
            tokens = [1 + sum(weights[:n], Fraction(0)) for n in range(len(weights) + 1)]
            found.append((tokens, exact_seconds(table, len(text.prompt.token_ids) + t)))
    return found


def rows_of(
    texts: list[RecordedSequence], table: CostTable, views: dict[str, CostTable] | None = None
) -> tuple[pl.DataFrame, CurveSetting]:
    seen = {name: round_costs(view, ALL_STAGES, MOST) for name, view in (views or {}).items()}
    machine = CurveMachine("made-up", round_costs(table, ALL_STAGES, MOST), seen)
    rows, (setting,) = curve_rows(
        {"raw": BestFirst(Marginal())}, [machine], roots_read_here(lambda: two_at_a_time(texts)), MOST
    )
    return rows, setting


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_what_fractions_say(seed: int) -> None:
    texts, generator = made_up_texts(seed, 6), np.random.default_rng(seed)
    table = random_table(generator, MOST)
    seen_s = {stage: generator.random(table.seconds[stage].shape) for stage in (*GRID_STAGES, PLAIN)}
    other = CostTable("seen", table.contexts, seen_s)
    rows, setting = rows_of(texts, table, {"seen": other})
    exact, seen = exact_roots(texts, table), exact_roots(texts, other)
    assert rows.schema == pl.Schema(SCHEMA)
    assert rows["rule"].unique(maintain_order=True).to_list() == [FIRST, SCAN, "seen", FIXED, PRICE]
    curves = [curve_by_hand([b - a for a, b in itertools.pairwise(tokens)], seconds) for tokens, seconds in exact]
    views = [
        curve_by_hand([b - a for a, b in itertools.pairwise(tokens)], seconds)
        for (tokens, _), (_, seconds) in zip(exact, seen, strict=True)
    ]

    def of_budget(budget: int) -> Fraction:
        at = [min(budget, len(tokens) - 1) for tokens, _ in exact]
        paid = sum(seconds[n] for n, (_, seconds) in zip(at, exact, strict=True))
        return sum(tokens[n] for n, (tokens, _) in zip(at, exact, strict=True)) / Fraction(paid)

    assert setting.budget == max(range(MOST + 1), key=of_budget)
    assert setting.budget_curve == pytest.approx([float(of_budget(n)) for n in range(MOST + 1)])
    sizes = {
        FIRST: [first_stop_by_hand(curve) for curve in curves],
        SCAN: [best_by_hand(curve) for curve in curves],
        "seen": [first_stop_by_hand(curve) for curve in views],
        FIXED: [min(setting.budget, len(curve) - 1) for curve in curves],
    }
    for rule, expected in sizes.items():
        part = rows.filter(rule=rule)
        assert (rule, part["num_drafted"].to_list()) == (rule, expected)
        told = zip(curves, exact, expected, part.iter_rows(named=True), strict=True)
        for curve, (tokens, seconds), n, row in told:
            assert row["expected_tokens"] == float(tokens[n])
            assert row["round_s"] == pytest.approx(float(seconds[n]))
            assert row["regret_share"] == pytest.approx(float(1 - curve[n] / max(curve)), abs=1e-12)
            assert row["num_available"] == len(curve) - 1
            assert row["num_maxima"] == deep_maxima_by_listing(curve, Fraction(ROUNDING))
            assert row["num_deep_maxima"] == deep_maxima_by_listing(curve, Fraction(NOTABLE_SHARE))
    first = rows.filter(rule=FIRST)
    places = [(text.index, t, len(text.prompt.token_ids) + t) for text in texts for t in range(len(text.text) - 1)]
    assert list(first.select("sequence", "position", "context").iter_rows()) == places
    names = [(text.prompt.dataset, text.prompt.prompt_id, text.prompt.turn) for text in texts for _ in text.text[1:]]
    assert list(first.select("dataset", "prompt_id", "turn").iter_rows()) == names


@pytest.mark.parametrize("seed", range(8))
def test_the_price_rule_has_the_most_of_all_choices(seed: int) -> None:
    texts = [text for text in made_up_texts(seed, 40) if len(text.text) < 4][:2]
    table = random_table(np.random.default_rng(seed + 100), MOST)
    rows, setting = rows_of(texts, table)
    exact = exact_roots(texts, table)
    assert 1 <= len(exact) <= 6
    points = [list(zip(tokens, seconds, strict=False)) for tokens, seconds in exact]
    best = max(
        sum(float(tokens) for tokens, _ in some) / sum(float(seconds) for _, seconds in some)
        for some in itertools.product(*points)
    )
    assert setting.rate == pytest.approx(best, rel=1e-12)
    rates = {}
    for rule in (FIRST, SCAN, FIXED, PRICE):
        part = rows.filter(rule=rule)
        rates[rule] = sum(part["expected_tokens"].to_list()) / sum(part["round_s"].to_list())
    assert rates[PRICE] == pytest.approx(best, rel=1e-12)
    assert max(rates.values()) <= best * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_at_the_price_no_choice_brings_more_than_it_costs(seed: int) -> None:
    """With many roots it takes several steps to find it."""
    texts, table = made_up_texts(seed, 60), random_table(np.random.default_rng(seed), MOST)
    _, setting = rows_of(texts, table)
    rate = Fraction(setting.rate)
    exact = exact_roots(texts, table)
    surplus = sum(
        max(token - rate * paid for token, paid in zip(tokens, seconds, strict=False)) for tokens, seconds in exact
    )
    assert abs(float(surplus)) < 1e-10


def test_only_chosen_roots_count() -> None:
    texts, table = made_up_texts(3, 4), random_table(np.random.default_rng(3), MOST)
    machine = CurveMachine("made-up", round_costs(table, ALL_STAGES, MOST))
    counted: list[int] = []
    roots = roots_read_here(lambda: two_at_a_time(texts), lambda some: some.roots.firsts[:-1], counted.append)
    rows, _ = curve_rows({"raw": BestFirst(Marginal())}, [machine], roots, MOST)
    everything, _ = rows_of(texts, table)
    first = rows.filter(rule=FIRST)
    assert first["position"].to_list() == [0] * 4
    assert first.equals(everything.filter(rule=FIRST, position=0))
    assert sum(counted) % sum(len(text.text) - 1 for text in texts) == 0
    nothing = roots_read_here(lambda: two_at_a_time(texts), lambda some: some.roots.firsts[:0])
    with pytest.raises(ValueError, match="no rounds"):
        curve_rows({"raw": BestFirst(Marginal())}, [machine], nothing, MOST)


def test_two_machines_and_edge_models_are_what_each_is_alone() -> None:
    texts, generator = made_up_texts(5, 6), np.random.default_rng(5)
    tables = {name: random_table(generator, MOST) for name in ("a", "b")}
    machines = [CurveMachine(name, round_costs(table, ALL_STAGES, MOST)) for name, table in tables.items()]
    orders = {"raw": BestFirst(Marginal()), "two": BestFirst(Marginal(2))}
    rows, settings = curve_rows(orders, machines, roots_read_here(lambda: two_at_a_time(texts)), MOST)
    for setting in settings:
        order = {setting.edges: orders[setting.edges]}
        machine = next(one for one in machines if one.cost_id == setting.cost_id)
        alone, (own,) = curve_rows(order, [machine], roots_read_here(lambda: two_at_a_time(texts)), MOST)
        assert alone.equals(rows.filter(edges=setting.edges, cost_id=setting.cost_id))
        assert (own.budget, own.rate) == (setting.budget, setting.rate)


def test_what_has_no_room_is_reckoned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, table = made_up_texts(4, 6), random_table(np.random.default_rng(4), MOST)
    kept, setting = rows_of(texts, table)
    monkeypatch.setattr("simlab.analysis.curves.rows.MOST_KEPT", 2000)
    again, other = rows_of(texts, table)
    assert again.equals(kept)
    assert (other.budget, other.rate) == (setting.budget, setting.rate)


def summed(seed: int) -> tuple[pl.DataFrame, CurveSetting, CurveSummary]:
    rows, setting = rows_of(made_up_texts(seed, 12), random_table(np.random.default_rng(seed), MOST))
    (whole,) = curve_summaries(rows, [setting])
    return rows, setting, whole


def test_summaries_are_plain_sums_and_intervals_are_over_prompts() -> None:
    rows, _, whole = summed(8)
    told = rows.to_dicts()
    scan = [row for row in told if row["rule"] == SCAN]
    several = [row["num_maxima"] > 1 for row in scan]
    assert (whole.roots, whole.prompts) == (len(scan), 6)
    assert whole.several.value == pytest.approx(sum(several) / len(several))
    assert whole.deep == pytest.approx(sum(row["num_deep_maxima"] > 1 for row in scan) / len(scan))
    counts = [sum(row["num_maxima"] == n for row in scan) for n in range(1, max(r["num_maxima"] for r in scan) + 1)]
    assert list(whole.maxima) == counts
    prompts = sorted({(row["dataset"], row["prompt_id"]) for row in told})

    def by_prompt(rule: str, name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
        keys = [(row["dataset"], row["prompt_id"], row[name]) for row in told if row["rule"] == rule]
        return np.array([sum(value for *key, value in keys if tuple(key) == prompt) for prompt in prompts])

    price = by_prompt(PRICE, "expected_tokens"), by_prompt(PRICE, "round_s")
    for one in whole.rules:
        tokens, seconds = by_prompt(one["rule"], "expected_tokens"), by_prompt(one["rule"], "round_s")
        regrets = [row["regret_share"] for row in told if row["rule"] == one["rule"]]
        sizes = [row["num_drafted"] for row in told if row["rule"] == one["rule"]]
        assert one["tokens_per_s"] == pytest.approx(tokens.sum() / seconds.sum())
        assert one["behind_price_share"].value == pytest.approx(
            1 - one["tokens_per_s"] / (price[0].sum() / price[1].sum())
        )
        ratio = speedup_interval(tokens, seconds, *price)
        assert one["behind_price_share"].interval.low == pytest.approx(1 - ratio.high)
        assert one["behind_price_share"].interval.high == pytest.approx(1 - ratio.low)
        assert one["regret_share"].value == pytest.approx(np.mean(regrets))
        assert one["worst_regret_share"] == pytest.approx(max(regrets))
        assert one["notable_regret_share"] == pytest.approx(np.mean([regret > 0.01 for regret in regrets]))
        roots = np.array([sum((r["dataset"], r["prompt_id"]) == prompt for r in scan) for prompt in prompts])
        kept = ratio_interval(roots - by_prompt(one["rule"], "regret_share"), roots)
        assert one["regret_share"].interval.low == pytest.approx(max(1 - kept.high, 0), abs=1e-12)
        assert one["regret_share"].interval.high == pytest.approx(1 - kept.low, abs=1e-12)
        smaller = [n < row["num_drafted"] for n, row in zip(sizes, scan, strict=True)]
        larger = [n > row["num_drafted"] for n, row in zip(sizes, scan, strict=True)]
        assert (one["shorter_than_scan_share"], one["longer_than_scan_share"]) == pytest.approx(
            (np.mean(smaller), np.mean(larger))
        )
        assert one["num_drafted"] == pytest.approx(np.mean(sizes))


def test_intervals_of_shares_stay_within_them() -> None:
    _, _, whole = summed(8)
    for share in (whole.several, *(rule["regret_share"] for rule in whole.rules)):
        assert 0 <= share.interval.low <= share.value <= share.interval.high <= 1


def test_slices_add_up_to_the_whole() -> None:
    rows, setting, whole = summed(9)
    slices = curve_summaries(rows, [setting], "dataset")
    assert [one.slice for one in slices] == ["left", "right"]
    assert sum(one.roots for one in slices) == whole.roots
    assert sum(one.prompts for one in slices) == whole.prompts
    for index, rule in enumerate(whole.rules):
        drafted = sum(one.rules[index]["num_drafted"] * one.roots for one in slices)
        assert drafted == pytest.approx(rule["num_drafted"] * whole.roots)


def test_the_table_and_the_flat_rows_say_the_same() -> None:
    _, _, whole = summed(10)
    text = curves_text([whole], {"made-up": "a made-up machine"})
    assert "latency  a made-up machine\n" in text
    assert f"{whole.roots:,} curves, 6 prompts" in text
    assert "Fewer than 20 prompts" in text
    for rule, flat in zip(whole.rules, whole.rows(), strict=True):
        assert flat["rule"] == rule["rule"]
        assert flat["tokens_per_s"] == rule["tokens_per_s"]
        assert f"{rule['tokens_per_s']:.2f}" in text
    assert all(len(line) <= 100 for line in text.split("\n"))


def test_rows_are_written_with_where_they_come_from(tmp_path: Path) -> None:
    rows, _, _ = summed(11)
    path = tmp_path / "curves.parquet"
    write_rows(path, rows, {"text_id": "t", "visited_by": None})
    found = pl.read_parquet(path)
    assert found.drop("text_id", "visited_by").equals(rows)
    assert found["text_id"].unique().to_list() == ["t"]
    assert found["visited_by"].unique().to_list() == [None]
