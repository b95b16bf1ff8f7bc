"""Texts that go through both models together have the rows of each alone, and the host waits a few times for all."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from depth import some
from hypothesis import given
from hypothesis import strategies as st
from recorded_texts import record_options
from watched_operations import Watched

from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.grid import STEPS_PER_NAT
from simlab.real_runner.drafters import candidate_keys, ranked
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.execution.text_passes import TextPasses
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.record import texts
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.real_runner.record.sources import AnsweredTurn
from simlab.sampling.choice import Sampling
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.reader import open_trace

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(0.8, 20, 0.9, 3)
LENGTHS = (30, 1, 2, 70, 41, 9)
EXACT = ("context_length", "counts", "ids", "true_rank", "valid", "top_ids")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A tiny pair in float64, so that the shapes of passes change no number that is looked at."""
    target, drafter = tiny_models.make_pair(tmp_path_factory.mktemp("texts"))
    made = load_models(str(target), str(drafter), "float32", "cpu")
    made.target.model.double()
    made.block_drafter.double()
    return made


def with_own_vocabulary(models: Models) -> Models:
    """A drafter whose head has every other token of the target."""
    ids = np.arange(0, models.target.vocab_size, 2, dtype=np.int32)
    drafter = type(models.block_drafter)(replace(models.block_drafter.config, draft_vocab_size=len(ids)))
    drafter.load_state_dict(models.block_drafter.state_dict())
    drafter.vocabulary = DraftVocabulary(ids, models.target.vocab_size)
    drafter.lm_head = torch.nn.Linear(drafter.config.hidden_size, len(ids), bias=False)
    torch.nn.init.normal_(drafter.lm_head.weight, generator=torch.Generator().manual_seed(1))
    return replace(models, drafter=drafter.double().eval().requires_grad_(False))


def answered(lengths: Sequence[int]) -> list[AnsweredTurn]:
    random = np.random.default_rng(len(lengths))

    def drawn(num: int) -> np.ndarray:
        return random.integers(5, 100, num).astype(np.int32)

    return [
        AnsweredTurn(Prompt(f"p{number}", "d", 0, 0, drawn(3 + number % 4)), drawn(length), "length")
        for number, length in enumerate(lengths)
    ]


def assert_same(found: SequenceRecord, wanted: SequenceRecord) -> None:
    """All that is a choice is equal, and numbers by a step of the grid, or as float32 rounds them."""
    named = ((one.index, one.seed, one.prompt.prompt_id, one.prompt.turn, one.stop_reason) for one in (found, wanted))
    assert len(set(named)) == 1
    (drafted,), (alone,) = found.drafts.values(), wanted.drafts.values()
    assert found.tokens is not None
    for one, other in ((found.tokens, wanted.tokens), (drafted, alone)):
        for name in (field.name for field in fields(one)):
            mine, theirs = getattr(one, name), getattr(other, name)
            if name == "true_log_prob":
                # Nobody looks at those of tokens that the drafter has not.
                mine, theirs = (np.where(drafted.true_rank < 0, 0, given_ones) for given_ones in (mine, theirs))
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            if name in EXACT:
                np.testing.assert_array_equal(mine, theirs)
            elif name == "outside_log_mass":
                np.testing.assert_allclose(np.exp(mine), np.exp(theirs), atol=1e-14, rtol=1e-5)
            else:
                np.testing.assert_allclose(mine, theirs, atol=1 / STEPS_PER_NAT, rtol=1e-5)


@pytest.mark.parametrize("own", some([False, True]))
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("room", some([40, 4096, 170]))
def test_texts_together_have_the_rows_of_each_alone(
    models: Models, sampling: Sampling, room: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "TOKENS_PER_PASS", room)
    monkeypatch.setattr(ranked, "_BLOCKS_PER_PASS", 7)
    models = with_own_vocabulary(models) if own else models
    options, given_ones = record_options(sampling, 80), answered(LENGTHS)
    found = dict(texts.together(options, models, 5, given_ones))
    assert sorted(found) == list(range(len(LENGTHS)))
    for number, one in enumerate(given_ones):
        assert_same(found[number], texts.record_text(options, models, 5 + number, one))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_recording_as_a_gpu_makes_it(tmp_path: Path, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From prompts of two turns to shards: decoded by passes of fixed sizes, several texts in a pass."""
    target, drafter = tiny_models.make_pair(tmp_path)
    options = RecordOptions(
        str(target),
        str(drafter),
        out=tmp_path / "alone",
        prompts=tiny_models.write_prompts(tmp_path / "prompts.jsonl", 8, num_turns=2),
        temperature=temperature,
        max_new_tokens=24,
        batch_size=5,
        min_width=8,
        exact_budget=32,
    )
    alone = open_trace(record(options))
    monkeypatch.setattr(texts, "_one_by_one", texts.together)
    monkeypatch.setattr("simlab.real_runner.models.text_passes", TextPasses)
    found = open_trace(record(replace(options, out=tmp_path / "together")))
    for one, other in zip(*(trace.records(["dflash"]) for trace in (found, alone)), strict=True):
        np.testing.assert_array_equal(one.text, other.text)
        assert_same(one, other)


def test_laws_that_are_there_already_are_kept(models: Models) -> None:
    options, (one, other) = record_options(GREEDY, 80), answered((8, 9))
    laws = texts.record_text(options, models, 0, one).tokens
    (_, first), (_, second) = sorted(texts.together(options, models, 0, [replace(one, tokens=laws), other]))
    assert first.tokens is laws
    assert_same(second, texts.record_text(options, models, 1, other))


@pytest.mark.parametrize("layer", ["target", "drafter"])
def test_what_is_no_law_is_refused(models: Models, layer: str, tmp_path: Path) -> None:
    target, drafter = tiny_models.make_pair(tmp_path)
    broken = load_models(str(target), str(drafter), "float32", "cpu")
    final = broken.target.model.get_decoder().norm if layer == "target" else broken.block_drafter.norm
    with torch.no_grad():
        final.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="are not numbers"):
        list(texts.together(record_options(GREEDY, 80), broken, 0, answered((8, 9))))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 60))
def test_a_group_fills_its_pass_and_no_more(lengths: list[int], room: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(texts, "TOKENS_PER_PASS", room)
        groups = list(texts.groups_of(lengths))
    assert sorted(number for group in groups for number in group) == list(range(len(lengths)))
    for group, following in zip(groups, [*groups[1:], []], strict=True):
        longest = max(lengths[number] for number in group)
        assert len(group) == 1 or len(group) * longest <= room
        assert not following or (len(group) + 1) * longest > room


def waits_of(counts: Counter[str]) -> Watched:
    """Counts what a device would have to be waited for: numbers and shapes that the host asks of it."""

    def seen(name: str, given: tuple[Any, ...], _made: object) -> None:
        masks = [one for one in (given[1] if name in {"index", "index_put_"} else []) if one is not None]
        shapes = name in {"_local_scalar_dense", "nonzero", "masked_select", "repeat_interleave", "_unique2"}
        if shapes or any(one.dtype == torch.bool for one in masks):
            counts[name] += 1

    return Watched(seen)


def noted(notes: list[str], name: str, call: Callable[..., object]) -> Callable[..., object]:
    """The call, which notes its name first."""

    def run(*given_to: object) -> object:
        notes.append(name)
        return call(*given_to)

    return run


def test_the_host_waits_three_times_for_the_texts_of_a_pass(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    doors, waits = list[str](), Counter[str]()
    monkeypatch.setattr(candidate_keys.OnTheWay, "arrays", noted(doors, "waited", candidate_keys.OnTheWay.arrays))
    monkeypatch.setattr(texts, "TOKENS_PER_PASS", 170)
    with waits_of(waits):
        found = list(texts.together(record_options(GREEDY, 80), models, 0, answered(LENGTHS * 3)))
    num_groups = len(list(texts.groups_of([len(one.text) + len(one.prompt.token_ids) for _, one in found])))
    assert len(found) == 18
    assert num_groups < 10
    assert len(doors) == 3 * num_groups
    assert not waits


def test_the_next_texts_are_launched_before_the_host_waits(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()
    monkeypatch.setattr(texts, "launched_columns", noted(order, "launched", ranked.launched_columns))
    monkeypatch.setattr(candidate_keys.OnTheWay, "arrays", noted(order, "waited", candidate_keys.OnTheWay.arrays))
    monkeypatch.setattr(texts, "TOKENS_PER_PASS", 1)
    list(texts.together(record_options(GREEDY, 80), models, 0, answered((8, 9, 10))))
    assert order == ["launched"] * 2 + ["waited"] * 3 + ["launched"] + ["waited"] * 6
