"""What a report is made from: the trace and the prices of result rows are found, and others are refused."""

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from made_up_costs import filled
from synthetic_traces import write_synthetic_trace

from simlab.errors import SimlabError, TraceError, UsageError
from simlab.studies.replay.replay import replay as replayed
from simlab.studies.report.build import explorer
from simlab.studies.report.inputs import ReportInputs, inputs_of_replay, inputs_of_results
from simlab.studies.report.report import report
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file, write_cost_file
from simlab.traces.reader import open_trace, packaged_trace
from simlab.traces.results.files import read_results


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Result rows of the packaged trace, at prices that come with simlab."""
    out = tmp_path_factory.mktemp("rows") / "results.parquet"
    replayed(None, ["chain"], limit=2, threads=1, out=out)
    return out


@pytest.fixture(scope="module")
def played() -> ReportInputs:
    return inputs_of_replay(open_trace(packaged_trace()), None, None, ["chain:length=2"], None)


def used_cost(rows: Path) -> str:
    """The id of the prices of result rows."""
    (cost_id,) = read_results(rows)["cost_id"].drop_nulls().unique()
    return str(cost_id)


def test_the_trace_and_the_prices_of_rows_are_found(rows: Path) -> None:
    found = inputs_of_results([rows], None, None, None)
    assert found.trace is not None
    assert found.trace.location == open_trace(packaged_trace()).location
    assert found.prices is not None
    assert found.prices.cost_id == used_cost(rows)
    assert found.missing == ()


def test_prices_of_other_rows_are_refused(rows: Path, tmp_path: Path) -> None:
    own = next(file for file in packaged_cost_files() if read_cost_file(file).cost_id == used_cost(rows))
    other = tmp_path / "cost.json"
    write_cost_file(other, replace(read_cost_file(own), notes=("made up",)))
    with pytest.raises(UsageError, match="holds the latency profile"):
        inputs_of_results([rows], None, None, other)
    found = inputs_of_results([rows], None, None, own).prices
    assert found is not None
    assert found.cost_id == used_cost(rows)


def test_rows_of_other_prompts_are_refused(rows: Path, tmp_path: Path) -> None:
    """One policy of two prompts, and another of one: what differs might be the prompts."""
    replayed(None, ["ddtree:budget=4"], limit=1, threads=1, out=tmp_path / "others.parquet")
    with pytest.raises(
        UsageError, match=r"are of \d texts and those of .* of \d, not the same: give files of the same"
    ):
        inputs_of_results([rows, tmp_path / "others.parquet"], None, None, None)


def test_prices_that_end_before_the_longest_prompt_are_found(tmp_path: Path) -> None:
    """A profile of a GPU comes with simlab, and reaches most prompts of the packaged trace."""
    replayed(None, ["chain"], cost="smollm2-135m-h200-eager", limit=2, threads=1, out=tmp_path / "rows.parquet")
    found = inputs_of_results([tmp_path / "rows.parquet"], None, None, None)
    assert found.prices is not None
    assert found.prices.heading.startswith("smollm2-135m-h200-eager: NVIDIA H200")


def shown(inputs: ReportInputs, number: int) -> list[int]:
    """The places in the trace of the texts whose trees are shown."""
    part = explorer(inputs, inputs.named(["chain:length=2"]), number, [])
    assert isinstance(part, Mapping)
    texts = part["texts"]
    assert isinstance(texts, list)
    return [text["sequence"] for text in texts]


def test_texts_whose_trees_are_shown_are_of_each_dataset_in_turn(played: ReportInputs) -> None:
    assert played.trace is not None
    firsts: dict[str, int] = {}
    for sequence in played.trace.sequences():
        firsts.setdefault(sequence.prompt.dataset, sequence.index)
    assert len(firsts) > 1
    assert shown(played, len(firsts)) == sorted(firsts.values())
    assert len(shown(played, len(firsts) + 1)) == len(firsts) + 1
    few = replace(played, wanted=(1, 3))
    assert shown(few, 9) == [1, 3]


def test_a_label_out_of_a_file_runs_no_code(rows: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("from pathlib import Path\n\nPath(__file__).with_suffix('.ran').touch()\n")
    labels = [f"{own}:Mine", f'router:routes="{own}:Mine/ar"', "chain"]
    assert [policy.label for policy in inputs_of_results([rows], None, None, None).named(labels)] == ["chain"]
    assert not own.with_suffix(".ran").exists()


@pytest.mark.parametrize(("length", "said"), [(1, "Every text has a single token"), (2, "")])
def test_short_texts_make_a_report_and_no_texts_a_sentence(length: int, said: str, tmp_path: Path) -> None:
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=4, length=length, kept=128)
    made = report([], trace=trace, policies=["chain", "ddtree:budget=4"])
    assert any("Every text has a single token" in sentence for sentence in made.missing) == bool(said)
    assert made.missing
    assert all(escape(sentence) in made.html for sentence in made.missing)
    assert ("Acceptance by depth" in made.html) == (not said)
    empty = write_synthetic_trace(tmp_path / "empty", num_sequences=0, length=2, kept=128)
    with pytest.raises(TraceError, match="holds no sequences, so there is nothing to report"):
        report([], trace=empty, policies=["chain"])


def test_what_models_of_ones_own_lack_is_left_out_of_a_report_where_nobody_asked_for_it(tmp_path: Path) -> None:
    """With prices, but without a 3-gram, which comes with simlab for a few tokenizers alone, and exact up to 32."""
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=2, length=9, kept=32)
    write_cost_file(tmp_path / "cost.json", filled())
    made = report([], trace=trace, cost=tmp_path / "cost.json", texts=0)
    left_out = [sentence for sentence in "\n".join(made.missing).splitlines() if sentence.startswith("Left out: ")]
    assert any("`presto:budget=4`: it needs a 3-gram" in sentence for sentence in left_out)
    assert any("ddtree:budget=40, ddtree:budget=48, ddtree:budget=64 and 2 more, since" in one for one in left_out)
    with pytest.raises(SimlabError, match="it needs a 3-gram"):
        report([], trace=trace, cost=tmp_path / "cost.json", texts=0, policies="presto:budget=4")
