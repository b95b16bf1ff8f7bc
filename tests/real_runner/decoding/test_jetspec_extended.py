"""JetSpec's extension in the runner: lossless, run where it is asked for alone, own rows replay, those of a record."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import random_trees
import torch
from lossless_checks import check_rounds, check_text
from random_redrafts import redraft_producer, second_drafter

from simlab.arrays import Ints
from simlab.channels import Branches, BranchRows
from simlab.errors import MissingChannelError, ModelError
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.jetspec_extended import JetSpecExtended
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import draft_columns
from simlab.real_runner.drafters.text_context import TextContext
from simlab.real_runner.heads import redraft_producer as producer_module
from simlab.real_runner.heads.producer import StagedProducer
from simlab.real_runner.heads.redrafts import redrafts
from simlab.real_runner.models import Models
from simlab.real_runner.record.record import forward_text
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import rounds

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 1)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
VOCAB_SIZE, MOST, DEEPER, CLOSE = 12, 24, 3, 1e-3
SOMETIMES = JetSpecExtended(60, width=2, gap=0.9, length=DEEPER)


def models_of(seed: int = 0, family: str = "qwen3") -> Models:
    """A drafter, and a second one of a longer block that makes the branch behind the whole chain alone."""
    models = random_trees.random_models(family, seed, VOCAB_SIZE, torch.float32)
    second = second_drafter(models.target, seed, models.drafter.config.block_size + DEEPER)
    made = redraft_producer(models, second.to(models.target.device), top_k=3)
    return replace(models, channels={"extension": replace(made, reach=replace(made.reach, whole=1))})


def long_text(models: Models, policy: AnyPolicy, sampling: Sampling = GREEDY, seed: int = 5) -> DecodedText:
    endless = replace(models, target=replace(models.target, stop_token_ids=()))
    return decode(endless, policy, random_trees.random_prompt(np.random.default_rng(seed), VOCAB_SIZE), sampling, MOST)


@SAMPLINGS
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_the_text_is_that_of_plain_decoding_and_own_rows_replay(family: str, sampling: Sampling) -> None:
    asked = [0, 0]
    for seed in range(3):
        models = models_of(seed, family)
        prompt = random_trees.random_prompt(np.random.default_rng(seed), VOCAB_SIZE)
        plain = random_trees.plain_text(models.target, prompt, sampling, MOST)
        for policy in (SOMETIMES, JetSpecExtended(60, 2, gap=-1.0, length=DEEPER), JetSpecExtended(9, 2, gap=0.7)):
            decoded = decode(models, policy, prompt, sampling, MOST)
            check_text(decoded, plain, models, MOST)
            check_rounds(decoded, policy)
            assert first_unequal(policy, decoded) is None
            own = own_sequence(decoded) if decoded.rounds else None
            replays = rounds(policy, own) if own else ()
            for ran, replayed in zip(decoded.rounds, replays, strict=True):
                branches = ran.channels["extension"]
                assert isinstance(branches, Branches)
                assert len(branches.lengths) == replayed.num_asked
                asked[len(branches.lengths)] += 1
    assert min(asked) > 3


def test_a_round_that_asks_for_nothing_runs_nothing_and_projects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the second pass was run")

    models, never = models_of(1), JetSpecExtended(60, width=2, gap=1e6, length=DEEPER)
    with monkeypatch.context() as patched:
        patched.setattr(producer_module, "redrafts", refuse)
        long_text(models, never)
        with pytest.raises(AssertionError, match="the second pass was run"):
            long_text(models, replace(never, gap=-1.0))
    second, projected, whole = models.channels["extension"].drafter, list[int](), TextContext.context  # type: ignore[union-attr]

    def counted(self: TextContext) -> object:
        if self._drafter is second:
            projected.append(1)
        return whole(self)

    monkeypatch.setattr(TextContext, "context", counted)
    long_text(models, never)
    assert not projected
    decoded = long_text(models, SOMETIMES)
    passes = [ran.channels["extension"] for ran in decoded.rounds]
    assert len(projected) == sum(len(one.lengths) for one in passes if isinstance(one, Branches))


@torch.inference_mode()
def recorded_of(models: Models, decoded: DecodedText) -> RecordedSequence:
    """The same text as a recording has it: rows, and what stands behind the whole chain at every root."""
    tokens = torch.from_numpy(np.concatenate([decoded.prompt.token_ids, decoded.text]).astype(np.int64))
    producer, drafter, start = models.channels["extension"], models.drafter, len(decoded.prompt.token_ids)
    assert isinstance(producer, StagedProducer)
    assert isinstance(drafter, DFlashDrafter)
    features = forward_text(models.target, tokens, drafter.config.target_layer_ids)[0]
    drafts = draft_columns(drafter, models.target, features, tokens, start, KeptCandidates(VOCAB_SIZE, 8))
    rows = DraftRows(drafts.ids, drafts.log_probs, drafts.counts, drafts.true_rank)
    branches = producer.columns(forward_text(models.target, tokens, producer.taps)[0], tokens, rows).rows
    return RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, rows, {"extension": branches})


@SAMPLINGS
def test_the_branch_of_a_round_is_that_of_a_record(sampling: Sampling) -> None:
    for seed in range(3):
        models = models_of(seed)
        decoded = long_text(models, SOMETIMES, sampling)
        recorded = recorded_of(models, decoded)
        rows, depth = recorded.channels["extension"], models.drafter.config.depth
        assert isinstance(rows, BranchRows)
        assert (rows.lengths == depth).all()
        assert rows.lengths.shape == (MOST - 1, 1)
        found = compare_with_record(SOMETIMES, decoded, recorded)
        assert found.num_channel_rows == len(decoded.rounds)
        assert found.largest_channel_size <= CLOSE
        # Nodes whose scores differ in the last bits may change places.
        assert found.num_unpaired == 0
        assert all(one.gap <= CLOSE for one in found.round_differences)


def test_a_chain_that_is_one_token_off_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    models, whole = models_of(2), cast(Callable[..., object], redrafts)

    def shifted(*given: object) -> object:
        chains: Ints = given[5]  # type: ignore[assignment]
        return whole(*given[:5], np.roll(chains, 1, axis=1), *given[6:])

    policy = replace(SOMETIMES, gap=-1.0)
    monkeypatch.setattr(producer_module, "redrafts", shifted)
    decoded = long_text(models, policy)
    monkeypatch.undo()
    assert compare_with_record(policy, decoded, recorded_of(models, decoded)).largest_channel_size > CLOSE


def test_what_is_not_made_is_refused() -> None:
    models = models_of()
    with pytest.raises(MissingChannelError, match="makes the one behind the whole chain alone; leave whole=1 out"):
        long_text(models, D2SD(40, branches=1, channel="extension"))
    made = models.channels["extension"]
    assert isinstance(made, producer_module.RedraftProducer)
    every = replace(models, channels={"extension": replace(made, reach=replace(made.reach, whole=0))})
    with pytest.raises(MissingChannelError, match="with whole 1, and its network makes it with no such setting"):
        long_text(every, SOMETIMES)
    with pytest.raises(ModelError, match="says nothing behind a whole chain of 7; .*block=15"):
        replace(made.reach, depth=7).lengths(7)
    with pytest.raises(ValueError, match="whole=1 is the branch behind the whole chain alone"):
        replace(made.reach, whole=2)
