"""A 3-gram of token ids: how often a token followed the two before it.

Probabilities are interpolated by Witten and Bell (1991, IEEE Transactions on Information Theory 37(4)): a context
that was seen c times, with t different tokens after it, gives ``(count + t * shorter) / (c + t)``, where
``shorter`` is the probability after the context without its first token; after no token at all the shorter one is
``1 / vocab_size``. A context that was never seen gives what the shorter one gives.

Where rare tokens are left out, what they had in ``c + t`` goes to the shorter one, so that the others keep theirs.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.jit import borrowing_kernel, kernel

# The log-probabilities of a 3-gram that counts no more, laid out to be looked up fast.
#
# Logarithms and divisions are done once, where the counts are read. The tokens that followed one context lie side by
# side, so that most of its candidates, the ones that never followed too, are looked up in one line of the cache.


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
    index = 2
    for number in range(keys.size):
        # At most two thirds of a region are filled, and one slot at least stays free.
        size = 2
        while 2 * size < 3 * nums[number]:
            size *= 2
        slot = _slot_of(contexts, keys[number])
        contexts[slot, _KEY], contexts[slot, _REGION] = keys[number], ((index + 1) << 32) | (size - 1)
        index += size + 1
    return LogTable(contexts, np.full(index, -1, np.int32), np.zeros(index + num_singles, np.float64))


@borrowing_kernel
def region_of(contexts: Longs, key: int) -> int:
    """Where the tokens lie that followed a context."""
    return int(contexts[_slot_of(contexts, key), _REGION])


@borrowing_kernel
def add_log(table: LogTable, region: int, token: int, log_prob: float) -> None:
    """Enter a token that is not there yet."""
    index = -1 - follower_at(table.tokens, region, token)
    table.tokens[index], table.logs[index] = token, log_prob


@borrowing_kernel
def follower_at(tokens: Ints, region: int, token: int) -> int:
    """The place of a token that followed a context; of any other, -1 less the free slot where it would be."""
    start, mask = region >> 32, region & _MASK
    slot = (np.int64(token) * 0x9E3779B1 >> 16) & mask
    while tokens[start + slot] != token:
        if tokens[start + slot] < 0:
            return int(-1 - (start + slot))
        slot = (slot + 1) & mask
    return int(start + slot)


@borrowing_kernel
def log_after(tokens: Ints, logs: Doubles, of_two: int, of_last: int, token: int) -> float:
    """The log-probability of a token, up to the last bits.

    It takes arrays, not a `LogTable`, and reads each at one place: numba counts what refers to an array, and counts
    again wherever the ways that lead on from one use to the next part. That takes longer than all of this.

    Args:
        tokens: of the table.
        logs: of the table.
        of_two: the region of the two tokens before; that of none if the next is.
        of_last: the region of the last token.
        token: at least 0.
    """
    after_one = follower_at(tokens, of_last, token)
    # No triple was counted without its last two.
    after_two = follower_at(tokens, of_two if after_one >= 0 else UNSEEN, token)
    single = tokens.size + min(token, logs.size - tokens.size - 1)
    main = after_two if after_two >= 0 else after_one if after_one >= 0 else single
    left_one = 0 if after_one >= 0 else (of_last >> 32) - 1
    left_two = 0 if after_two >= 0 else (of_two >> 32) - 1
    return float(logs[main] + logs[left_one] + logs[left_two])


MOST_TOKENS = (1 << 21) - 1
"""Token ids are below it, so that three of them fit into one key."""

KEYS_PER_TOKEN = 5
"""The most entries that one more token of text adds: a triple, a pair, itself, and the contexts of the first two."""

_TYPES = (1 << 32) - 1
_THIRD, _SECOND = (1 << 21) - 1, 1 << 21
_VOCAB_SIZE, _NUM_TOKENS, _NUM_TYPES = 0, 1, 2
_VALUE = 1


class NGramCounts(NamedTuple):
    """Counts of tokens, pairs and triples, in one hash table.

    Attributes:
        slots: int64 ``[S, 2]``, S a power of two. A key, -1 where a slot is free, and its value: how often the triple,
            pair or token was seen, times 2**32; of a context how often it was, and in the lower half how many
            different tokens followed.
        totals: int64 ``[3]``, the size of the vocabulary, tokens counted, and different ones among them.
        logs: the logarithms of all probabilities, where nothing will be counted any more; none of them elsewhere.
    """

    slots: Longs
    totals: Longs
    logs: LogTable


def empty_counts(vocab_size: int, num_tokens: int) -> NGramCounts:
    """A table with room for so many tokens of text."""
    return _table(vocab_size, KEYS_PER_TOKEN * num_tokens)


def counts_from_rows(firsts: Ints, seconds: Ints, thirds: Ints, counts: Ints, vocab_size: int) -> NGramCounts:
    """The table of counts that were made before, such as by `simlab.policies.edges.ngram_counting`.

    Args:
        firsts: int32 ``[R]``, the token two places before; -1 in the row of a pair or a token.
        seconds: int32 ``[R]``, the token before; -1 in the row of a token.
        thirds: int32 ``[R]``, the token that followed; -1: all that were left out after these.
        counts: int32 ``[R]``, how often it did; of those left out, how much of ``c + t`` was theirs.
        vocab_size: ids are below it.
    """
    contexts = np.unique(firsts.astype(np.int64) << 32 | seconds) if len(counts) else counts
    table = _table(vocab_size, len(counts) + len(contexts))
    _add_rows(table, firsts, seconds, thirds, counts)
    return table._replace(logs=_logs_of(table))


def _table(vocab_size: int, num_keys: int) -> NGramCounts:
    if not 0 < vocab_size <= MOST_TOKENS:
        raise ValueError(f"a 3-gram holds vocabularies of 1 to {MOST_TOKENS:,} tokens; got {vocab_size:,}")
    # At most two thirds are filled, and one slot at least stays free.
    slots = np.zeros((1 << (3 * num_keys // 2 + 1).bit_length(), 2), np.int64)
    slots[:, _KEY] = -1
    return NGramCounts(slots, np.array([vocab_size, 0, 0], np.int64), no_logs())


@borrowing_kernel
def key_of(first: int, second: int, third: int) -> int:
    """The key of a triple; -1 stands for a token that is left out, at the front or, of a context, at the end."""
    return int(((np.int64(first) + 1) << 42) | ((np.int64(second) + 1) << 21) | (np.int64(third) + 1))


@borrowing_kernel
def value_of(slots: Longs, key: int) -> int:
    """The value of a key; 0 where it was never seen."""
    index = _slot_of(slots, key)
    return int(slots[index, _VALUE]) if slots[index, _KEY] == key else 0


@borrowing_kernel
def _slot_of(slots: Longs, key: int) -> int:
    """Where a key is, or the free slot where it would be."""
    mask = slots.shape[0] - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(32)) & mask
    while slots[slot, _KEY] != key and slots[slot, _KEY] != -1:
        slot = (slot + 1) & mask
    return int(slot)


@borrowing_kernel
def _add(table: NGramCounts, first: int, second: int, third: int, num: int) -> None:
    """Count a token after a context of two, one or no tokens."""
    key = key_of(first, second, third)
    index = _slot_of(table.slots, key)
    is_new = table.slots[index, _KEY] == -1
    table.slots[index, _KEY] = key
    table.slots[index, _VALUE] += np.int64(num) << 32
    if second < 0:
        table.totals[_NUM_TOKENS] += num
        table.totals[_NUM_TYPES] += is_new
    else:
        _add_context(table, first, second, int((np.int64(num) << 32) + is_new))


@borrowing_kernel
def _add_context(table: NGramCounts, first: int, second: int, value: int) -> None:
    key = key_of(first, second, -1)
    index = _slot_of(table.slots, key)
    table.slots[index, _KEY] = key
    table.slots[index, _VALUE] += value


@borrowing_kernel
def _add_rows(table: NGramCounts, firsts: Ints, seconds: Ints, thirds: Ints, counts: Ints) -> None:
    for row in range(counts.size):
        if thirds[row] >= 0:
            _add(table, firsts[row], seconds[row], thirds[row], counts[row])
        elif seconds[row] >= 0:
            _add_context(table, firsts[row], seconds[row], counts[row])
        else:
            table.totals[_NUM_TYPES] += counts[row]


@kernel
def _logs_of(counts: NGramCounts) -> LogTable:
    """The logarithms of all probabilities of a table."""
    slots, totals = counts.slots, counts.totals
    keys, numbers, num = np.empty(slots.shape[0], np.int64), np.full(slots.shape[0], -1, np.int64), 0
    num_singles = totals[_VOCAB_SIZE]
    for slot in range(slots.shape[0]):
        key = slots[slot, _KEY]
        if key >= _SECOND and key & _THIRD == 0 and slots[slot, _VALUE] > 0:
            keys[num], numbers[slot] = key, num
            num += 1
        elif 0 <= key < _SECOND:
            num_singles = max(num_singles, key)
    nums = np.zeros(num, np.int64)
    for slot in range(slots.shape[0]):
        key = slots[slot, _KEY]
        if key >= _SECOND and key & _THIRD != 0 and slots[slot, _VALUE] > 0:
            nums[numbers[_slot_of(slots, key & ~_THIRD)]] += 1
    table = empty_log_table(keys[:num], nums, num_singles + 1)
    for token in range(num_singles + 1):
        table.logs[table.tokens.size + token] = np.log(probability_after(slots, totals, 0, 0, -1, -1, token))
    for slot in range(slots.shape[0]):
        key, value = slots[slot, _KEY], slots[slot, _VALUE]
        if key < _SECOND or value == 0:
            continue
        region = region_of(table.contexts, key & ~_THIRD)
        if key & _THIRD == 0:
            types = value & _TYPES
            table.logs[(region >> 32) - 1] = np.log(types / ((value >> 32) + types))
        else:
            first, second, third = (key >> 42) - 1, ((key >> 21) & _THIRD) - 1, (key & _THIRD) - 1
            of_two, of_last = context_of(slots, first, second)
            add_log(
                table, region, third, np.log(probability_after(slots, totals, of_two, of_last, first, second, third))
            )
    return table


@borrowing_kernel
def add_tokens(table: NGramCounts, text: Ints, start: int) -> None:
    """Count the tokens of a text from one place on, with the ones before them."""
    for index in range(start, text.size):
        add_token(table, text, index)


@borrowing_kernel
def add_token(table: NGramCounts, text: Ints, index: int) -> None:
    """Count one token of a text, with the ones before it."""
    _add(table, -1, -1, text[index], 1)
    if index >= 1:
        _add(table, -1, text[index - 1], text[index], 1)
    if index >= 2:
        _add(table, text[index - 2], text[index - 1], text[index], 1)


@borrowing_kernel
def forget(table: NGramCounts) -> None:
    """Make a table empty again."""
    for slot in range(table.slots.shape[0]):
        table.slots[slot, _KEY], table.slots[slot, _VALUE] = -1, 0
    table.totals[_NUM_TOKENS], table.totals[_NUM_TYPES] = 0, 0


@borrowing_kernel
def context_of(slots: Longs, first: int, second: int) -> tuple[int, int]:
    """The values of the two tokens before and of the last alone, 0 where never seen; the same whatever follows."""
    of_last = value_of(slots, key_of(-1, second, -1)) if second >= 0 else 0
    of_two = value_of(slots, key_of(first, second, -1)) if of_last > 0 and first >= 0 else 0
    return of_two, of_last


@borrowing_kernel
def probability_after(
    slots: Longs, totals: Longs, of_two: int, of_last: int, first: int, second: int, third: int
) -> float:
    """How probable a token is after two others.

    It takes arrays, not `NGramCounts`: handing on a tuple of arrays takes longer than all of this.

    Args:
        slots: of the counts.
        totals: of the counts.
        of_two: the value of the two tokens before, as `context_of` has it.
        of_last: that of the last token alone.
        first: the token two places before; -1 if there is none.
        second: the token before; -1 if there is none.
        third: the token.
    """
    value, tokens, types = 1.0 / totals[_VOCAB_SIZE], totals[_NUM_TOKENS], totals[_NUM_TYPES]
    if types > 0:
        value = ((value_of(slots, key_of(-1, -1, third)) >> 32) + types * value) / (tokens + types)
    pair = 0
    if of_last > 0:
        pair, types = value_of(slots, key_of(-1, second, third)) >> 32, of_last & _TYPES
        value = (pair + types * value) / ((of_last >> 32) + types)
    if of_two > 0:
        # No triple was counted without its last two.
        triple, types = value_of(slots, key_of(first, second, third)) >> 32 if pair > 0 else 0, of_two & _TYPES
        value = (triple + types * value) / ((of_two >> 32) + types)
    return float(value)
