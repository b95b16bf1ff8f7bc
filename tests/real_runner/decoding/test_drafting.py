"""Channels in the runner: lossless, own rows replay to own rounds, rows are those of a record, faults are found."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from decoded_batches import decode_batch
from random_heads import FLASH, flash_policy
from systems import (
    FLASH_REACH,
    GREEDY,
    MOST,
    SAMPLED,
    endless,
    flash_models,
    long_text,
    prompts_for,
)

from simlab.channels import Transitions
from simlab.draft import Draft
from simlab.errors import MissingChannelError
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy, ChannelNeed, Needs, Stateless
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.own_rows import first_unequal
from simlab.real_runner.models import Models
from simlab.real_runner.networks.network import HeadReach
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

PREVIOUS_2 = ChannelNeed(FLASH, "transitions", least=(("previous", 2), ("top_k", 3)))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_passes_of_a_fixed_shape_are_lossless_with_channels_too(sampling: Sampling) -> None:
    """In bfloat16 the text is the same under every policy, to the last token."""
    models = replace(endless(flash_models(1, dtype=torch.bfloat16)), fixed_rows=9)
    policy, prompt = flash_policy(8), prompts_for(3)[0]
    decoded, other, without = (
        decode(models, one, prompt, sampling, MOST) for one in (policy, flash_policy(4), DDTree(8))
    )
    assert decoded.text.tolist() == other.text.tolist() == without.text.tolist()
    assert first_unequal(policy, decoded) is None


@dataclass(frozen=True)
class Watching(Stateless):
    """Notes what it sees, and drafts nothing."""

    needs: Needs
    seen: list[Draft]
    budget: int = 1

    def select(self, draft: Draft, state: None) -> DraftTree:
        self.seen.append(draft)
        return DraftTree.root_only(draft.root_token)


@pytest.mark.parametrize("reach", [FLASH_REACH, replace(FLASH_REACH, candidates=11)], ids=str)
@pytest.mark.parametrize("top_k", [2, 9])
def test_a_policy_sees_no_more_than_it_declares(top_k: int, reach: HeadReach) -> None:
    """Whether the network reads more of the drafter's candidates than the policy, or fewer."""
    watching = Watching(Needs(top_k=top_k, channels=(PREVIOUS_2,)), [])
    decoded = long_text(flash_models(reach=reach), watching)
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
    decoded = long_text(flash_models(), watching)
    assert all(draft.marginals is None and list(draft.channels) == [FLASH] for draft in watching.seen)
    assert first_unequal(watching, decoded) is None


def refused(models: Models, policy: AnyPolicy, said: str) -> None:
    with pytest.raises(MissingChannelError, match=said) as caught:
        decode(models, policy, prompts_for(1)[0], GREEDY, 4)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_made_is_refused() -> None:
    models, policy = flash_models(), flash_policy(8)
    refused(replace(models, channels={}), policy, "reads the channel flash, and the runner makes no channel")
    refused(replace(models, channels={"other": models.channels[FLASH]}), policy, "the runner makes the channels other")
    refused(replace(models, execution="compiled"), policy, "have no form for --execution compiled")
    refused(models, flash_policy(8, previous=7), "with previous 7 at least, and its network makes it with 6")
    refused(models, flash_policy(8, top_k=6), "with top_k 6 at least, and its network makes it with 5")
    exact = Needs(channels=(ChannelNeed(FLASH, "transitions", equal=(("candidates", 8),)),))
    refused(models, Watching(exact, []), "with candidates 8, and its network makes it with no such setting")
    pool = Needs(channels=(ChannelNeed(FLASH, "pool"),))
    refused(models, Watching(pool, []), "of the kind pool, and its network makes transitions")
    with pytest.raises(MissingChannelError, match="one text at a time; leave --batch out"):
        decode_batch(models, policy, prompts_for(1), GREEDY, 4, batch=2)
