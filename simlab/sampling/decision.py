"""The kernels of the target's choice: what is maximised, who wins, and by how much."""

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Keys, Longs
from simlab.jit import kernel
from simlab.sampling.noise import fill_gumbel, gumbel_scalar, position_state
from simlab.sampling.support import ALLOWED, SURE, Standings, exp_sum, support_of


@kernel
def _is_a_law(logits: Floats) -> bool:
    num_bad, num_finite = 0, 0
    for token in range(logits.size):
        num_bad += not logits[token] < np.inf
        num_finite += logits[token] > -np.inf
    return num_bad == 0 and num_finite > 0


@kernel
def _quantities(logits: Floats, tokens: Longs, temperature: float, noise: Doubles, state: np.uint64) -> Doubles:
    """What is maximised, float64, for each of ``tokens``; ``noise`` is full or empty."""
    values = np.empty(tokens.size, np.float64)
    if temperature == 0.0:
        for index in range(tokens.size):
            values[index] = logits[tokens[index]]
    elif noise.size:
        for index in range(tokens.size):
            values[index] = np.float64(logits[tokens[index]]) / temperature + noise[tokens[index]]
    else:
        for index in range(tokens.size):
            values[index] = np.float64(logits[tokens[index]]) / temperature + gumbel_scalar(state, tokens[index])
    return values


@kernel
def _winner(tokens: Longs, standings: Standings, values: Doubles) -> int:
    """The allowed token of the largest value, the smallest id among equals."""
    best, best_value = np.int64(-1), -np.inf
    for index in range(tokens.size):
        if standings[index] < ALLOWED or values[index] < best_value:
            continue
        if values[index] > best_value or tokens[index] < best or best < 0:
            best, best_value = tokens[index], values[index]
    return int(best)


@kernel
def _gap(tokens: Longs, standings: Standings, values: Doubles, emitted: int) -> float:
    """Value of ``emitted`` less the best other allowed one; 0 where a hair's change decides."""
    own, own_standing = -np.inf, 0
    possible, allowed, sure = -np.inf, -np.inf, -np.inf
    for index in range(tokens.size):
        if tokens[index] == emitted:
            own, own_standing = values[index], int(standings[index])
            continue
        possible = max(possible, values[index])
        if standings[index] >= ALLOWED:
            allowed = max(allowed, values[index])
        if standings[index] == SURE:
            sure = max(sure, values[index])
    if own == -np.inf:
        return -np.inf
    if own_standing >= ALLOWED and own >= allowed:
        return 0.0 if own_standing < SURE or possible >= own else own - allowed
    if own >= sure:
        return 0.0
    return own - allowed if own_standing >= ALLOWED else -np.inf


@kernel
def decide_rows(
    logits: Floats,
    temperature: float,
    top_k: int,
    top_p: float,
    keys: Keys,
    positions: Longs,
    emitted: Ints,
    tokens: Ints,
    gaps: Doubles,
) -> int:
    """Fill ``tokens`` with the choice of each row, and ``gaps``.

    Args:
        logits: float32 ``[R, V]``, contiguous.
        temperature: 0 or more.
        top_k: 0 for all.
        top_p: 1 for all.
        keys: uint64 ``[R]``, from `simlab.sampling.noise.noise_key`.
        positions: int64 ``[R]``, absolute.
        emitted: int32 ``[R]``, the tokens whose gaps are wanted; empty: those chosen.
        tokens: int32 ``[R]``, written.
        gaps: float64 ``[R]``, written.

    Returns:
        The first row that is no law (NaN, +inf, or nothing but -inf), or ``R``.
    """
    noise = np.empty(0, np.float64)
    filled_state = np.uint64(0)
    for row in range(logits.shape[0]):
        if not _is_a_law(logits[row]):
            return row
        if temperature == 0.0:
            support, standings = support_of(logits[row], 1.0, 0, 1.0)
        else:
            support, standings = support_of(logits[row], temperature, top_k, top_p)
        state = position_state(keys[row], positions[row])
        if temperature > 0.0 and support.size == logits.shape[1] and (noise.size == 0 or state != filled_state):
            noise = np.empty(support.size, np.float64)
            fill_gumbel(state, noise)
            filled_state = state
        whole = noise if state == filled_state else np.empty(0, np.float64)
        values = _quantities(logits[row], support, temperature, whole, state)
        tokens[row] = _winner(support, standings, values)
        measured = emitted[row] if emitted.size else tokens[row]
        gaps[row] = _gap(support, standings, values, measured) * (temperature if temperature > 0.0 else 1.0)
    return int(logits.shape[0])


@kernel
def fill_log_normalisers(logits: Floats, temperature: float, normalisers: Doubles) -> None:
    """Write log-sum-exp of logits / temperature of each row into ``normalisers``, float64 ``[R]``."""
    everything = np.arange(logits.shape[1])
    for row in range(logits.shape[0]):
        largest = np.float64(logits[row].max())
        total = exp_sum(logits[row], everything, largest, temperature)
        normalisers[row] = largest / temperature + np.log(total)
