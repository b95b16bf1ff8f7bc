"""Recording: the target's text, its law along it, and what a drafter proposes at every position."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats, Ints
from simlab.real_runner.adapters.gated import GatedAdapter
from simlab.real_runner.adapters.rows import mask_columns
from simlab.real_runner.drafters.draft_rows import draft_columns
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.heads.eagle3.chain import chain_columns
from simlab.real_runner.heads.eagle3.head import Eagle3Head
from simlab.real_runner.models import Models, load_models, within_memory
from simlab.real_runner.record.answers import answers_of, check_positions
from simlab.real_runner.record.devices import OtherDevices, check_devices
from simlab.real_runner.record.dumped_models import check_dumped, dumped_text, load_dumped_models
from simlab.real_runner.record.manifests import draft_name, manifest_of, recording_info
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.progress import ProgressReporter, RecordingProgress
from simlab.real_runner.record.prompts import PromptRecord
from simlab.real_runner.record.sources import (
    AnsweredTurn,
    Source,
    Sources,
    check_same_target,
    given_turns,
    num_turns,
    read_sources,
    render_turn,
)
from simlab.real_runner.tap_offset import AUTO, MOST_TEXTS, PromptAndText, parse_tap_offset, settle_tap_offset
from simlab.real_runner.targets.model import Target, entropies_of, features_of, tapped
from simlab.sampling.candidates import top_candidates
from simlab.sampling.choice import Sampling, choose_rows, sequence_key
from simlab.traces.format.alone import writing_alone
from simlab.traces.format.files import MANIFEST
from simlab.traces.format.records import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.schema import NUM_TOP
from simlab.traces.parts import begin_part, finish_part, name_of_part
from simlab.traces.writer import TraceWriter, check_output_folder

_DECODING_SHARE = 0.5


@within_memory()
def record(options: RecordOptions) -> Path:
    """Record a trace; finished shards of an interrupted run are kept with ``resume``.

    Returns:
        The trace's folder. After a part of a recording the trace may lack other parts.

    Raises:
        SimlabError: models, prompts or folder cannot be used; nothing half written is left.
    """
    # The processes of other devices write into the folder too, for this one.
    with writing_alone(options.out / (MANIFEST if options.part is None else name_of_part(options.part))):
        check_output_folder(options.out, options.resume or options.part is not None)
        return _record(options)


def _record(options: RecordOptions) -> Path:
    models, sources = load(options)
    if options.tap_offset == AUTO:
        # Processes of other devices load the drafter anew, and read the same layers.
        options = replace(options, tap_offset=str(models.block_drafter.config.tap_offset))
    shards = shards_of(options, sources)
    manifest = manifest_of(options, models, sources)
    if options.part is None:
        writer = TraceWriter(options.out, manifest, len(shards), options.resume)
    else:
        writer = begin_part(options.part, options.out, manifest, len(shards), options.resume)
    if not writer.is_complete:
        check_devices(options.devices)
        _record_all(options, models, shards, writer)
    return options.out


def load(options: RecordOptions) -> tuple[Models, Sources]:
    """Both models and everything to be recorded, checked against each other.

    Raises:
        SimlabError: they cannot be loaded, or do not fit.
    """
    sources = read_sources(options.prompts, options.completions, options.text_from, options.limit)
    if options.hidden_states is not None:
        models = load_dumped_models(options)
    else:
        offset = parse_tap_offset(options.tap_offset)
        models = load_models(
            options.target,
            options.draft,
            options.dtype,
            options.device,
            offset,
            device_map=options.device_map,
            block=options.block,
        )
    check_same_target(sources, models.target, options.dtype)
    check_positions(options, models, sources.items)
    if options.tap_offset == AUTO:
        settle_tap_offset(models, options.tap_offset, _samples(options, models, sources))
    check_dumped(models, sources.items, options.chat_template_kwargs)
    return models, sources


def _samples(options: RecordOptions, models: Models, sources: Sources) -> list[PromptAndText]:
    """The first texts of a few prompts; empty ones where the target is to write them."""
    texts: list[PromptAndText] = []
    for source in sources.items[:MOST_TEXTS]:
        if isinstance(source, PromptRecord):
            prompt = render_turn(source, [], models.target, options.chat_template_kwargs)
            texts.append((prompt.token_ids, np.empty(0, np.int32)))
        else:
            first = given_turns(source, models.target, options.chat_template_kwargs)[0]
            texts.append((first.prompt.token_ids, first.text))
    return texts


def shards_of(options: RecordOptions, sources: Sources) -> list[Sequence[Source]]:
    """Consecutive prompts that are decoded as one batch and written as one shard."""
    return [sources.items[i : i + options.batch_size] for i in range(0, len(sources.items), options.batch_size)]


def _record_all(
    options: RecordOptions, models: Models, shards: Sequence[Sequence[Source]], writer: TraceWriter
) -> None:
    numbers = range(len(shards)) if options.part is None else options.part.strided(len(shards))
    done = [number for number in numbers if writer.is_done(number)]
    missing = [number for number in numbers if number not in done]
    num_texts, num_done = (sum(num_turns(source) for n in some for source in shards[n]) for some in (missing, done))
    worth = _DECODING_SHARE / options.max_new_tokens
    with RecordingProgress("recording", num_texts + num_done, num_done, worth) as progress:
        if options.more_devices:
            with OtherDevices(options, writer, missing, record_on_device, progress) as others:
                _record_shards(options, models, shards, writer, others.taken(), others)
                others.wait()
        else:
            _record_shards(options, models, shards, writer, missing, progress)
    info = recording_info(progress.seconds, progress.positions, len(done), options.devices)
    if options.part is None:
        writer.finish(info)
    else:
        finish_part(options.part, writer, len(shards), info)


@within_memory()
def record_on_device(
    options: RecordOptions, writer: TraceWriter, numbers: Iterable[int], progress: ProgressReporter
) -> None:
    """Record some shards of a recording that another process began.

    Raises:
        SimlabError: models or prompts cannot be used, or have become others since.
    """
    models, sources = load(options)
    writer.check_same(manifest_of(options, models, sources))
    _record_shards(options, models, shards_of(options, sources), writer, numbers, progress)


def _record_shards(
    options: RecordOptions,
    models: Models,
    shards: Sequence[Sequence[Source]],
    writer: TraceWriter,
    numbers: Iterable[int],
    progress: ProgressReporter,
) -> None:
    turns = [sum(map(num_turns, shard)) for shard in shards]
    for number in numbers:
        writer.write(number, record_batch(options, models, shards[number], sum(turns[:number]), progress))


def record_batch(
    options: RecordOptions, models: Models, sources: Sequence[Source], first_index: int, progress: ProgressReporter
) -> list[SequenceRecord]:
    """Everything about some prompts. The turns of a prompt follow each other."""
    records: list[SequenceRecord] = []
    for turns in answers_of(options, models, sources, progress):
        for answered in turns:
            records.append(record_text(options, models, first_index + len(records), answered))
            progress.recorded(len(answered.text))
    return records


@torch.inference_mode()
def record_text(options: RecordOptions, models: Models, index: int, answered: AnsweredTurn) -> SequenceRecord:
    """Everything that is recorded along one text: one target pass or its dump, and one draft at every root."""
    target, drafter, prompt = models.target, models.drafter, answered.prompt
    tokens = torch.from_numpy(np.concatenate([prompt.token_ids, answered.text]).astype(np.int64)).to(target.device)
    start = len(prompt.token_ids)
    if models.dumped is not None:
        features, states = dumped_text(models, tokens, prompt.prompt_id)
    else:
        features, states = forward_text(target, tokens, drafter.config.target_layer_ids)
    laws = answered.tokens
    if laws is None:
        key = sequence_key(options.sampling, prompt)
        laws = token_rows(target, states[start - 1 : -1], tokens[start:], options.sampling, key, start)
    draft = drafted_columns(models, features, tokens, start, options.kept)
    seed = options.seed if answered.seed is None else answered.seed
    return SequenceRecord(
        index=index,
        prompt=prompt,
        seed=seed,
        text=answered.text,
        stop_reason=answered.stop_reason,
        tokens=laws,
        drafts={draft_name(models): draft},
    )


def drafted_columns(
    models: Models, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates
) -> DraftColumns:
    """The drafter's rows at every root of one text.

    Args:
        models: the drafter among them.
        features: ``[C, taps x H]``, the states that it reads, from position 0 on.
        tokens: int64 ``[P + T]``, prompt and text.
        prompt_length: P.
        kept: how many candidates.

    Raises:
        ModelError: the drafter's logits are not numbers.
    """
    if isinstance(models.drafter, GatedAdapter):
        return mask_columns(models.drafter, models.target, tokens, prompt_length, kept)
    if isinstance(models.drafter, Eagle3Head):
        return chain_columns(models.drafter, models.target, features, tokens, prompt_length, kept)
    return draft_columns(models.drafter, models.target, features, tokens, prompt_length, kept)


def forward_text(target: Target, tokens: Tensor, layer_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """One teacher-forced pass over a text ``[L]``: tapped states ``[L, taps x H]``, last states ``[L, H]``."""
    if not layer_ids:
        states = target.states(tokens[None])[0]
        return states[:, :0], states
    with tapped(target, layer_ids) as taken:
        states = target.states(tokens[None])
        return features_of(taken, layer_ids)[0], states[0]


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
    return TokenRows.concatenated(parts)


def _rows_of(logits: Tensor, raw: Floats, text: Tensor, sampling: Sampling, key: int, first_position: int) -> TokenRows:
    log_probs = logits.log_softmax(-1)
    entropy = entropies_of(log_probs)
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
