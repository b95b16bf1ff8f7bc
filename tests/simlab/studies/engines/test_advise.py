"""Advice: on which prompts chain length and tree size are chosen."""

from pathlib import Path

import pytest
from made_up_costs import filled

import simlab
from simlab.studies.engines.advise import Advice
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.synthetic import write_synthetic_trace

POLICIES = ["chain:length=1/2/3", "ddtree:budget=2/4/8"]


@pytest.mark.parametrize("chosen_elsewhere", [False, True])
def test_settings_are_those_that_are_best_where_they_are_chosen(chosen_elsewhere: bool, tmp_path: Path) -> None:
    judged = write_synthetic_trace(tmp_path / "judged", num_sequences=6, length=30)
    other = write_synthetic_trace(tmp_path / "other", num_sequences=5, length=30, seed=7)
    cost = tmp_path / "cost.json"
    write_cost_file(cost, filled())

    def advice(trace: Path, dev_trace: Path | None = None) -> Advice:
        return simlab.advise(trace, POLICIES, cost=[cost], batch=[1], dev_trace=dev_trace, threads=1, progress=False)

    found = advice(judged, other if chosen_elsewhere else None)
    alone = advice(other if chosen_elsewhere else judged)
    assert found.trace.place == str(judged)
    assert found.chosen_on.place == str(other if chosen_elsewhere else judged)
    ours, theirs = found.batches[0].row(), alone.batches[0].row()
    assert (ours["chain"], ours["tree"]) == (theirs["chain"], theirs["tree"])
    assert (ours["tree_speedup"] == theirs["tree_speedup"]) == (not chosen_elsewhere)
