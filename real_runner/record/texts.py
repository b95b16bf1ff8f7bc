"""What is recorded along texts: the target's law, and what a drafter proposes at every position.

On a CPU one text at a time goes through both models. On a GPU the target reads several in a pass, and while the rows of
these are packed by the host the device goes on with the next: the host waits once for a few thousand tokens.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.drafters.candidate_keys import ColumnsOnTheWay, OnTheWay, sent
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import launched_columns
from simlab.real_runner.models import Models
from simlab.real_runner.record.answers import ProgressReporter
from simlab.real_runner.record.dumped_models import check_likely, dumped_text
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.sources import AnsweredTurn
from simlab.real_runner.record.token_rows import launched_rows, rows_there, token_rows
from simlab.real_runner.targets.model import Target, features_of, tapped
from simlab.sampling.choice import sequence_key
from simlab.traces.format.frames import DraftColumns, SequenceRecord, TokenRows

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
