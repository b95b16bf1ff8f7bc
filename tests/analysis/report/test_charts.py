"""Charts of a report: the lines and bars are the prices and shares that they are drawn from."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_up_costs import random_table

from simlab.analysis.curves.tallies import FIXED, PRICE, SCAN
from simlab.analysis.report.costs import budget_chart, cost_chart, example_chart, maxima_chart, regret_chart
from simlab.analysis.report.page import Chart
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.estimates import Estimate
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.policies.costs.curves import convex_view


def drawn(chart: Chart) -> list[dict[str, Any]]:
    """The lines and bars of a chart."""
    traces: list[dict[str, Any]] = chart.figure.to_dict()["data"]
    return traces


@pytest.mark.parametrize(("most", "last"), [(7, 7), (99, 20)])
def test_a_pass_costs_what_the_profile_says_up_to_the_largest_size(most: int, last: int) -> None:
    table = random_table(np.random.default_rng(3), most_drafted=20)
    context = table.longest_context
    lines = {one["name"]: one for one in drawn(cost_chart(table, convex_view(table), context, most))}
    sizes = list(range(last + 1))
    for name, costs in (
        (f"verifying, context {context}", table.curve("verify", context)),
        (f"drafting, context {context}", table.curve("draft", context)),
        (f"the same, convex view, context {context}", convex_view(table).curve("verify", context)),
    ):
        assert list(lines[name]["x"]) == sizes
        assert list(lines[name]["y"]) == pytest.approx([1000 * float(costs[size]) for size in sizes])
    plain = lines["one token of autoregressive decoding"]
    assert list(plain["x"]) == [0, last]
    assert list(plain["y"]) == pytest.approx([1000 * float(table.curve(PLAIN, context)[0])] * 2)


@pytest.mark.parametrize(("context", "shown"), [(256, {256, 512}), (257, {128, 257, 512}), (512, {128, 512})])
def test_the_shortest_context_is_drawn_where_it_is_far_from_the_middle(context: int, shown: set[int]) -> None:
    random = np.random.default_rng(3)
    seconds = {stage: random.random((2, 1 if stage == PLAIN else 9)) for stage in (*GRID_STAGES, PLAIN)}
    table = CostTable("made-up", np.array([128, 512]), seconds)
    names = [one["name"] for one in drawn(cost_chart(table, convex_view(table), context, 4))]
    assert {int(name.rpartition(" ")[2]) for name in names if name.startswith("verifying")} == shown


def test_curves_are_shown_as_shares_losses_and_speeds() -> None:
    """Three roots of four have one maximum, one has two; the price rule is what the others are behind of."""
    losses = {SCAN: (0.01, 0.0, 0.03), FIXED: (0.05, 0.04, 0.07), PRICE: (0.0, 0.0, 0.0)}
    rules = [
        {"rule": name, "behind_price_share": Estimate(value, Interval(low, high))}
        for name, (value, low, high) in losses.items()
    ]
    summaries: Any = [SimpleNamespace(maxima=(3, 1), roots=4, kept=Estimate(0.25), rules=rules)]
    shares = maxima_chart(summaries, ["mine"])
    (bars,) = drawn(shares)
    assert (list(bars["x"]), list(bars["y"])) == ([1, 2], [0.75, 0.25])
    assert "roots with a valley that survives it: 25% (mine)." in shares.caption
    (bars,) = drawn(regret_chart(summaries, ["mine"]))
    assert (list(bars["y"]), list(bars["x"])) == ([SCAN, FIXED], [0.01, 0.05])
    assert list(bars["error_x"]["array"]) == pytest.approx([0.02, 0.02])
    assert list(bars["error_x"]["arrayminus"]) == pytest.approx([0.01, 0.01])
    curve = np.array([5.0, 7.0, 6.0])
    example = {"tokens_per_s": curve.tolist(), "num_drafted": {SCAN: 1, FIXED: 2}, "sequence": 3, "position": 9}
    example |= {"edges": "raw", "context": 1200}
    line, *marks = drawn(example_chart(example))
    assert (list(line["x"]), list(line["y"])) == ([0, 1, 2], curve.tolist())
    assert [(mark["name"], list(mark["x"]), list(mark["y"])) for mark in marks] == [
        (f"{SCAN}: 1", [1], [7.0]),
        (f"{FIXED}: 2", [2], [6.0]),
    ]
    setting: Any = SimpleNamespace(budget_curve=curve, budget=1)
    (line,) = drawn(budget_chart([setting], ["mine"]))
    assert (line["name"], list(line["x"]), list(line["y"])) == ("mine, best 1", [0, 1, 2], curve.tolist())
