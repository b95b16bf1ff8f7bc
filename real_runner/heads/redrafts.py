"""Redrafts: what a second block drafter says behind beginnings of the first one's chain (D²SD 2026, arXiv 2606.04446).

The first slots of a block hold the root and the chain's first i tokens, the others masks; the slots that predict behind
them say the rest. The drafter should have learnt with filled slots (`simlab train dflash --variable-prefix`).

One arithmetic serves the dense record, with all beginnings at many roots, and a round, with those that it asks for.

Letters: N roots, D depths of the chain, D2 of the second drafter, B beginnings, K tokens of a row, S rows of a root.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats, Ints
from simlab.channels import BRANCHES, Branches, BranchRows
from simlab.channels.branches import join_branches
from simlab.channels.rows import WHOLE_CHAIN
from simlab.errors import MissingChannelError, ModelError
from simlab.grid import to_grid
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import states_of_blocks
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.drafters.text_context import TextContext
from simlab.real_runner.heads.base import base_candidates
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.rows import first_of_all, outside_log_mass
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import BranchColumns
from simlab.traces.format.manifest_entries import branch_lengths

_BYTES_OF_SCORE = 4.5
"""On disk, of a token of a row with its share of the rest, as in transitions of a TreeFlash head."""


@dataclass(frozen=True, slots=True)
class RedraftReach:
    """How much a second drafter says.

    Attributes:
        depth: D2, its last one.
        top_k: K, tokens of a row.
        block: slots of its block, the root's counted, where that is another one than its checkpoint has; else None.
        whole: 1: behind the whole chain alone; 0: behind every beginning.
    """

    depth: int
    top_k: int = 8
    block: int | None = None
    whole: int = 0

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ValueError(f"top_k of redrafts must be at least 1; got {self.top_k}")
        if self.whole not in (0, 1):
            raise ValueError(
                f"{WHOLE_CHAIN}=1 is the branch behind the whole chain alone; got {self.whole}, leave it out for all"
            )

    @property
    def kind(self) -> str:
        """The kind of channel that redrafts make: branches."""
        return BRANCHES

    @property
    def width(self) -> int:
        """How many candidates of each depth of the first drafter are read: the chain."""
        return 1

    def within(self, num_tokens: int) -> "RedraftReach":
        """This reach: what the first drafter proposes does not bound it."""
        return self

    def lengths(self, depth: int) -> range:
        """Behind how many tokens of a chain of ``depth`` there are branches."""
        found = branch_lengths(depth, self.depth, self.whole == 1)
        if not found:
            raise ModelError(
                f"a drafter that looks {self.depth} tokens ahead says nothing behind a whole chain of {depth}; run it "
                f"in a longer block, such as block={2 * depth + 1}"
            )
        return found

    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of the branches behind a chain of ``depth`` tokens."""
        own = {"depth": self.depth, "branches": len(self.lengths(depth)), "top_k": self.top_k}
        typed = {"block": self.block, WHOLE_CHAIN: self.whole or None}
        return {**own, **{key: value for key, value in typed.items() if value is not None}}

    def num_scores(self, depth: int) -> int:
        """Tokens of all rows of a root."""
        return sum(self.depth - length for length in self.lengths(depth)) * self.top_k

    def disk_bytes(self, depth: int) -> float:
        """Bytes that the rows of a root take in a trace, foreseen."""
        return self.num_scores(depth) * _BYTES_OF_SCORE

    def widest(self, width: int) -> str:
        """The setting that must be smaller where a row keeps so many candidates."""
        return f"top_k={width}"


@torch.inference_mode()
def redrafts(
    drafter: DFlashDrafter,
    target: Target,
    root_tokens: Tensor,
    positions: Tensor,
    context: DrafterContext,
    chains: Ints,
    lengths: Sequence[int],
    top_k: int,
) -> tuple[BranchRows, Floats]:
    """The branches below some roots of one text, all in one pass.

    Args:
        drafter: the second one, and its target, whose embedding and head it may borrow.
        target: see there.
        root_tokens: int64 ``[N]``.
        positions: int64 ``[N]``, absolute.
        context: of the text, as this drafter keeps it; a block sees what lies before its own root.
        chains: int32 ``[N, D]``, of the first drafter.
        lengths: of the beginnings, rising, each below D2.
        top_k: K.

    Returns:
        the rows; float32 ``[N S]``, the log of the mass of each that is not kept.
    """
    config, device = drafter.config, positions.device
    filled = np.arange(chains.shape[1]) < np.array(lengths, np.int64).reshape(-1, 1)
    tokens = np.where(filled, chains[:, None], config.mask_token_id).astype(np.int64)
    num_roots, num_blocks = len(chains), len(chains) * len(lengths)
    slots = min(chains.shape[1], config.block_size - 1)
    blocks = torch.full((num_roots, len(lengths), config.block_size), config.mask_token_id, device=device)
    blocks[:, :, 0] = root_tokens[:, None]
    blocks[:, :, 1 : 1 + slots] = torch.from_numpy(tokens[:, :, :slots]).to(device)
    places = positions.repeat_interleave(len(lengths))
    states = states_of_blocks(drafter, target, blocks.view(1, num_blocks, -1), places, context).after
    behind = torch.arange(config.depth)[None] >= torch.tensor(lengths, dtype=torch.int64)[:, None]
    said = states.view(num_roots, len(lengths), config.depth, -1)[:, behind.to(device)]
    ids, log_probs = first_of_all(drafter, target, said, top_k)
    of_roots = np.tile(np.array(lengths, np.int32), (num_roots, 1))
    return BranchRows(of_roots, config.depth, ids, to_grid(log_probs)), outside_log_mass(log_probs)


# The channel of a second drafter: redrafts behind beginnings of the first one's chain.


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
