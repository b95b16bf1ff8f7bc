"""The drafter for several sequences at once: contexts of their own lengths, one pass for all blocks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from simlab.draft import Marginals
from simlab.real_runner.attention.packed import PackedPart, packed_pass
from simlab.real_runner.drafters.dense import block_logits
from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.execution.batched_buffers import SequenceRows
from simlab.real_runner.models import Models


class BatchedDrafter:
    """Drafts below a root of each sequence. What the target has read since then is projected first."""

    def __init__(self, models: Models, read: CandidatesRead, num_rows: int, num_slots: int) -> None:
        """Begin with nothing read of any sequence.

        Args:
            models: both of them; the drafter borrows the target's embedding and head.
            read: what is given at each depth.
            num_rows: sequences at a time.
            num_slots: tokens that a context is expected to hold.
        """
        self._models, self._wanted = models, read
        self._rows = SequenceRows(2 * models.block_drafter.config.num_hidden_layers, num_rows, num_slots)
        self._waiting: list[list[Tensor]] = [[] for _ in range(num_rows)]
        self._last: list[Tensor] = [torch.empty(0)] * num_rows

    def read(self, row: int, features: Tensor) -> None:
        """Take in the tapped states ``[L, taps x H]`` of further tokens of a sequence."""
        self._waiting[row].append(features)

    def marginals(self, root_tokens: Sequence[int], positions: Sequence[int]) -> list[Marginals]:
        """The first candidates below the root of each of the first rows, all before it read.

        Args:
            root_tokens: one of each sequence, in the order of the rows.
            positions: absolute, of the roots.
        """
        models, num = self._models, len(root_tokens)
        self._project(num)
        context, device = self._context(num), models.target.device
        roots, places = torch.tensor(root_tokens, device=device), torch.tensor(positions, device=device)
        logits = block_logits(models.block_drafter, models.target, roots, places, context)
        rows, own = [first_marginals(one, self._wanted) for one in logits], models.block_drafter.vocabulary
        return rows if own is None else [own.in_target(one) for one in rows]

    def rewind(self, row: int, length: int) -> None:
        """Forget all but the first tokens of a row; the last few are left to be projected again."""
        if self._waiting[row]:
            self._last[row] = torch.cat(self._waiting[row])[-3:]
        num_again = min(len(self._last[row]), length)
        self._rows.lengths[row] = length - num_again
        self._waiting[row] = [self._last[row][:num_again]]

    def drop(self, row: int, last: int) -> None:
        """Free a row: the sequence in the last used row moves there."""
        self._rows.drop(row, last)
        self._waiting[row], self._waiting[last] = self._waiting[last], []
        self._last[row] = self._last[last]

    def _project(self, num: int) -> None:
        parts, start = [], 0
        for row in range(num):
            features = torch.cat(self._waiting[row])
            parts.append(PackedPart(row, self._rows.lengths[row], start, len(features), _NOTHING_HIDDEN))
            start += len(features)
            self._last[row] = features[-3:]
        packed = packed_pass(parts, self._models.target.device)
        features = torch.cat([one for row in range(num) for one in self._waiting[row]])
        new = self._models.block_drafter.context_at(features[None], packed.slots)
        for layer, (keys, values) in enumerate(zip(new.keys, new.values, strict=True)):
            self._rows.write(2 * layer, keys[0], packed)
            self._rows.write(2 * layer + 1, values[0], packed)
        self._rows.extend(packed)
        self._waiting[:num] = [[] for _ in range(num)]

    def _context(self, num: int) -> DrafterContext:
        """The first rows, as views; what lies behind the end of the shorter ones no block sees."""
        held, longest = self._rows.tensor, max(self._rows.lengths[:num])
        assert held is not None
        pairs = [held[2 * layer : 2 * layer + 2, :num, :, :longest] for layer in range(len(held) // 2)]
        return DrafterContext(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


_NOTHING_HIDDEN = torch.empty(0, 0, dtype=torch.bool)
"""A context is projected token by token: nothing attends."""
