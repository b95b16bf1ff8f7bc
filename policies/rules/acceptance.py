"""Acceptance probabilities that a server learns from its own rounds: vLLM's estimator for drafters without a head."""

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Longs
from simlab.policies.rules.serving import sigmoid

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
    found: Bools = (positions <= accepted[:, None]) & (positions < admitted[:, None])
    return found
