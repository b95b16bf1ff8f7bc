"""Plain decoding of many prompts at once: the target's own text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.real_runner.kv_buffers import keep_rows, new_cache
from simlab.real_runner.target import Target
from simlab.sampling import Sampling, choose


@dataclass(frozen=True, slots=True)
class Continuation:
    """What the target wrote. ``stop_reason`` is ``stop`` (the stop token is included) or ``length``."""

    token_ids: tuple[int, ...]
    stop_reason: str


@torch.inference_mode()
def generate(
    target: Target,
    prompts: Sequence[Sequence[int]],
    noise_keys: Sequence[int],
    sampling: Sampling,
    max_new_tokens: int,
    on_token: Callable[[int], None] | None = None,
) -> list[Continuation]:
    """Decode every prompt until its first stop token or ``max_new_tokens``.

    The batch runs as one; sequences that have ended leave it when they are half of it. The token
    at absolute position p depends on the prompt's own noise key, so the batch changes nothing but
    the last bits of the arithmetic.

    Args:
        noise_keys: one per prompt, unused at temperature 0.
        on_token: called with the number of tokens each pass has added, for progress.
    """
    texts: list[list[int]] = [[] for _ in prompts]
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    cache, logits = _prefill(target, prompts, lengths)
    padded = int(lengths.max())
    alive = list(range(len(prompts)))
    cached = torch.arange(len(prompts))
    while True:
        chosen = _choose_rows(
            logits, [noise_keys[i] for i in alive], sampling, [len(prompts[i]) + len(texts[i]) for i in alive]
        )
        for index, token in zip(alive, chosen, strict=True):
            texts[index].append(int(token))
        if on_token is not None:
            on_token(len(alive))
        going = [
            row
            for row, i in enumerate(alive)
            if texts[i][-1] not in target.stop_token_ids and len(texts[i]) < max_new_tokens
        ]
        alive = [alive[row] for row in going]
        cached = cached[torch.tensor(going, dtype=torch.int64)]
        if not alive:
            return [_continuation(text, target.stop_token_ids) for text in texts]
        if len(alive) <= cache.layers[0].keys.shape[0] // 2:
            keep_rows(cache, cached.to(target.device))
            cached = torch.arange(len(alive))
        logits = _decode_step(target, cache, cached, [texts[i] for i in alive], lengths[torch.tensor(alive)], padded)


def _continuation(text: list[int], stop_token_ids: tuple[int, ...]) -> Continuation:
    return Continuation(tuple(text), "stop" if text[-1] in stop_token_ids else "length")


def _prefill(target: Target, prompts: Sequence[Sequence[int]], lengths: Tensor) -> tuple[object, Tensor]:
    rows = [torch.tensor(list(prompt)) for prompt in prompts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(target.device)
    cache = new_cache(target)
    hidden = target.model.get_decoder()(ids, past_key_values=cache, use_cache=True).last_hidden_state  # type: ignore[operator]
    last = hidden[torch.arange(len(rows)), (lengths - 1).to(target.device)]
    return cache, target.head(last)


def _decode_step(target: Target, cache, cached: Tensor, texts: list[list[int]], lengths: Tensor, padded: int) -> Tensor:
    """One token for every living row; rows that ended but still hold a place are fed a dummy."""
    places = cache.layers[0].keys.shape[0]
    filled = cache.layers[0].length
    ids = torch.zeros(places, 1, dtype=torch.int64)
    positions = torch.zeros(places, 1, dtype=torch.int64)
    ids[cached, 0] = torch.tensor([text[-1] for text in texts])
    positions[cached, 0] = lengths + torch.tensor([len(text) - 1 for text in texts])
    visible = torch.ones(places, 1, 1, filled + 1, dtype=torch.bool)
    keys = torch.arange(filled + 1)
    visible[cached, 0, 0] = (keys < lengths[:, None]) | (keys >= padded)
    device = target.device
    hidden = target.model.get_decoder()(  # type: ignore[operator]
        ids.to(device),
        attention_mask=visible.to(device),
        position_ids=positions.to(device),
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return target.head(hidden[cached.to(device), 0])


def _choose_rows(logits: Tensor, keys: Sequence[int], sampling: Sampling, positions: Sequence[int]) -> Ints:
    raw = logits.float().cpu().numpy()
    if sampling.temperature == 0:
        # numpy's argmax returns the first of equal values: the smallest id
        return raw.argmax(axis=-1).astype(np.int32)
    picks = [
        choose(row, sampling, key, position).token for row, key, position in zip(raw, keys, positions, strict=True)
    ]
    return np.array(picks, dtype=np.int32)
