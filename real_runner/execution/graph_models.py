"""Both models as passes of fixed sizes: verify a tree, keep what was accepted, draft below the bonus token.

The three follow each other on the device without the host: which nodes were accepted, where the next root is and what
the drafter reads are tensors. So the device never waits for the host between verification and draft. On a GPU each pass
is a CUDA graph of fused layers (`simlab.real_runner.execution.fused_layers`), captured per size of the tree and of the
context (`simlab.real_runner.execution.executions`); elsewhere the same passes are run as they are, which is slower than
passes of just the right size and is there to be tested.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from simlab.arrays import Longs
from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.real_runner.drafters.dense import BlockStates, drafted_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.drafters.ranked import CandidatesRead, first_on_device, marginals_at
from simlab.real_runner.execution.captured_work import CapturedGraphs, Moment
from simlab.real_runner.execution.executions import context_for, rows_for
from simlab.real_runner.execution.fixed_drafter import FixedContext, FixedDrafter
from simlab.real_runner.execution.fused_layers import (
    Adapter,
    PackedDrafter,
    PackedTarget,
    Regions,
    as_it_is,
    can_fuse_drafter,
    can_fuse_target,
    compiled,
)
from simlab.real_runner.execution.kv_buffers import BufferCache, FixedCache, FixedRows
from simlab.real_runner.execution.tree_passes import NO_PARENT, TreePass, empty_pass, keep_accepted, on_host
from simlab.real_runner.targets.model import Target, features_of, tapped
from simlab.tree import DraftTree

_TARGET = "target"
_FRESH = 8
"""Tokens that are read at a time beside a drafter that is of no blocks."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of the target's pass over a tree, beside its own choices.

    Attributes:
        layer_ids: whose states go into what was accepted, in this order.
        logits: whether choices are made on the host.
        states: whether the states behind the final norm are read.
    """

    layer_ids: tuple[int, ...] = ()
    logits: bool = False
    states: bool = False


class FusedModels:
    """The layers of models in few kernels; None for one whose layers are of another kind."""

    def __init__(self, target: Target, drafter: DFlashDrafter | None = None, adapter: Adapter | None = None) -> None:
        self._compiler = compiled if target.device.type == "cuda" else as_it_is
        self._regions = Regions(self._compiler)
        self.target = PackedTarget(target, self._regions, adapter) if can_fuse_target(target) else None
        if adapter is not None and self.target is None:
            raise ModelError(
                f"the layers of {target.name} are of a kind that no captured pass changes at masks, so it does not "
                "draft for itself in such passes; give --execution eager"
            )
        self._drafters = dict[DFlashDrafter, PackedDrafter | None]()
        if drafter is not None:
            self.drafter(drafter)
        self.kept = self._compiler(keep_accepted)

    def drafter(self, drafter: DFlashDrafter) -> PackedDrafter | None:
        """The layers of a drafter."""
        # Its weights become views, which other passes of the drafter go on with.
        with torch.inference_mode(mode=False):
            if drafter not in self._drafters:
                self._drafters[drafter] = PackedDrafter(drafter, self._regions) if can_fuse_drafter(drafter) else None
        return self._drafters[drafter]


class GraphedModels:
    """Passes over keys and values that never move. Of one text at a time: the next one takes the place of the last."""

    def __init__(
        self,
        target: Target,
        drafter: DFlashDrafter | None,
        fused: FusedModels | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        """Begin with no pass captured.

        Args:
            target: any.
            drafter: of blocks; None: the drafter is of another kind.
            fused: layers of these models, where they were made before.
            adapter: with which the target drafts for itself.
        """
        if "dynamic" in str(target.config.rope_parameters):
            raise ModelError(
                f"the target {target.name!r} has rotary embeddings that change with the length of a text (dynamic), "
                "which no captured pass can do; give --execution eager"
            )
        self.target, self.drafter = target, drafter
        self.fused = FusedModels(target, drafter, adapter) if fused is None else fused
        self.graphs = CapturedGraphs(target.device)
        self._rows = dict[Hashable, FixedRows]()
        self._room = 0
        self._cache: FixedCache | None = None
        self._fixed = dict[DFlashDrafter, FixedDrafter]()
        self._passes: dict[Hashable, TreePass] = {}
        self._fresh: dict[tuple[int, int], Tensor] = {}
        self._drafts: dict[CandidatesRead, tuple[Tensor, ...]] = {}
        self._drafted_states = dict[int, BlockStates]()
        self._verified, self._drafted = Moment(target.device), Moment(target.device)
        self._turns: Tensor | None = None
        self._fresh_start, self._root, self._root_position, self._last = (self._number() for _ in range(4))

    @property
    def num_fresh(self) -> int:
        """Tokens of a text that a model reads in a captured pass, as many as a round may bring; fewer are padded."""
        return _FRESH if self.drafter is None else self.drafter.config.block_size

    def call(self, key: Hashable, work: Callable[..., Sequence[Tensor]], *inputs: Tensor) -> Sequence[Tensor]:
        """The tensors that work makes of some inputs; see `CapturedGraphs.call`."""
        return self.graphs.call(key, work, *inputs)

    def rows(self, key: Hashable, like: Tensor | None = None) -> FixedRows:
        """Keys and values that a model keeps of the text.

        Args:
            key: the model.
            like: ``[parts, 1, E, any, F]``, where there may be none yet.
        """
        if key not in self._rows and like is not None:
            self._rows[key] = FixedRows(like, self._room)
        return self._rows[key]

    def context(self, drafter: DFlashDrafter) -> FixedContext:
        """The context of a drafter, of a text of which it has read nothing."""
        return FixedContext(self, self._fixed_drafter(drafter), self.target)

    def begin(self, prompt: BufferCache, room: int) -> None:
        """Take in the keys and values of a prompt.

        Args:
            prompt: as the target has read it.
            room: tokens of prompt, text and a tree; where more come everything is captured anew.
        """
        held = prompt.rows.tensor
        assert held is not None
        self.reserve(room)
        rows = self.rows(_TARGET, held)
        if self._cache is None:
            self._cache = FixedCache(rows)
            self._turn()
        rows.fill(held[:, :, :, : prompt.length])

    def fill(self, context: DrafterContext) -> None:
        """Take in the drafter's context of a prompt."""
        self._first.fill(context)

    def reserve(self, room: int) -> None:
        """Have so many slots for the text, and those that a pass writes behind it."""
        room = context_for(room + self.num_fresh + 1)
        if room > self._room:
            # Doubled, since everything is captured anew.
            self._room = max(room, context_for(2 * self._room)) if self._room else room
            self.graphs.forget()
            self._rows = {key: rows.grown(self._room) for key, rows in self._rows.items()}
            if self._cache is not None:
                self._cache.rows = self._rows[_TARGET]
                self._turn()
            for fixed in self._fixed.values():
                fixed.turn()

    def verify(
        self,
        tree: DraftTree,
        position: int,
        wanted: Wanted,
        num_carriers: int = 0,
        num_masks: int = 0,
        noise: Longs | None = None,
    ) -> tuple[TreePass, int]:
        """Launch the target's pass over a tree.

        Args:
            tree: of any size.
            position: absolute, of the root; all before it is held.
            wanted: what is read of the pass.
            num_carriers: so many nodes, the root first, carry masks with which the target drafts for itself.
            num_masks: k, behind each.
            noise: int64 ``[num_carriers, k]``, tokens that stand in place of masks.

        Returns:
            Filled once the device was waited for, and valid until the next pass of as many rows; and the tree's depth.
        """
        num_rows, groups = rows_for(tree.num_nodes), rows_for(num_carriers) if num_carriers else 0
        num_all = num_rows + groups * num_masks
        num_seen = context_for(position + num_all)
        self.reserve(position + num_all)
        held = self._pass(num_rows, wanted, groups, num_masks)
        deepest = held.host.put(tree, position, num_masks, noise)
        key = ("verify", num_rows, num_seen, wanted, groups)

        def work() -> None:
            held.nodes.copy_(held.host.nodes, non_blocking=True)
            held.ancestors.copy_(held.host.ancestors, non_blocking=True)
            self._verify(held, num_seen, wanted.layer_ids)

        self.graphs.run(key, work)
        self._verified.mark()
        return held, deepest

    def place(self, token: int, position: int, wants_logits: bool) -> None:
        """Put a token where the next `step` reads it."""
        held = self._pass(1, Wanted(logits=wants_logits))
        self._send(torch.tensor([[token], [position], [NO_PARENT]]), held.nodes)

    def step(self, position: int, wants_logits: bool) -> TreePass:
        """Launch the target's pass over one token; the likeliest one after it is what the next step reads.

        Args:
            position: absolute, of the token that `place` or the last step has left.
            wants_logits: else the choice is all.
        """
        held, num_seen = self._pass(1, Wanted(logits=wants_logits)), context_for(position + 1)

        def work() -> None:
            self._verify(held, num_seen)
            held.nodes[0].copy_(held.choices)
            held.nodes[1].add_(1)

        self.graphs.run(("step", num_seen, wants_logits), work, [held.nodes])
        self._verified.mark()
        return held

    def choose(self, held: TreePass, choices: Longs) -> None:
        """Put other choices in place of the likeliest tokens, int64 ``[N]``; -1 where there is none.

        They were drawn from logits of this pass, so the device is through with it.
        """
        self._send(torch.from_numpy(choices), held.choices[: len(choices)])
        held.host.choices[: len(choices)] = torch.from_numpy(choices)

    def keep(self, held: TreePass, position: int, deepest: int) -> int:
        """Launch the walk down the tree, and move what was accepted into place.

        Args:
            held: what `verify` returned.
            position: absolute, of the root.
            deepest: depth of the tree.

        Returns:
            Rows that the drafter is to read, padding counted; for `draft`.
        """
        num_kept = min(held.num_rows, max(self.num_fresh, deepest + 1))
        num_fresh = max(self.num_fresh, num_kept)
        fresh = None if held.features is None else self._fresh_rows(num_fresh, held.features)
        key = ("keep", num_kept, id(held))
        moved = self._held.rows.tensor[:, :, :, position : position + num_kept]
        self.graphs.run(key, lambda: self._keep(held, fresh, num_kept), [moved])
        return num_fresh

    def fresh(self, held: TreePass, num_fresh: int, num: int) -> Tensor:
        """A copy of the states ``[1, num, taps x H]`` of what was accepted.

        Args:
            held: what `verify` returned.
            num_fresh: what `keep` returned.
            num: of accepted nodes, the root counted.
        """
        assert held.features is not None
        return self._fresh_rows(num_fresh, held.features)[:, :num].clone()

    def draft(self, num_fresh: int, most: int, read: CandidatesRead, width: int) -> None:
        """Launch a draft below the root that `keep` or `draft_at` has left.

        Args:
            num_fresh: tokens of context to project first.
            most: at least the root's absolute position, and as many tokens more as are projected.
            read: what is read at each depth.
            width: of the features that were kept; the drafter's stand first.
        """
        num_seen = context_for(most + self.num_fresh)
        key = ("draft", num_fresh, num_seen, read, width)
        self.graphs.run(key, lambda: self._draft(num_fresh, num_seen, read, width))
        self._drafted.mark()

    def draft_at(self, root: int, position: int, read: CandidatesRead, features: Tensor) -> None:
        """Launch a draft below a root that the host names.

        Args:
            root: its token.
            position: absolute, of the root.
            read: what is read at each depth.
            features: ``[1, L, taps x H]``, of which the last tokens are those before the root.
        """
        num_fresh = self.num_fresh
        last = features[:, -num_fresh:]
        self._fresh_rows(num_fresh, features)[:, : last.shape[1]] = last
        self._fresh_start.fill_(max(position - num_fresh, 0))
        self._root.fill_(root)
        self._root_position.fill_(position)
        self.draft(num_fresh, position + num_fresh, read, features.shape[2])

    def draft_of_masks(
        self, held: TreePass, num_masks: int, read: CandidatesRead, logits: Callable[[Tensor], Tensor]
    ) -> None:
        """Launch the draft that masks behind the last accepted node are, where that node carried some.

        Args:
            held: what `verify` returned, after `keep`.
            num_masks: k, behind a node.
            read: what is read at each depth.
            logits: of states ``[k, H]`` of masks.
        """

        def work() -> None:
            groups = [states.view(-1, num_masks, states.shape[1]) for states in held.masked]
            last = self._last.clamp(max=len(groups[0]) - 1)
            states = BlockStates(*(group.index_select(0, last) for group in groups))
            self._leave(states, logits(states.after[0]), read)

        self.graphs.run(("masks", id(held), read), work)
        self._drafted.mark()

    def chosen(self, held: TreePass) -> list[int]:
        """The target's own token after each node; waits until verification is done, and not for what comes behind."""
        self._verified.wait()
        if not bool(held.host.are_laws):
            raise self.target.no_law()
        chosen: list[int] = held.host.choices.tolist()
        return chosen

    def marginals(self, read: CandidatesRead) -> Marginals:
        """The candidates of the latest draft; waits until it is done."""
        self._drafted.wait()
        drafted = marginals_at(*(draft.numpy() for draft in self._drafts[read]))
        own = None if self.drafter is None else self.drafter.vocabulary
        return drafted if own is None else own.in_target(drafted)

    def drafted_states(self, depth: int) -> BlockStates:
        """The states ``[1, D, H]`` of the latest draft, of so many depths; valid until the next one."""
        return self._drafted_states[depth]

    def blocks(self, position: int) -> Callable[[Tensor, Tensor], BlockStates]:
        """Passes of the drafter over other blocks below a root, after its draft there; see `TextContext.states`."""

        def states(blocks: Tensor, positions: Tensor) -> BlockStates:
            num_seen = context_for(position + blocks.numel())
            self.reserve(position + blocks.numel())

            def work(blocks: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
                states = self._first.states(blocks, at, num_seen)
                return states.before, states.after

            return BlockStates(*self.call(("first blocks", num_seen), work, blocks, positions[:1]))

        return states

    @property
    def _held(self) -> FixedCache:
        assert self._cache is not None
        return self._cache

    @property
    def _first(self) -> FixedDrafter:
        assert self.drafter is not None
        return self._fixed_drafter(self.drafter)

    def _fixed_drafter(self, drafter: DFlashDrafter) -> FixedDrafter:
        if drafter not in self._fixed:
            self._fixed[drafter] = FixedDrafter(self, drafter, self.target, self.fused.drafter(drafter))
        return self._fixed[drafter]

    def _turn(self) -> None:
        """Know the rotations of all positions, where the target's layers are fused."""
        self._turns = None if self.fused.target is None else self.fused.target.rotations(self._room)

    def _number(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=self.target.device)

    def _send(self, tensor: Tensor, onto: Tensor) -> None:
        """Copy to the device without a wait."""
        onto.copy_(tensor.pin_memory() if self.target.device.type == "cuda" else tensor, non_blocking=True)

    def _pass(self, num_rows: int, wanted: Wanted, num_groups: int = 0, num_masks: int = 0) -> TreePass:
        key = (num_rows, wanted, num_groups)
        if key not in self._passes:
            device, target, dtype = self.target.device, self.target, self.target.dtype
            size, num = target.embedding.embedding_dim, num_groups * num_masks
            held = empty_pass(num_rows, device, num)
            if wanted.logits:
                held.logits = torch.zeros(num_rows, target.vocab_size, device=device)
            if wanted.states:
                held.states = torch.zeros(num_rows, size, dtype=dtype, device=device)
            if wanted.layer_ids:
                held.features = torch.zeros(1, num_rows, len(wanted.layer_ids) * size, dtype=dtype, device=device)
            if num:
                held.slots = torch.arange(num_masks, device=device).repeat(num_groups)
                held.masked = tuple(torch.zeros(num, size, dtype=dtype, device=device) for _ in range(2))
            self._passes[key] = held
        return self._passes[key]

    def _fresh_rows(self, num_fresh: int, features: Tensor) -> Tensor:
        key = (num_fresh, features.shape[2])
        if key not in self._fresh:
            self._fresh[key] = features.new_zeros(1, *key)
        return self._fresh[key]

    def _verify(self, held: TreePass, num_seen: int, layer_ids: Sequence[int] = ()) -> None:
        target, num = self.target, held.num_rows
        if self.fused.target is not None and self._turns is not None:
            taken: dict[int, Tensor] = {}
            nodes = (held.nodes[0], target.embedding.weight, held.nodes[1], held.ancestors)
            where = (self._turns, self._held.rows, num_seen, taken.__setitem__)
            before, states = self.fused.target.states(*nodes, *where, masks=held.slots)
            for kept, own in zip(held.masked, (before, states), strict=False):
                kept.copy_(own[num:])
        else:
            states, taken = self._states(held, num_seen, layer_ids)
        states = states[:num]
        if held.features is not None:
            held.features.copy_(features_of(taken, layer_ids)[..., :num, :])
        if held.states is not None:
            held.states.copy_(states)
        logits = target.logits(states)
        values, choices = logits.max(dim=-1)
        held.choices.copy_(choices)
        held.are_laws.copy_(values.isfinite().all())
        held.host.choices.copy_(held.choices, non_blocking=True)
        held.host.are_laws.copy_(held.are_laws, non_blocking=True)
        if held.logits is not None:
            held.logits.copy_(logits)

    def _states(self, held: TreePass, num_seen: int, layer_ids: Sequence[int]) -> tuple[Tensor, dict[int, Tensor]]:
        """The states of a target's own modules, and those behind some layers."""
        cache, target = self._held, self.target
        tokens, positions, _ = held.nodes
        root, num_rows = positions[:1], len(tokens)
        cache.slots, cache.num_seen = root + torch.arange(num_rows, device=root.device), num_seen
        visible = (torch.arange(num_seen, device=root.device) < root).repeat(num_rows, 1)
        visible.index_copy_(1, cache.slots, held.ancestors)
        with tapped(target, layer_ids) as taken:
            states = target.states(tokens[None], cache, visible[None, None], positions[None])
        # What was made within a capture is not kept beyond it.
        cache.slots = torch.empty(0, dtype=torch.int64)
        return states[0], taken

    def _keep(self, held: TreePass, fresh: Tensor | None, num_kept: int) -> None:
        num = held.num_rows
        nodes, ancestors = held.nodes[:, :num], held.ancestors[:num, :num]
        where = (held.choices, self._held.rows.tensor, held.features, fresh, num_kept)
        results = cast(tuple[Tensor, ...], self.fused.kept(nodes, ancestors, *where))
        into = (self._fresh_start, self._root, self._root_position, self._last)
        for number, tensor in zip(into, results, strict=True):
            number.copy_(tensor)

    def _draft(self, num_fresh: int, num_seen: int, read: CandidatesRead, width: int) -> None:
        drafter = self._first.drafter
        config, fresh = drafter.config, self._fresh[num_fresh, width]
        slots = self._fresh_start + torch.arange(num_fresh, device=fresh.device)
        features = fresh[..., : len(config.target_layer_ids) * self.target.embedding.embedding_dim]
        self._first.take(features, slots)
        block = torch.arange(config.block_size, device=fresh.device)
        tokens = torch.where(block == 0, self._root, config.mask_token_id)
        seen = features[0].index_select(0, self._root_position - self._fresh_start - 1)
        states = replace(self._first.states(tokens[None], self._root_position, num_seen), seen=seen)
        self._leave(states, drafted_logits(drafter, self.target, states.after, self._root)[0], read)

    def _leave(self, states: BlockStates, logits: Tensor, read: CandidatesRead) -> None:
        """Leave a draft where it is read: its candidates on the host, its states on the device."""
        candidates = first_on_device(logits, read)
        if read not in self._drafts:
            self._drafts[read] = tuple(map(on_host, candidates))
        for left, tensor in zip(self._drafts[read], candidates, strict=True):
            left.copy_(tensor, non_blocking=True)
        all_of_it = (states.before, states.after, states.seen)
        if len(logits) not in self._drafted_states:
            self._drafted_states[len(logits)] = BlockStates(*map(torch.zeros_like, all_of_it))
        kept = self._drafted_states[len(logits)]
        for own, tensor in zip((kept.before, kept.after, kept.seen), all_of_it, strict=True):
            own.copy_(tensor)
