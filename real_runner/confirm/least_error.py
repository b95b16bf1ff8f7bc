"""The least error of the logits that explains a token, where top-k or top-p is on.

Without a filter a token that was not chosen is explained by an error as large as the gap by which it
lost. With one, a small error has more ways: it lets a token in that stood just outside, or puts the
winner out that stood just inside. So the question is asked of errors directly: how far must the
differences between logits be off, each by at most the same amount, before the token can be the choice?
"""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Bools, Doubles, Floats
from simlab.sampling.choice import Sampling, gumbel

_NUM_HALVINGS = 60


def least_error(logits: Floats, token: int, sampling: Sampling, key: int, position: int) -> float:
    """The least error that may explain a token.

    Never more than it took: if logits whose pairwise differences are off by at most ``e`` made the
    token the choice, the result is at most ``e``. It may be less, since whether each token gets in or
    out is asked separately.

    Args:
        logits: float32 ``[V]``, raw.
        token: emitted; another one is the choice of these logits.
        sampling: its temperature is above 0.
        key: of the text's noise.
        position: absolute, of the token.

    Returns:
        In units of a logit; inf for a token of logit -inf.
    """
    if logits[token] == -np.inf:
        return float(np.inf)
    filtered = _filtered(logits, sampling)
    own = float(logits[token])
    values = logits.astype(np.float64) + sampling.temperature * gumbel(key, position, len(logits))
    stronger = np.flatnonzero(values > values[token])
    rivals, leads = logits[stronger].astype(np.float64), values[stronger] - values[token]

    def explains(error: float) -> bool:
        unbeaten = leads > error
        return filtered.may_be_in(own, error) and bool(filtered.may_be_out(rivals[unbeaten], error).all())

    low, high = 0.0, max(float(logits.max()) - own, float(leads.max(initial=0.0)))
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if explains(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True, eq=False)
class _Filtered:
    """A law in target order, and what top-k and top-p do to it.

    Attributes:
        falling: float64 ``[V]``, the logits, largest first.
        ahead: float64 ``[k + 1]``, mass of the first n tokens of those that top-k leaves.
        behind: float64 ``[k + 1]``, mass of the others of these.
        temperature: above 0.
        top_p: 1 keeps all.
    """

    falling: Doubles
    ahead: Doubles
    behind: Doubles
    temperature: float
    top_p: float

    @property
    def num_kept(self) -> int:
        """How many tokens top-k leaves."""
        return len(self.ahead) - 1

    def may_be_in(self, logit: float, error: float) -> bool:
        """Whether an error can let a token of this logit in."""
        num = int(np.searchsorted(-self.falling, -(logit + error), side="left"))
        if num >= self.num_kept:
            return False
        if self.top_p == 1:
            return True
        # Those surely before it weigh least, against all others, when the error is in its favour.
        before = self.ahead[num] * np.exp(-error / self.temperature)
        return bool(before * (1 - self.top_p) <= self.behind[num] * self.top_p)

    def may_be_out(self, logits: Doubles, error: float) -> Bools:
        """Whether an error can put tokens of these logits, float64 ``[R]``, out; bool ``[R]``."""
        num = np.searchsorted(-self.falling, -(logits - error), side="right")
        cut = num > self.num_kept
        if self.top_p == 1:
            return cut
        num = np.minimum(num, self.num_kept)
        own = np.exp((logits - self.falling[0]) / self.temperature)
        rest = (self.behind[num] + own) * np.exp(-error / self.temperature)
        out: Bools = cut | ((self.ahead[num] - own) * (1 - self.top_p) >= rest * self.top_p)
        return out


def _filtered(logits: Floats, sampling: Sampling) -> _Filtered:
    falling = -np.sort(-logits.astype(np.float64))
    num_kept = min(sampling.top_k, len(logits)) if sampling.top_k > 0 else len(logits)
    mass = np.exp((falling[:num_kept] - falling[0]) / sampling.temperature)
    ahead = np.concatenate([[0.0], np.cumsum(mass)])
    behind = np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])
    return _Filtered(falling, ahead, behind, sampling.temperature, sampling.top_p)
