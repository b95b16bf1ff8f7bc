"""The audit of a text: is every token what the target itself says, but for the last bits of arithmetic?

The whole text goes through the target once, in float32. Each token is held against that pass's own
choice, made with the same noise and the same filters. Where they differ, the loss says how wrong the
logits must have been; how wrong they can be is measured.

Without top-k and top-p a token that was not chosen is explained by an error as large as the gap by which it lost. With
one of them a small error has more ways: it lets a token in that stood just outside, or puts the winner out that stood
just inside. So `least_error` asks the question of errors directly: how far must the differences between logits be off,
each by at most the same amount, before the token can be the choice?
"""

from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Bools, Doubles, Floats, Ints, Longs
from simlab.draft import Prompt
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, choose_rows, gaps_of, gumbel, sequence_key

_ROWS_PER_PASS = 128
_TOKENS_PER_PIECE = 9
_PASS_SIZES = (9, 1, 33, 257, 17, 65, 129)
_NUM_COMPARED = 16
_SAFETY = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class TextLosses:
    """What a float32 pass says of the tokens of a text.

    Attributes:
        losses: float64 ``[T]``, by how much the difference between two logits must at least be off
            for the token to be the choice: 0 if it is the choice, or tied with it. Without top-k and
            top-p this is the least raise of its own logit with which it would have been chosen.
        tokens: int32 ``[T]``, the choices of the pass.
    """

    losses: Doubles
    tokens: Ints


@torch.inference_mode()
def audit_text(target32: Target, prompt: Prompt, text: Ints, sampling: Sampling) -> TextLosses:
    """Hold every token of a text against the choice of one teacher-forced pass.

    Args:
        target32: the target in float32.
        prompt: what the text answers; names the noise too.
        text: int32 ``[T]``.
        sampling: with which the text was made.
    """
    key, start = sequence_key(sampling, prompt), len(prompt.token_ids)
    states = target32.states(_ids(prompt, text[:-1]))[0, start - 1 :]
    losses, tokens = np.zeros(len(text)), np.empty(len(text), np.int32)
    for first in range(0, len(text), _ROWS_PER_PASS):
        rows = slice(first, first + _ROWS_PER_PASS)
        logits = target32.rows(target32.logits(states[rows]))
        positions = np.arange(start + first, start + first + len(logits), dtype=np.int64)
        losses[rows], tokens[rows] = _losses(logits, text[rows], sampling, key, positions)
    return TextLosses(losses, tokens)


def _losses(logits: Floats, text: Ints, sampling: Sampling, key: int, positions: Longs) -> tuple[Doubles, Ints]:
    """Losses and choices of some rows ``[R, V]``."""
    keys = np.full(len(text), key, np.uint64)
    tokens = choose_rows(logits, sampling, keys, positions).tokens
    losses = np.zeros(len(text))
    others = np.flatnonzero(tokens != text)
    gaps = gaps_of(logits[others], text[others], sampling, keys[others], positions[others])
    is_filtered = sampling.temperature > 0 and (sampling.top_k > 0 or sampling.top_p < 1)
    for row, gap in zip(others, gaps, strict=True):
        losses[row] = -gap
        if is_filtered and gap < 0:
            losses[row] = least_error(logits[row], int(text[row]), sampling, key, int(positions[row]))
    return losses, tokens


@torch.inference_mode()
def measured_bound(target: Target, target32: Target, prompt: Prompt, text: Ints) -> float:
    """How much a difference between two logits may be off in ``target``; no loss may be larger.

    Measured at every token of a text: the 16 tokens that float32 finds most probable, and the one
    that follows, each against the first. Twice the largest error is given, since it is a difference of two
    such that decides between two tokens; and at least one float32 step of the largest logit.
    Take the largest over some texts of plain decoding. Passes here are ordinary ones, also of a target that is run in
    passes of one fixed shape or in captured ones.

    Args:
        target: as it was loaded, through a cache and in passes of the sizes that trees have.
        target32: the same in float32, in one pass over everything.
        prompt: what the text answers.
        text: int32 ``[T]``.

    Returns:
        In units of a logit.
    """
    whole = target32.states(_ids(prompt, text[:-1]))[0, len(prompt.token_ids) - 1 :]
    short = _states_in_pieces(target, prompt, text[:-1])
    bound = 0.0
    for first in range(0, len(text), _ROWS_PER_PASS):
        rows = slice(first, first + _ROWS_PER_PASS)
        logits, reference = target.rows(target.logits(short[rows])), target32.rows(target32.logits(whole[rows]))
        error = max(map(_gap_error, logits, reference, text[rows].tolist()))
        bound = max(bound, _SAFETY * error, _float32_step(reference))
    return bound


def _float32_step(logits: Floats) -> float:
    """No smaller difference can be told from none."""
    largest = np.abs(logits).max(initial=0.0, where=np.isfinite(logits))
    return float(np.spacing(np.float32(largest)))


def _gap_error(logits: Floats, reference: Floats, following: int) -> float:
    """The largest error of a gap to the most probable token, in one row ``[V]``."""
    ids = np.append(np.argsort(-reference, kind="stable")[:_NUM_COMPARED], following)
    ids = ids[np.isfinite(reference[ids]) & np.isfinite(logits[ids])]
    differences = logits[ids].astype(np.float64) - reference[ids]
    return float(np.abs(differences - differences[0]).max())


def _states_in_pieces(target: Target, prompt: Prompt, text: Ints) -> Tensor:
    """``[T + 1, H]``, the states that follow a prompt and each token of a text, through a cache.

    Kernels add in another order in passes of another size, so the passes are, in turn, as large as those of plain
    decoding and of small and large trees. A few tokens of the text stand at the beginning of each; what fills it up
    is seen by none of them, and forgotten.
    """
    cache = BufferCache(target, len(prompt.token_ids) + len(text) + max(_PASS_SIZES))
    parts = [target.states(_ids(prompt, text[:0]), cache)[0, -1:]]
    sizes, first = cycle(_PASS_SIZES), 0
    while first < len(text):
        size, start = next(sizes), cache.length
        piece = text[first : first + min(size, _TOKENS_PER_PIECE)]
        filled = np.resize(piece, max(len(piece), min(size, target.longest_context - start)))
        parts.append(target.states(torch.from_numpy(filled.astype(np.int64))[None], cache)[0, : len(piece)])
        cache.shorten(start + len(piece))
        first += len(piece)
    return torch.cat(parts)


def _ids(prompt: Prompt, text: Ints) -> Tensor:
    return torch.from_numpy(np.concatenate([prompt.token_ids, text]).astype(np.int64))[None]


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
