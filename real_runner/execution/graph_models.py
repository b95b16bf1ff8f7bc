"""Both models as passes of fixed sizes: verify a tree, keep what was accepted, draft below the bonus token.

The three follow each other on the device without the host: which nodes were accepted, where the next root is and what
the drafter reads are tensors. So the device never waits for the host between verification and draft. On a GPU each pass
is a CUDA graph of fused layers (`simlab.real_runner.execution.fused_layers`), captured per size of the tree and of the
context (`simlab.real_runner.execution.executions`); elsewhere the same passes are run as they are, which is slower than
passes of just the right size and is there to be tested.
"""

from collections.abc import Hashable, Sequence
from typing import cast

import torch
from torch import Tensor

from simlab.arrays import Longs
from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.real_runner.drafters.dense import block_logits, logits_of
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.drafters.ranked import CandidatesRead, first_on_device, marginals_at
from simlab.real_runner.execution.captured_work import CapturedGraphs, Moment
from simlab.real_runner.execution.executions import context_for, rows_for
from simlab.real_runner.execution.fused_layers import (
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


class FusedModels:
    """The layers of both models in few kernels; None for one whose layers are of another kind."""

    def __init__(self, target: Target, drafter: DFlashDrafter) -> None:
        compiler = compiled if target.device.type == "cuda" else as_it_is
        regions = Regions(compiler)
        self.target = PackedTarget(target, regions) if can_fuse_target(target) else None
        self.drafter = PackedDrafter(drafter, regions) if can_fuse_drafter(drafter) else None
        self.kept = compiler(keep_accepted)


class GraphedModels:
    """Passes over keys and values that never move. Of one text at a time: the next one takes the place of the last."""

    def __init__(self, target: Target, drafter: DFlashDrafter, fused: FusedModels | None = None) -> None:
        """Begin with no pass captured."""
        if "dynamic" in str(target.config.rope_parameters):
            raise ModelError(
                f"the target {target.name!r} has rotary embeddings that change with the length of a text (dynamic), "
                "which no captured pass can do; give --execution eager"
            )
        self.target, self.drafter = target, drafter
        self.fused = FusedModels(target, drafter) if fused is None else fused
        self.graphs = CapturedGraphs(target.device)
        self._cache: FixedCache | None = None
        self._context: FixedRows | None = None
        self._passes: dict[Hashable, TreePass] = {}
        self._fresh: dict[int, Tensor] = {}
        self._drafts: dict[CandidatesRead, tuple[Tensor, ...]] = {}
        self._verified, self._drafted = Moment(target.device), Moment(target.device)
        self._turns = self._rotations(0)
        self._fresh_start, self._root, self._root_position = (self._number() for _ in range(3))

    @property
    def num_fresh(self) -> int:
        """Tokens of context that a draft projects at least: as many as a round may bring."""
        return self.drafter.config.block_size

    def begin(self, prompt: BufferCache, context: DrafterContext | None, room: int) -> None:
        """Take in the keys and values of a prompt.

        Args:
            prompt: as the target has read it.
            context: of the drafter; None: it is not used.
            room: tokens of prompt, text and a tree; where more come everything is captured anew.
        """
        held = prompt.rows.tensor
        assert held is not None
        rows = held[:, :, :, : prompt.length]
        if self._cache is None:
            self._cache = FixedCache(FixedRows(rows, 0))
        filled = None
        if context is not None:
            pairs = zip(context.keys, context.values, strict=True)
            filled = torch.stack([tensor for pair in pairs for tensor in pair])
            if self._context is None:
                self._context = FixedRows(filled, self._cache.rows.room)
        self._reserve(room)
        self._cache.rows.fill(rows)
        if filled is not None and self._context is not None:
            self._context.fill(filled)

    def verify(self, tree: DraftTree, position: int, wants_features: bool, wants_logits: bool) -> tuple[TreePass, int]:
        """Launch the target's pass over a tree.

        Args:
            tree: of any size.
            position: absolute, of the root; all before it is held.
            wants_features: the drafter is to read the accepted nodes.
            wants_logits: the choices are made on the host; else the likeliest tokens are all that is asked for.

        Returns:
            Filled once the device was waited for, and valid until the next pass of as many rows; and the tree's depth.
        """
        num_rows = rows_for(tree.num_nodes)
        num_seen = context_for(position + num_rows)
        self._reserve(position + num_rows)
        held = self._pass(num_rows, wants_features, wants_logits)
        deepest = held.host.put(tree, position)
        key = ("verify", num_rows, num_seen, wants_features, wants_logits)

        def work() -> None:
            held.nodes.copy_(held.host.nodes, non_blocking=True)
            held.ancestors.copy_(held.host.ancestors, non_blocking=True)
            self._verify(held, num_seen)

        self.graphs.run(key, work)
        self._verified.mark()
        return held, deepest

    def place(self, token: int, position: int, wants_logits: bool) -> None:
        """Put a token where the next `step` reads it."""
        held = self._pass(1, False, wants_logits)
        self._send(torch.tensor([[token], [position], [NO_PARENT]]), held.nodes)

    def step(self, position: int, wants_logits: bool) -> TreePass:
        """Launch the target's pass over one token; the likeliest one after it is what the next step reads.

        Args:
            position: absolute, of the token that `place` or the last step has left.
            wants_logits: else the choice is all.
        """
        held, num_seen = self._pass(1, False, wants_logits), context_for(position + 1)

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

    def draft(self, num_fresh: int, most: int, read: CandidatesRead) -> None:
        """Launch a draft below the root that `keep` or `draft_at` has left.

        Args:
            num_fresh: tokens of context to project first.
            most: at least the root's absolute position, and as many tokens more as are projected.
            read: what is read at each depth.
        """
        assert self._context is not None
        num_seen = context_for(most + self.num_fresh)
        key = ("draft", num_fresh, num_seen, read)
        self.graphs.run(key, lambda: self._draft(num_fresh, num_seen, read))
        self._drafted.mark()

    def draft_at(self, root: int, position: int, read: CandidatesRead, features: Tensor | None = None) -> None:
        """Launch a draft below a root that the host names.

        Args:
            root: its token.
            position: absolute, of the root.
            read: what is read at each depth.
            features: ``[1, L, taps x H]`` of the last tokens before it; None: those of the last round, whosever.
        """
        num_fresh = self.num_fresh
        if features is not None:
            last = features[:, -num_fresh:]
            self._fresh_rows(num_fresh, features)[:, : last.shape[1]] = last
        self._fresh_start.fill_(max(position - num_fresh, 0))
        self._root.fill_(root)
        self._root_position.fill_(position)
        self.draft(num_fresh, position + num_fresh, read)

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
        drafted, own = marginals_at(*(draft.numpy() for draft in self._drafts[read])), self.drafter.vocabulary
        return drafted if own is None else own.in_target(drafted)

    @property
    def _held(self) -> FixedCache:
        assert self._cache is not None
        return self._cache

    def _reserve(self, room: int) -> None:
        """Have so many slots, and those that a draft writes behind the last token."""
        room, held = context_for(room + self.num_fresh + 1), self._held.rows.room
        if room > held:
            # Doubled, since everything is captured anew.
            room = max(room, context_for(2 * held))
            self.graphs.forget()
            self._held.rows = self._held.rows.grown(room)
            self._turns = self._rotations(room)
            self._context = None if self._context is None else self._context.grown(room)

    def _rotations(self, room: int) -> tuple[Tensor | None, Tensor | None]:
        """Cosines and sines of the positions of either model's layers, where these are fused."""
        target, drafter = self.fused.target, self.fused.drafter
        return None if target is None else target.rotations(room), None if drafter is None else drafter.rotations(room)

    def _number(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=self.target.device)

    def _send(self, tensor: Tensor, onto: Tensor) -> None:
        """Copy to the device without a wait."""
        onto.copy_(tensor.pin_memory() if self.target.device.type == "cuda" else tensor, non_blocking=True)

    def _pass(self, num_rows: int, wants_features: bool, wants_logits: bool) -> TreePass:
        key = (num_rows, wants_features, wants_logits)
        if key not in self._passes:
            device, target = self.target.device, self.target
            held = empty_pass(num_rows, device)
            if wants_logits:
                held.logits = torch.zeros(num_rows, target.vocab_size, device=device)
            if wants_features:
                size = len(self.drafter.config.target_layer_ids) * target.embedding.embedding_dim
                held.features = torch.zeros(1, num_rows, size, dtype=target.dtype, device=device)
            self._passes[key] = held
        return self._passes[key]

    def _fresh_rows(self, num_fresh: int, features: Tensor) -> Tensor:
        if num_fresh not in self._fresh:
            self._fresh[num_fresh] = features.new_zeros(1, num_fresh, features.shape[2])
        return self._fresh[num_fresh]

    def _verify(self, held: TreePass, num_seen: int) -> None:
        target, layer_ids = self.target, () if held.features is None else self.drafter.config.target_layer_ids
        rotations, _ = self._turns
        if self.fused.target is not None and rotations is not None:
            taken: dict[int, Tensor] = {}
            nodes = (held.nodes[0], target.embedding.weight, held.nodes[1], held.ancestors)
            states = self.fused.target.states(*nodes, rotations, self._held.rows, num_seen, taken.__setitem__)
        else:
            states, taken = self._states(held, num_seen, layer_ids)
        if held.features is not None:
            held.features.copy_(features_of(taken, layer_ids))
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
        found = self.fused.kept(
            held.nodes, held.ancestors, held.choices, self._held.rows.tensor, held.features, fresh, num_kept
        )
        into = (self._fresh_start, self._root, self._root_position)
        for number, one in zip(into, cast(tuple[Tensor, Tensor, Tensor], found), strict=True):
            number.copy_(one)

    def _draft(self, num_fresh: int, num_seen: int, read: CandidatesRead) -> None:
        assert self._context is not None
        fresh = self._fresh[num_fresh]
        slots = self._fresh_start + torch.arange(num_fresh, device=fresh.device)
        _, rotations = self._turns
        if self.fused.drafter is not None and rotations is not None:
            logits = self._logits_of_block(self.fused.drafter, rotations, fresh, slots, num_seen)
        else:
            new = self.drafter.context_at(fresh, slots)
            for layer, (keys, values) in enumerate(zip(new.keys, new.values, strict=True)):
                self._context.write(2 * layer, slots, keys)
                self._context.write(2 * layer + 1, slots, values)
            context = self._context.context(num_seen)
            logits = block_logits(self.drafter, self.target, self._root, self._root_position, context)[0]
        found = first_on_device(logits, read)
        if read not in self._drafts:
            self._drafts[read] = tuple(map(on_host, found))
        for left, one in zip(self._drafts[read], found, strict=True):
            left.copy_(one, non_blocking=True)

    def _logits_of_block(
        self, fused: PackedDrafter, rotations: Tensor, fresh: Tensor, slots: Tensor, num_seen: int
    ) -> Tensor:
        """The logits of a block, ``[D, V]``. Its own keys lie behind the context, where the next context will."""
        assert self._context is not None
        drafter, config = self.drafter, self.drafter.config
        fused.take(fresh[0], slots, rotations, self._context)
        block = torch.arange(config.block_size, device=fresh.device)
        tokens = torch.where(block == 0, self._root, config.mask_token_id)
        weight = (drafter.embed_tokens or self.target.embedding).weight
        where = (self._root_position + block, fused.sees, rotations, self._context, num_seen)
        states = fused.states(tokens, weight, *where, scale=config.input_embedding_scale)
        return logits_of(drafter, self.target, states[config.first_slot :])
