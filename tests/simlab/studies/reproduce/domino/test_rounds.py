"""Domino's released rounds: against plain Python, on made-up records and on the real ones."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from made_up_domino import lines, made_up_contents, parsed
from released_data import made_up_release, real_release, values_of

from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.estimates import Estimate
from simlab.errors import SimlabError
from simlab.studies.reproduce.domino.pairs import RIVALS, ROLLUPS, among_all, count_comparisons
from simlab.studies.reproduce.domino.records import DATASETS, MODELS, TEMPERATURES
from simlab.studies.reproduce.domino.rounds import arms_follow, comparisons_follow, domino_rounds, means_follow
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
                folder = f"results/raw/domino_official/{model.folder}/T{temperature}/{arm}_"
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
    assert f"{each // 2} tell nothing of the methods" in found["follows"]
    assert "a round took 15 to 15 % less time, so that their speedups are too large" in found["follows"]
    named = {name: json.dumps({"tree_budget": 16}) for name in contents if name.endswith("MANIFEST.json")}
    own = values_of(domino_rounds(made_up_release(tmp_path / "own", contents | named), QUIET))
    assert own["comparisons"]["all"]["left_out"] == 0
    assert "session" not in own["follows"]


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("MANIFEST.json", "[]", "is no JSON object"),
        ("gsm8k_T0.5.pt.summary.json", '{"rows": 3}', "has no rows"),
        ("gsm8k_T0.5.pt.summary.json", '{"rows": [{"method": "dflash", "samples": 0}]}', "expected positive numbers"),
    ],
)
def test_refuses_sums_in_another_form(
    name: str, text: str, refusal: str, contents: dict[str, str], tmp_path: Path
) -> None:
    files = made_up_release(tmp_path, contents | {f"{MODELS[1].summaries['0.5']}/{name}": text})
    with pytest.raises(SimlabError, match=refusal):
        domino_rounds(files, QUIET)


def test_refuses_another_number_of_turns(contents: dict[str, str], tmp_path: Path) -> None:
    rows = contents[MODELS[0].pairwise].split("\n")
    cells = rows[1].split(",")
    rows[1] = ",".join([*cells[:3], str(int(cells[3]) + 1), *cells[4:]])
    files = made_up_release(tmp_path, contents | {MODELS[0].pairwise: "\n".join(rows)})
    with pytest.raises(SimlabError, match=r"turns by their table, \d+ here"):
        domino_rounds(files, QUIET)


def cell_of(p_value: float, theirs: int = 1, *, pooled: int | None = None, is_counted: bool = True) -> dict[str, Any]:
    """A cell whose own interval lies above 1, with theirs and the pooled interval above or below."""
    return {
        "by_turn": Estimate(1.1, Interval(1.05, 1.15), p_value, 9),
        "counted": is_counted,
        "theirs_side": theirs,
        "side": 1,
        "pooled_side": pooled,
        "remains": theirs == 1,
        "remains_among_all": False,
    }


def test_p_values_are_corrected_by_hand() -> None:
    """0.012, 0.03 and 0.04 become 0.036, 0.06 and 0.06; one that does not count is no part of the family."""
    cells = among_all([cell_of(0.04), cell_of(0.012), cell_of(0.03), cell_of(1e-9, is_counted=False)])
    assert [cell["remains_among_all"] for cell in cells] == [False, True, False, False]
    assert all(one["remains_among_all"] for one in among_all([cell_of(0.02), cell_of(0.024)]))
    left_out = among_all([cell_of(0.02), cell_of(0.024), cell_of(0.9, is_counted=False)])
    assert [one["remains_among_all"] for one in left_out] == [True, True, False], (
        "with three they would be 0.06 and 0.06"
    )
    assert not among_all([cell_of(0.001, theirs=-1)])[0]["remains_among_all"], "theirs points the other way"


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
    found = count_comparisons(cells)
    assert (found["cells"], found["left_out"], found["left_out_shown"], found["counted"]) == (7, 1, 1, 6)
    assert (found["shown"], found["shown_faster"], found["remain"], found["shown_by_ours_alone"]) == (5, 4, 4, 1)
    assert (found["shown_with_pooled"], found["remain_pooled"], found["sign_changed_pooled"]) == (4, 1, 2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"one": 0.84, "other": 0.87}, "a round took 13 to 16 % less time, so that their speedups are too large"),
        ({"one": 1.02, "other": 1.05}, "a round took 2 to 5 % more time, so that their speedups are too small"),
        ({"one": 0.98, "other": 1.01}, "whose rounds differ by -2 to +1 % in time"),
        ({}, "over an autoregressive baseline of another session."),
    ],
)
def test_says_how_the_other_session_differs(changes: dict[str, float], told: str) -> None:
    cells = [cell_of(0.01), cell_of(0.01, is_counted=False)]
    assert told in comparisons_follow(count_comparisons(cells), changes)
    assert "session" not in comparisons_follow(count_comparisons(cells[:1]), changes)


def arms_with(*ends: float, temperature: str = "1.0") -> dict[str, Any]:
    """A setting whose graph arm commits more tokens by a ratio with this interval."""
    ratio = Estimate(sum(ends) / 2, Interval(*ends))
    return {"model": "Qwen3-4B", "temperature": temperature, "length_ratio": ratio}


def test_says_what_the_arms_differ_in() -> None:
    more, fewer, equal = arms_with(1.1, 1.3), arms_with(0.7, 0.9), arms_with(0.9, 1.2, temperature="0.5")
    told = arms_follow([more, equal])
    assert "commits more tokens per round in 1 of 2 settings (Qwen3-4B T=1.0), by up to 20 %" in told
    assert "commits fewer tokens per round in 1 of 1 settings (Qwen3-4B T=1.0), by up to 20 %" in arms_follow([fewer])
    none = arms_follow([equal])
    assert none == "No difference of acceptance lengths between the two arms is shown in any of 1 settings."


def test_says_whether_pooled_means_are_smaller() -> None:
    cells = pl.DataFrame(
        {"dataset": ["gsm8k", "mbpp"] * 2, "macro_over_pooled": [1.1, 1.3, 1.2, 1.4], "theirs": 1.0, "macro": 1.0}
    ).with_columns(pl.lit(2.0).alias("pooled"), pl.lit(2.0).alias("other_warm_up"))
    cells = cells.with_columns(pl.lit(0.5).alias("rounds_share"), pl.lit(9.0).alias("tokens_per_text"))
    smaller, larger = (
        {"dataset_macro_over_pooled": Estimate(value, Interval(*ends)), "weights_ratio": 0.8}
        for value, ends in ((1.25, (1.1, 1.4)), (0.8, (0.7, 1.1)))
    )
    told = means_follow([smaller], cells)
    assert "their table is reproduced as macro averages (per response): 4 of 4 cells." in told
    assert "is 20 to 20 % smaller, in 1 of 1 settings shown; of single datasets MBPP differs most" in told
    assert "is 30 to 40 % larger than its pooled mean" in told
    assert "changes another +25 to +25 %." in told
    assert "lies from -20 to +25 % of it; the two differ in 1 of 2 settings" in means_follow([smaller, larger], cells)


def test_refuses_a_round_that_no_block_allows(contents: dict[str, str], tmp_path: Path) -> None:
    name = "results/raw/domino_official/qwen3-4b/T0.0/graph_gsm8k.jsonl"
    records = parsed(contents[name])
    records[0]["choices"][1]["acceptance_lengths"][0][0] = 18
    files = made_up_release(tmp_path, contents | {name: lines(records)})
    with pytest.raises(SimlabError, match="a round commits"):
        domino_rounds(files, QUIET)


def test_refuses_another_form(contents: dict[str, str], tmp_path: Path) -> None:
    name = "results/raw/domino_official/qwen3-4b/T0.0/graph_gsm8k.jsonl"
    files = made_up_release(tmp_path, contents | {name: lines([{"question_id": "first", "choices": 3}])})
    with pytest.raises(SimlabError, match="not in the form"):
        domino_rounds(files, QUIET)


def test_real_records() -> None:
    """Their 48 cells come out; so do the sums of half a million rounds. What else is printed is kept with the page."""
    found = check_against_oracle(real_release("domino-tree"))
    assert found["rounds"] == 525_509
    assert found["cells_reproduced"] == {"cells": 48, "macro": 48, "pooled": 0, "other_warm_up": 0}
