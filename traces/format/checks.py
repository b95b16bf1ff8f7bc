"""The invariants of the format, one sequence at a time; ``docs/reference/trace_format.md`` lists them."""

from collections.abc import Iterator

import numpy as np

from simlab.arrays import Bools, Ints, Longs
from simlab.grid import LOWEST, to_grid
from simlab.jit import borrowing_kernel
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.format.records import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.schema import NUM_TOP

MASS_TOLERANCE = 1e-3
"""Kept and outside mass must add up to 1 within this."""

LOG_PROB_TOLERANCE = 1e-4
"""Two ways to the same float32 log-probability may differ by this."""


def find_problem(record: SequenceRecord, manifest: Manifest) -> str | None:
    """The first broken invariant of a sequence, in words; None where all hold."""
    return next(_problems(record, manifest), None)


def _problems(record: SequenceRecord, manifest: Manifest) -> Iterator[str]:
    where = f"sequence {record.index}"
    yield from (f"{where}: {problem}" for problem in _text_problems(record, manifest))
    if record.tokens is None:
        yield f"{where}: the token rows are missing"
        return
    yield from (f"{where}, tokens: {problem}" for problem in _token_problems(record, record.tokens, manifest))
    for name in set(manifest.draft_sets) ^ set(record.drafts):
        yield f"{where}: the manifest and the record disagree on the draft set {name!r}"
    for name, draft in record.drafts.items():
        yield from draft_problems(record, name, draft, manifest.draft_sets[name])


def draft_problems(record: SequenceRecord, name: str, draft: DraftColumns, draft_set: DraftSet) -> Iterator[str]:
    """The broken invariants of one drafter's rows of a sequence, in words."""
    found = _draft_problems(record, draft, draft_set)
    yield from (f"sequence {record.index}, {name}: {problem}" for problem in found)


def _text_problems(record: SequenceRecord, manifest: Manifest) -> Iterator[str]:
    text = record.text
    for name, ids in (("text", text), ("prompt", record.prompt.token_ids)):
        if len(ids) and (ids.min() < 0 or ids.max() >= manifest.vocab_size):
            yield f"the {name} has ids outside 0 ... {manifest.vocab_size - 1}"
    stops = np.isin(text, manifest.stop_token_ids)
    if stops[:-1].any():
        yield "a stop token stands before the end of the text"
    if stops[-1] != (record.stop_reason == "stop"):
        yield f"the text ends with token {text[-1]}, but its stop_reason is {record.stop_reason!r}"
    if manifest.gt_mode == "generated" and len(text) > manifest.max_new_tokens:
        yield f"the text has {len(text)} tokens; max_new_tokens is {manifest.max_new_tokens}"


def _token_problems(record: SequenceRecord, tokens: TokenRows, manifest: Manifest) -> Iterator[str]:
    width = min(NUM_TOP, manifest.vocab_size)
    if tokens.top_ids.shape[1] != width:
        yield f"expected the top {width} ids; got {tokens.top_ids.shape[1]}"
    for name in ("top_log_probs", "log_prob", "entropy", "log_normaliser", "decision_gap"):
        if not np.isfinite(getattr(tokens, name)).all():
            yield f"{name} must be finite"
    if tokens.top_ids.min() < 0 or tokens.top_ids.max() >= manifest.vocab_size:
        yield f"top_ids outside 0 ... {manifest.vocab_size - 1}"
    if (np.diff(np.sort(tokens.top_ids, axis=1), axis=1) == 0).any():
        yield "a row lists the same top id twice"
    if (np.diff(tokens.top_log_probs, axis=1) > 0).any() or tokens.top_log_probs.max() > LOG_PROB_TOLERANCE:
        yield "top_log_probs must not rise within a row, nor lie above 0"
    if (tokens.decision_gap < 0).any():
        yield "decision_gap must not be negative"
    listed = tokens.top_ids == record.text[:, np.newaxis]
    differs = np.abs(tokens.top_log_probs - tokens.log_prob[:, np.newaxis]) > LOG_PROB_TOLERANCE
    if (listed & differs).any():
        yield "log_prob of an emitted token is not the one among the top"
    if (~listed.any(axis=1) & (tokens.log_prob > tokens.top_log_probs[:, -1] + LOG_PROB_TOLERANCE)).any():
        yield "an emitted token is more probable than the last of the top, but is not listed there"


def _draft_problems(record: SequenceRecord, draft: DraftColumns, draft_set: DraftSet) -> Iterator[str]:
    num, depth = draft.counts.shape
    if depth != draft_set.depth:
        yield f"expected {draft_set.depth} depths; got {depth}"
        return
    if not np.array_equal(draft.context_length, len(record.prompt.token_ids) + np.arange(num)):
        yield "context_length must be prompt length + position"
    ahead = np.arange(num)[:, np.newaxis] + np.arange(1, depth + 1)
    if not np.array_equal(draft.valid, ahead < len(record.text)):
        yield "true_rank must be null past the end of the text, and only there"
        return
    if num == 0:
        return
    least = min(draft_set.min_width, draft_set.num_proposable)
    if draft.counts.min() < least or draft.counts.max() > draft_set.num_proposable:
        yield f"every depth keeps from {least} to {draft_set.num_proposable} candidates"
    if draft.ids.min() < 0 or draft.ids.max() >= draft_set.vocab_size:
        yield f"candidates outside 0 ... {draft_set.vocab_size - 1}"
    segment = np.repeat(np.arange(num * depth), draft.counts.ravel())
    yield from _order_problems(draft, segment, draft_set.vocab_size)
    yield from _mass_problems(draft, segment)
    yield from _truth_problems(draft, segment, record.text[np.minimum(ahead, len(record.text) - 1)], draft_set)


def _order_problems(draft: DraftColumns, segment: Longs, vocab_size: int) -> Iterator[str]:
    if not np.isfinite(draft.log_probs).all() or draft.log_probs.max() > 0:
        yield "log_probs must be numbers that are at most 0"
        return
    if not np.array_equal(to_grid(draft.log_probs), draft.log_probs):
        yield "log_probs must lie on the grid of 2**-16"
    same = segment[1:] == segment[:-1]
    step = np.diff(draft.log_probs)
    if (same & ((step > 0) | ((step == 0) & (np.diff(draft.ids) <= 0)))).any():
        yield "candidates must stand in the order of log-prob descending, then id"
    # An id outside the vocabulary was found already.
    is_inside = draft.ids.min() >= 0 and draft.ids.max() < vocab_size
    if is_inside and _listed_twice(draft.ids, segment, np.full(vocab_size, -1)):
        yield "a depth lists the same candidate twice"


def _mass_problems(draft: DraftColumns, segment: Longs) -> Iterator[str]:
    outside = draft.outside_log_mass
    if not ((outside >= LOWEST) & (outside <= 0)).all():
        yield f"outside_log_mass must lie from {LOWEST:g} to 0"
        return
    if not (np.isfinite(draft.entropy) & (draft.entropy >= -MASS_TOLERANCE)).all():
        yield "entropy must be a number that is not negative"
    kept = np.bincount(segment, np.exp(draft.log_probs.astype(np.float64)), minlength=outside.size)
    if (np.abs(kept + np.exp(outside.ravel().astype(np.float64)) - 1) > MASS_TOLERANCE).any():
        yield "kept and outside mass must add up to 1"


def _truth_problems(draft: DraftColumns, segment: Longs, truth: Ints, draft_set: DraftSet) -> Iterator[str]:
    """Ranks and log-probs of the true token, against the candidates that are kept."""
    valid, ranks, counts = draft.valid.ravel(), draft.true_rank.ravel(), draft.counts.ravel()
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[:-1]
    hits = np.flatnonzero(draft.ids == truth.ravel()[segment])
    kept_rank = np.full(len(counts), -1, np.int64)
    kept_rank[segment[hits]] = hits - starts[segment[hits]]
    kept: Bools = kept_rank >= 0
    claims_kept = (ranks >= 0) & (ranks < counts)
    if (valid & ((kept != claims_kept) | (kept & (kept_rank != ranks)))).any():
        yield "true_rank is not the place of the true token among the candidates"
        return
    if (valid & ((ranks < -1) | (ranks >= draft_set.num_proposable))).any():
        yield f"true_rank must lie from -1 to {draft_set.num_proposable - 1}"
    # Which tokens a reduced vocabulary has is not in the trace, so there a rank of -1 can stand anywhere.
    known, inside = ranks >= 0, truth.ravel() < draft_set.vocab_size
    if (valid & ((known & ~inside) if draft_set.draft_vocab_size is not None else known != inside)).any():
        yield "true_rank is -1 exactly where the true token is outside the drafter's vocabulary"
    log_probs = draft.true_log_prob.ravel()
    known = draft.has_true_log_prob.ravel()
    if not ((log_probs[known] >= LOWEST) & (log_probs[known] <= 0)).all():
        yield f"true_log_prob must lie from {LOWEST:g} to 0"
    both = valid & kept
    if (log_probs[both] != draft.log_probs[(starts + kept_rank)[both]]).any():
        yield "true_log_prob of a kept token is not the log-prob that is kept"
    last = draft.log_probs[starts + counts - 1]
    if (log_probs[known & ~kept] > last[known & ~kept]).any():
        yield "true_log_prob of a token that is not kept lies above the last kept one"


@borrowing_kernel
def _listed_twice(ids: Ints, segment: Longs, seen: Longs) -> bool:
    """Whether an id stands twice in a segment; ``seen`` has for each id the last segment that it was in."""
    for place in range(ids.size):
        if seen[ids[place]] == segment[place]:
            return True
        seen[ids[place]] = segment[place]
    return False
