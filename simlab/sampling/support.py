"""Which tokens top-k and top-p leave to the target, and which of them only just."""

import numpy as np
import numpy.typing as npt

from simlab.arrays import Floats, Longs
from simlab.jit import kernel
from simlab.sampling.candidates import lowest_keys

HAIR = 1e-9
"""A change of top_p this small is a hair's change: no decision may hang on it."""

POSSIBLE, ALLOWED, SURE = 0, 1, 2
"""The standing of a token: let in by a hair's change, let in, let in whatever the hair's change."""

_FIRST_WIDTH = 1024
_INDEX_MASK = 0x7FFFFFFF

Standings = npt.NDArray[np.uint8]


@kernel
def _target_keys(logits: Floats) -> npt.NDArray[np.uint32]:
    """uint32 ``[V]``, ascending where the raw logit descends; 0.0 and -0.0 are equal."""
    keys = logits.view(np.uint32).copy()
    for token in range(keys.size):
        bits = keys[token]
        if bits == np.uint32(0x80000000):
            bits = np.uint32(0)
        keys[token] = bits if bits >> np.uint32(31) else np.uint32(0x7FFFFFFF) - bits
    return keys


@kernel
def exp_sum(logits: Floats, tokens: Longs, largest: float, temperature: float) -> float:
    """Sum of exp((logit - largest) / temperature) over ``tokens``, float64, in their order."""
    total = 0.0
    for token in tokens:
        total += np.exp((np.float64(logits[token]) - largest) / temperature)
    return total


@kernel
def _prefix_reaching(logits: Floats, tokens: Longs, largest: float, temperature: float, mass: float) -> int:
    """Length of the shortest prefix, at least 1, whose mass reaches ``mass``; one too long when none does."""
    reached = 0.0
    for rank in range(tokens.size):
        reached += np.exp((np.float64(logits[tokens[rank]]) - largest) / temperature)
        if reached >= mass:
            return rank + 1
    return int(tokens.size + 1)


@kernel
def _tied_behind(keys: npt.NDArray[np.uint32], last: int) -> Longs:
    """Tokens with the logit of ``last`` that come after it, ascending."""
    num = 0
    for token in range(last + 1, keys.size):
        num += keys[token] == keys[last]
    tied = np.empty(num, np.int64)
    num = 0
    for token in range(last + 1, keys.size):
        if keys[token] == keys[last]:
            tied[num] = token
            num += 1
    return tied


@kernel
def _lengths(
    logits: Floats, tokens: Longs, whole: bool, total: float, temperature: float, top_p: float
) -> tuple[int, int, int]:
    """Prefix lengths at top_p less a hair, at top_p, and at top_p and a hair; see `_prefix_reaching`."""
    if top_p == 1.0:
        return tokens.size, tokens.size, tokens.size
    largest = np.float64(logits[tokens[0]])
    low = _prefix_reaching(logits, tokens, largest, temperature, (top_p - HAIR) * total)
    middle = _prefix_reaching(logits, tokens, largest, temperature, top_p * total)
    high = _prefix_reaching(logits, tokens, largest, temperature, (top_p + HAIR) * total)
    if whole:
        return min(low, tokens.size), min(middle, tokens.size), min(high, tokens.size)
    return low, middle, high


@kernel
def _filtered(logits: Floats, temperature: float, top_k: int, top_p: float) -> tuple[Longs, Standings]:
    """`support_of` where a filter is on."""
    keys = _target_keys(logits)
    num_kept = min(top_k, logits.size) if top_k > 0 else logits.size
    width = num_kept if top_k > 0 else min(num_kept, _FIRST_WIDTH)
    tokens = lowest_keys(keys, width, 32) & _INDEX_MASK
    largest = np.float64(logits[tokens[0]])
    total = exp_sum(logits, tokens if top_k > 0 else np.arange(logits.size), largest, temperature)
    low, middle, high = _lengths(logits, tokens, width == num_kept, total, temperature, top_p)
    while high > tokens.size:
        width = min(8 * width, num_kept)
        tokens = lowest_keys(keys, width, 32) & _INDEX_MASK
        low, middle, high = _lengths(logits, tokens, width == num_kept, total, temperature, top_p)
    tied = _tied_behind(keys, tokens[high - 1])
    possible = np.concatenate((tokens[:high], tied))
    num_sure = low
    while num_sure > 0 and low < possible.size and keys[possible[num_sure - 1]] == keys[possible[low]]:
        num_sure -= 1
    standings = np.full(possible.size, POSSIBLE, np.uint8)
    standings[:middle] = ALLOWED
    standings[:num_sure] = SURE
    return possible, standings


@kernel
def support_of(logits: Floats, temperature: float, top_k: int, top_p: float) -> tuple[Longs, Standings]:
    """The tokens that may be emitted, now or after a hair's change of the settings.

    First exactly ``top_k`` tokens in target order (raw logit descending, then id), then the
    shortest prefix of their renormalised law that reaches ``top_p``. A hair's change moves
    ``top_p`` by `HAIR`, or exchanges two tokens of equal logit at the border of what is left.

    Args:
        logits: float32 ``[V]``, contiguous, at least one of them finite.
        temperature: above 0.
        top_k: 0 for all.
        top_p: above 0; 1 for all.

    Returns:
        Token ids, int64 ``[S]``, and the standing of each, uint8 ``[S]``.
    """
    if (top_k > 0 and top_k < logits.size) or top_p < 1.0:
        return _filtered(logits, temperature, top_k, top_p)
    return np.arange(logits.size), np.full(logits.size, SURE, np.uint8)
