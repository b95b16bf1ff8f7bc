"""Plain decoding of one text: the baseline of every speedup, on its own fastest path.

One token goes through the target at a time, without a mask, over keys and values that are written in
place; no drafter, no tree, no hidden states. Where rows are fixed it goes through beside rows of padding.
"""

import time
from collections.abc import Callable

import torch

from simlab.draft import Prompt
from simlab.real_runner.attention.batch_invariant import fixed_shape
from simlab.real_runner.decoding.decoded import begun_text, chooser
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
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
    """One text, token by token; begins with the prefill and token 0.

    Attributes:
        text: so far.
    """

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
        self._target, self._sampling, self._clock = target, sampling, clock
        self.text = begun_text(target, prompt, sampling, max_new_tokens)
        self._shape = fixed_shape(fixed_rows, self.text.length, max_new_tokens) if fixed_rows else None
        self._cache = BufferCache(target, len(self.text.tokens) + fixed_rows)
        states = target.states(self.text.prompt_ids, self._cache)
        self.text.append((self._chosen(states[:, -1]),))

    @torch.inference_mode()
    def step(self) -> float:
        """Write one token by a pass of the target.

        Returns:
            Seconds.
        """
        start = self._clock()
        self.text.append((self._chosen(self._read_last()),))
        return self._clock() - start

    def rewind(self, context_length: int, root_token: int) -> None:
        """Forget all but the first ``context_length`` tokens, and go on below ``root_token``: to time it again."""
        self._cache.shorten(context_length)
        self.text.rewind(context_length, root_token)

    def _read_last(self) -> torch.Tensor:
        """States after the last token: ``[1, H]``, or ``[R, H]`` with those of padding behind it."""
        target, position, root = self._target, self._cache.length, self.text.root
        if self._shape is None:
            return target.states(torch.tensor([[root]]), self._cache)[:, -1]
        ids, positions, fixed = self._shape.tree_pass(
            DraftTree.root_only(root), position, target.heads_per_group, target.dtype, target.device
        )
        states = target.states(ids, self._cache, None, positions, fixed=fixed)[0]
        self._cache.shorten(position + 1)
        return states

    def _chosen(self, states: torch.Tensor) -> int:
        logits = self._target.logits(states)
        return chooser(self._target, logits, self._sampling, self.text.key)(0, self._cache.length)


class GraphPlainDecoding:
    """One text, token by token; begins with the prefill and token 0. On the device each token leads to the next.

    Attributes:
        text: so far.
    """

    @torch.inference_mode()
    def __init__(
        self, target: Target, graphed: GraphedModels, prompt: Prompt, sampling: Sampling, max_new_tokens: int
    ) -> None:
        """Read the prompt and choose token 0."""
        self._target, self._graphed, self._sampling = target, graphed, sampling
        self.text = begun_text(target, prompt, sampling, max_new_tokens)
        start = self.text.length
        cache = BufferCache(target, start)
        states = target.states(self.text.prompt_ids, cache)
        graphed.begin(cache, start + max_new_tokens)
        self.text.append((chooser(target, target.logits(states[:, -1]), sampling, self.text.key)(0, start),))
        graphed.place(self.text.root, start, sampling.temperature > 0)

    @torch.inference_mode()
    def step(self) -> float:
        """Write one token by a captured pass of the target.

        Returns:
            Seconds; capturing is not in them.
        """
        graphed, began, captured = self._graphed, time.perf_counter(), self._graphed.graphs.seconds
        text, is_drawn = self.text, self._sampling.temperature > 0
        held = graphed.step(text.position, is_drawn)
        if held.logits is not None:
            token = chooser(self._target, held.logits, self._sampling, text.key)(0, text.length)
            graphed.place(token, text.length, is_drawn)
        else:
            (token,) = graphed.chosen(held)
        text.append((token,))
        return time.perf_counter() - began - (graphed.graphs.seconds - captured)

    @torch.inference_mode()
    def rewind(self, context_length: int, root_token: int) -> None:
        """Forget all but the first ``context_length`` tokens, and go on below ``root_token``: to time it again."""
        self.text.rewind(context_length, root_token)
        self._graphed.place(root_token, context_length, self._sampling.temperature > 0)


def plain_decoding(
    models: Models, prompt: Prompt, sampling: Sampling, max_new_tokens: int, clock: Clock
) -> PlainDecoding | GraphPlainDecoding:
    """A text without a drafter, its prompt read, by captured passes where the models hold some."""
    if models.graphs is None:
        return PlainDecoding(models.target, prompt, sampling, max_new_tokens, clock, models.fixed_rows)
    return GraphPlainDecoding(models.target, models.graphs, prompt, sampling, max_new_tokens)
