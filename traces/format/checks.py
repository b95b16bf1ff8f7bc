"""The invariants of the format, one sequence at a time; ``docs/reference/trace_format.md`` lists them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simlab.arrays import Bools, Floats, Ints, Longs, Shorts
from simlab.errors import TraceError
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import borrowing_kernel
from simlab.recorded import DraftRows
from simlab.traces.format.frames import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet
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
    if (record.tokens is None) != (manifest.imported is not None):
        yield f"{where}: the token rows are missing, or of a trace that was imported, which has none"
        return
    if record.tokens is not None:
        yield from (f"{where}, tokens: {problem}" for problem in _token_problems(record, record.tokens, manifest))
    for name in set(manifest.draft_sets) ^ set(record.drafts):
        yield f"{where}: the manifest and the record disagree on the draft set {name!r}"
    for name, draft in record.drafts.items():
        yield from draft_problems(record, name, draft, manifest.draft_sets[name])


def draft_problems(record: SequenceRecord, name: str, draft: DraftColumns, draft_set: DraftSet) -> Iterator[str]:
    """The broken invariants of one drafter's rows of a sequence, in words."""
    problems = _draft_problems(record, draft, draft_set)
    yield from (f"sequence {record.index}, {name}: {problem}" for problem in problems)


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
    yield from fault_words(token_fault(tokens, record.text, manifest.vocab_size))


def _draft_problems(record: SequenceRecord, draft: DraftColumns, draft_set: DraftSet) -> Iterator[str]:
    num, depth = draft.counts.shape
    if depth != draft_set.depth:
        yield f"expected {draft_set.depth} depths; got {depth}"
        return
    if not np.array_equal(draft.context_length, len(record.prompt.token_ids) + np.arange(num)):
        yield "context_length must be prompt length + position"
    fault = draft_fault(draft.rows(), draft.valid, [record], draft_set)
    yield from fault_words(fault)
    if fault[0] != WHOLE or num == 0:
        return
    yield from _mass_problems(draft, draft_set.candidates_only)
    yield from _truth_problems(draft)


def _mass_problems(draft: DraftColumns, candidates_only: bool) -> Iterator[str]:
    outside = draft.outside_log_mass
    if not ((outside >= LOWEST) & (outside <= 0)).all():
        yield f"outside_log_mass must lie from {LOWEST:g} to 0"
        return
    if candidates_only and not np.isnan(draft.entropy).all():
        yield "entropy must be null where candidates alone are known"
    segment = np.repeat(np.arange(outside.size), draft.counts.ravel())
    mass = np.bincount(segment, np.exp(draft.log_probs.astype(np.float64)), minlength=outside.size)
    if (np.abs(mass + np.exp(outside.ravel().astype(np.float64)) - 1) > MASS_TOLERANCE).any():
        yield "kept and outside mass must add up to 1"


def _truth_problems(draft: DraftColumns) -> Iterator[str]:
    """Log-probs of the true token, against the candidates that are kept; its ranks are known to be right."""
    ranks, counts, log_probs = draft.true_rank.ravel(), draft.counts.ravel(), draft.true_log_prob.ravel()
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[:-1]
    known = draft.has_true_log_prob.ravel()
    kept = known & (ranks < counts)
    if not ((log_probs[known] >= LOWEST) & (log_probs[known] <= 0)).all():
        yield f"true_log_prob must lie from {LOWEST:g} to 0"
    if (log_probs[kept] != draft.log_probs[(starts + ranks)[kept]]).any():
        yield "true_log_prob of a kept token is not the log-prob that is kept"
    last = draft.log_probs[starts + counts - 1]
    if (log_probs[known & ~kept] > last[known & ~kept]).any():
        yield "true_log_prob of a token that is not kept lies above the last kept one"


# The invariants that every read of a trace's rows is held to, in one compiled pass.
#
# The writer and `simlab inspect` look at more: ``docs/reference/trace_format.md`` says what a read leaves out, and why.


WHOLE, _COUNT, ID, VALUE, ORDER, TWICE, _ENTROPY, _NULL, _PLACE, _RANK, _OUTSIDE = range(11)
_FINITE, _LAW, _GAP, _LISTED, _UNLISTED = range(11, 16)

WORDS: Mapping[int, str] = {
    _COUNT: "every depth keeps from min_width (or all that the drafter can propose) to all that it can propose",
    ID: "an id lies outside the vocabulary",
    VALUE: "log_probs must be numbers from -255 to 0 on the grid of 2**-16",
    ORDER: "candidates must stand in the order of log-prob descending, then id",
    TWICE: "the same id is listed twice",
    _ENTROPY: "entropy must be a number that is not negative",
    _NULL: "true_rank must be null past the end of the text, and only there",
    _PLACE: "true_rank is not the place of the true token among the candidates",
    _RANK: "true_rank must lie from -1 to what the drafter can propose",
    _OUTSIDE: "true_rank is -1 exactly where the true token is outside the drafter's vocabulary",
    _FINITE: "log-probs, entropy, log_normaliser and decision_gap must be finite",
    _LAW: "top_log_probs must not rise within a row, nor lie above 0",
    _GAP: "decision_gap must not be negative",
    _LISTED: "log_prob of an emitted token is not the one among the top",
    _UNLISTED: "an emitted token is more probable than the last of the top, but is not listed there",
}

_LOWEST, _HIGHEST, _STEPS = np.float32(LOWEST), np.float32(0.0), np.float32(STEPS_PER_NAT)
_LEAST_ENTROPY, _TOLERANCE = np.float32(-MASS_TOLERANCE), np.float32(LOG_PROB_TOLERANCE)
MOST_NUMBERS = 65_535
"""So many depths are told apart by a number before numbers begin again."""


Fault = tuple[int, int]
"""A key of `WORDS`, or `WHOLE`, and the row that has the fault."""


def draft_fault(rows: DraftRows, valid: Bools, texts: Sequence[SequenceRecord], draft_set: DraftSet) -> Fault:
    """Why a replay could not trust rows of a drafter.

    Args:
        rows: of all these texts, one after the other, with entropies; as many candidates as they count.
        valid: bool ``[R, D]``, where a true rank is stored rather than null.
        texts: whose roots they are.
        draft_set: what the manifest says of the drafter.
    """
    assert rows.entropies is not None
    return _first_draft_fault(
        rows.ids,
        rows.log_probs,
        rows.counts,
        rows.true_ranks,
        valid,
        rows.entropies,
        np.concatenate([np.zeros(0, np.int32), *(record.text for record in texts)]),
        firsts_of(texts),
        min(draft_set.min_width, draft_set.num_proposable),
        draft_set.num_proposable,
        draft_set.vocab_size,
        draft_set.has_open_ranks,
        draft_set.candidates_only,
        np.zeros(draft_set.vocab_size, np.uint16),
    )


def token_fault(rows: TokenRows, text: Ints, vocab_size: int) -> Fault:
    """Why figures could not trust rows of the target.

    Args:
        rows: of one text.
        text: int32 ``[T]``, whose tokens they are of.
        vocab_size: of the target.
    """
    scalars = np.stack([rows.log_prob, rows.entropy, rows.log_normaliser, rows.decision_gap])
    return _first_token_fault(rows.top_ids, rows.top_log_probs, scalars, text, vocab_size)


def check_texts(texts: Sequence[SequenceRecord], manifest: Manifest, where: str) -> None:
    """Refuse texts that are not of this manifest.

    Args:
        texts: of the whole trace, or some of them.
        manifest: of the trace.
        where: the file, for the message.
    """
    if not texts:
        return
    lengths = np.array([len(record.text) for record in texts])
    tokens = np.concatenate([record.text for record in texts])
    prompts = np.concatenate([record.prompt.token_ids for record in texts])
    stops, lasts = np.isin(tokens, np.array(manifest.stop_token_ids, np.int64)), np.cumsum(lengths) - 1
    ended = stops[lasts]
    stated = np.array([record.stop_reason == "stop" for record in texts])
    most = manifest.vocab_size - 1
    words = ""
    if min(tokens.min(), prompts.min(initial=0)) < 0 or max(tokens.max(), prompts.max(initial=0)) > most:
        words = f"a text or a prompt has ids outside 0 ... {most}"
    elif stops.sum() != ended.sum():
        words = "a stop token stands before the end of a text"
    elif not np.array_equal(ended, stated):
        words = f"sequence {texts[int(np.argmax(ended != stated))].index} does not end as its stop_reason says"
    elif manifest.gt_mode == "generated" and lengths.max() > manifest.max_new_tokens:
        words = f"a text has {lengths.max():,} tokens; max_new_tokens is {manifest.max_new_tokens:,}"
    if words:
        raise _damaged(where, words)


def firsts_of(texts: Sequence[SequenceRecord]) -> Longs:
    """int64 ``[S + 1]``, the first root of each text, and the number of all roots."""
    return np.cumsum([0, *(len(record.text) - 1 for record in texts)])


def fault_words(fault_and_row: Fault, words: Mapping[int, str] = WORDS) -> Iterator[str]:
    """The fault of one text in words, where it has one."""
    fault, row = fault_and_row
    if fault != WHOLE:
        yield f"position {row}: {words[fault]}"


def refuse(
    fault_and_row: Fault, firsts: Longs, texts: Sequence[SequenceRecord], where: str, words: Mapping[int, str] = WORDS
) -> None:
    """Refuse rows in which a fault was found.

    Args:
        fault_and_row: the fault, and the row that has it.
        firsts: int64 ``[S + 1]``, the first row of each text.
        texts: whose rows they are.
        where: the file, for the message.
        words: what each fault is.
    """
    fault, row = fault_and_row
    if fault != WHOLE:
        text = int(np.searchsorted(firsts, row, side="right")) - 1
        at = f"sequence {texts[text].index}, position {row - int(firsts[text])}"
        raise _damaged(where, f"{at}: {words[fault]}")


def _damaged(where: str, words: str) -> TraceError:
    return TraceError(f"{where}: {words}. The trace is damaged; copy it again, or record again.")


@borrowing_kernel
def _first_draft_fault(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    ranks: Ints,
    valid: Bools,
    entropies: Floats,
    tokens: Ints,
    firsts: Longs,
    least: int,
    proposable: int,
    vocab_size: int,
    has_open_ranks: bool,
    candidates_only: bool,
    seen: Shorts,
) -> tuple[int, int]:
    """The first fault and the row that has it; a text has one token more than roots.

    ``seen`` has for each id the number of the depth that listed it last, from 1 to 65,535, and then from 1 again.
    """
    low, number = 0, 0
    for text in range(firsts.size - 1):
        for row in range(firsts[text], firsts[text + 1]):
            for depth in range(counts.shape[1]):
                count = int(np.int64(counts[row, depth]))
                if count < least or count > proposable:
                    return _COUNT, row
                number += 1
                if number == MOST_NUMBERS:
                    seen[:] = 0
                    number = 1
                own_ids, own_log_probs = ids[low : low + count], log_probs[low : low + count]
                fault = candidates_fault(own_ids, own_log_probs, vocab_size, seen, number)
                is_entropy = entropies[row, depth] >= _LEAST_ENTROPY and entropies[row, depth] < np.inf
                if fault == WHOLE and not (candidates_only or is_entropy):
                    fault = _ENTROPY
                index, end = row + text + depth + 1, firsts[text + 1] + text + 1
                if fault == WHOLE and valid[row, depth] != (index < end):
                    fault = _NULL
                if fault == WHOLE and index < end:
                    rank, truth = int(np.int64(ranks[row, depth])), int(np.int64(tokens[index]))
                    is_kept = truth >= 0 and truth < vocab_size and seen[truth] == number
                    is_here = rank >= 0 and rank < count and own_ids[rank] == truth
                    fault = _truth_fault(rank, is_kept, is_here, count, proposable, truth < vocab_size, has_open_ranks)
                if fault != WHOLE:
                    return fault, row
                low += count
    return WHOLE, 0


@borrowing_kernel
def candidates_fault(ids: Ints, log_probs: Floats, vocab_size: int, seen: Shorts, number: int) -> int:
    """The fault of candidates that stand side by side; else ``seen`` has their number at their ids."""
    inside = on_grid = 0
    for rank in range(ids.size):
        steps = log_probs[rank] * _STEPS
        on_grid += (log_probs[rank] <= _HIGHEST) & (log_probs[rank] >= _LOWEST) & (np.floor(steps) == steps)
        inside += (ids[rank] >= 0) & (ids[rank] < vocab_size)
    if inside < ids.size:
        return ID
    if on_grid < ids.size:
        return VALUE
    in_order = 1
    for rank in range(1, ids.size):
        is_below = log_probs[rank] < log_probs[rank - 1]
        in_order += is_below | ((log_probs[rank] == log_probs[rank - 1]) & (ids[rank] > ids[rank - 1]))
    if in_order < ids.size:
        return ORDER
    twice = 0
    for rank in range(ids.size):
        twice += seen[ids[rank]] == number
        seen[ids[rank]] = number
    return WHOLE if twice == 0 else TWICE


@borrowing_kernel
def _truth_fault(
    rank: int, is_kept: bool, is_here: bool, count: int, proposable: int, is_inside: bool, has_open_ranks: bool
) -> int:
    """The fault of one true rank.

    Args:
        rank: as it is stored.
        is_kept: whether the true token is among the candidates.
        is_here: whether it is the one of that rank.
        count: of candidates.
        proposable: ranks that the drafter has.
        is_inside: whether the true token has an id of the drafter.
        has_open_ranks: see `DraftSet`.
    """
    if is_kept != is_here or (rank >= 0 and rank < count and not is_here):
        return _PLACE
    if rank < -1 or rank >= proposable:
        return _RANK
    if rank >= 0 and not is_inside:
        return _OUTSIDE
    return _OUTSIDE if rank < 0 and is_inside and not has_open_ranks else WHOLE


@borrowing_kernel
def _first_token_fault(
    top_ids: Ints, top_log_probs: Floats, scalars: Floats, tokens: Ints, vocab_size: int
) -> tuple[int, int]:
    """The first fault and the row that has it; scalars are log_prob, entropy, log_normaliser and decision_gap."""
    for row in range(tokens.size):
        for column in range(scalars.shape[0]):
            if not np.isfinite(scalars[column, row]):
                return _FINITE, row
        fault = _top_fault(top_ids, top_log_probs, row, tokens[row], scalars[0, row], vocab_size)
        if fault == WHOLE and scalars[3, row] < _HIGHEST:
            fault = _GAP
        if fault != WHOLE:
            return fault, row
    return WHOLE, 0


@borrowing_kernel
def _top_fault(top_ids: Ints, top_log_probs: Floats, row: int, token: int, log_prob: float, vocab_size: int) -> int:
    """The fault of the most probable tokens of one row, beside the token that was emitted."""
    above, is_listed = _TOLERANCE, False
    for rank in range(top_ids.shape[1]):
        here = top_log_probs[row, rank]
        if not np.isfinite(here):
            return _FINITE
        if top_ids[row, rank] < 0 or top_ids[row, rank] >= vocab_size:
            return ID
        for other in range(rank):
            if top_ids[row, other] == top_ids[row, rank]:
                return TWICE
        if here > above:
            return _LAW
        if top_ids[row, rank] == token:
            is_listed = True
            if abs(here - log_prob) > _TOLERANCE:
                return _LISTED
        above = here
    return _UNLISTED if not is_listed and log_prob > above + _TOLERANCE else WHOLE
