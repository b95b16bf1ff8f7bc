"""What an EAGLE-3 head keeps of a text: keys and values of its positions, and what it said along the last of them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.real_runner.heads.eagle3.head import Eagle3Head, KeyValues
from simlab.real_runner.targets.model import Target

_WEIGHTS_PER_PASS = 2**26
"""Attention weights of a pass over a text."""

_READ_AGAIN = 3
"""Positions that are read again after going back, as many as a round of some accepted tokens brings."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadText:
    """What a head keeps of a text, and what it said along the last part of it.

    Attributes:
        past: keys and values of all positions ``[1, E, C, F]``.
        outputs: ``[L, H]``, of the positions that were read last.
    """

    past: KeyValues
    outputs: Tensor


def read_text(
    head: Eagle3Head, target: Target, features: Tensor, following: Tensor, past: KeyValues | None
) -> ReadText:
    """Read some positions of a text, in passes of bounded memory.

    Args:
        head: and its target, whose embedding it may borrow.
        target: see there.
        features: ``[L, taps x H_t]``, tapped states of the target.
        following: int64 ``[L]``, the token behind each of these positions.
        past: of the positions before; None: there are none.
    """
    hidden, embedded = head.fused(features)[None], head.embedded(target, following)[None]
    first = 0 if past is None else past.keys.shape[2]
    positions = torch.arange(first, first + len(following), device=features.device)[None]
    per_pass = max(1, _WEIGHTS_PER_PASS // (head.config.num_attention_heads * (first + len(following))))
    outputs = list[Tensor]()
    for some in zip(*(one.split(per_pass, dim=1) for one in (hidden, embedded, positions)), strict=True):
        output, past = head(*some, past, None)
        outputs.append(output[0])
    assert past is not None
    return ReadText(past, torch.cat(outputs))


class GrowingText:
    """One text that is being written, as a head keeps it.

    What the target has read since the last draft is read when the next one is made. Keys and values of drafted tokens
    never come here, so that none of a rejected one is kept.
    """

    def __init__(self, head: Eagle3Head, target: Target) -> None:
        """Begin with nothing read of the text."""
        self._head, self._target = head, target
        self._past: KeyValues | None = None
        self._waiting: list[Tensor] = []
        self._last = torch.empty(0)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H_t]`` of further tokens of the text."""
        self._waiting.append(features[0])

    def up_to_root(self, committed: Ints) -> ReadText:
        """What is kept of all before the root, the last of the tokens of prompt and text, int32; all before it read."""
        root, features = len(committed) - 1, torch.cat(self._waiting)
        following = torch.from_numpy(committed[root + 1 - len(features) :].astype(np.int64)).to(features.device)
        text = read_text(self._head, self._target, features, following, self._past)
        self._past, self._waiting, self._last = text.past, [], features[-_READ_AGAIN:]
        return text

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; of what was read, the last few states stay as they were."""
        num_read = 0 if self._past is None else self._past.keys.shape[2]
        if self._past is None or length > num_read:
            self._waiting = [torch.cat(self._waiting)[: length - num_read]]
            return
        again = min(len(self._last), length)
        self._past = KeyValues(*(one[:, :, : length - again] for one in self._past))
        self._waiting = [self._last[:again]]
