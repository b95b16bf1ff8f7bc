"""Recording: the target's text, its law along it, and what a drafter proposes at every position."""

import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from simlab.errors import ModelError
from simlab.real_runner.models import Models, check_device, load_models, within_memory
from simlab.real_runner.record.answers import ProgressReporter, RecordingProgress, answers_of, check_positions
from simlab.real_runner.record.dumped_models import check_dumped, load_dumped_models
from simlab.real_runner.record.manifests import device_name, manifest_of, recording_info
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import PromptRecord
from simlab.real_runner.record.sources import (
    Source,
    Sources,
    check_same_target,
    given_turns,
    num_turns,
    read_sources,
    render_turn,
)
from simlab.real_runner.record.texts import record_texts
from simlab.real_runner.tap_offset import AUTO, MOST_TEXTS, PromptAndText, parse_tap_offset, settle_tap_offset
from simlab.traces.format.files import MANIFEST
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.format.manifest import Manifest
from simlab.traces.parts import begin_part, finish_part, name_of_part
from simlab.traces.writer import TraceWriter, check_output_folder, write_beside_making
from simlab.workers.on_ray import LOCAL, RayOptions, workers_on
from simlab.workers.threads import Report, ignore_progress, num_cores

_DECODING_SHARE = 0.5


@within_memory()
def record(options: RecordOptions) -> Path:
    """Record a trace; finished shards of an interrupted run are kept with ``resume``.

    Returns:
        The trace's folder. After a part of a recording the trace may lack other parts.

    Raises:
        SimlabError: models, prompts or folder cannot be used; nothing half written is left.
    """
    # Workers write into the folder too, for this process.
    with exclusive_lock(options.folder / (MANIFEST if options.part is None else name_of_part(options.part))):
        check_output_folder(options.folder, options.resume or options.part is not None)
        return _record(options)


def _record(options: RecordOptions) -> Path:
    if options.on_ray is None:
        models, sources = load(options)
        shards = shards_of(options, sources)
        manifest, num_texts = plan_of(options, models, sources)

        def make_here(writer: TraceWriter, missing: Sequence[int], progress: RecordingProgress) -> None:
            def make(number: int) -> list[SequenceRecord]:
                return record_batch(options, models, shards[number], sum(num_texts[:number]), progress)

            write_beside_making(missing, make, writer.write)

        return _written(options, manifest, num_texts, make_here)
    if options.ray is None:
        check_devices(options.devices)
    _warn_of_threads(options.on_ray, options.devices)
    with workers_on(options.on_ray) as workers:
        # A worker says first what there is to be recorded: this process loads no model.
        ((manifest, num_texts, offset),) = workers.results(_PlanningJob(options), [None], ignore_progress)
        settled = replace(options, tap_offset=offset)

        def make_on_ray(writer: TraceWriter, missing: Sequence[int], progress: RecordingProgress) -> None:
            def report(_what: str, num_tokens: int) -> None:
                progress.decoded(num_tokens)

            job = _RecordingJob(settled, writer, torch.get_num_threads())
            for lengths in workers.results(job, missing, report):
                for length in lengths:
                    progress.recorded(length)

        return _written(settled, manifest, num_texts, make_on_ray)


def plan_of(options: RecordOptions, models: Models, sources: Sources) -> tuple[Manifest, tuple[int, ...]]:
    """What there is to be recorded of these sources: the manifest of the trace, and how many texts each shard holds."""
    num_texts = tuple(sum(map(num_turns, shard)) for shard in shards_of(options, sources))
    return manifest_of(options, models, sources), num_texts


def _settled_offset(options: RecordOptions, models: Models) -> str | None:
    """Which layers the drafter reads: other workers load it anew, and read the same."""
    return str(models.block_drafter.config.tap_offset) if options.tap_offset == AUTO else options.tap_offset


def _written(
    options: RecordOptions,
    manifest: Manifest,
    num_texts: Sequence[int],
    record_shards: Callable[[TraceWriter, Sequence[int], RecordingProgress], None],
) -> Path:
    """Record the shards of the trace, or of its part, that are still to be recorded; then what is true of the whole."""
    part, num = options.part, len(num_texts)
    if part is None:
        writer = TraceWriter(options.folder, manifest, num, options.resume)
    else:
        writer = begin_part(part, options.folder, manifest, num, options.resume)
    if writer.is_complete:
        return options.folder
    numbers = range(num) if part is None else part.strided(num)
    missing = [number for number in numbers if not writer.is_done(number)]
    num_wanted = sum(num_texts[number] for number in numbers)
    num_done = num_wanted - sum(num_texts[number] for number in missing)
    with RecordingProgress("recording", num_wanted, num_done, _DECODING_SHARE / options.longest) as progress:
        record_shards(writer, missing, progress)
    info = recording_info(progress.seconds, progress.positions, len(numbers) - len(missing), options.devices)
    if part is None:
        writer.finish(info)
    else:
        finish_part(part, writer, num, info)
    return options.folder


class _Loaded:
    """Models and sources in the process of a worker, kept from one job to the next."""

    options: ClassVar[RecordOptions | None] = None
    loaded: ClassVar[tuple[Models, Sources] | None] = None

    @classmethod
    def of(cls, options: RecordOptions) -> tuple[Models, Sources]:
        """Load them, or take those that are loaded."""
        if cls.loaded is None or cls.options != options:
            cls.loaded = None
            cls.loaded = load(options)
            cls.options = replace(options, tap_offset=_settled_offset(options, cls.loaded[0]))
        return cls.loaded


@dataclass(frozen=True, slots=True)
class _PlanningJob:
    """Loads the models, and says what there is to be recorded; its one unit is None."""

    options: RecordOptions

    def open(self, _report: Report) -> "_PlanningJob":
        """Nothing is read before there is a unit."""
        return self

    def parts(self, unit: None) -> list[None]:
        """Give the only part."""
        return [unit]

    @within_memory()
    def work(self, _part: None) -> tuple[Manifest, tuple[int, ...], str | None]:
        """Load the models, and look at the sources."""
        own = self.options.of_a_worker
        models, sources = _Loaded.of(own)
        return *plan_of(own, models, sources), _settled_offset(own, models)


@dataclass
class _RecordingJob:
    """Records shards by their numbers; opened in the process of a worker, it is a copy that has models and shards.

    Attributes:
        options: with the drafter's layers settled.
        writer: of the trace, as the driver began it.
        num_threads: of torch; the last bits of a matrix product depend on them.
    """

    options: RecordOptions
    writer: TraceWriter
    num_threads: int
    models: Models = field(init=False, repr=False)
    shards: Sequence[Sequence[Source]] = field(init=False, repr=False)
    report: Report = field(init=False, repr=False)

    @within_memory()
    def open(self, report: Report) -> "_RecordingJob":
        """Load the models of this worker."""
        torch.set_num_threads(self.num_threads)
        opened, own = copy(self), self.options.of_a_worker
        opened.models, sources = _Loaded.of(own)
        self.writer.check_same(manifest_of(own, opened.models, sources))
        opened.options, opened.shards, opened.report = own, shards_of(own, sources), report
        return opened

    def parts(self, unit: int) -> list[int]:
        """A shard is one part."""
        return [unit]

    @within_memory()
    def work(self, part: int) -> list[int]:
        """Record a shard and write it, unless a worker that was lost did so; how long each of its texts is."""
        if self.writer.is_done(part):
            return [len(record.text) for record in self.writer.read_back(part)]
        first = sum(sum(map(num_turns, shard)) for shard in self.shards[:part])
        records = record_batch(self.options, self.models, self.shards[part], first, self)
        self.writer.write(part, records)
        return [len(record.text) for record in records]

    def decoded(self, num_tokens: int) -> None:
        self.report("decoded", num_tokens)

    def recorded(self, num_positions: int) -> None:
        """Texts are counted by shards, when they are written."""


def check_devices(devices: Sequence[str]) -> None:
    """Refuse devices that are not there, or that would not compute the same bits."""
    for device in devices:
        check_device(device)
    kinds = {device_name(device): device for device in devices}
    if len(kinds) > 1:
        named = ", ".join(f"{device} is {kind}" for kind, device in kinds.items())
        raise ModelError(
            f"the devices of a recording must be of one kind, or its shards would differ in their last bits; {named}"
        )


def _warn_of_threads(ray: RayOptions, devices: Sequence[str]) -> None:
    """Say when the threads of several workers share too few cores, which makes each many times slower."""
    num, threads, cores = ray.workers or 1, torch.get_num_threads(), num_cores()
    enough = max(cores // num, 1)
    if ray.address == LOCAL and devices[0] == "cpu" and threads > enough:
        sys.stderr.write(
            f"{num} workers of {threads} threads each share {cores} cores; OMP_NUM_THREADS={enough} would be faster\n"
        )


def load(options: RecordOptions) -> tuple[Models, Sources]:
    """Both models and everything to be recorded, checked against each other.

    Raises:
        SimlabError: they cannot be loaded, or do not fit.
    """
    sources = read_sources(options)
    if options.hidden_states is not None:
        models = load_dumped_models(options)
    else:
        offset = parse_tap_offset(options.tap_offset)
        models = load_models(
            options.target_name,
            options.draft_name,
            options.model_dtype,
            options.first_device,
            offset,
            device_map=options.device_map,
            block=options.block,
            noise=options.noise,
        )
    check_same_target(sources, models.target, options.model_dtype)
    check_positions(options, models, sources.items)
    if options.tap_offset == AUTO:
        settle_tap_offset(models, options.tap_offset, _samples(options, models, sources))
    check_dumped(models, sources.items, options.template_kwargs)
    return models, sources


def _samples(options: RecordOptions, models: Models, sources: Sources) -> list[PromptAndText]:
    """The first texts of a few prompts; empty ones where the target is to write them."""
    texts: list[PromptAndText] = []
    for source in sources.items[:MOST_TEXTS]:
        if isinstance(source, PromptRecord):
            prompt = render_turn(source, [], models.target, options.template_kwargs)
            texts.append((prompt.token_ids, np.empty(0, np.int32)))
        else:
            first = given_turns(source, models.target, options.template_kwargs)[0]
            texts.append((first.prompt.token_ids, first.text))
    return texts


def shards_of(options: RecordOptions, sources: Sources) -> list[Sequence[Source]]:
    """Consecutive prompts that are decoded as one batch and written as one shard."""
    return [sources.items[i : i + options.batch_size] for i in range(0, len(sources.items), options.batch_size)]


def record_batch(
    options: RecordOptions, models: Models, sources: Sequence[Source], first_index: int, progress: ProgressReporter
) -> list[SequenceRecord]:
    """Everything about some prompts. The turns of a prompt follow each other."""
    answered = [turn for turns in answers_of(options, models, sources, progress) for turn in turns]
    return record_texts(options, models, first_index, answered, progress)
