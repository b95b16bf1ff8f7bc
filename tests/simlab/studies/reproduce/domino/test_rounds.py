"""Domino's released rounds: against plain Python, on made-up records and on the real ones."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from made_up_domino import made_up_contents, parsed
from released_data import made_up_release, real_release, values_of

from simlab.studies.reproduce.domino.pairs import RIVALS, ROLLUPS, count_comparisons, judged
from simlab.studies.reproduce.domino.records import DATASETS, MODELS, TEMPERATURES
from simlab.studies.reproduce.domino.rounds import domino_rounds
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ReleasedFiles

QUIET = ReproduceOptions(progress=False)
Values = Mapping[str, Any]


@pytest.fixture(scope="module")
def contents() -> dict[str, str]:
    return made_up_contents()


def turns_of(files: ReleasedFiles, name: str) -> list[dict[str, Any]]:
    """The oracle's: a Domino file by loops."""
    found = []
    for record in parsed(files.text(name)):
        block = record["choices"][1]
        for lengths, tokens, seconds in zip(
            block["acceptance_lengths"], block["new_tokens"], block["decode_times"], strict=True
        ):
            found.append({"prompt": record["question_id"], "lengths": lengths, "tokens": tokens, "seconds": seconds})
    return found


def check_against_oracle(files: ReleasedFiles) -> Values:
    """Sums and means of each arm, equal turns, cells and comparisons; gives what was found."""
    found = values_of(domino_rounds(files, QUIET))
    arms = {(row["model"], row["temperature"]): row for row in found["arms"]}
    ends = {(row["model"], row["temperature"], row["arm"]): row for row in found["over_count"]}
    rounds = 0
    for model in MODELS:
        for temperature in TEMPERATURES:
            row, own = arms[model.name, temperature], {}
            for arm in ("graph", "eager"):
                folder = f"results/raw/domino_official/{model.name.lower()}/T{temperature}/{arm}_"
                names = [
                    f"{folder}{dataset}.jsonl"
                    for dataset in DATASETS
                    if f"{folder}{dataset}.jsonl" in files.release.files
                ]
                turns = own[arm] = [one for name in names for one in turns_of(files, name)]
                lengths = [length for turn in turns for length in turn["lengths"]]
                rounds += len(lengths)
                macro = statistics.fmean(statistics.fmean(turn["lengths"]) for turn in turns)
                assert row[f"{arm}_pooled"] == pytest.approx(statistics.fmean(lengths), abs=2e-5)
                assert row[f"{arm}_macro"] == pytest.approx(macro, abs=2e-5)
                share = sum(length == 17 for length in lengths) / len(lengths)
                assert row[f"{arm}_whole_block_share"] == pytest.approx(share, abs=2e-5)
                assert row[f"{arm}_pooled_ci_low"] < row[f"{arm}_pooled"] < row[f"{arm}_pooled_ci_high"]
                over = [sum(turn["lengths"]) - turn["tokens"] for turn in turns if turn["tokens"] < 2048]
                counted = ends[model.name, temperature, arm]
                assert counted["ended_by_one"] == over.count(1)
                assert counted["ended"] == len(over)
            pairs = list(zip(own["graph"], own["eager"], strict=True))
            assert row["equal_turns"] == sum(one["lengths"] == other["lengths"] for one, other in pairs)
            speeds = [sum(one["tokens"] for one in own[arm]) / sum(one["seconds"] for one in own[arm]) for arm in own]
            assert row["speed_ratio"] == pytest.approx(speeds[0] / speeds[1], abs=2e-5)
    assert found["rounds"] == rounds
    return found


def test_is_as_in_plain_python(contents: dict[str, str], tmp_path: Path) -> None:
    found = check_against_oracle(made_up_release(tmp_path, contents))
    assert found["cells_reproduced"]["macro"] == len(found["cells"]) == 12
    theirs = found["comparisons"]["all"]
    shown_rollups = sum(any(name in {"gsm8k", "mt-bench"} for name in datasets) for datasets in ROLLUPS.values())
    assert theirs["cells"] == len(MODELS) * len(TEMPERATURES) * len(RIVALS) * shown_rollups
    for one in found["figures"]:
        assert one["as_printed"] != ("pooled" in one["what"])


def test_each_comparison_is_theirs(contents: dict[str, str], tmp_path: Path) -> None:
    """The tables are made by loops over lists; the study has the same numbers."""
    found = domino_rounds(made_up_release(tmp_path, contents), QUIET)
    shown: Any = found.to_json()["overall"]
    assert len(shown) == len(MODELS) * len(TEMPERATURES) * len(RIVALS)
    for row in shown:
        assert 100 * (row["speed_ratio"] - 1) == pytest.approx(row["theirs_percent"], abs=2e-3)
        is_bare = row["model"] == "Qwen3-8B" and row["rival"] != "Domino"
        assert ("pooled_speed_ratio" in row) != is_bare


def test_comparisons_over_a_baseline_of_another_session_do_not_count(contents: dict[str, str], tmp_path: Path) -> None:
    found = values_of(domino_rounds(made_up_release(tmp_path / "as made", contents), QUIET))
    by_model = {name: (row["cells"], row["counted"]) for name, row in found["comparisons"].items()}
    each = by_model["Qwen3-4B"][0]
    assert by_model == {"all": (2 * each, 1.5 * each), "Qwen3-4B": (each, each), "Qwen3-8B": (each, each / 2)}
    assert {(row["model"], row["temperature"], row["rival"]) for row in found["overall"] if not row["counted"]} == {
        ("Qwen3-8B", temperature, rival) for temperature in TEMPERATURES[1:] for rival in list(RIVALS.values())[1:]
    }
    assert found["comparisons"]["all"]["left_out"] == each // 2
    assert set(found["session_changes"].values()) == {0.85}
    named = {name: json.dumps({"tree_budget": 16}) for name in contents if name.endswith("MANIFEST.json")}
    own = values_of(domino_rounds(made_up_release(tmp_path / "own", contents | named), QUIET))
    assert own["comparisons"]["all"]["left_out"] == 0


def cell_of(p_value: float, theirs: int = 1, *, pooled: int | None = None, is_counted: bool = True) -> dict[str, Any]:
    """A cell whose own interval lies above 1, with theirs and the pooled interval above or below."""
    sides = {"theirs_side": theirs, "side": 1, "pooled_side": pooled}
    return {"model": "a model", "rival": "a rival", "counted": is_counted, "p_value": p_value, **sides}


def remain_among_all(*cells: dict[str, Any]) -> list[bool]:
    return judged(pl.DataFrame(cells))["remains_among_all"].to_list()


def test_p_values_are_corrected_by_hand() -> None:
    """0.012, 0.03 and 0.04 become 0.036, 0.06 and 0.06; one that does not count, or of another model, is no part."""
    cells = [cell_of(0.04), cell_of(0.012), cell_of(0.03), cell_of(1e-9, is_counted=False)]
    assert remain_among_all(*cells) == [False, True, False, False]
    both = [cell_of(0.02), cell_of(0.024)]
    assert remain_among_all(*both, *(cell | {"model": "another"} for cell in both)) == [True] * 4
    left_out = remain_among_all(*both, cell_of(0.9, is_counted=False))
    assert left_out == [True, True, False], "with three they would be 0.06 and 0.06"
    assert remain_among_all(cell_of(0.001, theirs=-1)) == [False], "theirs points the other way"


def test_comparisons_are_counted_by_direction() -> None:
    cells = [
        cell_of(0.01, pooled=1),
        cell_of(0.01, pooled=-1),
        cell_of(0.01, pooled=0),
        cell_of(0.01, theirs=-1, pooled=1),
        cell_of(0.01, theirs=0, pooled=1),
        cell_of(0.01, pooled=1, is_counted=False),
        cell_of(0.01),
    ]
    counts = count_comparisons(judged(pl.DataFrame(cells)))
    found = counts["all"]
    assert counts == dict.fromkeys(("all", "a model", "a model over a rival"), found)
    assert (found["cells"], found["left_out"], found["left_out_shown"], found["counted"]) == (7, 1, 1, 6)
    assert (found["shown"], found["shown_faster"], found["remain"], found["shown_by_ours_alone"]) == (5, 4, 4, 1)
    assert (found["shown_with_pooled"], found["remain_pooled"], found["sign_changed_pooled"]) == (4, 1, 2)


def test_real_records() -> None:
    """Their 48 cells come out; so do the sums of half a million rounds. What else is printed is kept with the page."""
    found = check_against_oracle(real_release("domino-tree"))
    assert found["rounds"] == 525_509
    assert found["cells_reproduced"] == {"cells": 48, "macro": 48, "pooled": 0, "other_warm_up": 0}
