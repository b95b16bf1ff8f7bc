"""Rules of serving engines: how many tokens of each text's chain are verified, chosen with what earlier rounds showed.

An engine serves many texts, and its rule remembers rounds of all of them: confidences that have reached the host by
now, coefficients that it learns. So its memory belongs to a replay of texts that are served together, and not to a
text. `simlab.policies.engine.lock_step` makes one at the start of a replay.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Ints, Longs
from simlab.grid import STEPS_PER_NAT
from simlab.policies.rules.shared import SharedRule

LARGEST_LOG_ODDS = float(np.log(2.0 * STEPS_PER_NAT))
"""Of a probability that a trace holds as 1: it lies at most half a step of the grid of log-probabilities below."""


class ServingMemory(Protocol):
    """What a rule knows of the texts that it serves; it changes from round to round."""

    def shares(self, requests: Longs, scores: Doubles, contexts: Longs) -> Ints:
        """int32 ``[S]``, how many drafted tokens of each text are verified in this round.

        Args:
            requests: int64 ``[S]``, numbers of the texts as they came; one that comes once more has another number.
            scores: float64 ``[S, D + 1]``, see `SharedRule.shares`.
            contexts: int64 ``[S]``, tokens before each root.
        """
        ...

    def observe(self, num_accepted: Longs, num_known: Longs) -> None:
        """Learn what became of the round that `shares` was asked about last.

        Args:
            num_accepted: int64 ``[S]``.
            num_known: int64 ``[S]``, tokens of the text behind each root; what the target says of later ones is not
                known.
        """
        ...


@runtime_checkable
class ServingRule(SharedRule, Protocol):
    """A shared rule with a memory. Its `sizes` and `shares` are of texts of which nothing is remembered."""

    def memory(self) -> ServingMemory:
        """What is known before the first round."""
        ...


def log_probs_of(scores: Doubles) -> Doubles:
    """Log-probabilities along chains, float64 ``[S, D]``, -inf where a chain has ended.

    Args:
        scores: float64 ``[S, D + 1]``, see `SharedRule.shares`.
    """
    is_there = np.isfinite(scores[:, 1:])
    ends = np.where(is_there, scores[:, 1:], 0.0)
    found: Doubles = np.where(is_there, ends - np.where(np.isfinite(scores[:, :-1]), scores[:, :-1], 0.0), -np.inf)
    return found


def log_odds(log_probs: Doubles) -> Doubles:
    """log(q / (1 - q)) of log-probabilities, within `LARGEST_LOG_ODDS` of 0; any shape.

    >>> log_odds(np.log([0.5])).tolist(), round(float(log_odds(np.zeros(1))[0]), 2)
    ([0.0], 11.78)
    """
    with np.errstate(divide="ignore"):
        odds = log_probs - np.log(-np.expm1(log_probs))
    return np.asarray(np.clip(odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS), np.float64)


def sigmoid(values: Doubles) -> Floats:
    """1 / (1 + exp(-x)), float32 as engines hold confidences."""
    return np.asarray(1.0 / (1.0 + np.exp(-values)), np.float32)


class LateConfidences:
    """Confidences of a request's earlier drafts, as a host sees them that is some rounds behind.

    Attributes:
        staleness: how many drafts of a request lie between what the host sees and the present one; 0: none, it sees
            the present one.
    """

    def __init__(self, staleness: int) -> None:
        self.staleness = staleness
        self._seen: dict[int, list[Floats]] = {}

    def after(self, requests: Longs, confidences: Floats) -> Floats:
        """What the host sees when these have just been drafted, float32 ``[S, D]``; 1 where it has seen nothing.

        Args:
            requests: int64 ``[S]``; what is known of others is forgotten, as they have ended.
            confidences: float32 ``[S, D]``.
        """
        seen: dict[int, list[Floats]] = {}
        late = np.ones_like(confidences)
        for row, number in enumerate(requests.tolist()):
            seen[number] = [*self._seen.get(number, ()), confidences[row]][-self.staleness - 1 :]
            if len(seen[number]) > self.staleness:
                late[row] = seen[number][0]
        self._seen = seen
        return late


def best_total(survival: Doubles, num_texts: int, seconds: Doubles) -> int:
    """The number of drafted tokens with the most expected tokens per second; the smallest of several.

    Args:
        survival: float64 ``[N]``, of drafted tokens, the most probable first.
        num_texts: in the pass; each commits one token more.
        seconds: float64, of passes of 0, 1, ... tokens, at least ``num_texts + N``.
    """
    expected = num_texts + np.concatenate([[0.0], np.cumsum(survival)])
    return int(np.argmax(expected / seconds[num_texts : num_texts + len(expected)]))


def best_lengths(survival: Doubles, eligible: Bools, seconds: Doubles) -> Ints:
    """`best_total` of each chain alone, int32 ``[R]``.

    Args:
        survival: float64 ``[R, D]``, which falls along each chain.
        eligible: bool ``[R, D]``, the beginnings of chains that may be chosen.
        seconds: as there, of one text.
    """
    expected = 1.0 + np.cumsum(np.where(eligible, survival, 0.0), axis=1)
    rates = np.where(eligible, expected / seconds[2 : 2 + expected.shape[1]], -np.inf)
    none = np.full((len(rates), 1), 1.0 / seconds[1])
    lengths: Ints = np.argmax(np.concatenate([none, rates], axis=1), axis=1).astype(np.int32)
    return lengths


def first_of_chains(survival: Floats, eligible: Bools, budget: int, by_position: bool) -> Ints:
    """How many tokens of each chain are among the most probable ones of all, int32 ``[S]``.

    Args:
        survival: float32 ``[S, D]``, which falls along each chain.
        eligible: bool ``[S, D]``, the beginnings of chains that may be chosen.
        budget: tokens of all chains together.
        by_position: of equal ones the earlier position comes first, and then the earlier text; else the earlier text
            and then the earlier position.
    """
    num_texts, depth = survival.shape
    texts = np.repeat(np.arange(num_texts), depth).reshape(num_texts, depth)
    keys, keyed = np.where(eligible, -survival.astype(np.float64), np.inf), eligible
    if by_position:
        keys, texts, keyed = keys.T, texts.T, keyed.T
    chosen = np.argsort(keys.ravel(), kind="stable")[:budget]
    owners = texts.ravel()[chosen][keyed.ravel()[chosen]]
    return np.bincount(owners, minlength=num_texts).astype(np.int32)
