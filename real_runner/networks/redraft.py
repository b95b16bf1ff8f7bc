"""Redrafts: what a second block drafter says behind beginnings of the first one's chain (D²SD 2026, arXiv 2606.04446).

The first slots of a block hold the root and the chain's first i tokens, the others masks; the slots that predict behind
them say the rest. The drafter should have learnt with filled slots (`simlab train dflash --variable-prefix`).

One arithmetic serves the dense record, with all beginnings at many roots, and a round, with those that it asks for.

Letters: N roots, D depths of the chain, D2 of the second drafter, B beginnings, K tokens of a row, S rows of a root.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats, Ints, Longs
from simlab.channels import BRANCHES, POOL, Branches, BranchRows, Channel, PoolRows
from simlab.channels.rows import WHOLE_CHAIN, beam_sizes
from simlab.errors import MissingChannelError, ModelError
from simlab.grid import to_grid
from simlab.policy import MADE_WITH, ChannelNeed
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.zlab import ZLAB
from simlab.real_runner.drafters.candidate_keys import sent
from simlab.real_runner.drafters.dense import BlockPasses, blocks_of, check_fit, passes_along
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.execution.fixed_drafter import text_context
from simlab.real_runner.networks.candidates import (
    BaseCandidates,
    base_candidates,
    base_of,
    first_of_all,
    outside_log_mass,
)
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.known import read_config
from simlab.real_runner.networks.network import BYTES_OF_NODE, Network, Reach, Settings, check_settings, reach_with
from simlab.real_runner.networks.pools import beam_pools, joined_pools
from simlab.real_runner.networks.producer import ChannelAsked, Drafted, OnDrafter, WithModels, block_stage, check_makes
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import BranchColumns, PoolColumns
from simlab.traces.format.manifest_entries import branch_lengths

# How far a drafter's own checkpoint reaches as a network: redrafts behind a chain, or pools of its own paths.


@dataclass(frozen=True, slots=True)
class RedraftReach(Reach):
    """How much a second drafter says.

    Attributes:
        depth: D2, its last one.
        top_k: K, tokens of a row.
        block: slots of its block, the root's counted, where that is another one than its checkpoint has; else None.
        whole: 1: behind the whole chain alone; 0: behind every beginning.
    """

    kind: ClassVar[str] = BRANCHES
    score_bytes: ClassVar[float] = 4.5

    depth: int
    top_k: int = 8
    block: int | None = None
    whole: int = 0

    def __post_init__(self) -> None:
        check_settings(self, "redrafts", "top_k")
        if self.whole not in (0, 1):
            raise ValueError(
                f"{WHOLE_CHAIN}=1 is the branch behind the whole chain alone; got {self.whole}, leave it out for all"
            )

    @property
    def width(self) -> int:
        """How many candidates of each depth of the first drafter are read: the chain."""
        return 1

    def lengths(self, depth: int) -> range:
        """Behind how many tokens of a chain of ``depth`` there are branches."""
        lengths = branch_lengths(depth, self.depth, self.whole == 1)
        if not lengths:
            raise ModelError(
                f"a drafter that looks {self.depth} tokens ahead says nothing behind a whole chain of {depth}; run it "
                f"in a longer block, such as block={2 * depth + 1}"
            )
        return lengths

    def settings(self, depth: int) -> dict[str, object]:
        own = {"depth": self.depth, "branches": len(self.lengths(depth)), "top_k": self.top_k}
        typed = {"block": self.block, WHOLE_CHAIN: self.whole or None}
        return {**own, **{key: value for key, value in typed.items() if value is not None}}

    def num_scores(self, depth: int) -> int:
        return sum(self.depth - length for length in self.lengths(depth)) * self.top_k

    def widest(self, width: int) -> str:
        return f"top_k={width}"


@dataclass(frozen=True, slots=True)
class PathReach(Reach):
    """How many nodes a pool of paths has.

    Attributes:
        beam: b, paths of each depth that are looked behind.
        top_k: R, tokens that are kept behind each.
    """

    kind: ClassVar[str] = POOL
    score_bytes: ClassVar[float] = BYTES_OF_NODE

    beam: int = 10
    top_k: int = 7

    def __post_init__(self) -> None:
        check_settings(self, "a pool", "beam", "top_k")

    @property
    def width(self) -> int:
        return self.top_k

    def within(self, num_tokens: int) -> Self:
        return replace(self, top_k=min(self.top_k, num_tokens))

    def settings(self, depth: int) -> dict[str, object]:
        return {"depth": depth, "beam": self.beam, "top_k": self.top_k}

    def num_scores(self, depth: int) -> int:
        return sum(beam_sizes(self.beam, self.top_k, depth - 1))

    def widest(self, width: int) -> str:
        return f"top_k={width}"


def makes_redrafts(settings: Settings, is_base: bool) -> bool:
    """Whether a drafter's checkpoint redrafts behind a chain, and does not make pools of its own paths.

    Another drafter than the draft set's redrafts, unless a ``beam`` is set. The same one makes pools, unless
    a setting says that it redrafts: ``branches``, whose number is not read, since all beginnings of the chain are
    recorded; ``block``, for one that is longer than its own; or ``whole``, for the branch behind the whole chain alone.

    Args:
        settings: as typed behind the checkpoint, or as a manifest has them.
        is_base: whether it is the draft set's own drafter, whose chain it is.
    """
    is_stated = any(key in settings for key in ("branches", "block", WHOLE_CHAIN))
    return "beam" not in settings and (is_stated or not is_base)


def check_own_rows(checkpoint: str, settings: Settings, is_base: bool) -> None:
    """Refuse a drafter's checkpoint that would go on from the rows of another drafter, as no pool of paths does.

    Args:
        checkpoint: as it was typed.
        settings: the same.
        is_base: whether it is the draft set's own drafter.
    """
    if "beam" in settings and not is_base:
        raise ModelError(
            f"{checkpoint} is a drafter, which goes on from its own rows alone where a beam is set, and the draft set "
            f"here is of another; add its rows first, `simlab record --trace DIR --add-draft NAME={checkpoint}`, and "
            "choose them with --draft-set NAME, or leave beam out: then it redrafts behind the chain of the other"
        )


def _reach(fields: Fields, settings: Settings, is_base: bool) -> Reach:
    if not makes_redrafts(settings, is_base):
        return reach_with("a drafter that goes on from its own rows", settings, ("beam", "top_k"), PathReach)
    config, block = read_config(fields), settings.get("block")
    depth = config.with_block(block).depth if isinstance(block, int) else config.depth

    def made(branches: int = 0, **own: int) -> RedraftReach:
        return RedraftReach(depth, **own)

    return reach_with("a drafter that redrafts behind a chain", settings, MADE_WITH[BRANCHES], made)


REDRAFT = Network(
    what="a drafter",
    layout=ZLAB,
    reads=lambda fields: None,
    reach=_reach,
    module="simlab.real_runner.networks.redraft",
)
"""A drafter alone, in this or another layout of drafters: what none of `simlab.real_runner.networks.known` reads."""


# The channel of a second drafter: redrafts behind beginnings of the first one's chain.


@dataclass(frozen=True, slots=True, eq=False)
class RedraftProducer(OnDrafter[DFlashDrafter, RedraftReach]):
    """A second drafter, with a context of its own, that says more behind a first one's chain; see `StagedProducer`.

    Attributes:
        base_depth: D, how far the first drafter looks ahead.
    """

    base_depth: int

    @property
    def taps(self) -> tuple[int, ...]:
        return self.drafter.config.target_layer_ids

    @property
    def depth(self) -> int:
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
        passes = passes_along(self.drafter, self.target, self.drafter.context(features[None]))
        parts, outside = list[BranchRows](), [np.empty(0, np.float32)]
        for first in range(0, num_roots, per_pass):
            part, chain = roots[first : first + per_pass], chains[first : first + per_pass]
            made, mass = self.redrafts(tokens[part], part, passes, chain, lengths)
            parts.append(made)
            outside.append(mass)
        return BranchColumns(
            BranchRows.joined(parts) if parts else self._nothing(len(lengths)), np.concatenate(outside)
        )

    @torch.inference_mode()
    def redrafts(
        self, root_tokens: Tensor, positions: Tensor, passes: BlockPasses, chains: Ints, lengths: Sequence[int]
    ) -> tuple[BranchRows, Floats]:
        """The branches below some roots of one text, all in one pass.

        Args:
            root_tokens: int64 ``[N]``.
            positions: int64 ``[N]``, absolute.
            passes: of this drafter along the text; a block sees what lies before its own root.
            chains: int32 ``[N, D]``, of the first drafter.
            lengths: of the beginnings, rising, each below D2.

        Returns:
            the rows; float32 ``[N S]``, the log of the mass of each that is not kept.
        """
        config, device = self.drafter.config, positions.device
        filled = np.arange(chains.shape[1]) < np.array(lengths, np.int64).reshape(-1, 1)
        tokens = np.where(filled, chains[:, None], config.mask_token_id).astype(np.int64)
        num_roots, num_blocks = len(chains), len(chains) * len(lengths)
        slots = min(chains.shape[1], config.block_size - 1)
        blocks = torch.full((num_roots, len(lengths), config.block_size), config.mask_token_id, device=device)
        blocks[:, :, 0] = root_tokens[:, None]
        blocks[:, :, 1 : 1 + slots] = sent(torch.from_numpy(tokens[:, :, :slots]), device)
        position_ids = positions.repeat_interleave(len(lengths))
        states = passes(blocks.view(num_blocks, -1), position_ids).after
        behind = np.flatnonzero(np.arange(config.depth) >= np.array(lengths, np.int64)[:, None])
        read_states = states.reshape(num_roots, len(lengths) * config.depth, -1)[
            :, sent(torch.from_numpy(behind), device)
        ]
        ids, log_probs = first_of_all(self.drafter, self.target, read_states, self.reach.top_k, self.graphs)
        of_roots = np.tile(np.array(lengths, np.int32), (num_roots, 1))
        return BranchRows(of_roots, config.depth, ids, to_grid(log_probs)), outside_log_mass(log_probs)

    def _nothing(self, num_lengths: int) -> BranchRows:
        """The rows of a text without roots."""
        shape = (0, self.reach.top_k)
        return BranchRows(
            np.empty((0, num_lengths), np.int32), self.depth, np.empty(shape, np.int32), np.empty(shape, np.float32)
        )


class RedraftText:
    """One text that is being written, see `StagedText`: the second drafter's context of it."""

    def __init__(self, producer: RedraftProducer, room: int) -> None:
        self._producer = producer
        self._text = text_context(producer.graphs, producer.drafter, producer.target, room)
        self.read, self.rewind = self._text.read, self._text.rewind

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
        wanted = sorted({length for length in every if length < made.depth})
        if not wanted:
            # What was read waits until the drafter is run: this round pays nothing of it.
            empty = (0, made.reach.top_k)
            return Branches(np.empty(0, np.int32), made.depth, np.empty(empty, np.int32), np.empty(empty, np.float32))
        device = made.target.device
        root, position = (torch.tensor([number], device=device) for number in (drafted.root_token, drafted.position))
        rows, _ = made.redrafts(root, position, self._text.states, chain[None], wanted)
        return rows.row(0, 0)


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """A drafter that redrafts, or makes pools; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    first, is_first = block_stage(asked.stage), checkpoint_digest(asked.location) == asked.digest
    if isinstance(reach, PathReach):
        check_own_rows(str(asked.location), reach.settings(first.config.depth), is_first)
        return lambda its, target: PathProducer(block_stage(its), target, reach)
    assert isinstance(reach, RedraftReach)
    reach.lengths(first.config.depth)
    second = load_drafter(asked.location, asked.dtype)
    return lambda its, target: _redraft_producer(second, block_stage(its), target, reach, is_first)


def _redraft_producer(
    second: DFlashDrafter, first: DFlashDrafter, target: Target, reach: RedraftReach, is_first: bool
) -> RedraftProducer:
    """A second drafter, on the device where its target begins.

    One that is the first itself reads the layers of the target that the first does, however these are numbered.
    """
    config = first.config.with_block(second.config.block_size) if is_first else second.config
    config = config if reach.block is None else config.with_block(reach.block)
    second.config = config
    check_fit(target, second)
    num_tokens = second.config.draft_vocab_size or second.config.vocab_size
    if reach.top_k > num_tokens:
        raise ModelError(
            f"the second drafter was asked for {reach.top_k} tokens a row, and has {num_tokens}; give a smaller top_k"
        )
    return RedraftProducer(second.to(target.device), target, reach, first.config.depth)


# Pools of a block drafter that is run again behind each path: what may follow a path, given all of it.
#
# A reconstruction of what JetSpec's paper describes (2026, arXiv 2606.18394; the released builder has rows of one pass
# alone): depth by depth, the most probable paths fill the first slots of a block, and the first mask behind says what
# follows. That is a generator of pools as EAGLE-2's is (Li and others 2024, arXiv 2406.16858), of a block drafter.


# The channel of a block drafter that is run again behind each path: a pool of paths.


@dataclass(frozen=True, slots=True, eq=False)
class PathProducer(OnDrafter[DFlashDrafter, PathReach]):
    """A drafter that goes on from its own rows; a smaller beam has other children, so nothing of a pool is left out."""

    def at_root(self, drafted: Drafted) -> Channel:
        assert drafted.passes is not None
        device = self.target.device
        root, position = (torch.tensor([number], device=device) for number in (drafted.root_token, drafted.position))
        base = base_of(drafted.marginals, self.width)
        return self.pools(root, position, drafted.passes, base).row(0, 0)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> PoolColumns:
        config, num_roots, last = self.drafter.config, len(rows.counts), len(tokens) - 1
        base = base_candidates(rows.ids, rows.log_probs, rows.counts, self.width)
        roots = torch.arange(last - num_roots, last, device=tokens.device)
        blocks = blocks_per_pass(config.num_attention_heads, config.block_size, len(tokens))
        per_pass = max(1, blocks // self.own.beam)
        passes = passes_along(self.drafter, self.target, self.drafter.context(features[None]))
        parts = list[PoolRows]()
        for first in range(0, num_roots, per_pass):
            of_pass, part = roots[first : first + per_pass], base.part(first, first + per_pass)
            parts.append(self.pools(tokens[of_pass], of_pass, passes, part))
        return PoolColumns.unlabelled(joined_pools(parts))

    @torch.inference_mode()
    def pools(self, root_tokens: Tensor, positions: Tensor, passes: BlockPasses, base: BaseCandidates) -> PoolRows:
        """The pools below some roots of one text: its own candidates of the first depth, then a pass a depth.

        Args:
            root_tokens: int64 ``[N]``.
            positions: int64 ``[N]``, absolute.
            passes: of the drafter along the text; a block sees what lies before its own root.
            base: the drafter's first candidates below these roots, at least R.
        """
        paths, num_roots, top_k = np.empty((len(positions), 1, 0), np.int64), len(positions), self.own.top_k

        def behind(tokens: Ints, above: Longs) -> tuple[Ints, Floats]:
            nonlocal paths
            before = np.take_along_axis(paths, above[:, :, None], 1)
            paths = np.concatenate([before, tokens[:, :, None]], axis=2, dtype=np.int64)
            num_paths, length = paths.shape[1:]
            filled = sent(torch.from_numpy(paths.reshape(num_roots * num_paths, length)), positions.device)
            roots, position_ids = (tensor.repeat_interleave(num_paths) for tensor in (root_tokens, positions))
            behind = passes(blocks_of(self.drafter, roots, filled), position_ids).after[:, length : length + 1]
            ids, log_probs = first_of_all(self.drafter, self.target, behind, top_k, self.graphs)
            return ids.reshape(num_roots, num_paths, -1), to_grid(log_probs).reshape(num_roots, num_paths, -1)

        first = base.ids[:, :1, :top_k], base.log_probs[:, :1, :top_k]
        return beam_pools(first, behind, self.own.beam, self.drafter.config.depth - 1)
