"""The order of a drafter's candidates: grid log-prob descending, then token id.

A framework's top-k leaves the order of ties open; this one does not, and recorder and runner
share it. *Rank* always means the place in this order.

Nothing here sorts the vocabulary: tokens are counted into buckets by their key, the bucket in
which the last candidate lies is opened once more, and only the survivors are sorted.
"""

import numpy as np
import numpy.typing as npt

from simlab.arrays import Floats, Ints, Longs
from simlab.grid import LOWEST, ROUNDING_NOISE, STEPS_PER_NAT
from simlab.jit import kernel

Keys32 = npt.NDArray[np.uint32]

_GRID_BITS = 24


@kernel
def _first_bucket_reaching(counts: Ints, wanted: int) -> tuple[int, int]:
    """The bucket that holds the ``wanted``-th item, and how many items lie before it."""
    before = 0
    for bucket in range(counts.size):
        if before + counts[bucket] >= wanted:
            return bucket, before
        before += counts[bucket]
    return counts.size, before


@kernel
def lowest_keys(keys: Keys32, wanted: int, bits: int) -> Longs:
    """The ``wanted`` items that come first by key, then by index, in that order.

    Args:
        keys: uint32 ``[V]``, each below ``2**bits``.
        wanted: how many, from 0 to ``V``.
        bits: at most 32.

    Returns:
        int64 ``[wanted]``, ``key * 2**31 + index`` in ascending order.
    """
    if wanted == 0:
        return np.empty(0, np.int64)
    low_bits = bits // 2
    low_mask = (1 << low_bits) - 1
    counts = np.zeros(1 << (bits - low_bits), np.int32)
    for index in range(keys.size):
        counts[keys[index] >> low_bits] += 1
    bucket, before = _first_bucket_reaching(counts, wanted)
    survivors = np.empty(before + counts[bucket], np.int64)
    limit = np.int64(((bucket + 1) << low_bits) - 1)
    fine = np.zeros(1 << low_bits, np.int32)
    num = 0
    for index in range(keys.size):
        key = np.int64(keys[index])
        if key <= limit:
            survivors[num] = (key << 31) | index
            num += 1
            if key >> low_bits == bucket:
                fine[key & low_mask] += 1
    last, before_last = _first_bucket_reaching(fine, wanted - before)
    return _sorted_first(survivors, (np.int64(bucket) << low_bits) | last, wanted, wanted - before - before_last)


@kernel
def _sorted_first(survivors: Longs, last_key: np.int64, wanted: int, num_last: int) -> Longs:
    """Survivors below ``last_key`` and the first ``num_last`` of those at it, sorted."""
    kept = np.empty(wanted, np.int64)
    num = 0
    for index in range(survivors.size):
        key = survivors[index] >> 31
        if key < last_key or (key == last_key and num_last > 0):
            kept[num] = survivors[index]
            num += 1
            num_last -= key == last_key
    kept.sort()
    return kept


@kernel
def _grid_keys(log_probs: Floats, keys: Keys32) -> bool:
    """Write each token's distance below 0 in grid steps; False when a value is no log-probability."""
    num_bad = 0
    for token in range(log_probs.size):
        value = np.float64(log_probs[token])
        num_bad += not value <= ROUNDING_NOISE
        keys[token] = np.uint32(np.rint(-max(min(value, 0.0), LOWEST) * STEPS_PER_NAT))
    return num_bad == 0


@kernel
def _top_rows(log_probs: Floats, ids: Ints, grid_log_probs: Floats) -> bool:
    """Fill the candidates of each row; False when a value is no log-probability."""
    keys = np.empty(log_probs.shape[1], np.uint32)
    for row in range(log_probs.shape[0]):
        if not _grid_keys(log_probs[row], keys):
            return False
        first = lowest_keys(keys, ids.shape[1], _GRID_BITS)
        for rank in range(first.size):
            ids[row, rank] = first[rank] & 0x7FFFFFFF
            grid_log_probs[row, rank] = (0.0 - (first[rank] >> 31)) / STEPS_PER_NAT
    return True


@kernel
def _rank_rows(log_probs: Floats, tokens: Ints, ranks: Ints) -> bool:
    """Fill the rank of each row's token; False when a value is no log-probability."""
    keys = np.empty(log_probs.shape[1], np.uint32)
    for row in range(log_probs.shape[0]):
        if not _grid_keys(log_probs[row], keys):
            return False
        token = tokens[row]
        if token < 0:
            ranks[row] = -1
            continue
        own, num_before = keys[token], 0
        for other in range(token):
            num_before += keys[other] <= own
        for other in range(token + 1, keys.size):
            num_before += keys[other] < own
        ranks[row] = num_before
    return True


def _checked_rows(log_probs: Floats) -> Floats:
    if log_probs.ndim != 2 or log_probs.dtype != np.float32:
        raise ValueError(f"log_probs must be float32 [R, V]; got {log_probs.dtype} {list(log_probs.shape)}")
    if log_probs.shape[1] >= 1 << 31:
        raise ValueError(f"token ids are int32; got a vocabulary of {log_probs.shape[1]}")
    return np.ascontiguousarray(log_probs)


_NO_LOG_PROBS = "log_probs must be numbers that are at most 0; got NaN or a positive value. Apply log-softmax first."


def top_candidates(log_probs: Floats, num_kept: int) -> tuple[Ints, Floats]:
    """The first candidates of each row: grid log-prob descending, then token id ascending.

    Args:
        log_probs: float32 ``[R, V]``, natural logarithms, over the whole vocabulary. -inf, a
            masked token, counts as -255, the lowest value on the grid.
        num_kept: candidates to keep; above ``V`` all ``V`` are kept.

    Returns:
        Token ids, int32 ``[R, K]``, and log-probs on the grid, float32 ``[R, K]``, with
        ``K = min(num_kept, V)``.
    """
    rows = _checked_rows(log_probs)
    if num_kept < 0:
        raise ValueError(f"num_kept must not be negative; got {num_kept}")
    shape = (rows.shape[0], min(num_kept, rows.shape[1]))
    ids, grid_log_probs = np.empty(shape, np.int32), np.empty(shape, np.float32)
    if not _top_rows(rows, ids, grid_log_probs):
        raise ValueError(_NO_LOG_PROBS)
    return ids, grid_log_probs


def ranks_of(log_probs: Floats, tokens: Ints) -> Ints:
    """The rank of one token in each row, 0 for the most probable, over the whole vocabulary.

    Args:
        log_probs: float32 ``[R, V]``, as in `top_candidates`.
        tokens: int32 ``[R]``; -1, a token outside the drafter's vocabulary, stays -1.

    Returns:
        int32 ``[R]``.
    """
    rows = _checked_rows(log_probs)
    if tokens.dtype != np.int32 or tokens.shape != rows.shape[:1]:
        raise ValueError(f"tokens must be int32 [{rows.shape[0]}]; got {tokens.dtype} {list(tokens.shape)}")
    if tokens.size and (tokens.min() < -1 or tokens.max() >= rows.shape[1]):
        raise ValueError(f"tokens must lie in -1 ... {rows.shape[1] - 1}; got {tokens.min()} ... {tokens.max()}")
    ranks = np.empty(rows.shape[0], np.int32)
    if not _rank_rows(rows, np.ascontiguousarray(tokens), ranks):
        raise ValueError(_NO_LOG_PROBS)
    return ranks
