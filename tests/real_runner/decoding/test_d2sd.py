"""D²SD in the runner: lossless, only what a round asks for is made, and own rows replay; they are those of a record."""

from dataclasses import replace

import numpy as np
import pytest
import random_trees
import torch
from lossless_checks import check_rounds, check_text
from random_redrafts import random_redrafts

from simlab.arrays import Ints
from simlab.channels import Branches, BranchRows
from simlab.draft import Draft, Prompt
from simlab.errors import MissingChannelError
from simlab.policies.named.chain import Chain
from simlab.policies.named.d2sd import D2SD
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import draft_columns
from simlab.real_runner.heads.producer import Drafted, StagedProducer
from simlab.real_runner.heads.redraft_producer import RedraftProducer, RedraftText
from simlab.real_runner.models import Models
from simlab.real_runner.record.record import forward_text
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sampling.choice import Sampling

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 1)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
VOCAB_SIZE, MOST = 12, 24
CLOSE = 1e-3
POLICIES = [D2SD(40, branches=2), D2SD(12, branches=3, exclude=True), D2SD(14, branches=4, width=3)]


def models_of(seed: int = 0, family: str = "qwen3", deeper: int = 0, dtype: torch.dtype = torch.float32) -> Models:
    models = random_trees.random_models(family, seed, VOCAB_SIZE, dtype)
    return replace(models, channels={"d2sd": random_redrafts(models, seed, top_k=5, deeper=deeper)})


def prompts_for(seed: int, num: int = 2) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [random_trees.random_prompt(generator, VOCAB_SIZE) for _ in range(num)]


def long_text(models: Models, policy: AnyPolicy, sampling: Sampling = GREEDY) -> DecodedText:
    endless = replace(models, target=replace(models.target, stop_token_ids=()))
    return decode(endless, policy, prompts_for(5)[0], sampling, MOST)


@SAMPLINGS
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_the_text_is_that_of_plain_decoding_and_own_rows_replay(family: str, sampling: Sampling) -> None:
    accepted = 0
    for seed in range(3):
        models = models_of(seed, family, deeper=seed)
        for prompt in prompts_for(seed):
            plain = random_trees.plain_text(models.target, prompt, sampling, MOST)
            for policy in (*POLICIES, D2SD(40, branches=2, whole=True)):
                decoded = decode(models, policy, prompt, sampling, MOST)
                check_text(decoded, plain, models, MOST)
                check_rounds(decoded, policy)
                assert first_unequal(policy, decoded) is None
                accepted += decoded.totals.accepted
    assert accepted > 10


def test_a_round_makes_what_it_asks_for() -> None:
    models = models_of(1)
    decoded = long_text(models, D2SD(40, branches=2))
    for ran in decoded.rounds:
        seen = ran.channels["d2sd"]
        assert isinstance(seen, Branches)
        assert len(seen.lengths) == 2
        assert seen.ids.shape[1] == 1
    rows = own_sequence(decoded).channels["d2sd"]
    assert isinstance(rows, BranchRows)
    visited = {ran.round.position for ran in decoded.rounds}
    assert [(one >= 0).any() for one in rows.lengths] == [t in visited for t in range(MOST - 1)]


def test_without_a_branch_it_is_the_chain_and_no_second_drafter_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the second drafter was run")

    models = models_of(1)
    monkeypatch.setattr(RedraftText, "at_root", refuse)
    ours, chain = long_text(models, D2SD(40, branches=0)), long_text(models, Chain())
    assert [ran.round.tree.tokens.tolist() for ran in ours.rounds] == [
        ran.round.tree.tokens.tolist() for ran in chain.rounds
    ]
    with pytest.raises(AssertionError, match="the second drafter was run"):
        long_text(models, D2SD(40, branches=1))


@torch.inference_mode()
def recorded_of(models: Models, decoded: DecodedText) -> RecordedSequence:
    """The same text as a recording has it: rows and every branch at every root."""
    tokens = torch.from_numpy(np.concatenate([decoded.prompt.token_ids, decoded.text]).astype(np.int64))
    producer, drafter, start = models.channels["d2sd"], models.block_drafter, len(decoded.prompt.token_ids)
    assert isinstance(producer, StagedProducer)
    features = forward_text(models.target, tokens, drafter.config.target_layer_ids)[0]
    drafts = draft_columns(drafter, models.target, features, tokens, start, KeptCandidates(VOCAB_SIZE, 8))
    rows = DraftRows(drafts.ids, drafts.log_probs, drafts.counts, drafts.true_rank)
    branches = producer.columns(forward_text(models.target, tokens, producer.taps)[0], tokens, rows).rows
    return RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, rows, {"d2sd": branches})


@SAMPLINGS
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_branches_of_a_round_are_those_of_a_record(policy: D2SD, sampling: Sampling) -> None:
    for seed in range(3):
        models = models_of(seed, deeper=seed)
        decoded = long_text(models, policy, sampling)
        found = compare_with_record(policy, decoded, recorded_of(models, decoded))
        assert found.num_channel_rows == len(decoded.rounds)
        assert found.largest_channel_size <= CLOSE
        assert found.rounds_equal


def test_a_chain_that_is_one_token_off_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    models, whole = models_of(2), RedraftText.at_root

    def shifted(self: RedraftText, drafted: Drafted, lengths: tuple[int, ...] | None) -> Branches:
        marginals = drafted.marginals
        ids: Ints = np.roll(marginals.ids, int(marginals.offsets[1]))
        return whole(self, replace(drafted, marginals=replace(marginals, ids=ids)), lengths)

    policy = D2SD(40, branches=4)
    monkeypatch.setattr(RedraftText, "at_root", shifted)
    decoded = long_text(models, policy)
    monkeypatch.undo()
    assert compare_with_record(policy, decoded, recorded_of(models, decoded)).largest_channel_size > CLOSE


class AllOfThem(D2SD):
    """It does not say which branches it wants."""

    def ask(self, draft: Draft, state: object = None) -> dict[str, tuple[int, ...]]:
        return {}


def test_a_policy_that_does_not_say_is_given_every_branch() -> None:
    models = models_of(1)
    decoded = long_text(models, AllOfThem(40, branches=2))
    producer = models.channels["d2sd"]
    assert isinstance(producer, RedraftProducer)
    seen = decoded.rounds[0].channels["d2sd"]
    assert isinstance(seen, Branches)
    assert seen.lengths.tolist() == list(range(producer.base_depth))
    plain = long_text(models, D2SD(40, branches=2))
    assert [ran.round.tree.tokens.tolist() for ran in decoded.rounds] == [
        ran.round.tree.tokens.tolist() for ran in plain.rounds
    ]


def test_more_than_is_made_is_refused() -> None:
    with pytest.raises(MissingChannelError, match="with top_k 6 at least, and its network makes it with 5"):
        long_text(models_of(), D2SD(40, branches=2, width=6))
