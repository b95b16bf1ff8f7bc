"""Charts of a report: at which contexts a pass is drawn."""

import numpy as np
import pytest

from simlab.analysis.report.costs import cost_chart
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.policies.costs.curves import convex_view


@pytest.mark.parametrize(("context", "shown"), [(256, {256, 512}), (257, {128, 257, 512}), (512, {128, 512})])
def test_the_shortest_context_is_drawn_where_it_is_far_from_the_middle(context: int, shown: set[int]) -> None:
    random = np.random.default_rng(3)
    seconds = {stage: random.random((2, 1 if stage == PLAIN else 9)) for stage in (*GRID_STAGES, PLAIN)}
    table = CostTable("made-up", np.array([128, 512]), seconds)
    drawn = cost_chart(table, convex_view(table), context, 4).figure.to_dict()["data"]
    names = [line["name"] for line in drawn]
    assert {int(name.rpartition(" ")[2]) for name in names if name.startswith("verifying")} == shown
