"""``record`` from end to end on tiny models: from prompts to a replay."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models

from simlab.errors import ModelError, PromptError, TraceError
from simlab.policies.parsing.parse import parse_policies
from simlab.real_runner.drafters import ranked as draft_rows
from simlab.real_runner.record.answers import RecordingProgress
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import Message, read_prompts, render
from simlab.real_runner.record.record import record
from simlab.sequence_replay import hindsight_sequence, replay_sequence
from simlab.traces.inspect import check_trace
from simlab.traces.reader import Trace, open_trace

MAX_NEW_TOKENS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target in ``target/``, a drafter in ``drafter/``, eight prompts of two turns."""
    made = tmp_path_factory.mktemp("record")
    tiny_models.make_pair(made)
    tiny_models.write_prompts(made / "prompts.jsonl", 8, num_turns=2)
    return made


@pytest.fixture
def options(folder: Path, tmp_path: Path) -> RecordOptions:
    return RecordOptions(
        target=str(folder / "target"),
        draft=str(folder / "drafter"),
        prompts=folder / "prompts.jsonl",
        out=tmp_path / "trace",
        max_new_tokens=MAX_NEW_TOKENS,
        batch_size=3,
        min_width=8,
        exact_budget=32,
    )


def taken_again(options: RecordOptions, out: Path, dtype: str | None = None) -> RecordOptions:
    """Another recording, with the texts of the first: nobody writes them, so nothing says how."""
    return replace(
        options,
        prompts=None,
        text_from=str(options.folder),
        out=out,
        dtype=dtype,
        temperature=None,
        top_p=None,
        top_k=None,
        seed=None,
        max_new_tokens=None,
    )


def recorded(options: RecordOptions) -> Trace:
    """Record, prove it whole, open it."""
    check_trace(record(options))
    return open_trace(options.folder)


def texts_of(trace: Trace) -> list[list[int]]:
    return [text.text.tolist() for text in trace.sequences()]


SAMPLED = {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "seed": 5}


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_from_prompts_to_a_replay(options: RecordOptions, sampling: dict[str, float]) -> None:
    trace = recorded(replace(options, **sampling))  # type: ignore[arg-type]
    texts = trace.sequences()
    assert [(text.prompt.prompt_id, text.prompt.turn) for text in texts] == [(f"p{i // 2}", i % 2) for i in range(16)]
    assert {text.prompt.dataset for text in texts} == {"even", "odd"}
    assert {text.stop_reason for text in texts} == {"stop", "length"}
    assert trace.manifest.sampling.temperature == sampling.get("temperature", 0)
    assert trace.manifest.gt_mode == "generated"
    policies = [named.policy for named in parse_policies(["ar", "chain", "ddtree:budget=4/32"])]
    for sequence in trace.recorded(trace.draft_name()):
        totals = [replay_sequence(policy, sequence) for policy in policies]
        assert {total.committed for total in totals} == {len(sequence.text) - 1}
        least = hindsight_sequence(sequence, 32).rounds
        assert all(least <= total.rounds <= len(sequence.text) - 1 for total in totals)


def test_a_text_of_one_token_is_recorded_and_has_no_rounds(options: RecordOptions) -> None:
    trace = recorded(replace(options, max_new_tokens=1))
    assert {len(text.text) for text in trace.sequences()} == {1}
    chain = parse_policies(["chain"])[0].policy
    assert {replay_sequence(chain, sequence).rounds for sequence in trace.recorded("dflash")} == {0}


def test_the_same_seed_gives_the_same_ids_and_another_another_text(options: RecordOptions, tmp_path: Path) -> None:
    first, same, other = (
        recorded(replace(options, out=tmp_path / name, seed=seed, temperature=0.9))
        for name, seed in (("first", 5), ("same", 5), ("other", 6))
    )
    assert (first.text_id, first.draft_ids) == (same.text_id, same.draft_ids)
    assert texts_of(first) != texts_of(other)
    assert first.text_id != other.text_id


def test_batches_change_nothing_but_the_shards(options: RecordOptions, tmp_path: Path) -> None:
    trace, other = (
        recorded(replace(options, out=tmp_path / str(size), batch_size=size, temperature=0.9)) for size in (1, 8)
    )
    assert texts_of(trace) == texts_of(other)
    assert (trace.text_id, trace.draft_ids) == (other.text_id, other.draft_ids)
    assert (len(trace.manifest.held().shards), other.manifest.held().shards) == (8, (16,))


def test_a_second_turn_contains_the_targets_own_first(folder: Path, options: RecordOptions) -> None:
    texts = recorded(options).sequences()
    tokenizer = tiny_models.tiny_tokenizer()
    for prompt in read_prompts(folder / "prompts.jsonl"):
        first, second = (text for text in texts if text.prompt.prompt_id == prompt.prompt_id)
        render_turn = tokenizer.decode(second.prompt.token_ids.tolist())
        answer = tokenizer.decode(first.text.tolist(), skip_special_tokens=True)
        assert isinstance(render_turn, str)
        assert f"<|im_start|>assistant\n{answer}<|im_end|>\n<|im_start|>user\n{prompt.later_turns[0]}" in render_turn
        assert first.prompt.token_ids.tolist() == render(tokenizer, prompt.conversation, {})


def test_greedy_text_has_the_top_token_and_its_gap(options: RecordOptions) -> None:
    trace = recorded(options)
    for index, rows in trace.token_rows():
        text = trace.sequences()[index].text
        clear = rows.decision_gap > 1e-3
        assert clear.mean() > 0.9
        assert (rows.top_ids[:, 0] == text)[clear].all()
        assert np.allclose(rows.top_log_probs[:, 0], rows.log_prob, atol=1e-3)


def test_given_text_is_cut_after_its_first_stop_token(folder: Path, options: RecordOptions, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": "ids", "prompt_token_ids": [9, 10, 11], "token_ids": [20, 21, 2, 30, 31]},
        {"id": "open", "prompt": "hello", "completion": "made elsewhere"},
        {"id": "ended", "prompt": "hello", "completion": "made", "finish_reason": "stop"},
    ]
    path = tmp_path / "given.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = recorded(replace(options, prompts=None, completions=path))
    ids, opened, ended = trace.sequences()
    assert trace.manifest.gt_mode == "given"
    assert (ids.text.tolist(), ids.stop_reason, ids.prompt.token_ids.tolist()) == ([20, 21, 2], "stop", [9, 10, 11])
    encode = tiny_models.tiny_tokenizer().encode
    assert (opened.text.tolist(), opened.stop_reason) == (encode("made elsewhere"), "length")
    assert (ended.text.tolist(), ended.stop_reason) == ([*encode("made"), 2], "stop")


def test_ids_of_another_vocabulary_are_refused(options: RecordOptions, tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    path.write_text(json.dumps({"id": "x", "prompt_token_ids": [9], "token_ids": [101]}))
    with pytest.raises(PromptError, match="'x' holds token 101; .* has ids 0 to 100"):
        record(replace(options, prompts=None, completions=path))


def test_a_text_is_told_again_for_another_drafter(folder: Path, options: RecordOptions, tmp_path: Path) -> None:
    earlier = recorded(replace(options, seed=7, temperature=0.9, top_k=30))
    tiny_models.make_drafter(folder / "other", block_size=8, seed=9)
    again = taken_again(options, tmp_path / "again")
    same = recorded(again)
    other = recorded(replace(again, draft=str(folder / "other"), out=tmp_path / "other", batch_size=2))
    assert (same.text_id, same.draft_ids) == (earlier.text_id, earlier.draft_ids)
    assert other.text_id == earlier.text_id
    assert other.draft_ids != earlier.draft_ids
    assert other.manifest.draft_sets["dflash"].depth == 7
    for name in ("sampling", "gt_mode", "prompts_digest", "max_new_tokens", "stop_token_ids"):
        assert getattr(other.manifest, name) == getattr(earlier.manifest, name)


def test_a_text_of_another_target_is_refused(folder: Path, options: RecordOptions, tmp_path: Path) -> None:
    record(options)
    tiny_models.make_target(folder / "stranger", seed=3)
    again = taken_again(options, tmp_path / "again")
    with pytest.raises(TraceError, match="the text was recorded with target .*; use the same target"):
        record(replace(again, target=str(folder / "stranger")))
    assert not again.folder.exists()


def test_rows_of_another_dtype_are_refused(options: RecordOptions, tmp_path: Path) -> None:
    record(options)
    again = taken_again(options, tmp_path / "again", "bfloat16")
    with pytest.raises(TraceError, match="recorded in float32, .* in bfloat16; give --dtype float32"):
        record(again)
    assert not again.folder.exists()


def test_what_runs_past_the_targets_positions_is_refused_first(
    folder: Path, options: RecordOptions, tmp_path: Path
) -> None:
    """The last prompt that fits, with its answer and a block, is recorded; one token more is not."""
    small = tiny_models.make_target(tmp_path / "small", max_positions=120)
    around = len(render(tiny_models.tiny_tokenizer(), (Message("user", "x"),), {})) - 1
    fits = 120 - MAX_NEW_TOKENS - 3 - around

    def asking(length: int) -> RecordOptions:
        rows = [{"id": "short", "turns": ["hi"]}, {"id": "long", "turns": ["x" * length]}]
        path = tmp_path / f"{length}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return replace(options, target=str(small), prompts=path, batch_size=1, out=tmp_path / f"trace-{length}")

    recorded(asking(fits))
    with pytest.raises(ModelError, match="prompt 'long' has 94 tokens; .* needs 121 positions, and .* has 120"):
        record(asking(fits + 1))
    assert not (tmp_path / f"trace-{fits + 1}").exists()


def test_a_later_turn_counts_with_the_longest_answers(options: RecordOptions, tmp_path: Path) -> None:
    small = tiny_models.make_target(tmp_path / "small", max_positions=130)
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"id": "two", "turns": ["hi", "and?"]}))
    asking = replace(options, target=str(small), prompts=path, max_new_tokens=8)
    assert len(recorded(asking).sequences()) == 2
    longer = replace(asking, max_new_tokens=48, out=tmp_path / "longer")
    with pytest.raises(ModelError, match="prompt 'two' has .* tokens in 2 turns; with 96 for the target's own words"):
        record(longer)
    assert not longer.folder.exists()


def test_a_complete_recording_is_not_made_again(options: RecordOptions) -> None:
    record(options)
    before = {path.name: path.stat().st_mtime_ns for path in options.folder.iterdir()}
    record(replace(options, resume=True))
    assert before == {path.name: path.stat().st_mtime_ns for path in options.folder.iterdir()}
    with pytest.raises(TraceError, match="holds a complete trace"):
        record(options)


def test_a_long_text_is_drafted_in_smaller_passes(
    options: RecordOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [draft_rows.blocks_per_pass(32, 16, num_tokens) for num_tokens in (500, 8176, 8177, 40_000, 10**9)]
    assert sizes == [64, 64, 63, 13, 1]
    whole = recorded(replace(options, limit=2))
    monkeypatch.setattr(draft_rows, "_ATTENTION_WEIGHTS_PER_PASS", 1)
    singly = recorded(replace(options, limit=2, out=tmp_path / "singly"))
    for one, other in zip(whole.records(["dflash"]), singly.records(["dflash"]), strict=True):
        ours, theirs = one.drafts["dflash"], other.drafts["dflash"]
        np.testing.assert_allclose(ours.entropy, theirs.entropy, atol=1e-4)
        np.testing.assert_allclose(ours.true_log_prob[ours.valid], theirs.true_log_prob[ours.valid], atol=1e-4)


# The bar of a recording moves from the first token on, and ends at the number of texts


def test_decoded_tokens_count_in_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # elsewhere there is no bar
    with RecordingProgress("recording", 4, num_done=1, token_worth=0.5 / 10) as progress:
        seen = [progress.done]
        for _ in range(8):
            progress.decoded(3)
            seen.append(progress.done)
        for length in (10, 6, 8):
            progress.recorded(length)
            seen.append(progress.done)
    assert seen[0] == 1
    assert seen[8] == pytest.approx(1 + 24 * 0.05)
    assert seen == sorted(seen)
    assert (seen[-1], progress.positions) == (4, 24)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("recording: 100%|")
    assert "4/4 texts, " in last
