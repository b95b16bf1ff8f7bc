"""EAGLE-3 in the runner: without a drafter's pass, lossless, its own rows replay, and they are those of a record."""

from dataclasses import replace
from typing import NoReturn

import numpy as np
import pytest
import random_trees
import torch
from lossless_checks import check_rounds, check_text
from random_eagle3 import random_eagle3_for
from random_heads import FLASH, flash_policy, random_head

from simlab.arrays import Ints
from simlab.channels import Channel, PoolRows, Transitions
from simlab.draft import Draft, Prompt
from simlab.errors import MissingChannelError, ModelError
from simlab.policies.named.eagle3 import Eagle3
from simlab.policy import AnyPolicy, Needs, Stateless
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.decoding import drafting
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence
from simlab.real_runner.heads.eagle3.head import KeyValues
from simlab.real_runner.heads.eagle3.pool import Eagle3Reach
from simlab.real_runner.heads.eagle3.producer import Eagle3Producer, Eagle3Text, eagle3_producer
from simlab.real_runner.heads.producer import TextProducer
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.models import Models
from simlab.real_runner.record.record import forward_text
from simlab.recorded import RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 1)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
VOCAB_SIZE, MOST = 12, 24
REACH = Eagle3Reach(beam=4, top_k=5, steps=5)
CLOSE = 1e-3


def policy_of(budget: int = 9, steps: int = 5) -> Eagle3:
    return Eagle3(budget, beam=4, top_k=5, steps=steps)


def models_of(seed: int = 0, family: str = "qwen3", dtype: torch.dtype = torch.float32) -> Models:
    models = random_trees.random_models(family, seed, VOCAB_SIZE, dtype)
    head = random_eagle3_for(models.target, seed, draft_vocab_size=9)
    return replace(models, channels={"eagle3": eagle3_producer(head, models.target, REACH)})


def prompts_for(seed: int, num: int = 2) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [random_trees.random_prompt(generator, VOCAB_SIZE) for _ in range(num)]


def endless(models: Models) -> Models:
    return replace(models, target=replace(models.target, stop_token_ids=()))


def long_text(models: Models, policy: AnyPolicy, sampling: Sampling = GREEDY) -> DecodedText:
    return decode(endless(models), policy, prompts_for(5)[0], sampling, MOST)


@SAMPLINGS
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_the_text_is_that_of_plain_decoding_and_own_rows_replay(family: str, sampling: Sampling) -> None:
    accepted = deep = 0
    for seed in range(3):
        models = models_of(seed, family)
        for prompt in prompts_for(seed):
            plain = random_trees.plain_text(models.target, prompt, sampling, MOST)
            for policy in (policy_of(), policy_of(4, steps=2), policy_of(105)):
                decoded = decode(models, policy, prompt, sampling, MOST)
                check_text(decoded, plain, models, MOST)
                check_rounds(decoded, policy)
                assert first_unequal(policy, decoded) is None
                assert all(ran.marginals is None for ran in decoded.rounds)
                accepted += decoded.totals.accepted
                deep += sum(int(ran.round.tree.depths().max()) > models.drafter.config.depth for ran in decoded.rounds)
    assert accepted > 10
    assert deep > 10, "no tree was deeper than the drafter's"


class NoDrafter:
    """A drafter that must not be begun."""

    def __init__(self, *_: object) -> NoReturn:
        raise AssertionError("the drafter was run")


def test_no_drafter_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "LiveDrafter", NoDrafter)
    assert long_text(models_of(), policy_of()).rounds
    with pytest.raises(AssertionError, match="the drafter was run"):
        long_text(with_flash(models_of()), flash_policy(4))


def with_flash(models: Models) -> Models:
    """Beside the EAGLE-3 head a TreeFlash head on the drafter."""
    made = TreeFlashProducer(random_head(models), models.block_drafter, models.target, HeadReach(previous=6, top_k=5))
    return replace(models, channels={**models.channels, FLASH: made})


class Both(Stateless):
    """Reads both heads' channels and the drafter's candidates; drafts the EAGLE-3 tree."""

    budget = 9
    needs = Needs(top_k=2, channels=(*flash_policy(4).needs.channels, *policy_of().needs.channels))

    def __init__(self) -> None:
        self.seen: list[Draft] = []

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        self.seen.append(draft)
        return policy_of().select(draft)


def test_beside_a_drafter_each_reads_its_own_layers() -> None:
    """The taps of head and drafter overlap; rounds and pools are those of the head alone."""
    models, both = with_flash(models_of(1)), Both()
    producer = models.channels["eagle3"]
    assert isinstance(producer, TextProducer)
    taps = [models.drafter.config.target_layer_ids, producer.taps]
    assert taps[0] != taps[1]
    together, alone = long_text(models, both), long_text(models, policy_of())
    flash = long_text(models, flash_policy(4))
    assert [one.round.tree.tokens.tolist() for one in together.rounds] == [
        one.round.tree.tokens.tolist() for one in alone.rounds
    ]
    first = both.seen[0]
    assert list(first.channels) == [FLASH, "eagle3"]
    assert first.drafted().depth == models.drafter.config.depth
    ours, theirs = first.channels[FLASH], flash.rounds[0].channels[FLASH]
    assert isinstance(ours, Transitions)
    assert isinstance(theirs, Transitions)
    assert np.array_equal(ours.ids, theirs.ids)
    assert first_unequal(both, together) is None


@torch.inference_mode()
def recorded_of(models: Models, decoded: DecodedText) -> RecordedSequence:
    """The same text as a recording has it: pools at every root."""
    tokens = torch.from_numpy(np.concatenate([decoded.prompt.token_ids, decoded.text]).astype(np.int64))
    producer = models.channels["eagle3"]
    assert isinstance(producer, Eagle3Producer)
    features = forward_text(models.target, tokens, producer.taps)[0]
    rows = producer.columns(features, tokens, len(decoded.text) - 1).rows
    return RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, None, {"eagle3": rows})


@SAMPLINGS
def test_pools_of_a_round_are_those_of_a_record(sampling: Sampling) -> None:
    for seed in range(3):
        models, policy = models_of(seed), policy_of()
        decoded = long_text(models, policy, sampling)
        found = compare_with_record(policy, decoded, recorded_of(models, decoded))
        assert found.num_channel_rows == len(decoded.rounds)
        assert found.largest_channel_size <= CLOSE
        assert found.rounds_equal


def test_own_rows_hold_the_pools_at_visited_roots() -> None:
    decoded = long_text(models_of(1), policy_of())
    rows = own_sequence(decoded).channels["eagle3"]
    assert isinstance(rows, PoolRows)
    visited = {ran.round.position for ran in decoded.rounds}
    assert [size > 0 for size in rows.sizes] == [t in visited for t in range(MOST - 1)]


def test_keys_of_rejected_nodes_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that keeps one position too many has other pools than the record."""
    models, policy, whole = models_of(2), policy_of(), Eagle3Text.at_root

    def keeping(self: Eagle3Text, committed: Ints) -> Channel:
        pool = whole(self, committed)
        text = self._text
        assert text._past is not None
        text._past = KeyValues(*(torch.cat([one, one[:, :, -1:]], dim=2) for one in text._past))
        return pool

    monkeypatch.setattr(Eagle3Text, "at_root", keeping)
    decoded = long_text(models, policy)
    monkeypatch.undo()
    assert compare_with_record(policy, decoded, recorded_of(models, decoded)).largest_channel_size > CLOSE


def test_what_does_not_fit_is_refused() -> None:
    models = models_of()
    for policy, said in (
        (policy_of(steps=6), "with steps 6 at least, and its network makes it with 5"),
        (Eagle3(9, beam=3, top_k=5, steps=5), "with beam 3, and its network makes it with 4"),
    ):
        with pytest.raises(MissingChannelError, match=said):
            long_text(models, policy)
    head = random_eagle3_for(models.target)
    head.config = replace(head.config, target_hidden_size=17)
    with pytest.raises(ModelError, match="made for a target with hidden size 17; .* has 16; choose the target"):
        eagle3_producer(head, models.target, REACH)


def test_texts_that_the_trees_would_outrun_are_refused() -> None:
    """The head's trees are deeper than the drafter's."""
    models, prompt = models_of(), prompts_for(1)[0]
    most = random_trees.MAX_POSITIONS - len(prompt.token_ids) - REACH.depth
    assert REACH.depth > models.drafter.config.depth
    decode(models, policy_of(), prompt, GREEDY, most)
    with pytest.raises(ModelError, match=f"a draft of {REACH.depth} it needs"):
        decode(models, policy_of(), prompt, GREEDY, most + 1)
