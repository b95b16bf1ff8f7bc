"""Plain decoding of one text by a pass of fixed size: the baseline beside rounds that are captured."""

import time

import numpy as np
import torch

from simlab.arrays import Ints
from simlab.draft import Prompt
from simlab.real_runner.decoding.choice import chooser
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, sequence_key


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
            tokens, are_laws = graphed.fetched(held.choices, held.are_laws)
            if not bool(are_laws):
                raise self._target.no_law()
            token = int(tokens)
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
