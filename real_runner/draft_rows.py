"""From a drafter's logits to the candidates that a trace keeps.

Depth d keeps at least ``min_width`` ranks, and every rank that the exact best-first tree of
``exact_budget`` drafted tokens reads there.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simlab.arrays import Bools, Floats, Ints, Scalar
from simlab.candidates import ranks_of, top_candidates
from simlab.draft import Marginals
from simlab.grid import to_grid
from simlab.policies.best_first import ranks_used
from simlab.real_runner.dense import draft_logits
from simlab.real_runner.dflash import DFlashDrafter
from simlab.real_runner.target import Target
from simlab.traces.records import DraftColumns

_BLOCKS_PER_PASS = 64


@dataclass(frozen=True, slots=True)
class Kept:
    """How many candidates are kept: see the module."""

    min_width: int = 64
    exact_budget: int = 512


@dataclass(frozen=True, slots=True, eq=False)
class _Laws:
    """Some rows of the drafter's full-vocabulary laws: ``[R, D, V]`` and statistics ``[R, D]``."""

    log_probs: Floats
    probs: Floats
    entropy: Floats


class LawBuffers:
    """Room for the laws of a pass, taken once: fresh memory of this size costs more than the arithmetic."""

    def __init__(self) -> None:
        self._log_probs = torch.empty(0)
        self._probs = torch.empty(0)

    def laws(self, logits: Tensor) -> _Laws:
        """Log-softmax over the vocabulary, in float32; valid until the next call."""
        if self._log_probs.numel() < logits.numel() or self._log_probs.device != logits.device:
            self._log_probs, self._probs = torch.empty_like(logits).flatten(), torch.empty_like(logits).flatten()
        log_probs = self._log_probs[: logits.numel()].view(logits.shape)
        probs = self._probs[: logits.numel()].view(logits.shape)
        torch.log_softmax(logits, -1, out=log_probs)
        torch.exp(log_probs, out=probs)
        # A masked token has probability 0 and log-probability -inf; its share of the entropy is 0.
        entropy = -torch.einsum("rdv,rdv->rd", probs, log_probs.clamp_(min=-1e30))
        return _Laws(log_probs.cpu().numpy(), probs.cpu().numpy(), entropy.clamp(min=0).cpu().numpy())


def draft_columns(
    drafter: DFlashDrafter, target: Target, features: Tensor, tokens: Tensor, prompt_length: int, kept: Kept
) -> DraftColumns:
    """A drafter's rows at every root of one text.

    Args:
        drafter: and its target, whose embedding and head it borrows.
        target: see there.
        features: ``[C, taps x H]``, tapped target states from position 0 on.
        tokens: int64 ``[P + T]``, prompt and text.
        prompt_length: P.
        kept: how many candidates.
    """
    depth = drafter.config.depth
    roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
    parts, buffers = [], LawBuffers()
    ids = tokens.cpu().numpy()
    for some, logits in draft_logits(drafter, target, features, tokens, roots, _BLOCKS_PER_PASS):
        truth, valid = _truth(ids, some.cpu().numpy(), depth)
        parts.append((some.cpu().numpy().astype(np.int32), valid, *_columns(buffers.laws(logits), truth, kept)))
    if not parts:
        return _no_rows(depth)
    contexts, valid, counts, kept_ids, log_probs, outside, entropy, ranks, true_log_probs = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    return DraftColumns(contexts, counts, kept_ids, log_probs, outside, entropy, ranks, true_log_probs, valid)


def _truth(tokens: Ints, roots: Ints, depth: int) -> tuple[Ints, Bools]:
    """The true tokens ``[R, D]`` after each root, and where there is one."""
    ahead = roots[:, None] + np.arange(1, depth + 1)
    valid = ahead < len(tokens)
    return tokens[np.minimum(ahead, len(tokens) - 1)].astype(np.int32), valid


def _no_rows(depth: int) -> DraftColumns:
    none, flat = np.empty((0, depth), np.float32), np.empty(0, np.int32)
    return DraftColumns(
        flat,
        none.astype(np.int32),
        flat,
        flat.astype(np.float32),
        none,
        none,
        none.astype(np.int32),
        none,
        none.astype(np.bool_),
    )


def _columns(laws: _Laws, truth: Ints, kept: Kept) -> tuple[Ints, Ints, Floats, Floats, Floats, Ints, Floats]:
    """counts, ids, log_probs, outside mass, entropy, true ranks and log-probs of some roots."""
    rows = range(len(truth))
    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        found = list(pool.map(lambda r: _row(laws.log_probs[r], laws.probs[r], truth[r], kept), rows))
    counts = np.stack([row[0] for row in found])
    true_log_probs = np.take_along_axis(laws.log_probs, truth[..., None].astype(np.int64), -1)[..., 0]
    return (
        counts,
        np.concatenate([row[1] for row in found]),
        np.concatenate([row[2] for row in found]),
        np.stack([row[3] for row in found]),
        laws.entropy.astype(np.float32),
        np.stack([row[4] for row in found]),
        to_grid(true_log_probs),
    )


def _row(log_probs: Floats, probs: Floats, truth: Ints, kept: Kept) -> tuple[Ints, Ints, Floats, Floats, Ints]:
    depth, vocab_size = log_probs.shape
    width = min(max(kept.min_width, kept.exact_budget), vocab_size)
    ids, on_grid = top_candidates(log_probs, width)
    counts = kept_counts(ids, on_grid, kept)
    chosen = [ids[d, : counts[d]] for d in range(depth)]
    inside = np.array([probs[d, chosen[d]].sum(dtype=np.float64) for d in range(depth)])
    outside = np.maximum(probs.sum(axis=-1, dtype=np.float64) - inside, 0.0)
    with np.errstate(divide="ignore"):
        outside_log_mass = np.clip(np.log(outside), -255.0, 0.0).astype(np.float32)
    values = [on_grid[d, : counts[d]] for d in range(depth)]
    return counts, np.concatenate(chosen), np.concatenate(values), outside_log_mass, ranks_of(log_probs, truth)


def kept_counts(ids: Ints, log_probs: Floats, kept: Kept) -> Ints:
    """int32 ``[D]``, candidates kept at each depth, out of the first ranks ``[D, K]``."""
    depth, width = ids.shape
    offsets = np.arange(0, depth * width + 1, width, dtype=np.int32)
    used = ranks_used(Marginals(ids.ravel(), log_probs.ravel(), offsets), kept.exact_budget)
    counts: Ints = np.minimum(np.maximum(used, kept.min_width), width).astype(np.int32)
    return counts


def marginals_of(laws_log_probs: Floats, kept: Kept) -> Marginals:
    """The candidates that the recorder would keep of one root's laws ``[D, V]``: what a live round sees."""
    ids, on_grid = top_candidates(laws_log_probs, min(max(kept.min_width, kept.exact_budget), laws_log_probs.shape[1]))
    counts = kept_counts(ids, on_grid, kept)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return Marginals(_first(ids, counts), _first(on_grid, counts), offsets)


def _first(rows: npt.NDArray[Scalar], counts: Ints) -> npt.NDArray[Scalar]:
    return np.concatenate([row[:count] for row, count in zip(rows, counts, strict=True)])
