"""From a drafter's logits to the rows that a trace keeps of it."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Bools, Floats, Ints
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.kept import KeptCandidates, kept_counts
from simlab.real_runner.drafters.ranked import LawBuffers, Laws, RankedCandidates, ranked
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.targets.model import Target
from simlab.traces.format.records import DraftColumns

_BLOCKS_PER_PASS = 64
_ATTENTION_WEIGHTS_PER_PASS = 2**28


def draft_columns(
    drafter: DFlashDrafter, target: Target, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates
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
    roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
    per_pass = blocks_per_pass(drafter.config.num_attention_heads, drafter.config.block_size, len(tokens))
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
    parts, buffers, ids = list[DraftColumns](), LawBuffers(), tokens.cpu().numpy()
    for some, logits in passes:
        roots = some.cpu().numpy()
        true_ids, valid = _true_ids(ids, roots, depth)
        true_ids = true_ids if own is None else own.to_draft(true_ids)
        columns = _columns(buffers.laws(logits), roots.astype(np.int32), true_ids, valid, kept)
        parts.append(columns if own is None else replace(columns, ids=own.to_target(columns.ids)))
    return DraftColumns.concatenated(parts) if parts else DraftColumns.empty(depth)


def blocks_per_pass(num_heads: int, block_size: int, num_tokens: int) -> int:
    """How many blocks are drafted in one pass: 64, or as many as keep its attention weights few.

    A pass holds a few copies of blocks x heads x block size x tokens weights, which would grow with the text.
    """
    weights = num_heads * block_size * (num_tokens + block_size)
    return max(1, min(_BLOCKS_PER_PASS, _ATTENTION_WEIGHTS_PER_PASS // weights))


def _true_ids(tokens: Ints, roots: Ints, depth: int) -> tuple[Ints, Bools]:
    """The true tokens ``[R, D]`` after each root, and where there is one."""
    ahead = roots[:, None] + np.arange(1, depth + 1)
    valid = ahead < len(tokens)
    return tokens[np.minimum(ahead, len(tokens) - 1)].astype(np.int32), valid


def _columns(laws: Laws, roots: Ints, true_ids: Ints, valid: Bools, kept: KeptCandidates) -> DraftColumns:
    """The rows of roots at some absolute positions, ids in the drafter's vocabulary.

    Args:
        laws: of the roots.
        roots: int32 ``[R]``, absolute positions.
        true_ids: int32 ``[R, D]``.
        valid: bool ``[R, D]``, where there is a true token.
        kept: how many candidates.
    """
    first = ranked(laws, true_ids, kept.most)
    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        counts_of_row = pool.map(lambda r: kept_counts(first.ids[r], first.log_probs[r], kept), range(len(roots)))
        counts = np.stack(list(counts_of_row))
    inside = np.arange(first.ids.shape[-1]) < counts[..., None]
    return DraftColumns(
        context_length=roots,
        counts=counts,
        ids=first.ids[inside],
        log_probs=first.log_probs[inside],
        outside_log_mass=_outside_log_mass(first, counts),
        entropy=laws.entropy.cpu().numpy().astype(np.float32),
        true_rank=first.true_ranks,
        true_log_prob=first.true_log_probs,
        valid=valid,
    )


def _outside_log_mass(first: RankedCandidates, counts: Ints) -> Floats:
    """float32 ``[R, D]``, log of the mass that is not kept."""
    inside = np.empty(counts.shape)
    for place, count in np.ndenumerate(counts):
        inside[place] = first.probs[place][:count].sum(dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.clip(np.log(np.maximum(first.mass - inside, 0.0)), -255.0, 0.0).astype(np.float32)
