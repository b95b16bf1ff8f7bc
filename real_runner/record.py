"""Recording: the target's text, its law along it, and what a drafter proposes at every position."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.real_runner.draft_rows import draft_columns
from simlab.real_runner.generate import generate
from simlab.real_runner.manifests import DRAFT_NAME, manifest_of, recording_info
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.options import RecordOptions
from simlab.real_runner.prompts import PromptRecord
from simlab.real_runner.sources import (
    Answered,
    Source,
    asked,
    check_same_target,
    given_turns,
    num_turns,
    read_sources,
)
from simlab.real_runner.target import Target, features_of, tapped
from simlab.real_runner.token_law import token_rows
from simlab.sampling import Sampling, noise_key
from simlab.traces.records import SequenceRecord
from simlab.traces.writer import TraceWriter

if TYPE_CHECKING:
    Bar = tqdm[object]


def record(options: RecordOptions) -> Path:
    """Record a trace; finished shards of an interrupted run are kept with ``resume``.

    Returns:
        The trace's folder.

    Raises:
        SimlabError: models, prompts or folder cannot be used; nothing half written is left.
    """
    sources = read_sources(options.prompts, options.completions, options.text_from, options.limit)
    models = load_models(options.target, options.draft, options.dtype, options.device)
    check_same_target(sources, models.target)
    size = options.batch_size
    shards = [sources.items[i : i + size] for i in range(0, len(sources.items), size)]
    writer = TraceWriter(options.out, manifest_of(options, models, sources), len(shards), options.resume)
    if not writer.is_complete:
        _record_shards(options, models, shards, writer)
    return options.out


def _record_shards(
    options: RecordOptions, models: Models, shards: Sequence[Sequence[Source]], writer: TraceWriter
) -> None:
    index = positions = skipped = 0
    started = time.perf_counter()
    with tqdm(total=sum(map(num_turns, (s for shard in shards for s in shard))), unit="text", desc="recording") as bar:
        for number, shard in enumerate(shards):
            turns = sum(map(num_turns, shard))
            if writer.is_done(number):
                skipped += 1
                bar.update(turns)
            else:
                records = record_batch(options, models, shard, index, bar)
                writer.write(number, records)
                positions += sum(len(made.text) for made in records)
                bar.set_postfix_str(f"{positions / (time.perf_counter() - started):.0f} positions/s")
            index += turns
    writer.finish(recording_info(time.perf_counter() - started, positions, skipped))


def record_batch(
    options: RecordOptions, models: Models, sources: Sequence[Source], first_index: int, bar: "Bar"
) -> list[SequenceRecord]:
    """Everything about some prompts. The turns of a prompt follow each other."""
    answers = answer(options, models.target, sources)
    records = []
    for answered in (turn for turns in answers for turn in turns):
        records.append(record_text(options, models, first_index + len(records), answered))
        bar.update(1)
    return records


def answer(options: RecordOptions, target: Target, sources: Sequence[Source]) -> list[list[Answered]]:
    """The turns of each prompt: given ones as they are, the others decoded as one batch a turn."""
    kwargs = options.chat_template_kwargs
    answers: list[list[Answered]] = [
        [] if isinstance(source, PromptRecord) else given_turns(source, target, kwargs) for source in sources
    ]
    for turn in range(max(map(num_turns, sources))):
        open_ones = [
            (source, earlier)
            for source, earlier in zip(sources, answers, strict=True)
            if isinstance(source, PromptRecord) and num_turns(source) > turn
        ]
        prompts = [asked(source, earlier, target, kwargs) for source, earlier in open_ones]
        for (_, earlier), answered in zip(open_ones, _decoded(options, target, prompts), strict=True):
            earlier.append(answered)
    return answers


def _decoded(options: RecordOptions, target: Target, prompts: Sequence[Prompt]) -> list[Answered]:
    if not prompts:
        return []
    check_room(target, max(len(prompt.token_ids) for prompt in prompts) + options.max_new_tokens)
    keys = [sequence_key(options.sampling, prompt) for prompt in prompts]
    ids = [prompt.token_ids.tolist() for prompt in prompts]
    texts = generate(target, ids, keys, options.sampling, options.max_new_tokens)
    return [
        Answered(prompt, np.array(text.token_ids, np.int32), text.stop_reason)
        for prompt, text in zip(prompts, texts, strict=True)
    ]


def check_room(target: Target, needed: int) -> None:
    """Refuse texts that run past the target's positions.

    Raises:
        ModelError: more positions are needed than the target has.
    """
    room = int(target.model.config.max_position_embeddings)
    if needed > room:
        raise ModelError(
            f"the longest prompt with its answer needs {needed} positions; {target.name} has {room}; "
            "shorten the prompt or lower --max-new-tokens"
        )


def sequence_key(sampling: Sampling, prompt: Prompt) -> int:
    """The noise key of one sequence."""
    return noise_key(sampling.seed, prompt.prompt_id, prompt.turn, prompt.sample)


@torch.inference_mode()
def record_text(options: RecordOptions, models: Models, index: int, answered: Answered) -> SequenceRecord:
    """Everything that is recorded along one text: one target pass, and one draft at every root."""
    target, drafter, prompt = models.target, models.drafter, answered.prompt
    tokens = torch.from_numpy(np.concatenate([prompt.token_ids, answered.text]).astype(np.int64)).to(target.device)
    start = len(prompt.token_ids)
    check_room(target, len(tokens) + drafter.config.depth)
    features, hidden = forward_text(target, tokens, drafter.config.target_layer_ids)
    laws = answered.tokens
    if laws is None:
        key = sequence_key(options.sampling, prompt)
        laws = token_rows(target, hidden[start - 1 : -1], tokens[start:], options.sampling, key, start)
    draft = draft_columns(drafter, target, features, tokens, start, options.kept)
    return SequenceRecord(index, prompt, options.seed, answered.text, answered.stop_reason, laws, {DRAFT_NAME: draft})


def forward_text(target: Target, tokens: Tensor, layer_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """One teacher-forced pass over a text ``[L]``: tapped states ``[L, taps x H]``, last states ``[L, H]``."""
    with tapped(target, layer_ids) as taken:
        hidden: Tensor = target.model.get_decoder()(tokens[None], use_cache=False).last_hidden_state  # type: ignore[operator]
        return features_of(taken, layer_ids)[0], hidden[0]
