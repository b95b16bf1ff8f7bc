"""Channels in the runner: lossless, own rows replay to own rounds, rows are those of a record, faults are found."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import random_trees
import torch
from lossless_checks import check_rounds, check_text
from random_heads import FLASH, flash_policy, random_head

from simlab.channels import Channel, Pool, PoolRows, TransitionRows, Transitions
from simlab.draft import Draft, Prompt
from simlab.errors import MissingChannelError
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy, ChannelNeed, Needs, Stateless
from simlab.real_runner.confirm.record_comparison import RecordComparison, compare_with_record
from simlab.real_runner.decoding.batched_decode import decode_batch
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence, replays_equal
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import draft_columns
from simlab.real_runner.heads.producer import Drafted, Producer, RootProducer, StagedProducer, TextProducer
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.models import Models
from simlab.real_runner.record.record import forward_text
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.traces.channels.columns import ChannelColumns
from simlab.tree import DraftTree

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 1)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
VOCAB_SIZE, MOST = 12, 24
REACH = HeadReach(previous=6, top_k=5)
CLOSE = 1e-3
PREVIOUS_2 = ChannelNeed(FLASH, "transitions", least=(("previous", 2), ("top_k", 3)))


def models_of(
    seed: int = 0, family: str = "qwen3", reach: HeadReach = REACH, dtype: torch.dtype | None = None
) -> Models:
    """Random models; a head of random weights makes the channel."""
    models = random_trees.random_models(family, seed, VOCAB_SIZE, dtype or torch.float32)
    made = TreeFlashProducer(random_head(models), models.block_drafter, models.target, reach)
    return replace(models, channels={FLASH: made})


def prompts_for(seed: int, num: int = 2) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [random_trees.random_prompt(generator, VOCAB_SIZE) for _ in range(num)]


def endless(models: Models) -> Models:
    return replace(models, target=replace(models.target, stop_token_ids=()))


def long_text(models: Models, policy: AnyPolicy, sampling: Sampling = GREEDY) -> DecodedText:
    """A text that nothing ends before its limit."""
    return decode(endless(models), policy, prompts_for(5)[0], sampling, MOST)


@SAMPLINGS
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_the_text_is_that_of_plain_decoding_and_own_rows_replay(family: str, sampling: Sampling) -> None:
    accepted = num_rounds = 0
    for seed in range(3):
        models = models_of(seed, family)
        for prompt in prompts_for(seed):
            plain = random_trees.plain_text(models.target, prompt, sampling, MOST)
            for policy in (flash_policy(8), flash_policy(3, previous=1, top_k=2)):
                decoded = decode(models, policy, prompt, sampling, MOST)
                check_text(decoded, plain, models, MOST)
                check_rounds(decoded, policy)
                assert first_unequal(policy, decoded) is None
                accepted += decoded.totals.accepted
                num_rounds += len(decoded.rounds)
    assert accepted >= 3
    assert num_rounds > 40


@SAMPLINGS
def test_passes_of_a_fixed_shape_are_lossless_with_channels_too(sampling: Sampling) -> None:
    """In bfloat16 the text is the same under every policy, to the last token."""
    models = replace(endless(models_of(1, dtype=torch.bfloat16)), fixed_rows=9)
    policy, prompt = flash_policy(8), prompts_for(3)[0]
    decoded, other, without = (
        decode(models, one, prompt, sampling, MOST) for one in (policy, flash_policy(4), DDTree(8))
    )
    assert decoded.text.tolist() == other.text.tolist() == without.text.tolist()
    assert replays_equal(policy, decoded)


@dataclass(frozen=True)
class Watching(Stateless):
    """Notes what it sees, and drafts nothing."""

    needs: Needs
    seen: list[Draft]
    budget: int = 1

    def select(self, draft: Draft, state: None) -> DraftTree:
        self.seen.append(draft)
        return DraftTree.root_only(draft.root_token)


@pytest.mark.parametrize("reach", [REACH, replace(REACH, candidates=11)], ids=str)
@pytest.mark.parametrize("top_k", [2, 9])
def test_a_policy_sees_no_more_than_it_declares(top_k: int, reach: HeadReach) -> None:
    """Whether the network reads more of the drafter's candidates than the policy, or fewer."""
    watching = Watching(Needs(top_k=top_k, channels=(PREVIOUS_2,)), [])
    decoded = long_text(models_of(reach=reach), watching)
    assert len(watching.seen) == MOST - 1
    for draft, ran in zip(watching.seen, decoded.rounds, strict=True):
        assert np.diff(draft.drafted().offsets).tolist() == [top_k] * draft.drafted().depth
        assert draft.drafted().entropies is None
        assert list(draft.channels) == [FLASH]
        channel = draft.channel(FLASH)
        assert isinstance(channel, Transitions)
        assert channel.num_rows.tolist() == [1] + [2] * (channel.depth - 1)
        assert channel.ids.shape[1] == 3
        assert ran.marginals is draft.marginals
        assert ran.channels[FLASH] is channel


def test_a_policy_without_the_drafters_candidates_sees_none_of_them() -> None:
    watching = Watching(Needs(draft=False, channels=(PREVIOUS_2,)), [])
    decoded = long_text(models_of(), watching)
    assert all(draft.marginals is None and list(draft.channels) == [FLASH] for draft in watching.seen)
    assert replays_equal(watching, decoded)


def test_a_head_that_corrects_nothing_drafts_the_trees_of_ddtree() -> None:
    for seed in range(3):
        models = random_trees.random_models("llama", seed, VOCAB_SIZE, torch.float64)
        head = TreeFlashHead(models.drafter.config.hidden_size, 6).double().eval().requires_grad_(False)
        producer = TreeFlashProducer(head, models.block_drafter, models.target, HeadReach(8, 8))
        models = replace(models, channels={FLASH: producer})
        ours, theirs = long_text(models, flash_policy(8, previous=8, top_k=8)), long_text(models, DDTree(8))
        for one, other in zip(ours.rounds, theirs.rounds, strict=True):
            assert paths_of(one.round.tree) == paths_of(other.round.tree)


def paths_of(tree: DraftTree) -> set[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = [(int(tree.tokens[0]),)]
    for node in range(1, tree.num_nodes):
        paths.append((*paths[int(tree.parents[node])], int(tree.tokens[node])))
    return set(paths)


@torch.inference_mode()
def recorded_of(models: Models, decoded: DecodedText) -> RecordedSequence:
    """The same text as a recording has it: candidates and channel at every root, from one dense pass."""
    tokens = torch.from_numpy(np.concatenate([decoded.prompt.token_ids, decoded.text]).astype(np.int64))
    features = forward_text(models.target, tokens, models.drafter.config.target_layer_ids)[0]
    kept = KeptCandidates(min_width=VOCAB_SIZE, exact_budget=1)
    found = draft_columns(models.block_drafter, models.target, features, tokens, len(decoded.prompt.token_ids), kept)
    rows = DraftRows(found.ids, found.log_probs, found.counts, found.true_rank)
    producer = models.channels[FLASH]
    assert not isinstance(producer, TextProducer | RootProducer)
    channel = producer.columns(features, tokens, rows).rows
    return RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, rows, {FLASH: channel})


def compared(models: Models, policy: AnyPolicy, decoded: DecodedText) -> RecordComparison:
    return compare_with_record(policy, decoded, recorded_of(models, decoded))


@SAMPLINGS
def test_rows_of_a_round_are_those_of_a_record(sampling: Sampling) -> None:
    policy = flash_policy(8)
    for seed in range(3):
        models = models_of(seed)
        decoded = long_text(models, policy, sampling)
        found = compared(models, policy, decoded)
        assert found.num_channel_rows == len(decoded.rounds)
        assert found.largest_channel_size <= CLOSE
        assert all(one.gap <= CLOSE for one in found.channel_differences)
        assert found.rounds_equal


def test_own_rows_hold_the_channel_at_visited_roots() -> None:
    decoded = long_text(models_of(1), flash_policy(8))
    rows = own_sequence(decoded).channels[FLASH]
    assert isinstance(rows, TransitionRows)
    at_roots = list(rows.rows())
    visited = {ran.round.position: ran.channels[FLASH] for ran in decoded.rounds}
    assert 1 < len(visited) < len(at_roots)
    for t, row in enumerate(at_roots):
        seen = visited.get(t)
        if seen is None:
            assert row.num_rows.sum() == 1
        else:
            for name in ("num_rows", "previous", "ids", "log_probs"):
                np.testing.assert_array_equal(getattr(row, name), getattr(seen, name))


@dataclass(frozen=True)
class Spoilt:
    """A producer whose rounds are those of another one but for a fault; its record is right."""

    whole: Producer
    root: Callable[[int], int] = int
    change: Callable[[Transitions], Transitions] = lambda row: row
    kind: str = "transitions"

    @property
    def width(self) -> int:
        return self.whole.width

    def within(self, need: ChannelNeed) -> "Spoilt":
        return replace(self, whole=self.whole.within(need))

    def at_root(self, drafted: Drafted) -> Channel:
        found = self.whole.at_root(replace(drafted, root_token=self.root(drafted.root_token)))
        assert isinstance(found, Transitions)
        return self.change(found)

    def columns(self, features: torch.Tensor, tokens: torch.Tensor, rows: DraftRows) -> ChannelColumns:
        return self.whole.columns(features, tokens, rows)


def rolled(row: Transitions) -> Transitions:
    """Each row below the token of its neighbour."""
    return replace(row, previous=np.roll(row.previous, 1))


FAULTS: dict[str, dict[str, Any]] = {
    "another token at the root": {"root": lambda token: (token + 1) % VOCAB_SIZE},
    "rows of other tokens": {"change": rolled},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_producer_that_is_another_in_rounds_is_found_in_the_record(fault: str) -> None:
    models, policy = models_of(1), flash_policy(8)
    producer = models.channels[FLASH]
    assert not isinstance(producer, TextProducer | StagedProducer | RootProducer)
    spoilt = Spoilt(producer, **FAULTS[fault])
    decoded = long_text(replace(models, channels={FLASH: spoilt}), policy)
    assert decoded.text.tolist() == long_text(models, DDTree(4)).text.tolist(), "a fault in a draft changes no text"
    assert replays_equal(policy, decoded)
    found = compared(models, policy, decoded)
    assert len(found.channel_differences) > len(decoded.rounds) // 2
    assert found.largest_channel_size > 0.1
    assert f"{FLASH} at 0, " in found.differences()[-len(found.channel_differences)]


def test_a_channel_that_stands_one_root_further_does_not_replay() -> None:
    policy = flash_policy(8)
    decoded = long_text(models_of(1), policy)
    later = [one.channels for one in decoded.rounds[1:]]
    moved = [replace(ran, channels=seen) for ran, seen in zip(decoded.rounds[:-1], later, strict=True)]
    mismatch = first_unequal(policy, replace(decoded, rounds=(*moved, decoded.rounds[-1])))
    assert mismatch is not None
    assert mismatch.what.startswith("tree")


class FirstTwo:
    """A producer of pools: the drafter's first two candidates of depth 1."""

    kind, width = "pool", 2

    def within(self, need: ChannelNeed) -> "FirstTwo":
        return self

    def at_root(self, drafted: Drafted) -> Channel:
        ids, log_probs = drafted.marginals.at(1)
        return Pool(ids[:2], np.zeros(2, np.int32), log_probs[:2], np.zeros(2, np.bool_))

    def columns(self, features: torch.Tensor, tokens: torch.Tensor, rows: DraftRows) -> ChannelColumns:
        raise AssertionError("nothing is recorded here")


def test_pools_are_kept_as_they_were_seen() -> None:
    watching = Watching(Needs(top_k=1, channels=(ChannelNeed("pool", "pool"),)), [])
    decoded = long_text(replace(models_of(), channels={"pool": FirstTwo()}), watching)
    rows = own_sequence(decoded).channels["pool"]
    assert isinstance(rows, PoolRows)
    assert rows.sizes.tolist() == [2] * (MOST - 1)
    assert replays_equal(watching, decoded)


def refused(models: Models, policy: AnyPolicy, said: str) -> None:
    with pytest.raises(MissingChannelError, match=said) as caught:
        decode(models, policy, prompts_for(1)[0], GREEDY, 4)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_made_is_refused() -> None:
    models, policy = models_of(), flash_policy(8)
    refused(replace(models, channels={}), policy, "reads the channel flash, and the runner makes no channel")
    refused(replace(models, channels={"other": models.channels[FLASH]}), policy, "the runner makes the channels other")
    refused(replace(models, execution="compiled"), policy, "eager passes alone; leave --execution compiled out")
    refused(models, flash_policy(8, previous=7), "with previous 7 at least, and its network makes it with 6")
    refused(models, flash_policy(8, top_k=6), "with top_k 6 at least, and its network makes it with 5")
    exact = Needs(channels=(ChannelNeed(FLASH, "transitions", equal=(("candidates", 8),)),))
    refused(models, Watching(exact, []), "with candidates 8, and its network makes it with no such setting")
    pool = Needs(channels=(ChannelNeed(FLASH, "pool"),))
    refused(models, Watching(pool, []), "of the kind pool, and its network makes transitions")
    with pytest.raises(MissingChannelError, match="one text at a time; leave --batch out"):
        decode_batch(models, policy, prompts_for(1), GREEDY, 4, batch=2)
