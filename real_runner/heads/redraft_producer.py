"""The channel of a second drafter: redrafts behind beginnings of the first one's chain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.channels import Branches, BranchRows
from simlab.channels.branches import join_branches
from simlab.channels.rows import WHOLE_CHAIN
from simlab.errors import MissingChannelError
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.drafters.text_context import TextContext
from simlab.real_runner.heads.base import base_candidates
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.redrafts import RedraftReach, redrafts
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import BranchColumns


@dataclass(frozen=True, slots=True, eq=False)
class RedraftProducer:
    """A second drafter, the target that it reads and borrows from, and how much it says.

    Attributes:
        drafter: the second one; it has a context of its own.
        target: see there.
        base_depth: D, how far the first drafter looks ahead.
        reach: of the branches; its depth is the second drafter's.
    """

    drafter: DFlashDrafter
    target: Target
    base_depth: int
    reach: RedraftReach

    @property
    def kind(self) -> str:
        """The kind of this channel."""
        return self.reach.kind

    @property
    def width(self) -> int:
        """Candidates of each depth of the first drafter that it reads."""
        return self.reach.width

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose outputs the second drafter reads."""
        return self.drafter.config.target_layer_ids

    @property
    def depth(self) -> int:
        """How deep branches go."""
        return self.drafter.config.depth

    def within(self, need: ChannelNeed) -> "RedraftProducer":
        """This producer keeping no more tokens of a row than a policy reads."""
        check_makes(need, self.kind, self.reach.settings(self.base_depth))
        if self.reach.whole and WHOLE_CHAIN not in dict(need.equal):
            raise MissingChannelError(
                f"the policy reads branches behind beginnings of the chain in the channel {need.name}, and its network "
                f"makes the one behind the whole chain alone; leave {WHOLE_CHAIN}=1 out"
            )
        top_k = dict(need.least).get("top_k", self.reach.top_k)
        return replace(self, reach=replace(self.reach, top_k=top_k))

    def begin_behind(self, room: int) -> "RedraftText":
        """A text of which nothing is read yet; its context will hold so many tokens."""
        return RedraftText(self, room)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> BranchColumns:
        """The branches behind every beginning at every root of one text, to be recorded.

        Args:
            features: ``[C, taps x H]``, states of the target behind `taps`, from position 0 on.
            tokens: int64 ``[P + T]``, prompt and text.
            rows: the first drafter's candidates at the ``T - 1`` roots.
        """
        config, num_roots, last = self.drafter.config, len(rows.counts), len(tokens) - 1
        lengths = self.reach.lengths(self.base_depth)
        chains = base_candidates(rows.ids, rows.log_probs, rows.counts, 1).ids[:, :, 0]
        roots = torch.arange(last - num_roots, last, device=tokens.device)
        blocks = blocks_per_pass(config.num_attention_heads, config.block_size, len(tokens))
        per_pass = max(1, blocks // len(lengths))
        context, parts, outside = self.drafter.context(features[None]), list[BranchRows](), [np.empty(0, np.float32)]
        for first in range(0, num_roots, per_pass):
            some, chain = roots[first : first + per_pass], chains[first : first + per_pass]
            settings = lengths, self.reach.top_k
            made, mass = redrafts(self.drafter, self.target, tokens[some], some, context, chain, *settings)
            parts.append(made)
            outside.append(mass)
        return BranchColumns(join_branches(parts) if parts else self._nothing(len(lengths)), np.concatenate(outside))

    def _nothing(self, num_lengths: int) -> BranchRows:
        """The rows of a text without roots."""
        shape = (0, self.reach.top_k)
        return BranchRows(
            np.empty((0, num_lengths), np.int32), self.depth, np.empty(shape, np.int32), np.empty(shape, np.float32)
        )


class RedraftText:
    """One text that is being written: the second drafter's context of it."""

    def __init__(self, producer: RedraftProducer, room: int) -> None:
        self._producer = producer
        self._text = TextContext(producer.drafter, room)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._text.read(features)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; see `TextContext.rewind`."""
        self._text.rewind(length)

    @torch.inference_mode()
    def at_root(self, drafted: Drafted, lengths: Sequence[int] | None) -> Branches:
        """Branches at one root, in a round.

        Args:
            drafted: what the first drafter's pass left.
            lengths: behind how many tokens of the chain; None: behind every beginning.
        """
        made = self._producer
        chain: Ints = drafted.marginals.top_tokens(made.base_depth)
        every = made.reach.lengths(len(chain)) if lengths is None else lengths
        wanted = sorted({one for one in every if one < made.depth})
        if not wanted:
            # What was read waits until the drafter is run: this round pays nothing of it.
            empty = (0, made.reach.top_k)
            return Branches(np.empty(0, np.int32), made.depth, np.empty(empty, np.int32), np.empty(empty, np.float32))
        context = self._text.context()
        device = context.keys[0].device
        root, position = (torch.tensor([one], device=device) for one in (drafted.root_token, drafted.position))
        settings = wanted, made.reach.top_k
        rows, _ = redrafts(made.drafter, made.target, root, position, context, chain[None], *settings)
        return rows.row(0, 0)
