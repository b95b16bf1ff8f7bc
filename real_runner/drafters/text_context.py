"""What a drafter keeps of one text that grows: keys and values of the target's states."""

from dataclasses import replace

import torch
from torch import Tensor

from simlab.real_runner.drafters.dense import BlockStates, states_of_blocks
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.targets.model import KeyValueRows, Target


class TextContext:
    """A drafter's context of one text that is being written, and its passes below the text.

    What the target has read since the last draft is projected when the next one is made.
    """

    def __init__(self, drafter: DFlashDrafter, target: Target, room: int) -> None:
        """Begin with nothing read of the text, and room for so many tokens."""
        self._drafter, self._target = drafter, target
        self._rows = KeyValueRows(2 * drafter.config.num_hidden_layers, room)
        self._held = DrafterContext((), ())
        self._length = 0
        self._waiting: list[Tensor] = []
        self._last = torch.empty(0)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._waiting.append(features)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the context; the last few are left to be projected again."""
        self.catch_up()
        num_again = min(self._last.shape[1], length)
        self._length = length - num_again
        self._waiting = [self._last[:, :num_again]]

    def states(self, blocks: Tensor, positions: Tensor) -> BlockStates:
        """One pass below the text that was read; see `simlab.real_runner.drafters.dense.BlockPasses`."""
        self.catch_up()
        found = states_of_blocks(self._drafter, self._target, blocks[None], positions, self._held)
        return replace(found, seen=self._last[:, -1])

    def catch_up(self) -> None:
        """Project what was read since the last time."""
        if self._waiting:
            features = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting, dim=1)
            self._waiting, self._last = [], features[:, -3:]
            self._append(features)
            self._length += features.shape[1]

    def _append(self, features: Tensor) -> None:
        """Project states of tokens from `_length` on."""
        new, rows, start = self._drafter.context(features, self._length), self._rows, self._length
        keys = [rows.write(2 * layer, start, some) for layer, some in enumerate(new.keys)]
        values = [rows.write(2 * layer + 1, start, some) for layer, some in enumerate(new.values)]
        self._held = DrafterContext(tuple(keys), tuple(values))
