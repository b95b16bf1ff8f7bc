"""Policies that read a channel, in the real runner: made in each round, seen as declared, replayed as they were."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import random_trees
import tiny_models
import torch
from made_up_heads import INNER_SIZE, with_producers
from recorded_texts import record_texts

from simlab.channels import Transitions
from simlab.draft import Draft, Marginals, Prompt
from simlab.errors import MissingChannelError
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.treeflash import TreeFlash
from simlab.policy import AnyPolicy, ChannelNeed, Needs, Stateless
from simlab.real_runner.checkpoints.files import load_drafter
from simlab.real_runner.confirm.record_comparison import compare_channels, compare_with_record
from simlab.real_runner.decoding.batched_decode import decode_batch
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.models import Models
from simlab.real_runner.record.record import forward_text
from simlab.real_runner.targets.loading import load_target
from simlab.recorded import RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(0.9, 0, 1.0, 1)
POLICY = TreeFlash(budget=9, previous=3, top_k=4)
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A tiny pair, and a head with made-up weights."""
    target, drafter = tiny_models.make_pair(tmp_path_factory.mktemp("models"))
    found = Models(load_target(str(target), torch.float32), load_drafter(drafter, torch.float32), drafter, "")
    return with_producers(found, [TreeFlash(budget=9, previous=6, top_k=7)])


def prompt_of(length: int) -> Prompt:
    ids = np.random.default_rng(length).integers(5, tiny_models.VOCAB_SIZE, size=length)
    return random_trees.prompt_of(ids.tolist(), f"p{length}")


def recorded_of(models: Models, prompt: Prompt, sampling: Sampling) -> RecordedSequence:
    """The text as it is recorded, with the head's rows at every root."""
    (record,) = record_texts(models, [prompt], sampling, NUM_TOKENS)
    recorded = record.recorded("dflash")
    assert recorded.rows is not None
    ids = np.concatenate([recorded.prompt.token_ids, recorded.text]).astype(np.int64)
    tokens = torch.from_numpy(ids)
    with torch.inference_mode():
        features, *_ = forward_text(models.target, tokens, models.drafter.config.target_layer_ids)
    columns = models.producers["treeflash"].columns(features, tokens, recorded.rows)
    return replace(recorded, channels={"treeflash": columns.rows})


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_text_and_rounds_are_those_of_plain_decoding_and_of_the_replay(models: Models, sampling: Sampling) -> None:
    """Recorded rows and those of a round are the same but for the last bits, and so are trees and rounds."""
    for length in (5, 14):
        prompt = prompt_of(length)
        decoded = decode(models, POLICY, prompt, sampling, NUM_TOKENS)
        plain = random_trees.plain_text(models.target, prompt, sampling, NUM_TOKENS)
        assert decoded.text.tolist() == list(plain)
        assert first_unequal(POLICY, decoded) is None
        comparison = compare_with_record(POLICY, decoded, recorded_of(models, prompt, sampling))
        assert comparison.differences() == []
        assert comparison.largest_size < 1e-4
        assert all(set(one.channels) == {"treeflash"} for one in decoded.rounds)


def test_a_policy_sees_what_it_declares_and_no_more(models: Models) -> None:
    decoded = decode(models, POLICY, prompt_of(5), GREEDY, NUM_TOKENS)
    for one in decoded.rounds:
        channel, marginals = one.channels["treeflash"], one.marginals
        assert isinstance(channel, Transitions)
        assert channel.num_rows.tolist() == [1] + [3] * (channel.depth - 1)
        assert channel.ids.shape[1] == 4
        assert marginals is not None
        assert np.diff(marginals.offsets).tolist() == [3] * marginals.depth


def test_a_head_that_adds_nothing_gives_the_trees_of_ddtree(models: Models) -> None:
    """On so many ranks that the first nine nodes are among them."""
    drafter, target = models.drafter, models.target
    head = TreeFlashHead(drafter.config.hidden_size, INNER_SIZE).eval().requires_grad_(False)
    producer = TreeFlashProducer(head, drafter, target, HeadReach(9, 9))
    untrained = replace(models, producers={"treeflash": producer})
    of_head = decode(untrained, TreeFlash(budget=9, previous=9, top_k=9), prompt_of(5), GREEDY, NUM_TOKENS)
    of_drafter = decode(models, DDTree(budget=9), prompt_of(5), GREEDY, NUM_TOKENS)
    assert [one.round.tree.tokens.tolist() for one in of_head.rounds] == [
        one.round.tree.tokens.tolist() for one in of_drafter.rounds
    ]


Spoiled = Callable[[Transitions], Transitions]


class Spoiling(TreeFlashProducer):
    """A producer whose rounds have other rows than its recordings."""

    __slots__ = ()

    def at_root(self, states: BlockStates, root_token: int, marginals: Marginals) -> Transitions:
        found = TreeFlashProducer.at_root(self, states, root_token, marginals)
        return replace(found, log_probs=np.roll(found.log_probs, 1, axis=0), ids=np.roll(found.ids, 1, axis=0))

    def within(self, need: ChannelNeed) -> "Spoiling":
        cut = TreeFlashProducer.within(self, need)
        return Spoiling(cut.head, cut.drafter, cut.target, cut.reach)


def test_rows_of_another_place_are_found(models: Models) -> None:
    one = models.producers["treeflash"]
    assert isinstance(one, TreeFlashProducer)
    spoiled = replace(models, producers={"treeflash": Spoiling(one.head, one.drafter, one.target, one.reach)})
    decoded = decode(spoiled, POLICY, prompt_of(5), GREEDY, NUM_TOKENS)
    assert first_unequal(POLICY, decoded) is None
    comparison = compare_with_record(POLICY, decoded, recorded_of(models, prompt_of(5), GREEDY))
    assert comparison.channel_differences
    assert "channel treeflash at 0, depth 1, below []" in str(comparison.channel_differences[0])
    assert any("channel treeflash" in words for words in comparison.differences())


def test_a_channel_that_was_not_what_the_policy_saw_is_found(models: Models) -> None:
    decoded = decode(models, POLICY, prompt_of(14), GREEDY, NUM_TOKENS)

    def other(channel: object) -> Transitions:
        assert isinstance(channel, Transitions)
        return replace(channel, ids=channel.ids[:, ::-1].copy())

    rounds = tuple(replace(one, channels={"treeflash": other(one.channels["treeflash"])}) for one in decoded.rounds)
    found = first_unequal(POLICY, DecodedText(decoded.prompt, decoded.text, decoded.stop_reason, rounds))
    assert found is not None
    assert found.what == "tree tokens"


def test_lists_that_are_in_one_of_the_two_alone_are_differences(models: Models) -> None:
    channel = decode(models, POLICY, prompt_of(5), GREEDY, NUM_TOKENS).rounds[0].channels["treeflash"]
    assert isinstance(channel, Transitions)
    assert compare_channels(3, "treeflash", channel, channel) == ([], 0.0)
    (found, *_), _ = compare_channels(3, "treeflash", channel, channel.first(1, 4))
    assert (found.position, found.num_ranks) == (3, 4)
    assert np.isnan(found.size)


class Reading(Stateless):
    """A policy that reads a channel and drafts nothing."""

    budget = 2

    def __init__(self, *channels: ChannelNeed) -> None:
        self.needs = Needs(top_k=1, channels=channels)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.root_only(draft.root_token)


@pytest.mark.parametrize(
    ("need", "words"),
    [
        (ChannelNeed("other", "transitions"), "reads the channels other, and no network"),
        (ChannelNeed("treeflash", "pool"), "and the head gives transitions of previous 6 and top_k 7"),
        (ChannelNeed("treeflash", "transitions", (("previous", 8),)), "ask for no more"),
        (ChannelNeed("treeflash", "transitions", (("top_k", 8),)), "ask for no more"),
    ],
)
def test_what_no_producer_makes_is_refused(models: Models, need: ChannelNeed, words: str) -> None:
    with pytest.raises(MissingChannelError, match=words):
        decode(models, Reading(need), prompt_of(5), GREEDY, NUM_TOKENS)


def test_channels_are_made_for_one_text_at_a_time(models: Models) -> None:
    policy: AnyPolicy = POLICY
    with pytest.raises(MissingChannelError, match="leave --batch 2 out"):
        decode_batch(models, policy, [prompt_of(5), prompt_of(6)], GREEDY, NUM_TOKENS, 2)
