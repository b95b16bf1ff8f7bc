"""Answers of a real vLLM against traces that this simlab recorded: what was found there is found again."""

import json
from typing import Any

import pytest
from places import TESTS

from simlab.cli.main import main
from simlab.traces.reader import packaged_trace

DATA = TESTS / "data" / "engines"


def checked(capsys: pytest.CaptureFixture[str], answers: str, trace: str, *more: str, code: int = 0) -> dict[str, Any]:
    typed = ["crosscheck", "--answers", str(DATA / answers), "--trace", str(DATA / trace), "--json", *more]
    assert main(typed) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_mended_engine_does_every_round_as_foretold(capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(capsys, "vllm_mended.jsonl", "block8")
    assert (found["verdict"], found["level"]) == ("confirmed", "rounds")
    assert found["rounds_equal"] == found["rounds_compared"] == found["counters"]["rounds"] == 984
    assert found["texts_equal"] == found["num_texts"] == 20
    assert round(found["acceptance_length"]["engine"], 4) == 2.4644


def test_one_wrong_layer_of_the_released_engine_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(capsys, "vllm_released.jsonl", "block8", code=1)
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


def test_a_smaller_block_has_a_trace_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(capsys, "vllm_block4.jsonl", "block4")
    assert found["verdict"] == "confirmed"
    assert found["rounds_equal"] == found["counters"]["rounds"] == 611
    # The texts are the same; what is refused is the block.
    assert main(["crosscheck", "--answers", str(DATA / "vllm_block4.jsonl"), "--trace", str(DATA / "block8")]) == 2
    error = capsys.readouterr().err
    assert "simlab record --block 4" in error
    assert error.count("\n") == 1
    first = checked(capsys, "vllm_block4.jsonl", "block8", "--first-of-block", code=1)
    assert first["verdict"] == "rounds differ"
    assert round(first["acceptance_length"]["trace"], 4) > round(first["acceptance_length"]["engine"], 4)


def test_the_benchmark_of_the_engine_is_foretold_to_the_unit(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["import", str(DATA / "vllm_bench_serve.json"), "--trace", str(DATA / "block8"), "--json"]
    assert main([*typed, "--same-prompts", "--limit", "3", "--max-new-tokens", "32"]) == 0
    found = json.loads(capsys.readouterr().out)
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
        assert main([*typed, "--block-trace", str(other)]) == 2
        assert words in capsys.readouterr().err


def test_a_chain_of_its_own_block_is_worth_what_that_trace_says(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["export", "--format", "vllm", "-p", "chain", "--trace", str(DATA / "block8"), "--batch", "1"]
    assert main([*typed, "--block-trace", str(DATA / "block4")]) == 0
    (choice,) = json.loads(capsys.readouterr().out)["simlab"]["batches"]
    lengths = {}
    for name in ("block8", "block4"):
        assert main(["replay", "--trace", str(DATA / name), "-p", "chain", "--json"]) == 0
        (row,) = [one for one in json.loads(capsys.readouterr().out)["rows"] if one["name"] == "chain"]
        lengths[name] = row["acceptance_length"]
    assert lengths["block4"] < lengths["block8"]
    assert choice["longest_tried"] == 7
    assert set(choice["not_told_apart"]) <= {0, 3, 7}
