"""What a recording will be, measured on some of its prompts: the first prompt, the size, the time.

`simlab.real_runner.record.static_estimate` computes instead, without the models.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simlab.real_runner.checkpoints.contents import checkpoint_digest, checkpoint_files
from simlab.real_runner.models import Models, within_memory
from simlab.real_runner.networks.drafter import find_drafter
from simlab.real_runner.networks.known import trees_bytes
from simlab.real_runner.record.additions import (
    ChannelOptions,
    DraftOptions,
    base_name,
    checked_reach,
    loaded,
    opened,
)
from simlab.real_runner.record.answers import RecordingProgress, answers_of
from simlab.real_runner.record.manifests import manifest_of
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import PromptRecord, render_text, with_own
from simlab.real_runner.record.record import load, shards_of
from simlab.real_runner.record.sources import AnsweredTurn, Source, Sources, given_turns, num_turns
from simlab.real_runner.record.static_estimate import config_fields, draft_bytes, drafter_config, is_at_hand, size_text
from simlab.real_runner.record.texts import record_texts
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.manifest import Manifest
from simlab.traces.reader import Trace
from simlab.traces.writer import TraceWriter

Item = TypeVar("Item")

_PROMPTS_DECODED = 64
_TEXTS_RECORDED = 12


@dataclass(frozen=True, slots=True)
class RecordingEstimate:
    """What a recording will take.

    Attributes:
        num_texts: turns of all prompts.
        num_sampled: prompts whose texts were looked at; all of them where texts are given.
        positions: tokens of all texts.
    """

    num_prompts: int
    num_texts: int
    num_sampled: int
    positions: float
    num_bytes: float
    seconds: float


@within_memory()
def dry_run(options: RecordOptions) -> str:
    """A few sentences about a recording, from recording a few of its prompts in a temporary folder."""
    models, sources = load(options)
    plan = estimate(options, models, sources)
    alone = " alone" if len(options.devices) > 1 else ""
    texts = f" ({plan.num_texts} texts)" if plan.num_texts != plan.num_prompts else ""
    a_root = trees_bytes(models.drafter.config.draft_name, models.drafter.config.depth)
    trees = [f"the head's trees {size_text(plan.positions * a_root)} more, and their time"] if a_root else []
    return "\n".join(
        (
            f"The first prompt, as {models.target.info.label} reads it:",
            "",
            first_prompt(options, models, sources.items[0]),
            "",
            f"prompts         {plan.num_prompts}{texts}",
            f"positions       {plan.positions:,.0f}",
            f"expected size   {size_text(plan.num_bytes)}",
            (
                f"expected time   {duration(plan.seconds)} on this machine "
                f"({options.first_device}{alone}, {options.model_dtype})"
            ),
            *trees,
            f"measured on     {plan.num_sampled} prompts spread over the file; nothing was written to {options.folder}",
        )
    )


def first_prompt(options: RecordOptions, models: Models, source: Source) -> str:
    """The first turn of a prompt as the target reads it, special tokens included."""
    if isinstance(source, PromptRecord):
        kwargs = with_own(options.template_kwargs, source.template_kwargs)
        return render_text(models.target.tokenizer, source.conversation, kwargs)
    turn = given_turns(source, models.target, options.template_kwargs)[0]
    return str(models.target.tokenizer.decode(turn.prompt.token_ids.tolist()))


def estimate(options: RecordOptions, models: Models, sources: Sources) -> RecordingEstimate:
    """Lengths come from decoding prompts spread over all, bytes and seconds from recording some of their texts."""
    given = not isinstance(sources.items[0], PromptRecord)
    sample = sources.items if given else spread(sources.items, _PROMPTS_DECODED)
    started = time.perf_counter()
    answers = _answers(options, models, sample)
    decoding_s = 0.0 if given else time.perf_counter() - started
    texts = [answered for turns in answers for answered in turns]
    num_texts = sum(map(num_turns, sources.items))
    positions = num_texts * sum(len(text.text) for text in texts) / len(texts)
    records, recording_s = _record_some(options, models, spread(texts, _TEXTS_RECORDED))
    recorded = sum(len(record.text) for record in records)
    return RecordingEstimate(
        num_prompts=len(sources.items),
        num_texts=num_texts,
        num_sampled=len(sample),
        positions=positions,
        num_bytes=_num_bytes(options, models, sources, records, positions),
        seconds=decoding_s * num_texts / len(texts) + recording_s * positions / recorded,
    )


def spread(items: Sequence[Item], num: int) -> list[Item]:
    """At most ``num`` of the items, evenly spread, the first among them."""
    count = min(num, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _answers(options: RecordOptions, models: Models, sample: Sequence[Source]) -> list[list[AnsweredTurn]]:
    answers = []
    with RecordingProgress(
        "decoding a sample", sum(map(num_turns, sample)), token_worth=1 / options.longest
    ) as progress:
        for batch in shards_of(options, Sources(tuple(sample))):
            answers += answers_of(options, models, batch, progress)
    return answers


def _record_some(
    options: RecordOptions, models: Models, texts: Sequence[AnsweredTurn]
) -> tuple[list[SequenceRecord], float]:
    """Some texts recorded, and the seconds that took; the first is done once before, to warm up."""
    with RecordingProgress("recording a sample", len(texts) + 1) as progress:
        record_texts(options, models, 0, texts[:1], progress)
        began = progress.seconds
        return record_texts(options, models, 0, texts, progress), progress.seconds - began


def _num_bytes(
    options: RecordOptions, models: Models, sources: Sources, records: Sequence[SequenceRecord], positions: float
) -> float:
    """Bytes of the whole trace: so many a position, so many a shard, and the manifest.

    The sample is written twice, as one shard and as one shard a text: the difference is what a shard costs.
    """
    manifest = manifest_of(options, models, sources)
    fixed = len(manifest.to_bytes())
    together = _written_bytes(manifest, [list(records)])
    apart = _written_bytes(manifest, [[record] for record in records])
    a_shard = (apart - together) / max(len(records) - 1, 1)
    a_position = (together - fixed - a_shard) / sum(len(record.text) for record in records)
    return fixed + len(shards_of(options, sources)) * a_shard + positions * a_position


def _written_bytes(manifest: Manifest, shards: Sequence[Sequence[SequenceRecord]]) -> int:
    with tempfile.TemporaryDirectory() as name:
        writer = TraceWriter(Path(name), manifest, len(shards), resume=False)
        for number, records in enumerate(shards):
            writer.write(number, records)
        writer.finish({})
        return sum(path.stat().st_size for path in Path(name).iterdir())


def duration(seconds: float) -> str:
    """Seconds with a unit: s, min or h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


# What an addition to a trace will take: computed from its manifest, or measured with the models on some texts.

_TEXTS_MEASURED = 12


def estimate_addition(options: ChannelOptions | DraftOptions) -> str:
    """The size of an addition, computed without its models; nothing but a drafter's ``config.json`` is fetched."""
    trace = opened(options)
    num_roots = _num_roots(trace)
    if isinstance(options, ChannelOptions):
        held, bytes_of_root = _sizes(options, trace)
        num_bytes = round(num_roots * bytes_of_root)
    else:
        depth = drafter_config(options.checkpoint, options.tap_offset, options.block).depth
        num_bytes = draft_bytes(num_roots, depth, options.min_width)
        held = f"{depth} depths of {options.min_width} candidates or more at each"
    return "\n".join(
        (
            *_texts(trace, num_roots),
            f"rows            {held}",
            f"disk            about {size_text(num_bytes)}",
            "",
            "Computed, not measured. `--dry-run sample` runs the models on some texts and measures size and time.",
        )
    )


def _sizes(options: ChannelOptions, trace: Trace) -> tuple[str, float]:
    """What a channel holds at each root, in words, and bytes that it takes."""
    reach = checked_reach(options, trace, config_fields(options.checkpoint), _digest(options.checkpoint))
    if not reach.needs_drafter:
        return reach.held(0), reach.disk_bytes(0)
    base = trace.manifest.draft_sets[base_name(trace, options)]
    own = reach.within(base.num_proposable)
    return own.held(base.depth), own.disk_bytes(base.depth)


def _digest(checkpoint: str) -> str | None:
    """The digest of a checkpoint whose files are all on this machine; None: they would have to be fetched."""
    if not is_at_hand(checkpoint):
        return None
    folder = find_drafter(checkpoint).folder
    return checkpoint_digest(folder) if all(path.is_file() for path in checkpoint_files(folder)) else None


@within_memory()
def measure_addition(options: ChannelOptions | DraftOptions) -> str:
    """Size and time of an addition, measured on some texts; nothing is written to the trace."""
    addition = loaded(options)
    trace = addition.trace
    num_roots = _num_roots(trace)
    indices = spread(range(len(trace.texts)), _TEXTS_MEASURED)
    recorded = list(trace.recorded(addition.reads, indices))
    with RecordingProgress("adding a sample", len(recorded)) as progress:
        # The first is done once before, to warm up.
        addition.along.columns(recorded[:1], int)
        started = time.perf_counter()
        parts = addition.along.columns(recorded, progress.recorded)
        seconds = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "sample.parquet"
        addition.write_file(path, [trace.texts[index] for index in indices], parts)
        num_bytes = path.stat().st_size
    share = num_roots / max(sum(len(text.text) - 1 for text in recorded), 1)
    dtype = options.dtype or trace.manifest.dtype
    return "\n".join(
        (
            *_texts(trace, num_roots),
            f"expected size   {size_text(num_bytes * share)}",
            f"expected time   {duration(seconds * share)} on this machine ({options.device}, {dtype})",
            f"measured on     {len(recorded)} texts spread over the trace; nothing was written to {trace.location}",
        )
    )


def _num_roots(trace: Trace) -> int:
    return sum(len(text.text) - 1 for text in trace.texts)


def _texts(trace: Trace, num_roots: int) -> tuple[str, str]:
    return f"texts           {len(trace.texts):,}", f"roots           {num_roots:,}"
