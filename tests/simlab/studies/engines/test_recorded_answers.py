"""Answers of a real vLLM against traces that this simlab recorded: what was found there is found again."""

import json
from pathlib import Path
from typing import Any

import pytest
from engine_server import FakeEngine
from places import TESTS
from study_results import refused, rows_of, value_of

import simlab
from simlab.studies.engines.crosscheck import crosscheck
from simlab.studies.engines.import_files import import_files
from simlab.studies.engines.predictions import predicted_texts
from simlab.studies.engines.read_metrics import import_metrics
from simlab.studies.export.export import export
from simlab.studies.inputs.trace import sample_trace
from simlab.traces.reader import packaged_trace

DATA = TESTS / "data" / "engines"
BLOCKS = ("block4", "block8")


def checked(answers: str, trace: str, *, fails: bool = False, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """What a crosscheck of kept answers says, and whether it says that something is wrong."""
    table = crosscheck(answers=DATA / answers, trace=DATA / trace, **more)
    assert table.has_failed == fails
    return value_of(table)


def test_a_smaller_block_has_a_trace_of_its_own() -> None:
    found = checked("vllm_block4.jsonl", "block4")
    assert found["verdict"] == "confirmed"
    assert found["rounds_equal"] == found["counters"]["rounds"] == 611
    # The texts are the same; what is refused is the block.
    said = refused(crosscheck, answers=DATA / "vllm_block4.jsonl", trace=DATA / "block8")
    assert "simlab record --block 4" in said
    first = checked("vllm_block4.jsonl", "block8", fails=True, first_of_block=True)
    assert first["verdict"] == "rounds differ"
    assert round(first["acceptance_length"]["trace"], 4) > round(first["acceptance_length"]["engine"], 4)


def test_lengths_by_batch_size_come_from_traces_of_their_own_block() -> None:
    asked: dict[str, Any] = {"file_format": "vllm", "policy": "chain", "trace": DATA / "block8", "batch": [1, 2, 4]}
    made = export(**asked, block_trace=[DATA / "block4"])
    said = "\n".join(made.notes)
    assert "there is no trace of block 2, 3, 5, 6, 7" in said
    assert "first tokens of a block" not in said
    value = json.loads(made.text)
    assert {length for _, _, length in value["serve"]["num_speculative_tokens_per_batch_size"]} <= {0, 3, 7}
    # A chain of its own block is worth what that trace says.
    choice = value["simlab"]["batches"][0]
    assert choice["longest_tried"] == 7
    assert set(choice["not_told_apart"]) <= {0, 3, 7}
    lengths = [rows_of(simlab.replay(DATA / name, ["chain"]))["chain"]["acceptance_length"] for name in BLOCKS]
    assert lengths[0] < lengths[1]
    assert any("give them with --block-trace" in note for note in export(**asked).notes)
    for other, words in ((DATA / "block8", "two traces are of block 8"), (packaged_trace(), "has other texts than")):
        assert words in refused(export, **asked, block_trace=[other])


# --- metrics and benchmarks of engines in files, beside the packaged trace


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Prometheus text before and after all texts of the sample were written."""
    folder = tmp_path_factory.mktemp("metrics")
    trace = sample_trace()
    engine = FakeEngine(predicted_texts(trace, trace.draft_name(None), 7, None))
    engine.count(engine.rounds_of(engine.texts[0], 20), 20)
    before, after = folder / "before.txt", folder / "after.txt"
    before.write_text(engine.metrics())
    for text in engine.texts:
        engine.count(engine.rounds_of(text, len(text)), len(text))
    after.write_text(engine.metrics())
    return before, after


def test_the_traces_own_prompts_are_predicted(metrics: tuple[Path, Path]) -> None:
    before, after = metrics
    value = value_of(import_files([after], before=before, same_prompts=True))
    assert value["verdict"] == "confirmed"
    assert value["counters"]["rounds"] == value["counters_foretold"]["rounds"]
    assert "--limit" in refused(import_files, [after], same_prompts=True)


def test_the_same_traffic_is_no_drift(metrics: tuple[Path, Path]) -> None:
    before, after = metrics
    table = import_files([after], before=before)
    value = value_of(table)
    assert (value["drift"], len(value["figures"])) == (False, 8)
    assert value["figures"][0]["ratio"] == pytest.approx(1)
    assert table.text().startswith("No drift detected (acceptance length ")


def bench(path: Path, at: list[int], **values: object) -> Path:
    """The JSON of vLLM's benchmark, 20,392 rounds of 80 requests, with the tokens kept at each position."""
    rounds, kept = 20_392, sum(at)
    counts = {"completed": 80, "output_throughput": 1.0, "total_output_tokens": rounds + kept + 80}
    counts |= {"spec_decode_num_drafts": rounds, "spec_decode_draft_tokens": 7 * rounds}
    counts |= {"spec_decode_accepted_tokens": kept}
    rates = [times / rounds for times in at]
    path.write_text(json.dumps(counts | {"spec_decode_per_position_acceptance_rates": rates} | values, indent=1))
    return path


@pytest.mark.parametrize(
    ("at", "suspicion", "words"),
    [
        (
            [8, 0, 0, 0, 0, 0, 0],
            "hardly a draft kept",
            "0.039 % are kept where the trace keeps 58.7 %",
        ),
        ([0] * 7, "hardly a draft kept", "wired wrongly"),
        ([20_000] * 7, "nearly every draft kept", "6.87 of 7 drafted tokens are kept a round"),
        ([4_000, 600, 200, 100, 50, 20, 20], None, "record a trace of prompts like the server's"),
    ],
)
def test_what_no_traffic_does_is_said(tmp_path: Path, at: list[int], suspicion: str | None, words: str) -> None:
    table = import_metrics([bench(tmp_path / "bench.json", at)])
    assert table.has_failed
    assert value_of(table)["figures"][0]["differs"]
    assert (value_of(table)["drift"], value_of(table)["suspicion"]) == (True, suspicion)
    assert words in " ".join(table.text().split())
    assert ("record a trace" in table.text()) is (suspicion is None)


def test_files_of_two_models_are_not_added(tmp_path: Path) -> None:
    one, other = (bench(tmp_path / name, [9] * 7, model_id=name) for name in ("a", "b"))
    assert "are of 2 models (vllm bench serve): a, b" in refused(import_files, [one, other])


def test_readings_that_do_not_belong_together_are_refused(metrics: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = metrics
    assert "started anew" in refused(import_files, [before], before=after)
    assert "one file" in refused(import_files, [before, after], before=before)
    rounded = tmp_path / "llama.txt"
    rounded.write_text("llamacpp:spec_decode_num_drafts_total 3.05406e+06\n")
    assert "six digits" in refused(import_files, [rounded], before=rounded)
    assert "there are none" in refused(import_files, [tmp_path / "none"])
    line = {"completed": 4, "total_output_tokens": 100, "accept_length": 2.5}
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(line | {"server_info": {"speculative_num_draft_tokens": 4}}))
    assert "simlab record --block 4" in refused(import_files, [path])
    assert import_metrics([path], first_of_block=True).text()
