"""The target's choice of a token, in plain decoding, recording and verification alike.

Temperature 0: the largest raw logit, then the smallest id. Above it: the largest
``logit / temperature + noise`` among the tokens that top-k and top-p leave. With the noise of
`simlab.sampling.noise` this draws from the law of plain sampling (Gumbel 1954).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simlab.arrays import Doubles, Floats, Ints, Keys, Longs
from simlab.draft import Prompt
from simlab.jit import kernel
from simlab.limits import MOST_SEED, shown
from simlab.sampling.candidates import lowest_keys
from simlab.sampling.noise import fill_gumbel, gumbel, gumbel_scalar, noise_key, position_state

# Which tokens top-k and top-p leave to the target, and which of them only just.


HAIR = 1e-9
"""A change of top_p this small is a hair's change: no decision may depend on it."""

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


# The kernels of the target's choice: what is maximised, who wins, and by how much.


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


__all__ = ["Choices", "Sampling", "choose", "choose_rows", "gap_of", "gaps_of", "gumbel", "noise_key"]

LOWEST_TEMPERATURE = 1e-6


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target's law becomes a token.

    Attributes:
        temperature: 0 for greedy decoding; top_k, top_p and seed then have no effect.
        top_k: tokens kept, in the order raw logit descending, then id; 0 keeps all.
        top_p: of these, the shortest prefix that holds this share of their mass; 1 keeps all.
        seed: enters the noise through `noise_key`.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int

    def __post_init__(self) -> None:
        if self.temperature != 0 and not LOWEST_TEMPERATURE <= self.temperature < math.inf:
            raise ValueError(f"temperature must be 0 or at least {LOWEST_TEMPERATURE}; got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must not be negative (0 keeps all tokens); got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1 (1 keeps all tokens); got {self.top_p}")
        if not -MOST_SEED <= self.seed <= MOST_SEED:
            raise ValueError(f"seed must be from -(2**63 - 1) to 2**63 - 1; got {shown(str(self.seed))}")


@dataclass(frozen=True, slots=True)
class Choices:
    """The tokens that the target emits at R positions.

    Attributes:
        tokens: int32 ``[R]``, their ids.
        decision_gaps: float64 ``[R]``, temperature x (winner - runner-up) of the quantity that was maximised, the
            raw logit gap at temperature 0; 0 where a hair's change of the settings (see
            `simlab.sampling.choice.support_of`) would emit another token; inf where no other is allowed.
        log_normalisers: float64 ``[R]``, log-sum-exp of logits / temperature over the whole vocabulary, at
            temperature 1 where the sampling temperature is 0. Uses the system's exp and log.
    """

    tokens: Ints
    decision_gaps: Doubles
    log_normalisers: Doubles


def _decided(
    logits: Floats, sampling: Sampling, keys: Keys, positions: Longs, emitted: Ints
) -> tuple[Floats, Ints, Doubles]:
    """The rows, contiguous, the tokens chosen, and the gaps."""
    if logits.ndim != 2 or logits.dtype != np.float32 or logits.shape[1] == 0:
        raise ValueError(f"logits must be float32 [R, V] with V > 0; got {logits.dtype} {list(logits.shape)}")
    num_rows, vocab_size = logits.shape
    if keys.dtype != np.uint64 or keys.shape != (num_rows,):
        raise ValueError(f"keys must be uint64 [{num_rows}]; got {keys.dtype} {list(keys.shape)}")
    if positions.dtype != np.int64 or positions.shape != (num_rows,) or (positions < 0).any():
        raise ValueError(f"positions must be int64 [{num_rows}], none negative; got {positions!r}")
    if emitted.size and (emitted.min() < 0 or emitted.max() >= vocab_size):
        raise ValueError(f"emitted tokens must lie in 0 ... {vocab_size - 1}; got {emitted.min()} ... {emitted.max()}")
    rows = np.ascontiguousarray(logits)
    tokens, gaps = np.empty(num_rows, np.int32), np.empty(num_rows, np.float64)
    settings = float(sampling.temperature), int(sampling.top_k), float(sampling.top_p)
    columns = np.ascontiguousarray(keys), np.ascontiguousarray(positions), np.ascontiguousarray(emitted)
    num_done = decide_rows(rows, *settings, *columns, tokens, gaps)
    if num_done < num_rows:
        raise ValueError(f"logits must be below +inf, not NaN, and not all -inf; row {num_done} is not so")
    return rows, tokens, gaps


def choose_rows(logits: Floats, sampling: Sampling, keys: Keys, positions: Longs) -> Choices:
    """The target's choice in each row; a row's result depends on that row alone.

    Neighbouring rows of one key and position share the work of their noise.

    Args:
        logits: float32 ``[R, V]``, raw; -inf masks a token out.
        sampling: for all rows.
        keys: uint64 ``[R]``, from `noise_key`.
        positions: int64 ``[R]``, the absolute position of the token chosen.

    Returns:
        ``R`` choices.
    """
    rows, tokens, gaps = _decided(logits, sampling, keys, positions, np.empty(0, np.int32))
    normalisers = np.empty(rows.shape[0], np.float64)
    fill_log_normalisers(rows, float(sampling.temperature) or 1.0, normalisers)
    return Choices(tokens, gaps, normalisers)


def gaps_of(logits: Floats, emitted: Ints, sampling: Sampling, keys: Keys, positions: Longs) -> Doubles:
    """By how much each emitted token beats the best other one, in units of a logit.

    For the token that `choose_rows` picks this is its own of ``decision_gaps``. For another it is
    negative; 0 if a hair's change of the settings would emit it; -inf if it is masked out, by
    -inf or by top-k or top-p.

    Args:
        logits: float32 ``[R, V]``.
        emitted: int32 ``[R]``.
        sampling: for all rows.
        keys: uint64 ``[R]``.
        positions: int64 ``[R]``.

    Returns:
        float64 ``[R]``.
    """
    if emitted.dtype != np.int32 or emitted.shape != logits.shape[:1]:
        raise ValueError(f"emitted must be int32 [{logits.shape[0]}]; got {emitted.dtype} {list(emitted.shape)}")
    return _decided(logits, sampling, keys, positions, emitted)[2]


def choose(logits: Floats, sampling: Sampling, key: int, position: int) -> int:
    """The token that the target chooses from one row, float32 ``[V]``; see `choose_rows`."""
    rows = choose_rows(logits[np.newaxis, :], sampling, np.array([key], np.uint64), np.array([position], np.int64))
    return int(rows.tokens[0])


def gap_of(logits: Floats, emitted: int, sampling: Sampling, key: int, position: int) -> float:
    """By how much ``emitted`` beats the best other token of one row, float32 ``[V]``; see `gaps_of`."""
    where = np.array([key], np.uint64), np.array([position], np.int64)
    return float(gaps_of(logits[np.newaxis, :], np.array([emitted], np.int32), sampling, *where)[0])


def sequence_key(sampling: Sampling, prompt: Prompt) -> int:
    """The noise key of one sequence."""
    return noise_key(sampling.seed, prompt.prompt_id, prompt.turn, prompt.sample)
