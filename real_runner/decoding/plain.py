"""Plain decoding of one text: the baseline of every speedup, on its own fastest path.

One token goes through the target at a time, without a mask, over keys and values that are written in
place; no drafter, no tree, no hidden states. Where rows are fixed it goes through beside rows of padding.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from simlab.arrays import Ints
from simlab.draft import Prompt
from simlab.real_runner.attention.batch_invariant import fixed_shape
from simlab.real_runner.decoding.decoded import chooser
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, sequence_key
from simlab.tree import DraftTree

Clock = Callable[[], float]
"""Seconds since some fixed moment, when all work before it is done."""


def clock_of(device: torch.device) -> Clock:
    """The clock of a device. A GPU works on while Python goes ahead, so its clock waits for it."""
    if device.type != "cuda":
        return time.perf_counter

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


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


class GraphPlainDecoding:
    """One text, token by token; begins with the prefill and token 0. On the device each token leads to the next."""

    @torch.inference_mode()
    def __init__(
        self, target: Target, graphed: GraphedModels, prompt: Prompt, sampling: Sampling, max_new_tokens: int
    ) -> None:
        """Read the prompt and choose token 0."""
        self._target, self._graphed, self._sampling = target, graphed, sampling
        self._key = sequence_key(sampling, prompt)
        self._max_new_tokens = max_new_tokens
        start = len(prompt.token_ids)
        cache = BufferCache(target, start)
        states = target.states(torch.from_numpy(prompt.token_ids.astype(np.int64))[None], cache)
        rows = cache.rows.tensor
        assert rows is not None
        graphed.begin(rows[:, :, :, :start], None, start + max_new_tokens)
        first = chooser(target, target.logits(states[:, -1]), sampling, self._key)(0, start)
        self._begin(start, first)

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
        """Write one token by a captured pass of the target.

        Returns:
            Seconds; capturing is not in them.
        """
        graphed, began, captured = self._graphed, time.perf_counter(), self._graphed.graphs.seconds
        is_drawn = self._sampling.temperature > 0
        held = graphed.step(self._position, is_drawn)
        if held.logits is not None:
            token = chooser(self._target, held.logits, self._sampling, self._key)(0, self._position + 1)
            graphed.place(token, self._position + 1, is_drawn)
        else:
            (token,) = graphed.chosen(held)
        self._text.append(token)
        self._position += 1
        return time.perf_counter() - began - (graphed.graphs.seconds - captured)

    @torch.inference_mode()
    def rewind(self, context_length: int, root_token: int) -> None:
        """Forget all but the first ``context_length`` tokens, and go on below ``root_token``: to time it again."""
        self._begin(context_length, root_token)

    def _begin(self, position: int, token: int) -> None:
        self._position, self._text = position, [token]
        self._graphed.place(token, position, self._sampling.temperature > 0)


def plain_decoding(
    models: Models, prompt: Prompt, sampling: Sampling, max_new_tokens: int, clock: Clock
) -> PlainDecoding | GraphPlainDecoding:
    """A text without a drafter, its prompt read, by captured passes where the models hold some."""
    if models.graphs is None:
        return PlainDecoding(models.target, prompt, sampling, max_new_tokens, clock, models.fixed_rows)
    return GraphPlainDecoding(models.target, models.graphs, prompt, sampling, max_new_tokens)
