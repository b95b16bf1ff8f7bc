"""What is recorded along texts: the target's law, and what a drafter proposes at every position.

On a CPU one text at a time goes through both models. On a GPU the target reads several in a pass, and while the rows of
these are packed by the host the device goes on with the next: the host waits once for a few thousand tokens.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Floats, Ints
from simlab.real_runner.drafters.candidate_keys import (
    ColumnsOnTheWay,
    OnTheWay,
    first_at,
    ids_at,
    on_host,
    sent,
    steps_of,
)
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import launched_columns
from simlab.real_runner.models import Models
from simlab.real_runner.record.answers import ProgressReporter
from simlab.real_runner.record.dumped_models import check_likely, dumped_text
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.sources import AnsweredTurn
from simlab.real_runner.targets.model import Target, entropies_of, features_of, tapped
from simlab.sampling.candidates import top_candidates
from simlab.sampling.choice import Sampling, choose_rows, sequence_key
from simlab.traces.format.frames import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.schema import NUM_TOP

# The target's law at each token of a text, as a trace keeps it.

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


TOKENS_PER_PASS = 4096
"""Of prompts and texts, padding counted, that the target reads in a pass on a GPU; a longer text has one of its own."""


def record_texts(
    options: RecordOptions,
    models: Models,
    first_index: int,
    answered: Sequence[AnsweredTurn],
    progress: ProgressReporter,
) -> list[SequenceRecord]:
    """Everything that is recorded along some texts, whose numbers in the trace begin with ``first_index``."""
    records: dict[int, SequenceRecord] = {}
    alone = models.target.device.type == "cpu" or models.dumped is not None
    for number, record in (_one_by_one if alone else together)(options, models, first_index, answered):
        records[number] = record
        progress.recorded(len(record.text))
    return [records[number] for number in range(len(answered))]


_Numbered = Iterator[tuple[int, SequenceRecord]]

_Laws: TypeAlias = list[TokenRows] | OnTheWay
_Drafts: TypeAlias = list[DraftColumns] | ColumnsOnTheWay
"""Rows of some texts, there or on their way from the device."""


def _one_by_one(
    options: RecordOptions, models: Models, first_index: int, answered: Sequence[AnsweredTurn]
) -> _Numbered:
    for number, turn in enumerate(answered):
        yield number, record_text(options, models, first_index + number, turn)


@torch.inference_mode()
def record_text(options: RecordOptions, models: Models, index: int, answered: AnsweredTurn) -> SequenceRecord:
    """Everything that is recorded along one text: one target pass or its dump, and one draft at every root."""
    target, drafter, prompt = models.target, models.drafter, answered.prompt
    tokens, start = sent(_ids_of(answered), target.device), len(prompt.token_ids)
    if models.dumped is not None:
        features, states = dumped_text(models, tokens, prompt.prompt_id)
    else:
        features, states = forward_text(target, tokens, drafter.config.target_layer_ids)
    laws = _laws_of(options, target, answered, states, tokens)
    if models.dumped is not None:
        check_likely(laws, target.vocab_size, prompt.prompt_id)
    return _record_of(
        options, models, index, answered, laws, models.drafts.columns(features, tokens, start, options.kept)
    )


def forward_text(target: Target, tokens: Tensor, layer_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """One teacher-forced pass over a text ``[L]``: tapped states ``[L, taps x H]``, last states ``[L, H]``."""
    features, states = _forward(target, tokens[None], layer_ids)
    return features[0], states[0]


def forward_texts(
    target: Target, texts: Sequence[Tensor], layer_ids: Sequence[int]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """One teacher-forced pass over some texts ``[L_s]`` on the host, each padded behind its end.

    Returns:
        The texts on the device, and what `forward_text` gives of each.
    """
    padded = torch.nn.utils.rnn.pad_sequence(list(texts), batch_first=True)
    ids = sent(padded, target.device)
    read = (ids, *_forward(target, ids, layer_ids))
    tokens, features, states = ([tensor[: len(text)] for tensor, text in zip(of, texts, strict=True)] for of in read)
    return tokens, features, states


def groups_of(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of texts, so many tokens long, that a pass has room for; those of a group are of similar length."""
    group: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if group and (len(group) + 1) * lengths[group[0]] > TOKENS_PER_PASS:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def together(options: RecordOptions, models: Models, first_index: int, answered: Sequence[AnsweredTurn]) -> _Numbered:
    """What `record_text` gives of each text, several in a pass, in the order of their lengths, on any device."""

    def packed(numbers: list[int], laws: _Laws, drafts: _Drafts) -> _Numbered:
        """Wait for what is on its way from the device of some texts, and pack it."""
        texts = [answered[number] for number in numbers]
        if isinstance(laws, OnTheWay):
            laws = rows_there(models.target, laws, [len(text.text) for text in texts])
        if isinstance(drafts, ColumnsOnTheWay):
            lengths = [(len(text.text) - 1, len(text.prompt.token_ids) + len(text.text)) for text in texts]
            drafts = drafts.columns(lengths)
        for number, text, law, draft in zip(numbers, texts, laws, drafts, strict=True):
            yield number, _record_of(options, models, first_index + number, text, law, draft)

    waiting: list[tuple[list[int], _Laws, _Drafts]] = []
    for group in groups_of([len(turn.prompt.token_ids) + len(turn.text) for turn in answered]):
        waiting.append((group, *launch(options, models, [answered[number] for number in group])))
        if len(waiting) > 1:
            yield from packed(*waiting.pop(0))
    for last in waiting:
        yield from packed(*last)


@torch.inference_mode()
def launch(options: RecordOptions, models: Models, answered: Sequence[AnsweredTurn]) -> tuple[_Laws, _Drafts]:
    """The passes of both models over some texts; the host waits at temperatures above 0, where it chooses the rows."""
    target, drafter = models.target, models.drafter
    starts = [len(turn.prompt.token_ids) for turn in answered]
    tokens, features, states = forward_texts(
        target, [_ids_of(turn) for turn in answered], drafter.config.target_layer_ids
    )
    laws: _Laws
    if options.sampling.temperature == 0 and all(turn.tokens is None for turn in answered):
        before = [rows[start - 1 : -1] for rows, start in zip(states, starts, strict=True)]
        text = [rows[start:] for rows, start in zip(tokens, starts, strict=True)]
        laws = launched_rows(target, torch.cat(before), torch.cat(text))
    else:
        laws = [_laws_of(options, target, *parts) for parts in zip(answered, states, tokens, strict=True)]
    if isinstance(drafter, DFlashDrafter):
        return laws, launched_columns(drafter, target, features, tokens, starts, options.kept)
    along = zip(features, tokens, starts, strict=True)
    return laws, [models.drafts.columns(*parts, options.kept) for parts in along]


def _laws_of(
    options: RecordOptions, target: Target, answered: AnsweredTurn, states: Tensor, tokens: Tensor
) -> TokenRows:
    if answered.tokens is not None:
        return answered.tokens
    key, start = sequence_key(options.sampling, answered.prompt), len(answered.prompt.token_ids)
    return token_rows(target, states[start - 1 : -1], tokens[start:], options.sampling, key, start)


def _ids_of(answered: AnsweredTurn) -> Tensor:
    """int64 ``[P + T]``, prompt and text, on the host."""
    return torch.from_numpy(np.concatenate([answered.prompt.token_ids, answered.text]).astype(np.int64))


def _forward(target: Target, ids: Tensor, layer_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Tapped states ``[S, L, taps x H]`` and last states ``[S, L, H]`` of texts ``[S, L]``."""
    if not layer_ids:
        states = target.states(ids)
        return states[:, :, :0], states
    with tapped(target, layer_ids) as taken:
        states = target.states(ids)
        return features_of(taken, layer_ids), states


def _record_of(
    options: RecordOptions, models: Models, index: int, answered: AnsweredTurn, laws: TokenRows, draft: DraftColumns
) -> SequenceRecord:
    return SequenceRecord(
        index=index,
        prompt=answered.prompt,
        seed=options.sampling.seed if answered.seed is None else answered.seed,
        text=answered.text,
        stop_reason=answered.stop_reason,
        tokens=laws,
        drafts={models.drafter.config.draft_name: draft},
    )
