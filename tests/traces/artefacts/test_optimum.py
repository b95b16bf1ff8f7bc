"""The file of a choice: what was written is read, and what is none is refused in a sentence."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_optimum import OPTIMUM

from simlab.errors import TraceError
from simlab.traces.artefacts.kinds import format_of
from simlab.traces.artefacts.optimum import FORMAT, ChosenPolicy, Optimum, read_optimum, write_optimum

LEVEL = "no winner among ddtree:budget=8 and chain: not significant (n = 40 prompts)."


@pytest.mark.parametrize(
    "optimum",
    [
        OPTIMUM,
        replace(OPTIMUM, winner=None, verdict=LEVEL, node_cap=16, cost_ids=()),
        replace(OPTIMUM, share_of_draws_best=0.75),
    ],
)
def test_what_was_written_is_read(optimum: Optimum, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "optimize.json"
    path.parent.mkdir()
    write_optimum(path, optimum)
    assert read_optimum(path) == optimum
    assert format_of(path) == FORMAT
    assert [one.name for one in path.parent.iterdir()] == ["optimize.json"]


@pytest.mark.parametrize(
    "changes",
    [
        {"share_of_draws_best": 1.5},
        {"objective": "luck"},
        {"searched": 0},
        {"node_cap": 0},
        {"winner": ChosenPolicy("chain", "4567")},
        {"run": ("chain",)},
        {"run": ()},
        {"optimism": {"optimism": math.nan}},
    ],
)
def test_a_choice_that_contradicts_itself_is_none(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        replace(OPTIMUM, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "simlab-cost"}, "is no choice of policies; `simlab optimize --out FILE` makes one"),
        ({"format_version": 2}, "format version 2; this simlab reads up to 1. Upgrade simlab"),
        ({"searched": "many"}, "'searched' must be an integer"),
        ({"winner": {"policy": "chain", "policy_id": "4"}}, "is damaged: the winner"),
        ({"verdict": "x"}, "the verdict is no sentence that `simlab optimize` writes"),
        ({"verdict": LEVEL}, "the verdict is no sentence that `simlab optimize` writes of ChosenPolicy"),
        ({"winner": None}, "the verdict is no sentence that `simlab optimize` writes of None"),
        ({"rows": [{"role": "/etc/passwd"}]}, "is one of best, rival, reference, bound; got '/etc/passwd'"),
        (
            {"rows": [{"best_over_this": 1.5, "best_over_this_ci_low": 0.9, "best_over_this_ci_high": 1.4}]},
            "best_over_this must lie in its interval from 0.9 to 1.4; got 1.5",
        ),
        ({"winner": "chain"}, "'winner' must be an object"),
        ({"rows": [{"policy": ["chain"]}]}, "'policy' must be a number, a string or null"),
        ({"chosen_on": {"text_id": "t", "draft_id": "d", "names": {}}}, "at least one prompt; got none"),
    ],
)
def test_what_is_no_choice_is_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "optimize.json"
    path.write_text(json.dumps(OPTIMUM.to_json() | changes))
    with pytest.raises(TraceError, match=message):
        read_optimum(path)


def test_missing_keys_files_and_other_texts_are_refused(tmp_path: Path) -> None:
    values = OPTIMUM.to_json()
    path = tmp_path / "optimize.json"
    for key in values.keys() - {"share_of_draws_best"}:
        path.write_text(json.dumps({name: value for name, value in values.items() if name != key}))
        with pytest.raises(TraceError):
            read_optimum(path)
    path.write_text("no JSON")
    with pytest.raises(TraceError, match="is not JSON"):
        read_optimum(path)
    with pytest.raises(TraceError, match="there is none"):
        read_optimum(tmp_path / "nowhere.json")
