"""The target's choice of a token, in plain decoding, recording and verification alike.

Temperature 0: the largest raw logit, then the smallest id. Above it: the largest
``logit / temperature + noise`` among the tokens that top-k and top-p leave. With the noise of
`simlab.sampling.noise` this draws from the law of plain sampling (Gumbel 1954).
"""

import math
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Keys, Longs
from simlab.draft import Prompt
from simlab.limits.typed_numbers import MOST_SEED, shown
from simlab.sampling.decision import decide_rows, fill_log_normalisers
from simlab.sampling.noise import gumbel, noise_key

__all__ = ["Choice", "Choices", "Sampling", "choose", "choose_rows", "gap_of", "gaps_of", "gumbel", "noise_key"]

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
class Choice:
    """The token that the target emits at one position.

    Attributes:
        token: its id.
        decision_gap: temperature x (winner - runner-up) of the quantity that was maximised, the
            raw logit gap at temperature 0; 0 where a hair's change of the settings (see
            `simlab.sampling.support.support_of`) would emit another token; inf where no other is allowed.
        log_normaliser: log-sum-exp of logits / temperature over the whole vocabulary, at
            temperature 1 where the sampling temperature is 0. Uses the system's exp and log.
    """

    token: int
    decision_gap: float
    log_normaliser: float


@dataclass(frozen=True, slots=True)
class Choices:
    """A `Choice` for each of ``R`` rows: int32 ``[R]``, float64 ``[R]``, float64 ``[R]``."""

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

    For the token that `choose_rows` picks this is its ``decision_gap``. For another it is
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


def choose(logits: Floats, sampling: Sampling, key: int, position: int) -> Choice:
    """The target's choice from one row, float32 ``[V]``; see `choose_rows`."""
    rows = choose_rows(logits[np.newaxis, :], sampling, np.array([key], np.uint64), np.array([position], np.int64))
    return Choice(int(rows.tokens[0]), float(rows.decision_gaps[0]), float(rows.log_normalisers[0]))


def gap_of(logits: Floats, emitted: int, sampling: Sampling, key: int, position: int) -> float:
    """By how much ``emitted`` beats the best other token of one row, float32 ``[V]``; see `gaps_of`."""
    place = np.array([key], np.uint64), np.array([position], np.int64)
    return float(gaps_of(logits[np.newaxis, :], np.array([emitted], np.int32), sampling, *place)[0])


def sequence_key(sampling: Sampling, prompt: Prompt) -> int:
    """The noise key of one sequence."""
    return noise_key(sampling.seed, prompt.prompt_id, prompt.turn, prompt.sample)
