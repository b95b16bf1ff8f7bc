"""Plain decoding of many prompts at once: the target's own text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, choose_rows


@dataclass(frozen=True, slots=True)
class Continuation:
    """What the target wrote. ``stop_reason`` is ``stop`` (the stop token is included) or ``length``."""

    token_ids: tuple[int, ...]
    stop_reason: str


def _nothing(num_tokens: int) -> None:
    """The progress of somebody who does not look."""


@torch.inference_mode()
def generate(
    target: Target,
    prompts: Sequence[Sequence[int]],
    noise_keys: Sequence[int],
    sampling: Sampling,
    max_new_tokens: int,
    on_tokens: Callable[[int], object] = _nothing,
) -> list[Continuation]:
    """Decode every prompt until its first stop token or ``max_new_tokens``.

    The batch runs as one; sequences that have ended leave it when they are half of it. The token
    at absolute position p depends on the prompt's own noise key, so the batch changes nothing but
    the last bits of the arithmetic.

    Args:
        target: writes the text.
        prompts: token ids, at least one each.
        noise_keys: one per prompt, unused at temperature 0.
        sampling: for all of them.
        max_new_tokens: at least 1.
        on_tokens: called after each pass with the number of tokens it added.
    """
    texts: list[list[int]] = [[] for _ in prompts]
    stops = target.stop_token_ids
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    cache = BufferCache(target)
    logits = _prefill(target, cache, prompts, lengths)
    padded = cache.length
    # Prompts still being answered, and the row of the cache that holds each of them.
    alive, rows = list(range(len(prompts))), torch.arange(len(prompts))
    while True:
        positions = [len(prompts[i]) + len(texts[i]) for i in alive]
        chosen = _chosen(target, logits, [noise_keys[i] for i in alive], sampling, positions)
        for index, token in zip(alive, chosen.tolist(), strict=True):
            texts[index].append(token)
        on_tokens(len(alive))
        going = [place for place, i in enumerate(alive) if texts[i][-1] not in stops and len(texts[i]) < max_new_tokens]
        alive, rows = [alive[place] for place in going], rows[torch.tensor(going, dtype=torch.int64)]
        if not alive:
            return [Continuation(tuple(text), "stop" if text[-1] in stops else "length") for text in texts]
        if len(alive) <= cache.num_rows // 2:
            cache.keep_sequences(rows)
            rows = torch.arange(len(alive))
        last = torch.tensor([texts[i][-1] for i in alive])
        logits = _decode_one(target, cache, rows, last, lengths[torch.tensor(alive)], padded)


def _prefill(target: Target, cache: BufferCache, prompts: Sequence[Sequence[int]], lengths: Tensor) -> Tensor:
    """Read all prompts, padded on the right, into the cache; the logits after each."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(list(prompt)) for prompt in prompts], batch_first=True)
    states = target.states(ids, cache)
    return target.logits(states[torch.arange(len(prompts)), lengths - 1])


def _decode_one(target: Target, cache: BufferCache, rows: Tensor, last: Tensor, lengths: Tensor, padded: int) -> Tensor:
    """The logits after the last token of each living row; rows that ended are fed a dummy.

    A row sees its own prompt and what it wrote, but not the padding between the two.
    """
    filled = cache.length
    ids = torch.zeros(cache.num_rows, 1, dtype=torch.int64)
    positions = torch.zeros(cache.num_rows, 1, dtype=torch.int64)
    visible = torch.ones(cache.num_rows, 1, 1, filled + 1, dtype=torch.bool)
    slots = torch.arange(filled + 1)
    ids[rows, 0] = last
    positions[rows, 0] = lengths + filled - padded
    visible[rows, 0, 0] = (slots < lengths[:, None]) | (slots >= padded)
    states = target.states(ids, cache, visible.to(target.device), positions.to(target.device))
    return target.logits(states[rows.to(target.device), 0])


def _chosen(target: Target, logits: Tensor, keys: Sequence[int], sampling: Sampling, positions: Sequence[int]) -> Ints:
    """int32 ``[R]``, the token that follows in each row."""
    if sampling.temperature == 0 and logits.device.type != "cpu":
        return first_largest(target, logits)
    raw = target.rows(logits)
    if sampling.temperature == 0:
        # The rule of `choose_rows` without its by-products: argmax gives the first of equal values.
        return np.asarray(raw.argmax(axis=-1), dtype=np.int32)
    return choose_rows(raw, sampling, np.array(keys, np.uint64), np.array(positions, np.int64)).tokens


def first_largest(target: Target, logits: Tensor) -> Ints:
    """int32 ``[R]``, the first of the largest logits ``[R, V]`` of each row, on any device."""
    largest, tokens = logits.max(-1)
    chosen: Ints = tokens.to(torch.int32).where(largest.isfinite(), -1).cpu().numpy()
    if (chosen < 0).any():
        raise target.no_law()
    return chosen
