"""The channel of an EAGLE-3 head: pools that need no drafter, from states of the target alone."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.channels import Channel, PoolRows
from simlab.policy import ChannelNeed
from simlab.real_runner.heads.eagle3.head import Eagle3Head, check_head
from simlab.real_runner.heads.eagle3.pool import (
    Eagle3Reach,
    check_tokens,
    eagle3_pools,
    roots_per_pass,
)
from simlab.real_runner.heads.eagle3.text import GrowingText, read_text
from simlab.real_runner.heads.producer import check_makes
from simlab.real_runner.heads.taps_rows import joined_pools
from simlab.real_runner.targets.model import Target
from simlab.traces.channels.columns import PoolColumns


@dataclass(frozen=True, slots=True, eq=False)
class Eagle3Producer:
    """A head, the target that it reads, and how far its pools reach.

    Attributes:
        head: see there.
        target: whose states it reads, and whose embedding and output head it may borrow.
        reach: of its pools.
    """

    head: Eagle3Head
    target: Target
    reach: Eagle3Reach

    def __post_init__(self) -> None:
        check_head(self.head, self.target)
        check_tokens(self.head, self.reach)

    @property
    def kind(self) -> str:
        """The kind of this channel."""
        return self.reach.kind

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose outputs it reads."""
        return self.head.config.target_layer_ids

    @property
    def depth(self) -> int:
        """How deep its deepest nodes lie."""
        return self.reach.depth

    def within(self, need: ChannelNeed) -> "Eagle3Producer":
        """This producer going no more steps than a policy reads."""
        check_makes(need, self.kind, self.reach.settings)
        return self if need.deepest is None else replace(self, reach=replace(self.reach, steps=need.deepest - 1))

    def begin(self) -> "Eagle3Text":
        """A text of which nothing is read yet."""
        return Eagle3Text(self)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> PoolColumns:
        """The pools at every root of one text; see `TextProducer.columns`."""
        parts, last = list[PoolRows](), len(tokens) - 1
        if num_roots == 0:
            return PoolColumns.unlabelled(joined_pools(parts))
        text = read_text(self.head, self.target, features[: last - 1], tokens[1:last], None)
        roots = torch.arange(last - num_roots, last, device=features.device)
        for some in roots.split(roots_per_pass(self.head, self.reach, len(tokens))):
            outputs = text.outputs[some - 1]
            parts.append(eagle3_pools(self.head, self.target, some, outputs, text.past, self.reach))
        return PoolColumns.unlabelled(joined_pools(parts))


class Eagle3Text:
    """One text that is being written: what the head keeps of its tokens, and the pool below its last one."""

    def __init__(self, producer: Eagle3Producer) -> None:
        self._producer = producer
        self._text = GrowingText(producer.head, producer.target)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._text.read(features)

    @torch.inference_mode()
    def at_root(self, committed: Ints) -> Channel:
        """The pool below the last of the tokens of prompt and text, all before it read; see `TextChannel.at_root`."""
        made, text = self._producer, self._text.up_to_root(committed)
        roots = torch.tensor([len(committed) - 1], device=text.outputs.device)
        return eagle3_pools(made.head, made.target, roots, text.outputs[-1:], text.past, made.reach).row(0, 0)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; see `TextChannel.rewind`."""
        self._text.rewind(length)


def eagle3_producer(head: Eagle3Head, target: Target, reach: Eagle3Reach) -> Eagle3Producer:
    """What makes the pools of a head, which learns here which layers of its target it reads."""
    head.config = head.config.for_target(target.num_layers)
    return Eagle3Producer(head, target, reach)
