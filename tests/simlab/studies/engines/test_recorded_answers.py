"""Answers of a real vLLM against traces that this simlab recorded: what was found there is found again."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import json_of, output_of, refusal_of
from engine_server import FakeEngine
from places import TESTS

from simlab.cli.main import main
from simlab.studies.engines.foretelling import foretold_texts
from simlab.studies.inputs.trace import sample_trace
from simlab.traces.reader import packaged_trace

DATA = TESTS / "data" / "engines"


def checked(answers: str, trace: str, *more: str, code: int = 0) -> dict[str, Any]:
    typed = ["crosscheck", "--answers", DATA / answers, "--trace", DATA / trace, "--json"]
    return json_of(*typed, *more, code=code)


def test_the_mended_engine_does_every_round_as_foretold() -> None:
    found = checked("vllm_mended.jsonl", "block8")
    assert (found["verdict"], found["level"]) == ("confirmed", "rounds")
    assert found["rounds_equal"] == found["rounds_compared"] == found["counters"]["rounds"] == 984
    assert found["texts_equal"] == found["num_texts"] == 20
    assert round(found["acceptance_length"]["engine"], 4) == 2.4644


def test_one_wrong_layer_of_the_released_engine_is_found() -> None:
    found = checked("vllm_released.jsonl", "block8", code=1)
    assert found["verdict"] == "rounds differ"
    assert found["texts_equal"] == 20
    assert found["rounds_compared"] - found["rounds_equal"] == 30
    firsts = {one["sequence"]: one["first_other_round"] for one in found["texts"] if one["first_other_round"]}
    assert len(firsts) == 17
    assert firsts[0] == {
        "root": 8, "accepted": 5, "foretold": 6, "margin": pytest.approx(1.12, abs=0.01), "close_call": False,
    }  # fmt: skip
    # Acceptance lengths alone do not show it.
    length = found["acceptance_length"]
    assert length["trace_over_engine_ci_low"] < 1 < length["trace_over_engine_ci_high"]


def test_a_smaller_block_has_a_trace_of_its_own() -> None:
    found = checked("vllm_block4.jsonl", "block4")
    assert found["verdict"] == "confirmed"
    assert found["rounds_equal"] == found["counters"]["rounds"] == 611
    # The texts are the same; what is refused is the block.
    assert "simlab record --block 4" in refusal_of(
        "crosscheck", "--answers", DATA / "vllm_block4.jsonl", "--trace", DATA / "block8"
    )
    first = checked("vllm_block4.jsonl", "block8", "--first-of-block", code=1)
    assert first["verdict"] == "rounds differ"
    assert round(first["acceptance_length"]["trace"], 4) > round(first["acceptance_length"]["engine"], 4)


def test_the_benchmark_of_the_engine_is_foretold_to_the_unit() -> None:
    typed = ["import", str(DATA / "vllm_bench_serve.json"), "--trace", str(DATA / "block8"), "--json"]
    found = json_of(*typed, "--same-prompts", "--limit", "3", "--max-new-tokens", "32")
    assert found["verdict"] == "confirmed"
    counted, foretold = found["counters"], found["counters_foretold"]
    for key in ("rounds", "drafted", "accepted", "accepted_at_position", "tokens", "requests"):
        assert counted[key] == foretold[key]
    assert (counted["rounds"], counted["accepted"]) == (29, 64)
    assert counted["accepted_at_position"] == [22, 16, 10, 5, 4, 4, 3]


def test_lengths_by_batch_size_come_from_traces_of_their_own_block(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["export", "--format", "vllm", "-p", "chain", "--trace", str(DATA / "block8"), "--batch", "1,2,4"]
    assert main([*typed, "--block-trace", str(DATA / "block4")]) == 0
    out, error = capsys.readouterr()
    assert "there is no trace of block 2, 3, 5, 6, 7" in error
    assert "first tokens of a block" not in error
    table = json.loads(out)["serve"]["num_speculative_tokens_per_batch_size"]
    assert {length for _, _, length in table} <= {0, 3, 7}
    assert main(typed) == 0
    assert "give them with --block-trace" in capsys.readouterr().err
    for other, words in ((DATA / "block8", "two traces are of block 8"), (packaged_trace(), "has other texts than")):
        assert words in refusal_of(*typed, "--block-trace", other)


def test_a_chain_of_its_own_block_is_worth_what_that_trace_says() -> None:
    typed = ["export", "--format", "vllm", "-p", "chain", "--trace", str(DATA / "block8"), "--batch", "1"]
    (choice,) = json_of(*typed, "--block-trace", DATA / "block4")["simlab"]["batches"]
    lengths = {}
    for name in ("block8", "block4"):
        (row,) = [
            one
            for one in json_of("replay", "--trace", DATA / name, "-p", "chain", "--json")["rows"]
            if one["name"] == "chain"
        ]
        lengths[name] = row["acceptance_length"]
    assert lengths["block4"] < lengths["block8"]
    assert choice["longest_tried"] == 7
    assert set(choice["not_told_apart"]) <= {0, 3, 7}


# ``simlab import-metrics`` on files, beside the packaged trace


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Prometheus text before and after all texts of the sample were written."""
    folder = tmp_path_factory.mktemp("metrics")
    trace = sample_trace()
    engine = FakeEngine(foretold_texts(trace, trace.draft_name(None), 7, None))
    engine.count(engine.rounds_of(engine.texts[0], 20), 20)
    before, after = folder / "before.txt", folder / "after.txt"
    before.write_text(engine.metrics())
    for text in engine.texts:
        engine.count(engine.rounds_of(text, len(text)), len(text))
    after.write_text(engine.metrics())
    return before, after


def read(*typed: str, code: int = 0) -> dict[str, Any]:
    return json_of("import", *typed, "--json", code=code)


def test_the_traces_own_prompts_are_foretold(metrics: tuple[Path, Path]) -> None:
    before, after = map(str, metrics)
    found = read(after, "--before", before, "--same-prompts")
    assert found["verdict"] == "confirmed"
    assert found["counters"]["rounds"] == found["counters_foretold"]["rounds"]
    assert "--limit" in refusal_of("import", after, "--same-prompts")


def test_the_same_traffic_is_no_drift(metrics: tuple[Path, Path]) -> None:
    before, after = map(str, metrics)
    found = read(after, "--before", before)
    assert found["drift"] is False
    assert found["figures"][0]["ratio"] == pytest.approx(1)
    assert len(found["figures"]) == 8
    assert output_of("import", after, "--before", before).startswith("NO DRIFT FOUND")


def test_other_traffic_is_a_drift(tmp_path: Path) -> None:
    bench: dict[str, object] = {"completed": 200, "output_throughput": 1.0, "total_output_tokens": 20_200}
    bench |= {"spec_decode_num_drafts": 16_000, "spec_decode_draft_tokens": 112_000}
    bench |= {"spec_decode_accepted_tokens": 4_000}
    bench |= {"spec_decode_per_position_acceptance_rates": [0.2, 0.03, 0.01, 0.005, 0.003, 0.001, 0.001]}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench, indent=1))
    found = read(str(path), code=1)
    assert found["drift"] is True
    assert found["figures"][0]["differs"]


def test_a_smaller_block_is_refused_with_the_command(tmp_path: Path) -> None:
    line = {"completed": 4, "total_output_tokens": 100, "accept_length": 2.5}
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(line | {"server_info": {"speculative_num_draft_tokens": 4}}))
    assert "simlab record --block 4" in refusal_of("import", path)
    assert main(["import", str(path), "--first-of-block"]) in (0, 1)


def test_readings_that_do_not_belong_together_are_refused(metrics: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = map(str, metrics)
    assert "started anew" in refusal_of("import", before, "--before", after)
    assert "one file" in refusal_of("import", before, after, "--before", before)
    assert "there are none" in refusal_of("import", tmp_path / "none")
