"""Domino's released rounds: against plain Python, on made-up records and on the real ones."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_up_domino import RIVALS, lines, made_up_contents, parsed
from released_data import made_up_release, real_release, values_of

from simlab.analysis.released.domino.figures import domino_rounds_figure
from simlab.analysis.released.domino.records import DATASETS, MODELS, ROLLUPS, TEMPERATURES
from simlab.analysis.released.domino.rounds import domino_rounds
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.cli.main import main
from simlab.errors import SimlabError

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
    found = values_of(domino_rounds(files, progress=False))
    arms = {(row["model"], row["temperature"]): row for row in found["arms"]}
    ends = {(row["model"], row["temperature"], row["arm"]): row for row in found["over_count"]}
    rounds = 0
    for model in MODELS:
        for temperature in TEMPERATURES:
            row, own = arms[model.name, temperature], {}
            for arm in ("graph", "eager"):
                folder = f"results/raw/domino_official/{model.folder}/T{temperature}/{arm}_"
                names = [f"{folder}{one}.jsonl" for one in DATASETS if f"{folder}{one}.jsonl" in files.release.files]
                turns = own[arm] = [one for name in names for one in turns_of(files, name)]
                lengths = [length for one in turns for length in one["lengths"]]
                rounds += len(lengths)
                macro = statistics.fmean(statistics.fmean(one["lengths"]) for one in turns)
                assert row[f"{arm}_pooled"] == pytest.approx(statistics.fmean(lengths), abs=2e-5)
                assert row[f"{arm}_macro"] == pytest.approx(macro, abs=2e-5)
                share = sum(length == 17 for length in lengths) / len(lengths)
                assert row[f"{arm}_whole_block_share"] == pytest.approx(share, abs=2e-5)
                assert row[f"{arm}_pooled_ci_low"] < row[f"{arm}_pooled"] < row[f"{arm}_pooled_ci_high"]
                over = [sum(one["lengths"]) - one["tokens"] for one in turns if one["tokens"] < 2048]
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
    assert all(row["is_macro"] for row in found["cells"])
    theirs = found["comparisons"]["all"]
    shown_rollups = sum(any(name in {"gsm8k", "mt-bench"} for name in datasets) for datasets in ROLLUPS.values())
    assert theirs["cells"] == len(MODELS) * len(TEMPERATURES) * len(RIVALS) * shown_rollups
    for one in found["figures"]:
        assert (
            one["difference"] == pytest.approx(0, abs=0.006) or "average (per" in one["what"] or "pooled" in one["what"]
        )


def test_each_comparison_is_theirs(contents: dict[str, str], tmp_path: Path) -> None:
    """The tables are made by loops over lists; the study has the same numbers."""
    found = domino_rounds(made_up_release(tmp_path, contents), progress=False)
    shown: Any = found.to_json()["overall"]
    assert len(shown) == len(MODELS) * len(TEMPERATURES) * len(RIVALS)
    for row in shown:
        assert 100 * (row["speed_ratio"] - 1) == pytest.approx(row["theirs_percent"], abs=2e-3)
        is_bare = row["model"] == "Qwen3-8B" and row["rival"] != "Domino"
        assert ("pooled_speed_ratio" in row) != is_bare


def test_sees_a_cell_that_is_not_theirs(contents: dict[str, str], tmp_path: Path) -> None:
    """One more token in one round of the arm that the table is of."""
    before = domino_rounds(made_up_release(tmp_path / "as made", contents), progress=False).to_json()
    cells: Any = before["cells"]
    cell = cells[0]
    folder = next(model.folder for model in MODELS if model.name == cell["model"])
    name = f"results/raw/domino_official/{folder}/T{cell['temperature']}/{cell['arm']}_{cell['dataset']}.jsonl"
    records = parsed(contents[name])
    lengths = records[-1]["choices"][1]["acceptance_lengths"][0]
    lengths[0] += 1 if lengths[0] < 17 else -1
    files = made_up_release(tmp_path / "planted", contents | {name: lines(records)})
    after: Any = domino_rounds(files, progress=False).to_json()["cells"]
    assert [row["is_macro"] for row in after] == [False, *[True] * (len(after) - 1)]


def test_refuses_a_round_that_no_block_allows(contents: dict[str, str], tmp_path: Path) -> None:
    name = "results/raw/domino_official/qwen3-4b/T0.0/graph_gsm8k.jsonl"
    records = parsed(contents[name])
    records[0]["choices"][1]["acceptance_lengths"][0][0] = 18
    files = made_up_release(tmp_path, contents | {name: lines(records)})
    with pytest.raises(SimlabError, match="a round commits"):
        domino_rounds(files, progress=False)


def test_refuses_another_form(contents: dict[str, str], tmp_path: Path) -> None:
    name = "results/raw/domino_official/qwen3-4b/T0.0/graph_gsm8k.jsonl"
    files = made_up_release(tmp_path, contents | {name: lines([{"question_id": "first", "choices": 3}])})
    with pytest.raises(SimlabError, match="not in the form"):
        domino_rounds(files, progress=False)


def test_refuses_files_that_changed_or_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["reproduce", "domino-rounds", "--data", str(tmp_path)]
    assert main(typed) == 2
    assert "has no results/" in capsys.readouterr().err
    made_up_release(tmp_path, dict.fromkeys(read_release("domino-tree").files, "something else"))
    assert main(typed) == 2
    assert "is not as it was released" in capsys.readouterr().err


def test_text_and_figure(contents: dict[str, str], tmp_path: Path) -> None:
    found = domino_rounds(made_up_release(tmp_path, contents), progress=False)
    assert "paired comparisons" in found.text()
    assert len(domino_rounds_figure(values_of(found)).to_dict()["data"]) == 5


def test_real_records() -> None:
    """Their 48 cells and 288 comparisons come out; so do the sums of half a million rounds."""
    found = check_against_oracle(real_release("domino-tree"))
    assert found["rounds"] == 525_509
    assert len(found["cells"]) == sum(row["is_macro"] for row in found["cells"]) == 48
    assert not any(row["is_other_warm_up"] or row["is_pooled"] for row in found["cells"])
    counted = found["comparisons"]["all"]
    assert (counted["cells"], counted["shown"], counted["stay"]) == (288, 222, 220)
    first = found["arms"][0]
    assert (round(first["graph_pooled"], 3), round(first["graph_macro"], 3)) == (5.995, 6.926)
    assert [row["length_ratio_ci_low"] > 1 for row in found["arms"]] == [False, True, True] * 2
