"""What a trace keeps of the target's law at each emitted token."""

from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats, Ints
from simlab.real_runner.targets.model import Target
from simlab.sampling.candidates import top_candidates
from simlab.sampling.choice import Sampling, choose_rows
from simlab.traces.format.records import TokenRows
from simlab.traces.format.schema import NUM_TOP

_ROWS_PER_PASS = 128


@torch.inference_mode()
def token_rows(
    target: Target, hidden: Tensor, text: Tensor, sampling: Sampling, key: int, first_position: int
) -> TokenRows:
    """The law that emitted each token of a text.

    Args:
        target: whose law it is.
        hidden: ``[T, H]``, the target's last hidden states (after its final norm) at the positions
            before each token.
        text: int64 ``[T]``.
        sampling: how the tokens were chosen.
        key: the sequence's noise key.
        first_position: absolute position of ``text[0]``.
    """
    parts = []
    for start in range(0, len(text), _ROWS_PER_PASS):
        rows = slice(start, start + _ROWS_PER_PASS)
        logits = target.logits(hidden[rows])
        parts.append(_rows_of(logits, target.rows(logits), text[rows], sampling, key, first_position + start))
    return TokenRows(*(np.concatenate([getattr(part, entry.name) for part in parts]) for entry in fields(TokenRows)))


def _rows_of(logits: Tensor, raw: Floats, text: Tensor, sampling: Sampling, key: int, first_position: int) -> TokenRows:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(-1)
    emitted = log_probs.gather(-1, text[:, None])[:, 0]
    keys = np.full(len(raw), key, np.uint64)
    positions = np.arange(first_position, first_position + len(raw), dtype=np.int64)
    choices = choose_rows(raw, sampling, keys, positions)
    top_ids, top_log_probs = _top(log_probs.cpu().numpy())
    return TokenRows(
        top_ids=top_ids,
        top_log_probs=top_log_probs,
        log_prob=emitted.cpu().numpy(),
        entropy=entropy.cpu().numpy(),
        log_normaliser=choices.log_normalisers.astype(np.float32),
        decision_gap=np.minimum(choices.decision_gaps, np.finfo(np.float32).max).astype(np.float32),
    )


def _top(log_probs: Floats) -> tuple[Ints, Floats]:
    """The most probable tokens of each row by their float32 log-probs, which the grid would tie."""
    rows = np.arange(len(log_probs))[:, None]
    ids, _ = top_candidates(log_probs, NUM_TOP)
    order = np.argsort(-log_probs[rows, ids], axis=1, kind="stable")
    ids = ids[rows, order]
    return ids, log_probs[rows, ids]
