"""Choosing among policies that read a channel: those whose channel the trace lacks are left out with a sentence."""

from pathlib import Path

import pytest
from commands import refusal_of
from head_traces import with_head

from simlab.errors import SimlabError
from simlab.studies.optimize.optimize import optimize
from simlab.traces.synthetic import write_synthetic_trace

HEAD = "channel=treeflash,previous=2,top_k=3"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_head(
        write_synthetic_trace(tmp_path_factory.mktemp("optimize") / "trace", num_sequences=12, length=40), False
    )


def test_policies_of_channels_are_searched(trace: Path) -> None:
    typed = [f"treeflash:budget=1..6,{HEAD}", f"tree:edges=transitions,{HEAD},order=best-first/expand-parent,budget=6"]
    found = optimize(trace, typed, objective="acceptance_length", node_cap=6)
    labels = [point.typed for point in found.space.points]
    assert sum(one.startswith("treeflash:") for one in labels) == 6
    assert sum(one.startswith("tree:") and "expand-parent" in one for one in labels) == 1
    assert found.space.left_out == ()


def test_policies_whose_channel_is_not_there_are_left_out(trace: Path) -> None:
    found = optimize(trace, objective="acceptance_length", node_cap=4)
    (sentence,) = [one for one in found.space.left_out if one.startswith("taps:")]
    assert "has none of that name" in sentence
    assert "--add-channel taps=CHECKPOINT" in sentence
    with pytest.raises(SimlabError, match="--add-channel taps=CHECKPOINT"):
        optimize(trace, ["taps:budget=4"], objective="acceptance_length", node_cap=4)


def test_a_missing_channel_is_one_sentence(trace: Path) -> None:
    said = refusal_of("study", "scoring", "--trace", trace, "-p", "taps:budget=4")
    assert "--add-channel taps=CHECKPOINT" in said
