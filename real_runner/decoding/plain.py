"""Plain decoding of one text: the baseline of every speedup, on its own fastest path.

One token goes through the target at a time, without a mask, over keys and values that are written in
place; no drafter, no tree, no hidden states. Where rows are fixed it goes through beside rows of padding.
"""

import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

from simlab.arrays import Ints
from simlab.draft import Prompt
from simlab.real_runner.attention.batch_invariant import fixed_shape
from simlab.real_runner.decoding.decoded import chooser
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, sequence_key
from simlab.tree import DraftTree

# The clocks of the runner: stages are timed from the outside, none times itself.


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


class StageMarks:
    """Marks between stages. On a GPU they are events of the stream, so that no mark waits."""

    def __init__(self, device: torch.device, outside: Callable[[], float]) -> None:
        """Begin with no mark set.

        Args:
            device: that works.
            outside: seconds so far that belong to no stage; the device waits meanwhile.
        """
        self._is_gpu, self._outside = device.type == "cuda", outside
        self._events: list[torch.cuda.Event] = []
        self._spare: list[torch.cuda.Event] = []
        # Asking for it costs more than a mark.
        self._stream = torch.cuda.current_stream(device) if self._is_gpu else None
        self._times: list[float] = []
        self._outsides: list[float] = []

    def mark(self) -> None:
        """Here one stage ends and the next begins."""
        self._outsides.append(self._outside())
        if self._is_gpu:
            event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
            event.record(self._stream)
            self._events.append(event)
        else:
            self._times.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds of each stage since the last call; the device must have reached the last mark."""
        events = [1e-3 * first.elapsed_time(second) for first, second in pairwise(self._events)]
        times = [second - first for first, second in pairwise(self._times)]
        outside = [second - first for first, second in pairwise(self._outsides)]
        self._spare += self._events
        self._events, self._times, self._outsides = [], [], []
        # Two clocks may differ a little where a device waited.
        return [max(0.0, spent - other) for spent, other in zip(events or times, outside, strict=True)]


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
