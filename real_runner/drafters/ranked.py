"""The drafter's laws, and their first candidates in the shared order, on a CPU or where they lie.

A law is as long as the vocabulary. On a GPU it stays there, see `simlab.real_runner.drafters.candidate_keys`; on a CPU
kernels find the same without sorting.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Bools, Doubles, Floats, Ints
from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.grid import to_grid
from simlab.policies.orders.best_first import ranks_used
from simlab.real_runner.drafters.candidate_keys import (
    MASKED,
    NO_LAWS,
    ColumnsOnTheWay,
    PassRows,
    are_laws,
    columns_on_device,
    entropies,
    first_of,
    grid_at,
    ids_at,
    in_draft,
    keys_of,
    on_host,
    pass_rows,
)
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.dense import OutputConfig, draft_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.targets.model import Target
from simlab.sampling.candidates import ranks_of, top_candidates
from simlab.traces.format.frames import DraftColumns


@dataclass(frozen=True, slots=True)
class CandidatesRead:
    """What a policy reads at each depth of a draft.

    Attributes:
        width: so many candidates, where the vocabulary has as many.
        entropies: whether the entropy of the whole law is read too.
    """

    width: int
    entropies: bool = False


class LawBuffers:
    """Room for the laws of a pass, taken once: fresh memory of this size costs more than the arithmetic."""

    def __init__(self) -> None:
        self._log_probs = torch.empty(0)
        self._probs = torch.empty(0)

    def laws(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities and probabilities of logits, float32 ``[R, D, V]``, both valid until the next call.

        Returns:
            These, and entropies, float32 ``[R, D]``, nats.
        """
        if self._log_probs.numel() < logits.numel():
            self._log_probs, self._probs = torch.empty_like(logits).flatten(), torch.empty_like(logits).flatten()
        log_probs = self._log_probs[: logits.numel()].view(logits.shape)
        probs = self._probs[: logits.numel()].view(logits.shape)
        torch.log_softmax(logits, -1, out=log_probs)
        torch.exp(log_probs, out=probs)
        entropy = entropies(log_probs.clamp_(min=MASKED), probs)
        if bool(entropy.isnan().any()):
            raise ModelError(NO_LAWS)
        return log_probs, probs, entropy


def ranked(log_probs: Floats, probs: Floats, truth: Ints, width: int) -> tuple[Ints, Floats, Floats, Doubles, Ints]:
    """The first candidates of some laws, and the ranks of the true tokens, on a CPU, without sorting.

    A true token of -1, outside the drafter's vocabulary, has the rank -1.

    Args:
        log_probs: float32 ``[R, D, V]``.
        probs: the same laws.
        truth: int32 ``[R, D]``.
        width: K.

    Returns:
        Ids int32 and log-probabilities on the grid float32, ``[R, D, K]``, in the order of
        `simlab.sampling.candidates`; as the laws have these, float32 of the same shape; the sum of each whole law, 1
        but for rounding, float64 ``[R, D]``; and ranks, int32 ``[R, D]``.
    """

    def row(r: int) -> tuple[Ints, Floats, Floats, Doubles, Ints]:
        ids, kept = top_candidates(log_probs[r], width)
        mass = probs[r].sum(axis=-1, dtype=np.float64)
        return ids, kept, np.take_along_axis(probs[r], ids, -1), mass, ranks_of(log_probs[r], truth[r])

    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        rows = list(pool.map(row, range(len(truth))))
    ids, first_log_probs, first_probs, mass, ranks = (np.stack(column) for column in zip(*rows, strict=True))
    return ids, first_log_probs, first_probs, mass, ranks


def first_marginals(logits: Tensor, read: CandidatesRead) -> Marginals:
    """The first candidates at each depth below one root, and entropies if they are read: what a live round sees.

    Args:
        logits: float32 ``[D, V]``, raw, on any device.
        read: a width above ``V`` gives all.
    """
    if logits.device.type != "cpu":
        return marginals_at(*on_host(*first_on_device(logits, read)))
    log_probs = logits.log_softmax(-1)
    return _marginals(*first_candidates(log_probs, read.width), _entropies_read(log_probs, read).numpy())


def first_candidates(log_probs: Tensor, width: int) -> tuple[Ints, Floats]:
    """The first candidates of some laws, on any device.

    Args:
        log_probs: float32 ``[N, V]``, after a log-softmax.
        width: a width above ``V`` gives all.

    Returns:
        Ids, int32 ``[N, K]``, and log-probs on the grid, float32 ``[N, K]``, in the order of
        `simlab.sampling.candidates`.
    """
    if log_probs.device.type != "cpu":
        first = first_of(keys_of(log_probs), width)
        ids, kept, laws = on_host(ids_at(first).int(), grid_at(first), are_laws(log_probs))
        if not laws:
            raise ModelError(NO_LAWS)
        return ids.copy(), kept.copy()
    try:
        return top_candidates(log_probs.numpy(), width)
    except ValueError as error:
        raise ModelError(NO_LAWS) from error


def first_on_device(logits: Tensor, read: CandidatesRead) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first candidates as `first_marginals` has them, without a wait for the device.

    Returns:
        For `marginals_at`: ids int32 and log-probs on the grid float32, ``[D, K]`` each; entropies, float32 ``[D]``, or
        ``[0]`` if they are not read; and whether every row is a law, bool ``[]``.
    """
    log_probs = logits.log_softmax(-1)
    first = first_of(keys_of(log_probs), read.width)
    return ids_at(first).int(), grid_at(first), _entropies_read(log_probs, read), are_laws(log_probs)


def marginals_at(ids: Ints, log_probs: Floats, nats: Floats, is_law: Bools) -> Marginals:
    """What `first_on_device` found, on the host, as copies."""
    if not is_law:
        raise ModelError(NO_LAWS)
    return _marginals(ids.copy(), log_probs.copy(), nats.copy())


def _entropies_read(log_probs: Tensor, read: CandidatesRead) -> Tensor:
    """float32 ``[D]``, or ``[0]`` if they are not read."""
    return entropies(log_probs.clamp(min=MASKED), log_probs.exp()) if read.entropies else log_probs.new_zeros(0)


def _marginals(ids: Ints, log_probs: Floats, nats: Floats) -> Marginals:
    offsets = np.arange(0, ids.size + 1, ids.shape[1], dtype=np.int32)
    return Marginals(ids.ravel(), log_probs.ravel(), offsets, nats if nats.size else None)


# From a drafter's logits to the rows that a trace keeps of it.


_BLOCKS_PER_PASS = 64
_LOGITS_PER_PASS = 2**26
_ATTENTION_WEIGHTS_PER_PASS = 2**28


def draft_columns(
    drafter: DFlashDrafter, target: Target, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates
) -> DraftColumns:
    """A drafter's rows at every root of one text.

    Args:
        drafter: that proposes.
        target: lends the drafter its embedding and head.
        features: ``[C, taps x H]``, tapped target states from position 0 on.
        tokens: int64 ``[P + T]``, prompt and text.
        prompt_length: P.
        kept: how many candidates.
    """
    roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
    per_pass = blocks_at_once(drafter.config, len(tokens), is_cpu=tokens.device.type == "cpu")
    parts = draft_logits(drafter, target, features, tokens, roots, per_pass)
    return columns_of(parts, drafter.vocabulary, drafter.config.depth, tokens, kept)


def columns_of(
    passes: Iterable[tuple[Tensor, Tensor]],
    own: DraftVocabulary | None,
    depth: int,
    tokens: Tensor,
    kept: KeptCandidates,
) -> DraftColumns:
    """The rows that a trace keeps of any drafter's logits.

    Args:
        passes: the roots of a pass, int64 ``[R]``, absolute, and float32 logits ``[R, D, V]``.
        own: which tokens these are of; None: those of the target.
        depth: D.
        tokens: int64 ``[P + T]``, prompt and text.
        kept: how many candidates.
    """
    if tokens.device.type != "cpu":
        return columns_on_device(passes, own, depth, tokens, kept)
    parts, buffers, ids = list[DraftColumns](), LawBuffers(), tokens.numpy()
    for part, logits in passes:
        roots = part.numpy()
        true_ids, valid = _true_ids(ids, roots, depth)
        true_ids = true_ids if own is None else own.to_draft(true_ids)
        columns = _columns(*buffers.laws(logits), roots.astype(np.int32), true_ids, valid, kept)
        parts.append(columns if own is None else replace(columns, ids=own.to_target(columns.ids)))
    return DraftColumns.concatenated(parts) if parts else DraftColumns.empty(depth)


def blocks_per_pass(num_heads: int, block_size: int, num_tokens: int, most: int = _BLOCKS_PER_PASS) -> int:
    """How many blocks are drafted in one pass: at most 64, or as many as keep its attention weights few.

    A pass holds a few copies of blocks x heads x block size x tokens weights, which would grow with the text.
    """
    weights = num_heads * block_size * (num_tokens + block_size)
    return max(1, min(most, _ATTENTION_WEIGHTS_PER_PASS // weights))


def blocks_at_once(config: OutputConfig, num_tokens: int, *, is_cpu: bool) -> int:
    """How many blocks a pass has along a text: on a GPU more, for the sake of few passes, while laws are short.

    The logits of a pass are at most 2**26 numbers, or those of 64 blocks.
    """
    most = _BLOCKS_PER_PASS
    if not is_cpu:
        most = max(most, _LOGITS_PER_PASS // (config.depth * (config.draft_vocab_size or config.vocab_size)))
    return blocks_per_pass(config.num_attention_heads, config.block_size, num_tokens, most)


def launched_columns(
    drafter: DFlashDrafter,
    target: Target,
    features: Sequence[Tensor],
    tokens: Sequence[Tensor],
    prompt_lengths: Sequence[int],
    kept: KeptCandidates,
) -> ColumnsOnTheWay:
    """A drafter's rows at every root of several texts, launched on their device; see `draft_columns`."""
    own, parts = drafter.vocabulary, list[PassRows]()
    for read, text, start in zip(features, tokens, prompt_lengths, strict=True):
        roots = torch.arange(start, len(text) - 1, device=text.device)
        theirs = text if own is None else in_draft(text, own)
        per_pass = blocks_at_once(drafter.config, len(text), is_cpu=text.device.type == "cpu")
        for part, logits in draft_logits(drafter, target, read, text, roots, per_pass):
            parts.append(pass_rows(logits, theirs, part, kept.most))
    return ColumnsOnTheWay(parts, own, drafter.config.depth, kept)


def _true_ids(tokens: Ints, roots: Ints, depth: int) -> tuple[Ints, Bools]:
    """The true tokens ``[R, D]`` after each root, and where there is one."""
    ahead = roots[:, None] + np.arange(1, depth + 1)
    valid = ahead < len(tokens)
    return tokens[np.minimum(ahead, len(tokens) - 1)].astype(np.int32), valid


def _columns(
    log_probs: Tensor, probs: Tensor, entropy: Tensor, roots: Ints, true_ids: Ints, valid: Bools, kept: KeptCandidates
) -> DraftColumns:
    """The rows of roots at some absolute positions, ids in the drafter's vocabulary.

    Args:
        log_probs: as `LawBuffers.laws` gives them, like the next two.
        probs: of the roots.
        entropy: of the roots.
        roots: int32 ``[R]``, absolute positions.
        true_ids: int32 ``[R, D]``.
        valid: bool ``[R, D]``, where there is a true token.
        kept: how many candidates.
    """
    laws = log_probs.numpy()
    ids, kept_log_probs, first_probs, mass, ranks = ranked(laws, probs.numpy(), true_ids, kept.most)
    # That of a token which the drafter has not means nothing.
    true_log_probs = np.take_along_axis(laws, true_ids[..., None].astype(np.int64), -1)[..., 0]
    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        counts_of_row = pool.map(lambda r: kept_counts(ids[r], kept_log_probs[r], kept), range(len(roots)))
        counts = np.stack(list(counts_of_row))
    inside = np.arange(ids.shape[-1]) < counts[..., None]
    return DraftColumns(
        context_length=roots,
        counts=counts,
        ids=ids[inside],
        log_probs=kept_log_probs[inside],
        outside_log_mass=_outside_log_mass(first_probs, mass, counts),
        entropy=entropy.numpy().astype(np.float32),
        true_rank=ranks,
        true_log_prob=to_grid(true_log_probs),
        valid=valid,
    )


def _outside_log_mass(probs: Floats, mass: Doubles, counts: Ints) -> Floats:
    """float32 ``[R, D]``, log of the mass that is not kept."""
    inside = np.empty(counts.shape)
    for index, count in np.ndenumerate(counts):
        inside[index] = probs[index][:count].sum(dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.clip(np.log(np.maximum(mass - inside, 0.0)), -255.0, 0.0).astype(np.float32)


def kept_counts(ids: Ints, log_probs: Floats, kept: KeptCandidates) -> Ints:
    """int32 ``[D]``, candidates kept at each depth, out of the first ranks ``[D, K]``."""
    depth, width = ids.shape
    offsets = np.arange(0, depth * width + 1, width, dtype=np.int32)
    used = ranks_used(Marginals(ids.ravel(), log_probs.ravel(), offsets), kept.exact_budget)
    counts: Ints = np.minimum(np.maximum(used, kept.min_width), width).astype(np.int32)
    return counts
