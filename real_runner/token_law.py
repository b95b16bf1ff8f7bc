"""What a trace keeps of the target's law at each emitted token."""

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats
from simlab.candidates import top_candidates
from simlab.real_runner.target import Target
from simlab.sampling import Sampling, choose_rows
from simlab.traces.records import TokenRows

_TOP = 16
_ROWS_PER_PASS = 128


@torch.inference_mode()
def token_rows(
    target: Target, hidden: Tensor, text: Tensor, sampling: Sampling, key: int, first_position: int
) -> TokenRows:
    """The law that emitted each token of a text.

    Args:
        hidden: ``[T, H]``, the target's last hidden states (after its final norm) at the positions
            before each token.
        text: int64 ``[T]``.
        key: the sequence's noise key.
        first_position: absolute position of ``text[0]``.
    """
    parts = []
    for start in range(0, len(text), _ROWS_PER_PASS):
        rows = slice(start, start + _ROWS_PER_PASS)
        logits = target.head(hidden[rows]).float()
        parts.append(_rows_of(logits, text[rows], sampling, key, first_position + start))
    return TokenRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _rows_of(logits: Tensor, text: Tensor, sampling: Sampling, key: int, first_position: int) -> tuple[Floats, ...]:
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(-1)
    emitted = log_probs.gather(-1, text[:, None])[:, 0]
    raw = logits.cpu().numpy()
    keys = np.full(len(raw), key, np.uint64)
    positions = np.arange(first_position, first_position + len(raw), dtype=np.int64)
    choices = choose_rows(raw, sampling, keys, positions)
    top_ids, _ = top_candidates(log_probs.cpu().numpy(), _TOP)
    top_log_probs = log_probs.cpu().numpy()[np.arange(len(raw))[:, None], top_ids]
    order = np.argsort(-top_log_probs, axis=1, kind="stable")
    return (
        np.take_along_axis(top_ids, order, 1),
        np.take_along_axis(top_log_probs, order, 1),
        emitted.cpu().numpy(),
        entropy.cpu().numpy(),
        choices.log_normalisers.astype(np.float32),
        np.minimum(choices.decision_gaps, np.finfo(np.float32).max).astype(np.float32),
    )
