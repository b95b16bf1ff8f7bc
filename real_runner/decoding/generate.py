"""Plain decoding of many prompts at once: the target's own text."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints, Longs
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.execution.text_passes import PASSES_UNSEEN, TextPasses
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, choose_rows


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
    passes: TextPasses | None = None,
) -> list[tuple[list[int], str]]:
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
        on_tokens: called after each pass, or after several, with the number of tokens added.
        passes: captured passes of the target, through which the tokens behind the first go.

    Returns:
        The token ids of each, and why it ends: ``stop`` (the stop token is included) or ``length``.
    """
    texts: list[list[int]] = [[] for _ in prompts]
    stops = target.stop_token_ids
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    cache = BufferCache(target)
    logits = _prefill(target, cache, prompts, lengths)
    if passes is not None:
        passes.begin(cache, lengths.tolist(), max_new_tokens)
        cache = BufferCache(target)
        _written(passes, logits, prompts, noise_keys, sampling, max_new_tokens, texts, on_tokens)
        passes.end()
        return _ended(texts, stops)
    padded = cache.length
    # Prompts still being answered, and the row of the cache that holds each of them.
    alive, rows = list(range(len(prompts))), torch.arange(len(prompts))
    while True:
        positions = [len(prompts[i]) + len(texts[i]) for i in alive]
        chosen = _chosen(target, logits, [noise_keys[i] for i in alive], sampling, positions)
        for index, token in zip(alive, chosen.tolist(), strict=True):
            texts[index].append(token)
        on_tokens(len(alive))
        going = [index for index, i in enumerate(alive) if texts[i][-1] not in stops and len(texts[i]) < max_new_tokens]
        alive, rows = [alive[index] for index in going], rows[torch.tensor(going, dtype=torch.int64)]
        if not alive:
            return _ended(texts, stops)
        if len(alive) <= cache.num_rows // 2:
            cache.keep_sequences(rows)
            rows = torch.arange(len(alive))
        last = torch.tensor([texts[i][-1] for i in alive])
        logits = _decode_one(target, cache, rows, last, lengths[torch.tensor(alive)], padded)


def _ended(texts: Sequence[list[int]], stops: Sequence[int]) -> list[tuple[list[int], str]]:
    return [(text, "stop" if text[-1] in stops else "length") for text in texts]


def _written(
    passes: TextPasses,
    logits: Tensor,
    prompts: Sequence[Sequence[int]],
    noise_keys: Sequence[int],
    sampling: Sampling,
    most: int,
    texts: list[list[int]],
    on_tokens: Callable[[int], object],
) -> None:
    """Write all texts by captured passes; at temperature 0 the host looks at several tokens of each at once.

    Args:
        passes: that have taken in the prompts.
        logits: float32 ``[S, V]``, behind each prompt.
        prompts: as of `generate`, like the next three.
        noise_keys: one per prompt.
        sampling: for all of them.
        most: ``max_new_tokens``.
        texts: empty ones, which are filled.
        on_tokens: is told how many tokens were added.
    """
    target, starts = passes.target, [len(prompt) for prompt in prompts]
    # The row of a pass, and which text it writes.
    living, num = dict(enumerate(range(len(prompts)))), 0
    while living and num < most:
        if sampling.temperature == 0:
            chosen = _likeliest(passes, None if num else logits, most - num)
        else:
            if num:
                passes.step(wants_logits=True)
                logits = passes.logits(list(living))
            keys, positions = zip(*((noise_keys[text], starts[text] + num) for text in living.values()), strict=True)
            chosen = np.zeros((1, passes.num_rows), np.int64)
            chosen[0, list(living)] = _chosen(target, logits, keys, sampling, positions)
            passes.put(chosen[0])
        num_before, num = sum(map(len, texts)), num + len(chosen)
        for tokens in chosen.tolist():
            for row, text in living.items():
                texts[text].append(tokens[row])
            living = {row: text for row, text in living.items() if tokens[row] not in target.stop_token_ids}
            if any(tokens[row] < 0 for row in living):
                raise target.no_law()
        on_tokens(sum(map(len, texts)) - num_before)
        if living and passes.keep(list(living)):
            living = dict(enumerate(living.values()))


def _likeliest(passes: TextPasses, first: Tensor | None, most: int) -> Longs:
    """The next tokens of each row, int64 ``[n, rows]`` with n at most ``most``; the first one is of given logits."""
    if first is not None:
        passes.choose(first)
    for _ in range(min(PASSES_UNSEEN, most) - (first is not None)):
        passes.step()
    return passes.look()


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
