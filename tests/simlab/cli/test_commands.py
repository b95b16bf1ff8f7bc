"""Commands that run models or write notes, frames of results, and what is refused in one sentence.

What other commands print is kept in tests/golden/outputs; options are tested once for all commands, in test_options.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import failure_of, json_of, output_of, ran, refusal_of
from confirm_runs import Made, make
from places import TESTS
from study_results import value_of

import simlab
from simlab.studies.fit_tables import fit_calibration
from simlab.studies.result import StudyResult, with_settings

ENGINES = TESTS / "data" / "engines"


@dataclass(frozen=True)
class Place:
    """A trace, latencies and result rows that are read, and ``made``, which may be written."""

    trace: Path
    cost: Path
    results: Path
    made: Path


@pytest.fixture(scope="module")
def place(trace: Path, cost: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("commands")
    made = Place(trace, cost, folder / "results.parquet", folder / "made.json")
    simlab.replay(trace, ["chain", "ddtree:budget=4"], cost=cost, out=made.results)
    return made


CASES: dict[str, Callable[[Place], StudyResult]] = {
    "replay": lambda at: simlab.replay(at.trace, ["chain", "ddtree:budget=4/8"], cost=at.cost, limit=3),
    "compare": lambda at: simlab.compare(at.results, ["ddtree:budget=4", "chain"], measure="speedup"),
    "optimize": lambda at: simlab.optimize(at.trace, ["ddtree:budget=4/8"], cost=at.cost, threads=1),
    "advise": lambda _: simlab.advise(None, ["chain:length=2/4", "ddtree:budget=4/8"], batch=[1, 4], limit=6),
    "crosscheck": lambda _: simlab.crosscheck(answers=ENGINES / "vllm_block4.jsonl", trace=ENGINES / "block4"),
    "calibration": lambda at: fit_calibration(at.trace, out=at.results.with_name("table.json")),
    "curves": lambda at: simlab.curves(at.trace, cost=at.cost, budget=8, limit=3),
    "scoring": lambda _: simlab.scoring(limit=1, nodes=8),
    "rules": lambda _: simlab.engine_rules(limit=3, batch=[1, 3]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_frame_of_a_result_has_the_rows_of_its_json(name: str, place: Place) -> None:
    """A key that only some rows have is null in the others."""
    result = CASES[name](place)
    value: Any = value_of(result)
    rows = value if isinstance(value, list) else value.get(result.ROWS, [])
    assert {key for row in rows for key in row} <= set(result.frame.columns)
    assert known(result.frame.to_dicts()) == known(with_settings(rows)) or not rows
    assert repr(result) == result.text()
    assert "<" in result._repr_html_()


def known(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows without what is null."""
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def test_an_export_is_printed_or_written_and_its_notes_stand_beside_it(trace: Path, tmp_path: Path) -> None:
    words = ["export", "--trace", trace, "--format", "vllm", "-p", "chain"]
    made = simlab.export("vllm", "chain", trace=trace)
    code, out, err = ran(*words)
    assert (code, out, err.splitlines()) == (0, made.text, "\n".join(made.notes).splitlines())
    path = tmp_path / "vllm.json"
    assert str(path) in output_of(*words, "--out", path)
    assert path.read_text() == simlab.export("vllm", "chain", trace=trace, out=path).text
    assert "names the folder" in refusal_of(*words, "--out", tmp_path)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("models"), num_prompts=1)


def test_models_are_recorded_timed_and_confirmed(models: Made, tmp_path: Path) -> None:
    """A finished file or folder is read again, and says the same."""
    prompts, out, cost = models.folder / "prompts.jsonl", tmp_path / "trace", tmp_path / "new" / "cost.json"
    asked = ("--prompts", prompts, "--max-new-tokens", "16")
    assert f"Recorded: {out}" in output_of("record", *models.models, *asked, "--out", out)
    assert simlab.open_trace(out).text_id == models.trace.text_id
    timed = ("profile", *models.models, "--out", cost, "--repeats", "2", "--node-counts", "4", "--contexts", "16,32")
    code, shown, progress = ran(*timed)
    assert (code, "context  plain" in shown, "%|" in progress) == (0, True, False)  # no bar where nobody looks
    again = f"{cost} is there already; add --resume to go on with it, or give another --out\n"
    assert refusal_of(*timed).endswith(again)
    value = json_of("profile", "--out", cost, "--resume", "--json")
    assert value == value_of(simlab.profile(out=cost, resume=True))
    ran_there = tmp_path / "out"
    confirmed = ("confirm", "--trace", out, "-p", "ddtree:budget=8", "--out", ran_there)
    shown = output_of(*confirmed)
    result = simlab.confirm(out, ["ddtree:budget=8"], out=ran_there, resume=True)
    assert shown.startswith(f"{result.text()}\n")
    assert json_of(*confirmed, "--resume", "--json") == value_of(result)


def test_a_difference_is_an_exit_code() -> None:
    answers = ("crosscheck", "--answers", ENGINES / "vllm_released.jsonl", "--trace", ENGINES / "block8")
    assert json_of(*answers, "--json", code=1)["verdict"] == "rounds differ"


def test_a_demonstration_without_its_models_ends_in_one_sentence(tmp_path: Path) -> None:
    said = failure_of("demo", "--out", tmp_path / "demo", "--target", tmp_path / "absent", "--draft", "absent")
    assert "could not be loaded: nothing has that name" in said


def test_no_server_is_asked_for_texts_that_were_given(trace: Path) -> None:
    said = refusal_of("crosscheck", "--endpoint", "http://127.0.0.1:9", "--trace", trace)
    assert "were given, not generated by the target" in said
