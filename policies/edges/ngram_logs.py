"""The log-probabilities of a 3-gram that counts no more, laid out to be looked up fast.

Logarithms and divisions are done once, where the counts are read. The tokens that followed one context lie side by
side, so that most of its candidates, the ones that never followed too, are looked up in one line of the cache.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.jit import borrowing_kernel, kernel

_KEY, _REGION = 0, 1
_MASK = (1 << 32) - 1

UNSEEN = 1 << 32
"""The region of every context that was never seen: it lies at 1 and holds nothing, and the log before it is 0."""


class LogTable(NamedTuple):
    """Log-probabilities by context and token.

    A context of one or two tokens has a region of ``mask + 1`` slots, a power of two, in which the tokens that followed
    it are hashed. Just before the region, among the logs, stands what any other token takes of its log-probability
    after the shorter context.

    Attributes:
        contexts: int64 ``[C, 2]``, C a power of two, hashed: the key of a context, -1 where free, and its region, the
            place of its first slot times 2**32 and its mask; no row: there are no logs, and others must be asked.
        tokens: int32 ``[S]``, the tokens of all regions, -1 where a slot is free.
        logs: float64 ``[S + V + 1]``, their log-probabilities after the context; then those of all tokens after none,
            the last for every token that was never seen.
    """

    contexts: Longs
    tokens: Ints
    logs: Doubles


def no_logs() -> LogTable:
    """An empty table, for counts that may still grow."""
    return LogTable(np.empty((0, 2), np.int64), np.empty(0, np.int32), np.empty(0, np.float64))


@kernel
def empty_log_table(keys: Longs, nums: Longs, num_singles: int) -> LogTable:
    """A table in which nothing follows yet.

    Args:
        keys: int64 ``[N]``, of the contexts, distinct and not negative.
        nums: int64 ``[N]``, how many tokens followed each.
        num_singles: tokens that have a log-probability after none, and the one for all others.
    """
    num_contexts = 2
    while 2 * num_contexts < 3 * keys.size + 2:
        num_contexts *= 2
    contexts = np.empty((num_contexts, 2), np.int64)
    contexts[:, _KEY], contexts[:, _REGION] = -1, UNSEEN
    place = 2
    for number in range(keys.size):
        # At most two thirds of a region are filled, and one slot at least stays free.
        size = 2
        while 2 * size < 3 * nums[number]:
            size *= 2
        slot = _slot_of(contexts, keys[number])
        contexts[slot, _KEY], contexts[slot, _REGION] = keys[number], ((place + 1) << 32) | (size - 1)
        place += size + 1
    return LogTable(contexts, np.full(place, -1, np.int32), np.zeros(place + num_singles, np.float64))


@borrowing_kernel
def region_of(contexts: Longs, key: int) -> int:
    """Where the tokens lie that followed a context."""
    return int(contexts[_slot_of(contexts, key), _REGION])


@borrowing_kernel
def _slot_of(contexts: Longs, key: int) -> int:
    """Where a context is, or the free slot where it would be."""
    mask = contexts.shape[0] - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64(mixed >> np.uint64(32)) & mask
    while contexts[place, _KEY] != key and contexts[place, _KEY] != -1:
        place = (place + 1) & mask
    return int(place)


@borrowing_kernel
def add_log(table: LogTable, region: int, token: int, log_prob: float) -> None:
    """Enter a token that is not there yet."""
    place = -1 - follower_at(table.tokens, region, token)
    table.tokens[place], table.logs[place] = token, log_prob


@borrowing_kernel
def follower_at(tokens: Ints, region: int, token: int) -> int:
    """The place of a token that followed a context; of any other, -1 less the free slot where it would be."""
    start, mask = region >> 32, region & _MASK
    place = (np.int64(token) * 0x9E3779B1 >> 16) & mask
    while tokens[start + place] != token:
        if tokens[start + place] < 0:
            return int(-1 - (start + place))
        place = (place + 1) & mask
    return int(start + place)


@borrowing_kernel
def log_after(tokens: Ints, logs: Doubles, two: int, one: int, token: int) -> float:
    """The log-probability of a token, up to the last bits.

    It takes arrays, not a `LogTable`, and reads each at one place: numba counts what refers to an array, and counts
    again wherever the ways that lead on from one use to the next part. That takes longer than all of this.

    Args:
        tokens: of the table.
        logs: of the table.
        two: the region of the two tokens before; that of none if the next is.
        one: the region of the last token.
        token: at least 0.
    """
    after_one = follower_at(tokens, one, token)
    # No triple was counted without its last two.
    after_two = follower_at(tokens, two if after_one >= 0 else UNSEEN, token)
    single = tokens.size + min(token, logs.size - tokens.size - 1)
    main = after_two if after_two >= 0 else after_one if after_one >= 0 else single
    left_one = 0 if after_one >= 0 else (one >> 32) - 1
    left_two = 0 if after_two >= 0 else (two >> 32) - 1
    return float(logs[main] + logs[left_one] + logs[left_two])
