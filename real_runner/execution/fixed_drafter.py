"""A block drafter beside a text whose keys and values lie at fixed addresses: what its captured passes are made of."""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from simlab.real_runner.drafters.dense import BlockStates, TextContext, states_of_blocks
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.execution.executions import context_for
from simlab.real_runner.execution.fused_layers import PackedDrafter
from simlab.real_runner.targets.model import Target

if TYPE_CHECKING:
    # These hold passes that are made here.
    from simlab.real_runner.execution.graph_models import GraphedModels


def run(
    graphs: "GraphedModels | None", key: Hashable, work: Callable[..., Sequence[Tensor]], *inputs: Tensor
) -> Sequence[Tensor]:
    """The tensors that work makes of some inputs: operation by operation, or captured once and replayed.

    Args:
        graphs: None: nothing is captured.
        key: of all that the work depends on beside its inputs and their shapes: modules, sizes, options.
        work: launches alone; what it reads beside its inputs keeps its address.
        inputs: on any device, where something is captured.
    """
    return work(*inputs) if graphs is None else graphs.call(key, work, *inputs)


def text_context(graphs: "GraphedModels | None", drafter: DFlashDrafter, target: Target, room: int) -> TextContext:
    """The context of a drafter, of a text of which it has read nothing and that will have so many tokens."""
    return TextContext(drafter, target, room) if graphs is None else graphs.context(drafter)


class FixedDrafter:
    """Passes of a block drafter below one text, as work that can be captured."""

    def __init__(
        self, graphs: "GraphedModels", drafter: DFlashDrafter, target: Target, packed: PackedDrafter | None
    ) -> None:
        """Begin without a text.

        Args:
            graphs: which keep what it reads.
            drafter: any of blocks.
            target: which may lend it embedding and head.
            packed: its layers in few kernels; None: they are of another kind.
        """
        self.drafter, self._target, self._graphs, self._packed = drafter, target, graphs, packed
        self._rotations = torch.empty(0)

    def fill(self, context: DrafterContext, first: int = 0) -> None:
        """Take in the context of some tokens of the text; no captured work."""
        pairs = zip(context.keys, context.values, strict=True)
        filled = torch.stack([tensor for pair in pairs for tensor in pair])
        rows = self._graphs.rows(self.drafter, filled)
        rows.fill(filled, first)
        if self._packed is not None and self._rotations.shape[1:2] != (rows.room,):
            self._rotations = self._packed.rotations(rows.room)

    def take(self, features: Tensor, slots: Tensor) -> None:
        """Project states ``[1, L, taps x H]`` of the target into keys and values at slots, the tokens' positions."""
        rows = self._graphs.rows(self.drafter)
        if self._packed is not None:
            self._packed.take(features[0], slots, self._rotations, rows)
            return
        new = self.drafter.context_at(features, slots)
        for layer, (keys, values) in enumerate(zip(new.keys, new.values, strict=True)):
            rows.write(2 * layer, slots, keys)
            rows.write(2 * layer + 1, slots, values)

    def states(self, blocks: Tensor, position: Tensor, num_seen: int) -> BlockStates:
        """The states of blocks, int64 ``[B, L]``, below one root.

        Their keys lie behind the context, where the next context will.

        Args:
            blocks: tokens.
            position: int64 ``[1]``, of the root.
            num_seen: slots that are looked at, at least ``position + B x L``.
        """
        rows, config = self._graphs.rows(self.drafter), self.drafter.config
        if self._packed is None:
            positions = position.expand(len(blocks))
            return states_of_blocks(self.drafter, self._target, blocks[None], positions, rows.context(num_seen))
        weight = (self.drafter.embed_tokens or self._target.embedding).weight
        both = self._packed.block_states(blocks, weight, position, self._rotations, rows, num_seen)
        return BlockStates(*(states[:, config.first_slot :] for states in both))

    def turn(self) -> None:
        """Know the rotations of all positions for which there is room now; no captured work."""
        if self._packed is not None and len(self._rotations):
            self._rotations = self._packed.rotations(self._graphs.rows(self.drafter).room)


class FixedContext(TextContext):
    """A drafter's context at fixed addresses, read and drafted from by captured passes."""

    def __init__(self, graphs: "GraphedModels", fixed: FixedDrafter, target: Target) -> None:
        """Begin with nothing read of the text."""
        super().__init__(fixed.drafter, target, 0)
        self._graphs, self._fixed = graphs, fixed

    def states(self, blocks: Tensor, positions: Tensor) -> BlockStates:
        """As of any context; all positions are one."""
        self.catch_up()
        num_seen = context_for(self._length + blocks.numel())
        self._graphs.reserve(self._length + blocks.numel())
        key = ("blocks", self._drafter, num_seen)

        def work(blocks: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
            states = self._fixed.states(blocks, position, num_seen)
            return states.before, states.after

        before, after = self._graphs.call(key, work, blocks, positions[:1])
        return BlockStates(before, after, self._last[:, -1])

    def _append(self, features: Tensor) -> None:
        first, most = self._length, self._graphs.num_fresh
        if first == 0 or features.shape[1] > 4 * most:
            # The prompt: read once.
            self._graphs.reserve(first + features.shape[1])
            self._fixed.fill(self._drafter.context(features, first), first)
            return
        for part in features.split(most, dim=1):

            def work(states: Tensor, start: Tensor) -> tuple[Tensor, ...]:
                self._fixed.take(states, start + torch.arange(states.shape[1], device=states.device))
                return ()

            filled = pad(part, (0, 0, 0, most - part.shape[1]))
            self._graphs.call(("take", self._drafter), work, filled, torch.tensor([first]))
            first += part.shape[1]
