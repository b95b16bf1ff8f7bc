"""The Markov head of DSpark as a channel: the laws below the first candidates of each depth of its own chain.

The head is part of its drafter (`simlab.real_runner.drafters.dflash.MarkovHead`), which drafts the chain with it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simlab.real_runner.drafters.dense import BlockStates, logits_of
from simlab.real_runner.drafters.dflash import MarkovHead
from simlab.real_runner.networks.first_order import FirstOrderProducer
from simlab.real_runner.networks.network import HeadReach, Reach
from simlab.real_runner.networks.producer import ChannelAsked, Stage, WithModels, block_stage, check_belongs
from simlab.real_runner.targets.model import Target


@dataclass(frozen=True, slots=True, eq=False)
class MarkovProducer(FirstOrderProducer):
    """A drafter's own Markov head: a row is the law of a slot given a token before it, over the whole vocabulary."""

    head: MarkovHead

    def _of_rows(self, states: BlockStates, above: Tensor, slots: Tensor) -> Tensor:
        """``[N, S, H + rank]``: the slot's state, and by what the head's second table is multiplied."""
        after = states.after[:, slots]
        return torch.cat([after, self.head(after, above)], dim=-1)

    def _logits(self, rows: Tensor) -> Tensor:
        after, made = rows.split([self.head.hidden_size, self.head.inner_size], dim=-1)
        added: Tensor = self.head.markov_w2(made)
        base = logits_of(self.drafter, self.target, after)
        return base + added.to(base.device).float()


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The head of the drafter that is there; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    assert isinstance(reach, HeadReach)
    check_belongs("Markov head", asked.location, None, asked.digest)

    def on(its: Stage | None, target: Target) -> MarkovProducer:
        drafter = block_stage(its)
        assert drafter.markov_head is not None
        return MarkovProducer(drafter, target, reach, drafter.markov_head)

    return on
