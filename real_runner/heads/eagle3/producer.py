"""The channel of an EAGLE-3 head: pools that need no drafter, from states of the target alone."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.channels import Channel, PoolRows
from simlab.errors import ModelError
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.config import check_taps
from simlab.real_runner.heads.eagle3.head import Eagle3Config, Eagle3Head, KeyValues
from simlab.real_runner.heads.eagle3.pool import (
    Eagle3Reach,
    check_tokens,
    eagle3_pools,
    read_text,
    roots_per_pass,
)
from simlab.real_runner.heads.producer import check_makes
from simlab.real_runner.heads.taps_rows import joined_pools
from simlab.real_runner.targets.model import Target
from simlab.traces.channels.columns import PoolColumns

_READ_AGAIN = 3
"""Positions that are read again after going back, as many as a round of some accepted tokens brings."""


@dataclass(frozen=True, slots=True, eq=False)
class Eagle3Producer:
    """A head, the target that it reads, and how far its pools reach.

    Attributes:
        head: see there.
        target: whose states it reads, and whose embedding and output head it may borrow.
        reach: of its pools.

    Raises:
        ModelError: the head was made for another target, or has fewer tokens than a node has children, or none that
            ends a text.
    """

    head: Eagle3Head
    target: Target
    reach: Eagle3Reach

    def __post_init__(self) -> None:
        _check_head(self.head.config, self.target)
        _check_stops(self.head, self.target)
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
        """This producer going no more steps than a policy reads.

        Raises:
            MissingChannelError: it goes fewer, or makes another pool.
        """
        check_makes(need, self.kind, self.reach.settings)
        return self if need.deepest is None else replace(self, reach=replace(self.reach, steps=need.deepest - 1))

    def begin(self) -> "Eagle3Text":
        """A text of which nothing is read yet."""
        return Eagle3Text(self)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> PoolColumns:
        """The pools at every root of one text; see `TextProducer.columns`.

        Raises:
            ModelError: the logits are not numbers.
        """
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
    """One text that is being written: what the head keeps of its tokens, and the pool below its last one.

    What the target has read since the last pool is read when the next one is made. Keys and values of nodes are dropped
    with their pool, so that none of a rejected token is kept.
    """

    def __init__(self, producer: Eagle3Producer) -> None:
        self._producer = producer
        self._past: KeyValues | None = None
        self._waiting: list[Tensor] = []
        self._last = torch.empty(0)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._waiting.append(features[0])

    @torch.inference_mode()
    def at_root(self, committed: Ints) -> Channel:
        """The pool below the last of the tokens of prompt and text, all before it read; see `TextChannel.at_root`.

        Raises:
            ModelError: the logits are not numbers.
        """
        made, root = self._producer, len(committed) - 1
        features = torch.cat(self._waiting)
        following = torch.from_numpy(committed[root + 1 - len(features) :].astype(np.int64)).to(features.device)
        text = read_text(made.head, made.target, features, following, self._past)
        self._past, self._waiting, self._last = text.past, [], features[-_READ_AGAIN:]
        roots = torch.tensor([root], device=features.device)
        return eagle3_pools(made.head, made.target, roots, text.outputs[-1:], text.past, made.reach).row(0, 0)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; see `TextChannel.rewind`."""
        num_read = 0 if self._past is None else self._past.keys.shape[2]
        if self._past is None or length > num_read:
            self._waiting = [torch.cat(self._waiting)[: length - num_read]]
            return
        again = min(len(self._last), length)
        self._past = KeyValues(*(one[:, :, : length - again] for one in self._past))
        self._waiting = [self._last[:again]]


def eagle3_producer(head: Eagle3Head, target: Target, reach: Eagle3Reach) -> Eagle3Producer:
    """What makes the pools of a head, which learns here which layers of its target it reads.

    Raises:
        ModelError: the head was made for another target, or has fewer tokens than a node has children.
    """
    head.config = head.config.for_target(target.num_layers)
    return Eagle3Producer(head, target, reach)


def _check_head(config: Eagle3Config, target: Target) -> None:
    """Refuse a head that was made for a target of other sizes.

    Raises:
        ModelError: layers, hidden size or vocabulary differ.
    """
    check_taps(config.target_layer_ids, target.num_layers)
    pairs = {
        "layers": (config.num_target_layers, target.num_layers),
        "hidden size": (config.target_hidden_size, target.embedding.embedding_dim),
        "vocabulary": (config.vocab_size, target.vocab_size),
    }
    for what, (wanted, present) in pairs.items():
        if wanted not in (None, present):
            raise ModelError(
                f"this EAGLE-3 head was made for a target with {what} {wanted}; {target.name} has {present}; choose "
                "the target it was trained for"
            )


def _check_stops(head: Eagle3Head, target: Target) -> None:
    """Refuse a head that can propose no end of a text.

    Raises:
        ModelError: see above.
    """
    stops = np.array(sorted(target.stop_token_ids), np.int32)
    if head.vocabulary is not None and len(stops) and (head.vocabulary.to_draft(stops) < 0).all():
        raise ModelError(
            f"none of the {len(head.vocabulary.target_ids)} tokens of this EAGLE-3 head ends a text of {target.name}, "
            f"which ends them with {', '.join(map(str, stops.tolist()))}; choose the target it was trained for, or "
            "train another head: `simlab train eagle3` always keeps them"
        )
