"""Passes of one text, each of just the right size, as the models run them: operation by operation, or compiled.

Where the target drafts for itself, masks stand behind nodes of the tree as its last leaves, and no node sees one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simlab.cost import StageSeconds
from simlab.policy import AnyPolicy, num_masked
from simlab.real_runner.attention.batch_invariant import FixedPass, fixed_shape
from simlab.real_runner.attention.packed import PackedPass
from simlab.real_runner.decoding.decoded import RunningText, chooser, stage_seconds
from simlab.real_runner.decoding.drafting import Drafting
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.decoding.single_text import SingleText
from simlab.real_runner.decoding.tree_pass import TreeMask, Walked, pass_of, walk
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.execution.kv_buffers import BufferCache, trees_pass
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.masked import with_masks
from simlab.real_runner.targets.model import features_of, tapped
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

LONG_CONTEXT = 4096
"""From so many tokens before the root on, text and tree are attended to apart: a mask over both grows with the text,
and below it one call is faster than two."""


class EagerPasses(SingleText):
    """Passes of one text at a time, see `simlab.real_runner.decoding.speculation.Passes`."""

    def __init__(self, models: Models, policy: AnyPolicy, sampling: Sampling, clock: Clock) -> None:
        """Begin with nothing read."""
        super().__init__(models, policy, sampling, clock)
        self._features: Tensor | None = None
        self._mask_states = list[BlockStates]()

    def add(self, row: int, text: RunningText) -> None:
        target, policy, rows = self._models.target, self._policy, self._models.fixed_rows
        start, room = text.length, len(text.tokens)
        self._shape = fixed_shape(rows, start, room - start) if rows else None
        self._drafting = Drafting(self._models, policy, room)
        masks = self._drafting.masks
        self._num_masks = 0 if masks is None else self._models.drafter.config.depth
        most = rows or policy.budget + (policy.budget + 1) * self._num_masks
        self._cache = BufferCache(target, room + most if rows or policy.budget < 1 << 15 else 0)
        self._mask = TreeMask(target)
        states, features = self._pass(text.prompt_ids)
        if features is not None:
            self._drafting.read(features)
        if masks is not None:
            masks.take(self._behind_prompt(masks, text, self._cache))
        logits = target.logits(states[:, -1])
        self._remember(states[0, -1], logits[0])
        text.append((chooser(target, logits, self._sampling, text.key)(0, start),))

    def verify(self, texts: Sequence[RunningText], trees: Sequence[DraftTree]) -> list[Walked]:
        (text,), (tree,) = texts, trees
        states, self._features = self._read_with_masks(tree, text)
        logits = self._models.target.logits(states[0])
        walked = walk(self._models.target, logits, self._sampling, text, tree)
        path, _ = walked
        last = path[-1] if path else 0
        self._remember(states[0, last], logits[last])
        return [walked]

    def keep(self, texts: Sequence[RunningText], walks: Sequence[Walked]) -> None:
        (text,), ((path, _),) = texts, walks
        kept = torch.tensor((0, *path))
        self._cache.compact(text.position, kept)
        if self._drafting.masks is not None:
            # The next root's draft is what the masks behind the last accepted node say, where it carries some.
            last = int(kept[-1])
            self._drafting.masks.take(self._mask_states[last] if last < len(self._mask_states) else None)
        if self._features is not None:
            self._drafting.read(self._features.index_select(1, kept.to(self._features.device)))

    def stage_seconds(self, times: Sequence[float]) -> StageSeconds:
        return stage_seconds(times)

    def rewind(self, row: int, text: RunningText) -> None:
        self._cache.shorten(text.position)
        self._drafting.rewind(text.position)

    def _pass(
        self,
        ids: Tensor,
        visible: Tensor | None = None,
        positions: Tensor | None = None,
        packed: PackedPass | None = None,
        fixed: FixedPass | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """States ``[1, L, H]`` of the target, and tapped ones ``[1, L, taps x H]`` where they are wanted."""
        target, layer_ids = self._models.target, self._drafting.layer_ids
        with tapped(target, layer_ids) as taken:
            states = target.states(ids, self._cache, visible, positions, packed, fixed)
        return states, features_of(taken, layer_ids) if layer_ids else None

    def _read_tree(self, tree: DraftTree, position: int) -> tuple[Tensor, Tensor | None]:
        target = self._models.target
        device = target.device
        if self._shape is not None:
            heads, dtype = target.heads_per_group, target.dtype
            ids, positions, fixed = self._shape.tree_pass(tree, position, heads, dtype, device)
            return self._pass(ids, positions=positions, fixed=fixed)
        if position < LONG_CONTEXT:
            return self._pass(*pass_of(tree, position, self._mask))
        packed, ids, positions = trees_pass([tree], [0], [position], device)
        return self._pass(ids, positions=positions, packed=packed)

    def _read_with_masks(self, tree: DraftTree, text: RunningText) -> tuple[Tensor, Tensor | None]:
        """States of the nodes of a tree, and tapped ones; what its masks say is kept until one of them is the last."""
        masks, k, self._mask_states = self._drafting.masks, self._num_masks, []
        num = 0 if masks is None else num_masked(self._policy, text.state, tree.num_nodes)
        if masks is None or num == 0:
            return self._read_tree(tree, text.position)
        positions = text.position + tree.depths()[:num]
        with masks.during(tree.num_nodes, tree.tokens[:num], positions) as before:
            states, features = self._read_tree(with_masks(tree, num, k), text.position)
        of_masks = (part[:, tree.num_nodes :].split(k, dim=1) for part in (before[-1], states))
        self._mask_states = [BlockStates(*pair) for pair in zip(*of_masks, strict=True)]
        return states[:, : tree.num_nodes], None if features is None else features[:, : tree.num_nodes]
