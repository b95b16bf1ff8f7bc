"""The target's choice after some of the tokens of a pass."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, choose

Choose = Callable[[int, int], int]
"""From the row of a pass and the absolute position of the next token to that token."""


def chooser(target: Target, logits: Tensor, sampling: Sampling, key: int) -> Choose:
    """The target's choices after the tokens of one pass.

    On a GPU all greedy ones are made at once, for one wait. Else only those asked for: each costs a look at the whole
    vocabulary, above temperature 0 a draw of noise too, and few nodes of a tree are on the path.

    Args:
        target: for messages.
        logits: float32 ``[R, V]``.
        sampling: how a token is chosen.
        key: of the text's noise.
    """
    if sampling.temperature == 0 and logits.device.type == "cpu":

        def largest(row: int, _position: int) -> int:
            # The first of equal values, as `simlab.sampling.choice` has it.
            value, token = logits[row].max(dim=-1)
            if not bool(torch.isfinite(value)):
                target.rows(logits[row : row + 1])
            return int(token)

        return largest
    if sampling.temperature == 0:
        # The first of equal values, as `simlab.sampling.choice` has it.
        values, tokens = logits.max(dim=-1)
        if not bool(torch.isfinite(values).all()):
            target.rows(logits)
        chosen: list[int] = tokens.tolist()
        return lambda row, _position: chosen[row]

    def drawn(row: int, position: int) -> int:
        return choose(np.ascontiguousarray(target.rows(logits[row : row + 1])[0]), sampling, key, position).token

    return drawn
