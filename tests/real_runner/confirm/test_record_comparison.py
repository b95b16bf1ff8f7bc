"""Runs against a record of the same prompts: equal in float32, and every planted difference is listed."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from depth import some

from simlab.arrays import Floats
from simlab.channels import Branches, Pool, Transitions
from simlab.draft import Marginals
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.record_comparison import compare_channels, compare_rows, compare_with_record
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sequence_replay import rounds
from simlab.traces.reader import Trace, open_trace
from simlab.tree import DraftTree

SPECS = ["ar", "chain", "ddtree:budget=4/16/32"]
POLICIES = {named.label: named.policy for named in parse_policies(SPECS)}
TREE = POLICIES["ddtree:budget=32"]
MAX_NEW_TOKENS = 40
CLOSE = 1e-4


@pytest.fixture(scope="module", params=some(["qwen3", "llama"]))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("record")
    tiny_models.make_pair(made, family)
    tiny_models.write_prompts(made / "prompts.jsonl", 4, num_turns=2)
    return made


@pytest.fixture(scope="module")
def models(folder: Path) -> Models:
    return load_models(str(folder / "target"), str(folder / "drafter"), "float32", "cpu")


@pytest.fixture(scope="module", params=some([0.9, 0.0]))
def trace(request: pytest.FixtureRequest, folder: Path) -> Trace:
    out = folder / f"trace-{request.param}"
    options = RecordOptions(
        target=str(folder / "target"),
        draft=str(folder / "drafter"),
        prompts=folder / "prompts.jsonl",
        out=out,
        temperature=request.param,
        seed=3,
        max_new_tokens=MAX_NEW_TOKENS,
        batch_size=4,
        min_width=64,
        exact_budget=32,
    )
    record(options)
    return open_trace(out)


@pytest.fixture(scope="module")
def recorded(trace: Trace) -> RecordedSequence:
    """A long one with accepted tokens on the way."""
    long_ones = (sequence for sequence in trace.recorded(trace.draft_name()) if len(sequence.text) > 20)
    return next(sequence for sequence in long_ones if any(found.path for found in list(rounds(TREE, sequence))[:-2]))


@pytest.fixture(scope="module")
def run(models: Models, trace: Trace, recorded: RecordedSequence) -> DecodedText:
    return ran(models, trace, recorded, TREE)


def ran(models: Models, trace: Trace, recorded: RecordedSequence, policy: AnyPolicy) -> DecodedText:
    return decode(models, policy, recorded.prompt, trace.manifest.sampling, MAX_NEW_TOKENS)


@pytest.mark.parametrize("label", some(list(POLICIES), quick=2))
def test_in_float32_runs_are_the_replay_of_the_record(models: Models, trace: Trace, label: str) -> None:
    policy = POLICIES[label]
    num_rounds = num_rows = 0
    for sequence in trace.recorded(trace.draft_name()):
        found = compare_with_record(policy, ran(models, trace, sequence, policy), sequence)
        assert found.parting is None
        assert found.rounds_equal
        assert all(row["gap"] < CLOSE for row in found.row_differences)
        assert found.largest_size < CLOSE
        assert found.differences() == list(found.row_differences)
        assert found.num_rounds == sum(1 for _ in rounds(policy, sequence))
        num_rounds, num_rows = num_rounds + found.num_rounds, num_rows + found.num_rows
    assert num_rounds > 50
    assert num_rows == (0 if label == "autoregressive" else num_rounds)


def test_in_bfloat16_every_difference_is_listed(models: Models, trace: Trace) -> None:
    half = replace(
        models,
        target=replace(models.target, model=copy.deepcopy(models.target.model).bfloat16()),
        drafter=copy.deepcopy(models.block_drafter).to(torch.bfloat16),
    )
    found = [
        compare_with_record(TREE, ran(half, trace, sequence, TREE), sequence)
        for sequence in trace.recorded(trace.draft_name())
    ]
    assert max(comparison.largest_size for comparison in found) > 0.01
    assert any(comparison.row_differences for comparison in found)
    assert any(comparison.round_differences for comparison in found)
    assert any(comparison.parting for comparison in found)
    for comparison in found:
        known = [diff["gap"] for diff in comparison.row_differences if not math.isnan(diff["gap"])]
        # Two candidates change places only if the log-probability of one of them is off by half their gap.
        assert max(known, default=0.0) <= 2 * comparison.largest_size + CLOSE
        assert all(diff["size"] <= comparison.largest_size for diff in comparison.row_differences)
        parts = (
            comparison.round_differences,
            comparison.row_differences,
            [comparison.parting] if comparison.parting else [],
        )
        assert len(comparison.differences()) == sum(map(len, parts))


def with_row(sequence: RecordedSequence, t: int, change: Callable[[Marginals], Marginals]) -> RecordedSequence:
    """A record with another row at root ``t``, of the same widths."""
    assert sequence.rows is not None
    start = int(sequence.rows.starts()[t])
    row = change(sequence.rows.row(t, start))
    ids, log_probs = sequence.rows.ids.copy(), sequence.rows.log_probs.copy()
    ids[start : start + len(row.ids)], log_probs[start : start + len(row.ids)] = row.ids, row.log_probs
    return replace(sequence, rows=DraftRows(ids, log_probs, sequence.rows.counts, sequence.rows.true_ranks))


def exchanged(depth: int, rank: int) -> Callable[[Marginals], Marginals]:
    """Two neighbours in rank at one depth exchange their ids."""

    def change(row: Marginals) -> Marginals:
        ids, here = row.ids.copy(), int(row.offsets[depth - 1]) + rank
        ids[[here, here + 1]] = ids[[here + 1, here]]
        return replace(row, ids=ids)

    return change


def test_exchanged_ranks_are_listed_with_their_gap(run: DecodedText, recorded: RecordedSequence) -> None:
    t = run.rounds[2].round.position
    wrong = with_row(recorded, t, exchanged(2, 0))
    found = compare_with_record(TREE, run, wrong)
    assert recorded.rows is not None
    log_probs = recorded.rows.row(t, int(recorded.rows.starts()[t])).at(2)[1]
    gap = float(log_probs[0] - log_probs[1])
    assert gap > 0.01
    (row,) = [difference for difference in found.row_differences if difference["gap"] > CLOSE]
    assert (row["position"], row["depth"], row["num_ranks"]) == (t, 2, 2)
    assert row["gap"] == pytest.approx(gap, abs=CLOSE)
    assert row["size"] == pytest.approx(gap, abs=CLOSE)
    assert found.largest_size == pytest.approx(gap, abs=CLOSE)
    says = f"row at {t}, depth 2: 2 ranks differ (gap {row['gap']:.3g}, log-probs by {row['size']:.3g})"
    assert row["says"] == says
    assert row in found.differences()


def test_another_tree_is_listed_with_its_gap(run: DecodedText, recorded: RecordedSequence) -> None:
    """In the run two nodes stand the other way round, as near ties do."""
    index = next(index for index, one in enumerate(run.rounds) if index >= 2)
    round_ = run.rounds[index].round
    t = round_.position
    tokens = round_.tree.tokens.copy()
    siblings = [node for node in range(1, len(tokens)) if round_.tree.parents[node] == 0][:2]
    tokens[siblings] = tokens[siblings[::-1]]
    wrong = list(run.rounds)
    wrong[index] = replace(wrong[index], round=replace(round_, tree=DraftTree(tokens, round_.tree.parents)))
    found = compare_with_record(TREE, replace(run, rounds=tuple(wrong)), recorded)
    (difference,) = found.round_differences
    assert recorded.rows is not None
    log_probs = recorded.rows.row(t, int(recorded.rows.starts()[t])).at(1)[1]
    assert (difference["position"], difference["num_nodes"]) == (t, 2)
    assert difference["gap"] >= float(log_probs[0] - log_probs[1]) - CLOSE
    assert not found.rounds_equal
    assert difference in found.differences()


def test_a_moved_node_is_listed(run: DecodedText, recorded: RecordedSequence) -> None:
    """The same tokens in the same order; the last of them hangs on another parent."""
    round_ = run.rounds[2]
    tree = round_.round.tree
    parents = tree.parents.copy()
    parents[-1] = len(parents) - 2 if parents[-1] != len(parents) - 2 else len(parents) - 3
    moved = replace(round_, round=replace(round_.round, tree=DraftTree(tree.tokens, parents)))
    found = compare_with_record(TREE, replace(run, rounds=(*run.rounds[:2], moved, *run.rounds[3:])), recorded)
    assert [(difference["position"], difference["num_nodes"]) for difference in found.round_differences] == [
        (moved.round.position, 1)
    ]
    assert not found.rounds_equal


def test_a_round_that_accepts_less_is_listed_and_what_follows_is_counted(
    run: DecodedText, recorded: RecordedSequence
) -> None:
    index = next(index for index, one in enumerate(run.rounds) if one.round.path)
    round_ = run.rounds[index]
    less = replace(round_, round=replace(round_.round, path=(), num_committed=1))
    wrong = replace(run, rounds=(*run.rounds[:index], less, *run.rounds[index + 2 :]))
    found = compare_with_record(TREE, wrong, recorded)
    difference = found.round_differences[0]
    assert (difference["position"], difference["num_nodes"], difference["gap"]) == (round_.round.position, 0, 0.0)
    assert (difference["ran_accepted"], difference["recorded_accepted"]) == (0, len(round_.round.path))
    assert found.num_unpaired == (1 if index + 1 < len(run.rounds) else 0)
    assert not found.rounds_equal


@pytest.mark.parametrize("place", [1, 9, 18])
def test_behind_a_parting_nothing_is_compared(
    run: DecodedText, recorded: RecordedSequence, trace: Trace, place: int
) -> None:
    """The record's text is another from ``place`` on, and so are its rows there."""
    text = recorded.text.copy()
    text[place:] = (text[place:] + 7) % tiny_models.VOCAB_SIZE
    other = replace(recorded, text=text)
    for t in range(place, len(text) - 1):
        other = with_row(other, t, exchanged(1, 0))
    gaps = np.arange(len(text), dtype=np.float32)
    found = compare_with_record(TREE, run, other, gaps)
    assert found.parting is not None
    assert (found.parting["position"], found.parting["gap"]) == (place, place)
    assert (found.parting["ran"], found.parting["recorded"]) == (recorded.text[place], text[place])
    assert found.rounds_equal
    assert found.differences()[0] == found.parting
    assert all(row["position"] < place for row in found.row_differences)
    assert found.largest_size < CLOSE
    assert found.num_rounds == found.num_rows == sum(one.round.position < place for one in run.rounds)
    assert math.isnan(compare_with_record(TREE, run, other).parting["gap"])  # type: ignore[index]


def test_what_cannot_be_compared_is_refused(run: DecodedText, recorded: RecordedSequence) -> None:
    other = replace(recorded, prompt=replace(recorded.prompt, token_ids=recorded.prompt.token_ids[:-1]))
    with pytest.raises(ValueError, match="not the same prompt"):
        compare_with_record(TREE, run, other)
    shallow = Marginals(np.array([1], np.int32), np.zeros(1, np.float32), np.array([0, 1], np.int32))
    with pytest.raises(ValueError, match="ahead"):
        compare_rows(0, shallow, row_of([[1], [2]], [[-1.0], [-1.0]]))


def row_of(ids: list[list[int]], log_probs: list[list[float]]) -> Marginals:
    offsets = np.cumsum([0, *map(len, ids)]).astype(np.int32)
    flat: Floats = np.concatenate([np.array(prob, np.float32) for prob in log_probs])
    return Marginals(np.concatenate([np.array(one, np.int32) for one in ids]), flat, offsets)


def test_rows_by_hand() -> None:
    recorded = row_of([[5, 3, 8], [1, 2, 4]], [[-1.0, -2.0, -4.0], [-1.0, -1.5, -3.0]])
    # Depth 1: the last two exchanged. Depth 2: one fewer is held, and the second is not in the record.
    here = row_of([[5, 8, 3], [1, 9]], [[-1.25, -2.5, -2.75], [-1.0, -1.125]])
    (first, second), largest = compare_rows(4, here, recorded)
    assert (first["position"], first["depth"], first["num_ranks"], first["gap"], first["size"]) == (4, 1, 2, 2.0, 1.5)
    assert (second["depth"], second["num_ranks"], second["size"]) == (2, 1, 0.0)
    assert math.isnan(second["gap"])
    assert largest == 1.5
    assert compare_rows(4, recorded, recorded) == ([], 0.0)


# Channels of a round against those of a record: what differs is listed, with its size


def transitions(ids: list[list[int]], log_probs: list[list[float]], previous: tuple[int, ...] = (7, 8)) -> Transitions:
    return Transitions(
        np.array([1, 2], np.int32),
        np.array(previous, np.int32),
        np.array(ids, np.int32),
        np.array(log_probs, np.float32),
    )


IDS, LOG_PROBS = [[7, 8], [1, 2], [3, 4]], [[-0.5, -1.0], [-0.25, -2.0], [-1.0, -1.5]]
ONE = transitions(IDS, LOG_PROBS)


def test_equal_channels_do_not_differ() -> None:
    assert compare_channels(3, "flash", ONE, ONE) == ([], 0.0)


def test_rows_are_paired_by_the_token_above() -> None:
    """Two tokens of the drafter that nearly tie may have changed places, and their rows with them."""
    swapped = transitions([IDS[0], IDS[2], IDS[1]], [LOG_PROBS[0], LOG_PROBS[2], LOG_PROBS[1]], (8, 7))
    assert compare_channels(3, "flash", swapped, ONE) == ([], 0.0)


def test_other_ranks_are_listed_with_their_sizes() -> None:
    ran = transitions([[7, 8], [2, 1], [3, 5]], [[-0.5, -1.125], [-0.25, -0.5], [-1.0, -1.5]])
    differences, largest = compare_channels(3, "flash", ran, ONE)
    assert largest == 1.75
    first, second = differences
    assert (first["position"], first["channel"], first["below"], first["num_ranks"]) == (
        3,
        "flash",
        "depth 2 below 7",
        2,
    )
    assert (first["gap"], first["size"]) == (1.75, 1.75)
    assert (second["below"], second["num_ranks"], second["size"]) == ("depth 2 below 8", 1, 0.0)
    assert math.isnan(second["gap"])
    assert first["says"] == "flash at 3, depth 2 below 7: 2 ranks differ (gap 1.75, log-probs by 1.75)"


def test_log_probs_alone_that_differ_are_no_other_ranks() -> None:
    moved = replace(ONE, log_probs=np.array([[-0.5, -1.0], [-0.25, -2.0], [-1.0, -1.625]], np.float32))
    assert compare_channels(3, "flash", moved, ONE) == ([], 0.125)


def test_a_row_that_only_one_has_differs_in_all_ranks() -> None:
    other = transitions(IDS, LOG_PROBS, (7, 9))
    found = [(channel["below"], channel["num_ranks"]) for channel in compare_channels(3, "flash", other, ONE)[0]]
    assert found == [("depth 2 below 9", 2), ("depth 2 below 8", 2)]


def test_branches_that_a_round_did_not_ask_for_do_not_differ() -> None:
    ids, log_probs = np.array([[5, 6], [7, 8], [9, 1]], np.int32), np.array([[-0.5, -1.0]] * 3, np.float32)
    recorded = Branches(np.array([0, 1], np.int32), 2, ids, log_probs)
    assert compare_channels(0, "d2sd", recorded.only([1]), recorded) == ([], 0.0)


def test_pools_are_paired_by_paths() -> None:
    def pool(tokens: list[int], log_probs: list[float]) -> Pool:
        parents, expanded = np.array([0, 0, 1], np.int32), np.array([True, False, False])
        return Pool(np.array(tokens, np.int32), parents, np.array(log_probs, np.float32), expanded)

    one = pool([5, 6, 9], [-0.5, -1.0, -0.25])
    assert compare_channels(0, "taps", one, one) == ([], 0.0)
    differences, largest = compare_channels(0, "taps", pool([5, 6, 8], [-0.5, -1.5, -0.25]), one)
    assert largest == 0.5
    assert [(each["below"], each["num_ranks"]) for each in differences] == [("the root 5", 1)]
    with pytest.raises(ValueError, match="another kind"):
        compare_channels(0, "taps", one, ONE)
