"""Schedules that are watched, hindsight, and figures of them: against plain counting."""

import math
from typing import Any

import numpy as np
import pytest
from depth import examples
from engine_oracles import seconds_of
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import MadeUpArtefacts
from served_oracle import DEPTH, cost_table, random_texts

from simlab.analysis.engine_rules import ScheduleSums, calibrations, hindsight, prompts_of, watched
from simlab.cost import GRID_STAGES
from simlab.policies.composition import Composition
from simlab.policies.engine.lock_step import ServedRounds, TreeChoice, rounds_of_policy, serve, with_filler_requests
from simlab.policies.named.served.vllm_adaptive import VllmAdaptive
from simlab.policies.rules import serving as acceptance
from simlab.recorded import RecordedTexts


def rule() -> Composition:
    return VllmAdaptive(padded=False).compose(MadeUpArtefacts(cost_table(DEPTH)))


def served(texts: RecordedTexts, batch: int, choose: TreeChoice) -> ServedRounds:
    return serve(texts, batch, choose, with_filler_requests(len(texts.sequences)))


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 1 << 20), num=st.integers(1, 6), batch=st.integers(1, 4))
def test_watching_changes_nothing(seed: int, num: int, batch: int) -> None:
    texts = random_texts(seed, num, coarse=False)
    plain = served(texts, batch, rounds_of_policy(rule(), texts))
    choose, seen = watched(rule(), texts, all_labels=False)
    found = served(texts, batch, choose)
    assert found.roots.tolist() == plain.roots.tolist()
    assert found.num_drafted.tolist() == plain.num_drafted.tolist()
    if seen:
        roots, _, _, admitted, follows, _ = map(np.concatenate, zip(*seen, strict=True))
        assert roots.tolist() == found.roots.tolist()
        assert admitted.tolist() == found.num_drafted.tolist()
        assert np.minimum(follows, admitted).tolist() == found.num_accepted.tolist()


def test_all_labels_are_more_than_a_server_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told of all labels the estimator learns something else."""
    monkeypatch.setattr(acceptance, "REFIT_INTERVAL", 2)
    texts = random_texts(5, 6, coarse=False)
    seen = []
    for all_labels in (False, True):
        choose, one = watched(rule(), texts, all_labels)
        served(texts, 3, choose)
        seen.append(one)
    assert seen[0][-1][1].tolist() != seen[1][-1][1].tolist()


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 1 << 20), num=st.integers(1, 6), batch=st.integers(1, 4))
def test_hindsight_takes_the_best_number_of_accepted_tokens(seed: int, num: int, batch: int) -> None:
    texts, cost = random_texts(seed, num, coarse=False), cost_table(DEPTH)
    choose = hindsight(texts, cost)
    roots = texts.roots.firsts[:-1][np.diff(texts.roots.firsts) > 0]
    if not len(roots):
        return
    drafted, accepted = choose(roots, np.arange(len(roots)))
    assert drafted.tolist() == accepted.tolist()
    true = texts.roots.true_ranks[roots]
    follows = [next((d for d in range(DEPTH) if row[d] != 0), DEPTH) for row in true.tolist()]
    context = round(float(texts.contexts[roots].mean()))
    rates = [(len(roots) + n) / seconds_of(cost, GRID_STAGES, context, n / len(roots)) for n in range(sum(follows) + 1)]
    assert rates[drafted.sum()] == pytest.approx(max(rates), rel=1e-12)
    assert all(one <= most for one, most in zip(drafted.tolist(), follows, strict=True))


def test_calibration_is_counted_position_by_position() -> None:
    texts = random_texts(8, 4, coarse=False)
    roots = np.flatnonzero(np.ones(len(texts.roots.token_indices)))
    generator = np.random.default_rng(1)
    num = len(roots)
    known = (texts.roots.firsts[np.searchsorted(texts.roots.firsts, roots, side="right")] - roots).clip(max=DEPTH)
    follows = np.minimum(generator.integers(0, DEPTH + 1, num), known)
    admitted, believed = generator.integers(0, DEPTH + 1, num), generator.random((num, DEPTH)).astype(np.float32)
    seen = [(roots, believed, believed.astype(np.float64), admitted, follows, known)]
    for index, found in enumerate(calibrations("one", seen, texts, own=True)):
        row: Any = found
        rows = [n for n in range(num) if follows[n] >= index and known[n] > index]
        labelled = [n for n in rows if admitted[n] > index]
        assert (row["position"], row["drafts"], row["labels"]) == (index + 1, len(rows), len(labelled))
        assert math.isclose(row["accepted"], sum(follows[n] > index for n in rows) / len(rows))
        assert math.isclose(row["believed"], sum(float(believed[n, index]) for n in rows) / len(rows))
        assert math.isclose(row["bias"], row["believed"] - row["accepted"])
        assert row["bias_low"] <= row["bias"] <= row["bias_high"]
        assert math.isclose(row["labels_accepted"], sum(follows[n] > index for n in labelled) / len(labelled))


def test_what_is_missing_to_a_faster_schedule() -> None:
    tokens, rounds = np.array([10, 20, 30]), np.array([5, 10, 15])
    slow = ScheduleSums("slow", tokens, rounds, rounds, np.array([2.0, 4.0, 6.0]))
    fast = ScheduleSums("fast", tokens, rounds, rounds, np.array([1.0, 2.0, 3.0]))
    missing, interval = slow.behind(fast)
    assert missing == 0.5
    assert interval.low == pytest.approx(0.5)
    row = slow.row(2, fast, slow)
    assert (row["behind_hindsight"], row["behind_joint_throughput"], row["acceptance_length"]) == (0.5, 0.0, 2.0)
    assert row["drafted_per_round"] == 1.0


def test_texts_of_one_prompt_are_one() -> None:
    texts = random_texts(0, 3, coarse=False)
    assert prompts_of(texts).tolist() == [0, 1, 2]
