"""The target's law at each token of a text, as a trace keeps it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Floats, Ints
from simlab.real_runner.drafters.candidate_keys import OnTheWay, first_at, ids_at, on_host, steps_of
from simlab.real_runner.targets.model import Target, entropies_of
from simlab.sampling.candidates import top_candidates
from simlab.sampling.choice import Sampling, choose_rows
from simlab.traces.format.frames import TokenRows
from simlab.traces.format.schema import NUM_TOP

_ROWS_PER_PASS = 128
_LOGITS_PER_PASS = 2**25


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
    if hidden.device.type != "cpu" and sampling.temperature == 0:
        return rows_there(target, launched_rows(target, hidden, text), [len(text)])[0]
    passes = list(zip(hidden.split(_ROWS_PER_PASS), text.split(_ROWS_PER_PASS), strict=True))
    rows = []
    for number, (states, emitted) in enumerate(passes):
        position = first_position + number * _ROWS_PER_PASS
        rows.append(_rows_of(target, target.logits(states), emitted, sampling, key, position))
    return TokenRows.concatenated(rows)


def launched_rows(target: Target, hidden: Tensor, text: Tensor) -> OnTheWay:
    """The rows of tokens at temperature 0, of one text or of several beside each other, launched on their device."""
    per_pass = max(_ROWS_PER_PASS, _LOGITS_PER_PASS // target.vocab_size)
    passes = zip(hidden.split(per_pass), text.split(per_pass), strict=True)
    parts = [greedy_rows(target.logits(states), emitted) for states, emitted in passes]
    return OnTheWay(*(torch.cat(column) for column in zip(*parts, strict=True)))


def rows_there(target: Target, launched: OnTheWay, lengths: Sequence[int]) -> list[TokenRows]:
    """The rows of each text, so many tokens long, once they are there."""
    arrays, ends = launched.arrays(), np.cumsum(lengths)
    if not np.isfinite(arrays[-2]).all():
        raise target.no_law()
    # Copies, since the arrays lie in memory that a GPU copies to, which is scarce.
    return [
        _rows(*(column[end - num : end].copy() for column in arrays)) for num, end in zip(lengths, ends, strict=True)
    ]


def _rows_of(target: Target, logits: Tensor, text: Tensor, sampling: Sampling, key: int, position: int) -> TokenRows:
    """The rows of some tokens from an absolute position on, with choices by the host's kernels."""
    raw = target.rows(logits)
    log_probs = logits.log_softmax(-1)
    positions = np.arange(position, position + len(raw), dtype=np.int64)
    choices = choose_rows(raw, sampling, np.full(len(raw), key, np.uint64), positions)
    host_log_probs, emitted, entropy = on_host(log_probs, *_of_laws(log_probs, text))
    return _rows(*_top(host_log_probs), emitted, entropy, choices.log_normalisers, choices.decision_gaps)


def _rows(
    ids: Ints, log_probs: Floats, emitted: Floats, entropy: Floats, normalisers: Doubles, gaps: Doubles
) -> TokenRows:
    return TokenRows(
        top_ids=ids.astype(np.int32),
        top_log_probs=log_probs,
        log_prob=emitted,
        entropy=entropy,
        log_normaliser=normalisers.astype(np.float32),
        decision_gap=np.minimum(gaps, np.finfo(np.float32).max).astype(np.float32),
    )


def _of_laws(log_probs: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
    """float32 ``[R]`` each: the log-probabilities of the tokens emitted, and entropies."""
    return log_probs.gather(-1, text[:, None])[:, 0], entropies_of(log_probs)


def _top(log_probs: Floats) -> tuple[Ints, Floats]:
    """The most probable tokens of each row by their float32 log-probs, which the grid would tie."""
    rows = np.arange(len(log_probs))[:, None]
    ids, _ = top_candidates(log_probs, NUM_TOP)
    order = np.argsort(-log_probs[rows, ids], axis=1, kind="stable")
    ids = ids[rows, order]
    return ids, log_probs[rows, ids]


def greedy_rows(logits: Tensor, text: Tensor) -> tuple[Tensor, ...]:
    """The rows of some tokens at temperature 0, on any device.

    Args:
        logits: float32 ``[R, V]``.
        text: int64 ``[R]``.

    Returns:
        In the order of a row: ids, int64 ``[R, W]``; float32 ``[R, W]`` and twice ``[R]``; log-normalisers, float64
        ``[R]``, not finite where a row is no law; and decision gaps, float64 ``[R]``.
    """
    log_probs = logits.log_softmax(-1)
    ids = ids_at(first_at(steps_of(log_probs), NUM_TOP))
    top = log_probs.gather(-1, ids)
    order = top.argsort(dim=-1, descending=True, stable=True)
    largest = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf).topk(2).values.double()
    gaps = largest[:, 0] - largest[:, 1]
    normalisers = logits.double().logsumexp(-1)
    return ids.gather(-1, order), top.gather(-1, order), *_of_laws(log_probs, text), normalisers, gaps
