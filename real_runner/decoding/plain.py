"""Plain decoding of one text: the baseline of every speedup, on its own fastest path.

One token goes through the target at a time, without a mask, over keys and values that are written in
place; no drafter, no tree, no hidden states. Where rows are fixed it goes through beside rows of padding.
"""

import numpy as np
import torch

from simlab.arrays import Ints
from simlab.draft import Prompt
from simlab.real_runner.attention.batch_invariant import fixed_shape
from simlab.real_runner.decoding.decoded import chooser
from simlab.real_runner.decoding.timer import Clock
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, sequence_key
from simlab.tree import DraftTree


class PlainDecoding:
    """One text, token by token; begins with the prefill and token 0."""

    @torch.inference_mode()
    def __init__(
        self,
        target: Target,
        prompt: Prompt,
        sampling: Sampling,
        max_new_tokens: int,
        clock: Clock,
        fixed_rows: int = 0,
    ) -> None:
        """Read the prompt and choose token 0. ``fixed_rows``: as in `simlab.real_runner.models.Models`."""
        self._target, self._prompt, self._sampling, self._clock = target, prompt, sampling, clock
        self._key = sequence_key(sampling, prompt)
        self._max_new_tokens = max_new_tokens
        self._shape = fixed_shape(fixed_rows, len(prompt.token_ids), max_new_tokens) if fixed_rows else None
        self._cache = BufferCache(target, len(prompt.token_ids) + max_new_tokens + fixed_rows)
        ids = torch.from_numpy(prompt.token_ids.astype(np.int64))[None]
        states = target.states(ids, self._cache)
        self._text: list[int] = [self._chosen(states[:, -1])]

    @property
    def text(self) -> Ints:
        """int32 ``[T]``, what was written so far."""
        return np.array(self._text, np.int32)

    @property
    def ended(self) -> bool:
        """Whether the last token is a stop token or the last allowed one."""
        return self._text[-1] in self._target.stop_token_ids or len(self._text) >= self._max_new_tokens

    @torch.inference_mode()
    def step(self) -> float:
        """Write one token by a pass of the target.

        Returns:
            Seconds.
        """
        start = self._clock()
        self._text.append(self._chosen(self._read_last()))
        return self._clock() - start

    def rewind(self, context_length: int, root_token: int) -> None:
        """Forget all but the first ``context_length`` tokens, and go on below ``root_token``: to time it again."""
        self._cache.shorten(context_length)
        self._text = [root_token]

    def _read_last(self) -> torch.Tensor:
        """States after the last token: ``[1, H]``, or ``[R, H]`` with those of padding behind it."""
        target, position = self._target, self._cache.length
        if self._shape is None:
            return target.states(torch.tensor([self._text[-1:]]), self._cache)[:, -1]
        root = DraftTree.root_only(self._text[-1])
        ids, positions, fixed = self._shape.tree_pass(
            root, position, target.heads_per_group, target.dtype, target.device
        )
        states = target.states(ids, self._cache, None, positions, fixed=fixed)[0]
        self._cache.shorten(position + 1)
        return states

    def _chosen(self, states: torch.Tensor) -> int:
        return chooser(self._target, self._target.logits(states), self._sampling, self._key)(0, self._cache.length)
