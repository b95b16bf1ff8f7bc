"""Charts of a report: the lines and bars are the prices and shares that they are drawn from."""

from typing import Any

import numpy as np
import pytest
from made_up_costs import random_table

from simlab.analysis.report.costs import cost_chart
from simlab.analysis.report.page import Chart
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
