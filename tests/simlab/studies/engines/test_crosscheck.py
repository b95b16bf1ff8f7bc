"""Crosschecks of servers on this machine, true and faulty."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_server import FakeEngine, serving
from study_results import refused as refused_by
from study_results import value_of

from simlab.analysis.crosscheck.predicted import PredictedText
from simlab.studies.engines.crosscheck import crosscheck
from simlab.studies.engines.predictions import predicted_texts
from simlab.studies.inputs.trace import sample_trace
from simlab.traces.reader import packaged_trace

LIMIT = 3


@pytest.fixture(scope="module")
def texts() -> list[PredictedText]:
    trace = sample_trace()
    return predicted_texts(trace, trace.draft_name(None), 7, LIMIT)


@pytest.fixture
def engine(texts: list[PredictedText]) -> Iterator[FakeEngine]:
    with serving(FakeEngine(texts)) as served:
        yield served


def checked(served: FakeEngine, *, fails: bool = False, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """What a crosscheck says, and whether it says that something is wrong."""
    table = crosscheck(served.address, packaged_trace(), limit=LIMIT, progress=False, **more)
    assert table.has_failed == fails
    return value_of(table)


def refused(served: FakeEngine, **more: object) -> str:
    return refused_by(crosscheck, served.address, packaged_trace(), limit=LIMIT, **more)


@pytest.mark.parametrize(("name", "level"), [("vllm", "rounds"), ("sglang", "requests"), ("trtllm", "requests")])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_true_server_is_confirmed(texts: list[PredictedText], name: str, level: str, concurrency: int) -> None:
    with serving(FakeEngine(texts, name)) as served:
        found = checked(served, concurrency=concurrency)
        assert (found["verdict"], found["level"]) == ("confirmed", level)
        assert found["texts_equal"] == found["num_texts"] == len(texts)
        assert found["counters"]["requests"] == len(texts)
        assert found["counters"]["rounds"] == found["counters_foretold"]["rounds"]
        assert set(served.asked) <= {"/metrics", "/prometheus/metrics", "/version", "/v1/models", "/server_info",
                                     "/get_server_info", "/v1/completions", "/generate"}  # fmt: skip
        if level == "rounds":
            assert found["rounds_equal"] == found["rounds_compared"] == found["counters"]["rounds"]


def test_counters_are_predicted_to_the_unit_where_the_recording_goes_on(engine: FakeEngine) -> None:
    found = checked(engine, exact_counters=True)
    predicted, counted = found["counters_foretold"], found["counters"]
    assert predicted["rounds_cut_by_the_recorded_end"] == 0
    for key in ("rounds", "drafted", "accepted", "accepted_at_position", "tokens", "requests"):
        assert counted[key] == predicted[key]


def test_counters_are_read_unless_others_use_the_server(texts: list[PredictedText]) -> None:
    with serving(FakeEngine(texts)) as served:
        assert checked(served)["counters"] is not None
        assert checked(served, shared_server=True)["counters"] is None


def test_less_is_told_without_details(texts: list[PredictedText]) -> None:
    with serving(FakeEngine(texts, detailed=False)) as served:
        found = checked(served)
        assert (found["verdict"], found["level"]) == ("confirmed", "requests")


def with_fault(texts: list[PredictedText], fault: str, engine: str = "vllm") -> FakeEngine:
    return FakeEngine(texts, engine, faults=frozenset([fault]))


def test_one_wrong_round_is_found(texts: list[PredictedText]) -> None:
    with serving(with_fault(texts, "wrong round")) as served:
        found = checked(served, fails=True)
    assert found["verdict"] == "rounds differ"
    assert found["rounds_compared"] - found["rounds_equal"] == 1
    assert found["texts_equal"] == found["num_texts"]
    (first,) = [one["first_other_round"] for one in found["texts"] if one["first_other_round"]]
    assert first["accepted"] == first["foretold"] - 1
    assert not first["close_call"]


def test_rounds_that_differ_say_which_known_fault_they_look_like(texts: list[PredictedText]) -> None:
    with serving(with_fault(texts, "no head")) as served:
        table = crosscheck(served.address, packaged_trace(), limit=LIMIT, progress=False)
    (look,) = value_of(table)["looks_like"]
    assert look["fault"] == "a missing head"
    assert f"\nLooks like a missing head: {look['evidence']}.\n" in table.text()
    with serving(with_fault(texts, "wrong round")) as served:
        table = crosscheck(served.address, packaged_trace(), limit=LIMIT, progress=False)
    assert value_of(table)["looks_like"] == []
    assert "\nLooks like none of the known faults" in table.text()
    with serving(FakeEngine(texts)) as served:
        assert "Looks like" not in crosscheck(served.address, packaged_trace(), limit=LIMIT, progress=False).text()


def test_the_same_wrong_round_is_unseen_by_lengths(texts: list[PredictedText]) -> None:
    with serving(with_fault(texts, "wrong round", "sglang")) as served:
        found = checked(served)
    assert found["verdict"] in ("confirmed", "lengths agree")


def test_another_text_is_found(texts: list[PredictedText]) -> None:
    with serving(with_fault(texts, "other text")) as served:
        table = crosscheck(served.address, packaged_trace(), limit=LIMIT, progress=False)
    found = value_of(table)
    assert (table.has_failed, found["verdict"]) == (True, "texts differ")
    last = found["texts"][-1]
    assert last["parts_at"] == len(texts[-1]) // 2
    assert f" {last['parts_at']}  {last['gap_where_it_parts']:.3f} " in re.sub(r" {2,}", "  ", table.text())
    with serving(with_fault(texts, "other text")) as served:
        assert checked(served, tie=1000.0)["verdict"] == "confirmed up to ties"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("500", "answered 500"),
        ("cut", "cut the request"),
        ("not whole", "not whole"),
        ("template", "a chat template or tokens of its own"),
        ("busy", "is busy"),
        ("redirect", "not followed"),
        ("short", "at most 100 tokens"),
        ("restart", "started anew"),
    ],
)
def test_faults_get_one_sentence(texts: list[PredictedText], fault: str, words: str) -> None:
    with serving(with_fault(texts, fault)) as served:
        assert words in refused(served)


@pytest.mark.parametrize(("k", "block"), [(3, 4), (9, 10)])
def test_another_block_is_refused_with_the_command(texts: list[PredictedText], k: int, block: int) -> None:
    with serving(FakeEngine(texts, k=k)) as served:
        assert f"simlab record --block {block}" in refused(served)


def test_a_server_that_keeps_the_first_of_a_block() -> None:
    trace = sample_trace()
    short = predicted_texts(trace, trace.draft_name(None), 3, LIMIT)
    with serving(FakeEngine(short, k=3)) as served:
        assert checked(served, first_of_block=True)["verdict"] == "confirmed"


def test_kept_answers_are_compared_again(engine: FakeEngine, tmp_path: Path) -> None:
    found = checked(engine, out=tmp_path / "out")
    assert json.loads((tmp_path / "out" / "crosscheck.json").read_text()) == found
    kept = tmp_path / "out" / "answers.jsonl"
    again = value_of(crosscheck(answers=kept, trace=packaged_trace()))
    same = ("verdict", "rounds_compared", "rounds_equal", "texts", "counters", "acceptance_length")
    assert {key: again[key] for key in same} == {key: found[key] for key in same}
    kept.write_text(kept.read_text().replace(found["text_id"], "0" * 16))
    assert "are to the texts" in refused_by(crosscheck, answers=kept, trace=packaged_trace())


def test_a_key_is_sent_and_never_shown(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not set" in refused(engine, key_variable="NO_SUCH_KEY")
    monkeypatch.setenv("SOME_KEY", "sesame")
    found = checked(engine, key_variable="SOME_KEY")
    assert set(engine.keys) == {"Bearer sesame"}
    assert "sesame" not in json.dumps(found)
