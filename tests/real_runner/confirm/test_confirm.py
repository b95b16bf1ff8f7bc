"""Measuring, auditing and going on: what a confirmation does with real models."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import confirm_runs
import numpy as np
import pytest
import torch
from confirm_runs import LABELS, MAX_NEW_TOKENS, Made, Watch, confirmed, log_of, setup_of, spoilt

from simlab.arrays import Ints
from simlab.cost import StageSeconds
from simlab.draft import Prompt
from simlab.errors import TraceError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm import audit as confirm_audit
from simlab.real_runner.confirm import confirm, log
from simlab.real_runner.confirm.audit import TextLosses, audit, verdicts
from simlab.real_runner.confirm.confirm import finished, measure
from simlab.real_runner.confirm.log import LOG, ConfirmLog, FinishedSequence, finished_run
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import replay_sequence
from simlab.traces.format.documents import JsonFields


def watched(monkeypatch: pytest.MonkeyPatch, most: int | None = None) -> Watch:
    """A decoding that notes what it was asked for, and stops the run after so many timed texts."""

    def note(_models: object, policy: AnyPolicy, prompt: Prompt, _: object, most: int, *_more: object) -> object:
        return type(policy).__name__, prompt.prompt_id, prompt.turn, most

    return Watch(monkeypatch, decode, note, None if most is None else len(LABELS) + most)


def another_token(decoded: DecodedText) -> DecodedText:
    """The least probable kind of fault: one token in the middle is another."""
    text = decoded.text.copy()
    text[len(text) // 2] = (text[len(text) // 2] + 1) % 90 + 5
    return replace(decoded, text=text)


@pytest.mark.parametrize("kind", ["made", "sampled"])
def test_it_measures_what_was_recorded(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    given: Made = request.getfixturevalue(kind)
    options = ConfirmOptions(tmp_path / "out")
    done = confirmed(given, options)
    assert not done.has_failed
    assert done.differences is not None
    # Candidates that nearly tie may change places; the target's tokens do not tie here.
    assert all(difference["kind"] != "text" and difference["gap"] < 1e-4 for difference in done.differences)  # type: ignore[operator]
    texts = {record.index: record for record in given.trace.sequences()}
    assert {record.prompt.turn for record in texts.values()} == {0, 1}
    found = log_of(given, options)
    assert [one.index for one in found] == list(texts)
    policies = {policy.policy_id: policy.policy for policy in parse_policies(["ar", "chain", *confirm_runs.POLICIES])}
    recorded = {one.index: one for one in given.trace.recorded(given.trace.draft_name())}
    for sequence in found:
        for run in sequence.runs:
            assert run.text == tuple(texts[sequence.index].text.tolist())
            assert run.stop_reason == texts[sequence.index].stop_reason
            replayed = replay_sequence(policies[run.policy_id], recorded[sequence.index])
            assert run.totals == replayed or any(difference["kind"] == "round" for difference in run.differences)
            assert run.rounds[:, 4:].sum() / 1e6 == pytest.approx(run.seconds.total_s, rel=0.01, abs=1e-4)


def test_policies_go_forwards_and_backwards_after_a_warm_up(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watched(monkeypatch)
    monkeypatch.setattr(confirm, "WARM_UP_TOKENS", 5)
    setup = setup_of(made, ConfirmOptions(tmp_path / "out", repeats=2))
    log = ConfirmLog(tmp_path / "out", setup.key(), resume=False)
    measure(setup, log)
    names = [type(one.policy).__name__ for one in setup.policies]
    first, timed = watch.asked[: len(names)], watch.asked[len(names) :]
    assert first == [(name, "p0", 0, 5) for name in names]
    turns = [timed[i : i + len(names)] for i in range(0, len(timed), len(names))]
    assert len(turns) == 2 * len(setup.records)
    for index, turn in enumerate(turns):
        repeat, number = divmod(index, len(setup.records))
        prompt = setup.records[number].prompt
        order = names if (repeat + number) % 2 == 0 else names[::-1]
        assert turn == [(name, prompt.prompt_id, prompt.turn, MAX_NEW_TOKENS) for name in order]
    assert [(sequence.repeat, sequence.index) for sequence in finished(log)] == [
        (r, i) for r in (0, 1) for i in range(6)
    ]
    assert all(
        [run.policy_id for run in sequence.runs] == [policy.policy_id for policy in setup.policies]
        for sequence in finished(log)
    )


def test_an_interrupted_run_goes_on_where_it_stopped(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ConfirmOptions(tmp_path / "out")
    watched(monkeypatch, most=2 * len(LABELS) + 1)
    with pytest.raises(KeyboardInterrupt):
        confirmed(made, options)
    path = tmp_path / "out" / LOG
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 2
    path.write_bytes(b"".join(lines) + lines[-1][: len(lines[-1]) // 2])
    with pytest.raises(TraceError, match="add --resume"):
        confirmed(made, options)
    rest = watched(monkeypatch)
    done = confirmed(made, replace(options, resume=True))
    assert not done.has_failed
    assert path.read_bytes().startswith(b"".join(lines))
    timed = rest.asked[len(LABELS) :]
    assert [(prompt_id, turn) for _, prompt_id, turn, _ in timed[:: len(LABELS)]] == [
        ("p1", 0), ("p1", 1), ("p2", 0), ("p2", 1)
    ]  # fmt: skip
    assert [sequence.index for sequence in log_of(made, options)] == list(range(6))


def test_a_finished_run_does_nothing_again(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ConfirmOptions(tmp_path / "out")
    first = confirmed(made, options)
    log = (tmp_path / "out" / LOG).read_bytes()

    def unwanted(*_: object) -> None:
        raise AssertionError("this was done before")

    monkeypatch.setattr(confirm, "decode", unwanted)
    monkeypatch.setattr(confirm_audit, "audit_text", unwanted)
    monkeypatch.setattr(confirm_audit, "measured_bound", unwanted)
    again = confirmed(made, replace(options, resume=True))
    assert again.to_json() == first.to_json()
    assert (tmp_path / "out" / LOG).read_bytes() == log


@pytest.mark.parametrize(
    ("changes", "policies", "said"),
    [
        ({"repeats": 2}, ("ddtree:budget=8",), "--repeats 1; this run has 2"),
        ({"limit": 2}, ("ddtree:budget=8",), "--limit none; this run has 2"),
        ({"dtype": "bfloat16"}, ("ddtree:budget=8",), "--dtype float32; this run has bfloat16"),
        ({}, ("ddtree:budget=4",), "--policy"),
    ],
)
def test_another_run_is_not_gone_on_with(
    made: Made, tmp_path: Path, changes: dict[str, object], policies: tuple[str, ...], said: str
) -> None:
    options = ConfirmOptions(tmp_path / "out")
    ConfirmLog(options.out, setup_of(made, options).key(), resume=False)
    with pytest.raises(TraceError, match="give another --out") as refusal:
        confirmed(made, replace(options, resume=True, **changes), policies)  # type: ignore[arg-type]
    assert said in str(refusal.value)


def test_a_wrong_token_fails(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, decode, "chain", another_token)
    done = confirmed(made, ConfirmOptions(tmp_path / "out", limit=1))
    assert done.has_failed
    by_policy = {policy.policy: policy for policy in done.policies}
    judged = by_policy["chain"].judged
    assert judged is not None
    assert (judged.lossless, judged.worst_gap > judged.bound > 0) == ("FAILED", True)
    assert "prompt 'p0', turn 0: token" in judged.fault
    assert done.verdict.startswith("FAILED: the text of chain is not the target's")
    assert done.won is not None
    assert done.won.first.policy == "ddtree:budget=8"
    assert done.won.rivals == ()


def test_a_text_that_parts_within_the_bound_is_a_tie(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt(monkeypatch, decode, "chain", another_token)
    monkeypatch.setattr(confirm_audit, "measured_bound", lambda *_: 1e6)
    setup = setup_of(made, ConfirmOptions(tmp_path / "out"))
    log = ConfirmLog(tmp_path / "out", setup.key(), resume=False)
    measure(setup, log)
    audit(setup, log)
    found = verdicts(setup, log)
    by_label = {policy.label: found[policy.policy_id] for policy in setup.policies}
    assert [str(by_label[label]) for label in ("autoregressive", "ddtree:budget=8")] == ["exact", "exact"]
    assert by_label["chain"].kind == "ties"
    assert by_label["chain"].num_ties >= len(setup.records)
    parted = [difference for sequence in finished(log) for difference in sequence.runs[1].differences]
    assert {one["kind"] for one in parted} >= {"text"}
    assert all(one["position"] is not None and one["says"] for one in parted)


def test_an_infinite_loss_survives_the_log_and_the_largest_bound_holds(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = iter((1.0, 3.0, 2.0, 0.5, 0.25, 0.125))
    monkeypatch.setattr(confirm_audit, "measured_bound", lambda *_: next(bounds))

    def impossible(_target: Target, prompt: Prompt, text: Ints, _sampling: Sampling) -> TextLosses:
        """Token 1 of one text was masked out."""
        losses, tokens = np.zeros(len(text)), text.copy()
        if (prompt.prompt_id, prompt.turn) == ("p1", 1):
            losses[1], tokens[1] = np.inf, text[1] + 1
        return TextLosses(losses, tokens)

    monkeypatch.setattr(confirm_audit, "audit_text", impossible)
    options = ConfirmOptions(tmp_path / "out")
    for done in (confirmed(made, options), confirmed(made, replace(options, resume=True))):
        judged = [policy.judged for policy in done.policies if policy.judged is not None]
        assert [(findings.lossless, findings.worst_gap, findings.bound) for findings in judged] == [
            ("FAILED", np.inf, 3.0)
        ] * 3
        assert all(
            findings.fault.startswith("prompt 'p1', turn 1: token 1 of the text loses by inf") for findings in judged
        )
        assert json.loads(json.dumps(done.to_json(), allow_nan=False))["rows"][0]["worst_gap"] is None
        assert done.won is None


def test_reduced_precision_is_audited_in_float32(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def noted(name: str, dtype: torch.dtype, device: str, device_map: object) -> Target:
        loaded.append(str(dtype))
        assert device_map is None
        return load_target(name, dtype, device)

    monkeypatch.setattr(confirm_audit, "load_target", noted)
    done = confirmed(made, ConfirmOptions(tmp_path / "out", dtype="bfloat16", repeats=2))
    assert loaded == ["torch.float32"]
    assert done.differences is None
    assert "the trace is float32, from which a bfloat16 text may part" in done.heading
    judged = [policy.judged for policy in done.policies if policy.judged is not None]
    assert all(findings.counts_equal_replay and findings.num_texts == 2 * 6 for findings in judged)
    assert {findings.lossless for findings in judged} & {"FAILED"} == set()
    # Bfloat16 keeps 8 bits of a logit, float32 24.
    assert all(findings.bound > 1e-3 for findings in judged)
    entries = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert len({entry["sequence"] for entry in entries if entry.get("kind") == "bound"}) == 6


def test_what_the_log_keeps_comes_back(made: Made, tmp_path: Path) -> None:
    setup = setup_of(made, ConfirmOptions(tmp_path / "out"))
    policy: NamedPolicy = setup.policies[2]
    decoded = decode(setup.models, policy.policy, setup.records[0].prompt, setup.sampling, MAX_NEW_TOKENS)
    run = finished_run(policy.policy_id, decoded, "a reason", ({"kind": "row", "gap": None, "position": 3},))
    log = ConfirmLog(tmp_path / "out", {"a": 1}, resume=False)
    log.append(confirm.SEQUENCE, FinishedSequence(1, 4, (run,)).to_json())
    for found in (finished(log), finished(ConfirmLog(tmp_path / "out", {"a": 1}, resume=True))):
        ((sequence,), (back,)) = found, found[0].runs
        assert (sequence.repeat, sequence.index) == (1, 4)
        assert (back.text, back.stop_reason, back.seconds) == (run.text, decoded.stop_reason, decoded.seconds)
        assert (back.unequal, back.differences) == ("a reason", run.differences)
        assert np.array_equal(back.rounds, run.rounds)
        assert back.totals == decoded.totals
        assert back.seconds != StageSeconds()


def test_a_log_from_before_channels_were_a_stage_comes_back(made: Made, tmp_path: Path) -> None:
    """A run of eight columns a round, whatever its number of rounds; making channels took 0 s."""
    setup = setup_of(made, ConfirmOptions(tmp_path / "out"))
    policy: NamedPolicy = setup.policies[2]
    decoded = decode(setup.models, policy.policy, setup.records[0].prompt, setup.sampling, MAX_NEW_TOKENS)
    run = finished_run(policy.policy_id, decoded, "", ())
    entry: dict[str, Any] = FinishedSequence(1, 4, (run,)).to_json()
    index = log.ROUND_COLUMNS.index("channel_us")
    (old,) = entry["runs"]
    del old["seconds"]["channel_s"]
    old["rounds"] = [row[:index] + row[index + 1 :] for row in old["rounds"]]
    (back,) = log.finished_sequence(JsonFields(json.loads(json.dumps(entry)), "the log")).runs
    assert back.seconds == run.seconds
    assert np.array_equal(back.rounds, run.rounds)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda lines: [lines[0], b"{no\n", lines[1]], "line 2 is damaged"),
        (lambda lines: [lines[0], b"[1]\n"], "line 2 is damaged (it is no JSON object)"),
        (lambda lines: [lines[0], lines[1].replace(b'"b":2', b'"b":3')], "line 2 was changed"),
        (lambda lines: [lines[0], *lines[2:], lines[1], lines[1]], "line 3 was changed, or a line before it is gone"),
        (lambda lines: [b'{"format":"other"}\n'], "is not a log that this simlab writes"),
        (lambda lines: [lines[0].replace(b'"format_version":2', b'"format_version":3')], "is not a log that this"),
    ],
)
def test_a_damaged_log_is_refused(tmp_path: Path, spoil: Callable[[list[bytes]], list[bytes]], said: str) -> None:
    ConfirmLog(tmp_path, {"a": 1}, resume=False).append("x", {"b": 2})
    path = tmp_path / LOG
    path.write_bytes(b"".join(spoil(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(TraceError, match="give another --out") as refusal:
        ConfirmLog(tmp_path, {"a": 1}, resume=True)
    assert said in str(refusal.value)


def test_half_a_line_gives_way_to_the_next(tmp_path: Path) -> None:
    log = ConfirmLog(tmp_path, {"a": 1}, resume=False)
    log.append("x", {"b": 1})
    path = tmp_path / LOG
    whole = path.read_bytes()
    for cut in (b'{"kind":"x","b', b"{", b'{"kind":"x","b":2}'):
        path.write_bytes(whole + cut)
        log = ConfirmLog(tmp_path, {"a": 1}, resume=True)
        assert [entry.integer("b") for entry in log.entries("x")] == [1]
    log.append("x", {"b": 3})
    kept = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    assert [(line["kind"], line["b"]) for line in kept] == [("x", 1), ("x", 3)]
    path.write_bytes(whole[:10])
    assert list(ConfirmLog(tmp_path, {"a": 2}, resume=True).entries("x")) == []
    assert json.loads(path.read_bytes())["key"] == {"a": 2}
