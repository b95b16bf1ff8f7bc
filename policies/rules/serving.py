"""Rules of serving engines: how many tokens of each text's chain are verified, chosen with what earlier rounds showed.

An engine serves many texts, and its rule remembers rounds of all of them: confidences that have reached the host by
now, coefficients that it learns. So its memory belongs to a replay of texts that are served together, and not to a
text. `simlab.policies.engine.lock_step` makes one at the start of a replay.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Ints, Longs
from simlab.grid import STEPS_PER_NAT
from simlab.policies.rules.budgets import SharedRule

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
    log_probs: Doubles = np.where(is_there, ends - np.where(np.isfinite(scores[:, :-1]), scores[:, :-1], 0.0), -np.inf)
    return log_probs


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


# Acceptance probabilities that a server learns from its own rounds: vLLM's estimator for drafters without a head.


FIRST_SLOPE, FIRST_INTERCEPT = 0.5, -0.2
REFIT_INTERVAL = 100
"""Rounds of the batch from one fit to the next."""

DAMPING = 50.0
"""So many observations move a coefficient by half of a Newton step."""

RIDGE = 1e-3


class OnlineAcceptance:
    """p = sigmoid(w * x + b_d) of each depth d, x the log-odds of the drafter's first candidate; one slope for all.

    Every hundredth round a Newton step is taken from what was verified since the last; the slope never falls below 0.
    From ``vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py`` of vLLM 0.32.0. Sums are float64 here, as the order
    in which a GPU adds is not known; coefficients and predictions are float32, as there.

    Attributes:
        slope: float32.
        intercepts: float32 ``[D]``.
    """

    def __init__(self, depth: int) -> None:
        self.slope = np.float32(FIRST_SLOPE)
        self.intercepts = np.full(depth, FIRST_INTERCEPT, np.float32)
        self._num_rounds = 0
        self._forget()

    def predict(self, features: Doubles) -> Floats:
        """Acceptance probabilities, float32 ``[S, D]``, of log-odds of the same shape."""
        return sigmoid(np.float64(self.slope) * features + self.intercepts.astype(np.float64))

    def observe(self, features: Doubles, predictions: Floats, admitted: Longs, accepted: Longs) -> None:
        """Count a round of the batch, and fit where it is time.

        Labels are those that a server has: 1 of accepted tokens, 0 of the first rejected one, none behind it or of
        tokens that were not admitted to verification.

        Args:
            features: float64 ``[S, D]``, log-odds.
            predictions: float32 ``[S, D]``, made of them when they were drafted.
            admitted: int64 ``[S]``, tokens that were verified.
            accepted: int64 ``[S]``.
        """
        observed = observed_labels(features.shape[1], admitted, accepted)
        expected = predictions.astype(np.float64)
        labels = np.arange(features.shape[1]) < accepted[:, None]
        weights = np.where(observed, expected * (1.0 - expected), 0.0)
        misses = np.where(observed, labels - expected, 0.0)
        self._curvature += np.stack([weights * features**2, weights * features, weights]).sum(axis=1)
        self._gradient += np.stack([misses * features, misses]).sum(axis=1)
        self._counts += observed.sum(axis=0)
        self._num_rounds += 1
        if self._num_rounds % REFIT_INTERVAL == 0:
            self._fit()
            self._forget()

    def _fit(self) -> None:
        """One damped Newton step: the arrowhead system is solved for the slope, then for each intercept."""
        squares, mixed, plain = self._curvature[0].sum() + RIDGE, self._curvature[1], self._curvature[2] + RIDGE
        by_slope, by_intercept = self._gradient[0].sum(), self._gradient[1]
        total = self._counts.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (by_slope - (mixed * by_intercept / plain).sum()) / (squares - (mixed**2 / plain).sum())
            step *= total / (total + DAMPING)
        if not (np.isfinite(step) and float(self.slope) + step >= 0.0):
            step = np.float64(0.0)
        self.slope = np.float32(float(self.slope) + step)
        steps = (by_intercept - mixed * step) / plain * self._counts / (self._counts + DAMPING)
        self.intercepts = (self.intercepts.astype(np.float64) + steps).astype(np.float32)

    def _forget(self) -> None:
        depth = len(self.intercepts)
        self._curvature, self._gradient, self._counts = np.zeros((3, depth)), np.zeros((2, depth)), np.zeros(depth)


def observed_labels(depth: int, admitted: Longs, accepted: Longs) -> Bools:
    """The drafted tokens of which a server knows whether the target agrees, bool ``[S, D]``; see `OnlineAcceptance`."""
    positions = np.arange(depth)
    labels: Bools = (positions <= accepted[:, None]) & (positions < admitted[:, None])
    return labels
