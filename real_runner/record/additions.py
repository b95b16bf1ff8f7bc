"""Adding to a finished trace what a head or another drafter says along its texts. Begin with `add`.

The texts stay as they are: the target reads them once more, for the states that drafters begin with. What is written,
and how a run that was killed goes on, is said at `simlab.traces.adder`.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from simlab.errors import ModelError, TraceError
from simlab.options import option
from simlab.real_runner.checkpoints.contents import checkpoint_digest, config_file
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.drafters.candidate_keys import stream_beside
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.execution.executions import EAGER, check_device_map
from simlab.real_runner.model_options import (
    block_option,
    device_map_option,
    device_option,
    draft_option,
    dtype_option,
    exact_budget_option,
    min_width_option,
    noise_option,
    tap_offset_option,
    target_option,
)
from simlab.real_runner.models import Models, dtype_of, load_models, load_only_target, within_memory
from simlab.real_runner.networks.adapter.masked import OwnDrafter
from simlab.real_runner.networks.adapter.noise import Noise, noise_of
from simlab.real_runner.networks.drafter import Drafts, find_drafter, load_drafter
from simlab.real_runner.networks.known import network_of, read_fields
from simlab.real_runner.networks.loading import load_producer, reach_of
from simlab.real_runner.networks.network import Reach
from simlab.real_runner.networks.producer import RootProducer, StagedProducer, TextProducer
from simlab.real_runner.networks.redraft import check_own_rows
from simlab.real_runner.record.answers import RecordingProgress
from simlab.real_runner.record.manifests import draft_set_of
from simlab.real_runner.record.texts import forward_texts, groups_of
from simlab.real_runner.tap_offset import MOST_TEXTS, parse_tap_offset, settle_tap_offset
from simlab.real_runner.targets.hub_files import at_revision, repository_of
from simlab.real_runner.targets.loading import target_files
from simlab.real_runner.targets.model import Target
from simlab.recorded import RecordedSequence
from simlab.traces.adder import ChannelAdder, DraftAdder, ShardAdder, extended_by, fill, folder_of
from simlab.traces.channels.columns import ChannelColumns
from simlab.traces.channels.shards import channel_frame
from simlab.traces.format.files import MANIFEST, write_frame
from simlab.traces.format.frames import DraftColumns, SequenceRecord, draft_frame
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.format.manifest_entries import ChannelInfo, ModelInfo, check_kept, check_name
from simlab.traces.reader import Trace, open_trace

# Rows along the texts of a trace that the target reads once more, one text after the other or several in a pass.

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Along(Generic[Made]):
    """What makes rows along texts, its models loaded.

    Attributes:
        target: reads the texts.
        taps: whose states are read, the numbers of its layers.
        of_text: from a text, its tokens int64 ``[P + T]`` with the prompt and the states ``[P + T, taps x H]`` behind
            ``taps`` to its rows.
        threads: in which the rows of texts of one pass are made on a GPU, each with a stream of its own: while one
            waits for its numbers, or packs them, the device works for another. 1 where ``of_text`` runs the target.
    """

    target: Target
    taps: Sequence[int]
    of_text: Callable[[RecordedSequence, Tensor, Tensor], Made]
    threads: int = 2

    def columns(self, texts: Sequence[RecordedSequence], report: Callable[[int], object]) -> list[Made]:
        """The rows of each text; on a CPU one goes through the models after the other.

        Args:
            texts: of any lengths, with the rows that are read beside them.
            report: of each text that is done, how long it is.
        """
        if self.target.device.type != "cpu":
            return self.together(texts, report)
        columns = []
        for text in texts:
            columns.append(self.of_text(text, *_read(self, [text])[0]))
            report(len(text.text))
        return columns

    def together(self, texts: Sequence[RecordedSequence], report: Callable[[int], object]) -> list[Made]:
        """The rows of each text, several of which the target reads in a pass, on any device."""
        columns: dict[int, Made] = {}
        with ThreadPoolExecutor(self.threads) as pool:
            for group in groups_of([len(text.prompt.token_ids) + len(text.text) for text in texts]):
                group_texts = [texts[number] for number in group]
                read = _read(self, group_texts)
                whole = list(zip(group, group_texts, read, strict=True))
                lanes = [whole[lane :: self.threads] for lane in range(self.threads)]
                for made in pool.map(self._lane, range(self.threads), lanes):
                    columns.update(made)
                for text in group_texts:
                    report(len(text.text))
        return [columns[number] for number in range(len(texts))]

    def _lane(
        self, lane: int, texts: Sequence[tuple[int, RecordedSequence, tuple[Tensor, Tensor]]]
    ) -> list[tuple[int, Made]]:
        """The rows of some texts by their numbers, one text after the other, on a stream that waits for the target."""
        device = self.target.device
        if device.type != "cuda":
            return [(number, self.of_text(text, *read)) for number, text, read in texts]
        stream = stream_beside(device, 1 + lane)
        stream.wait_stream(torch.cuda.default_stream(device))
        with torch.cuda.stream(stream):
            return [(number, self.of_text(text, *read)) for number, text, read in texts]


@torch.inference_mode()
def _read(along: Along[Made], texts: Sequence[RecordedSequence]) -> list[tuple[Tensor, Tensor]]:
    """Prompt and text of each, int64 ``[P + T]``, and the states ``[P + T, taps x H]``."""
    ids = [np.concatenate([text.prompt.token_ids, text.text]).astype(np.int64) for text in texts]
    tokens, features, _ = forward_texts(along.target, list(map(torch.from_numpy, ids)), along.taps)
    return list(zip(tokens, features, strict=True))


_MORE_MEMORY = "give a --device with more of it, or --device cuda --device-map auto"

_AS_TRACE = "as the trace names it"

Columns = TypeVar("Columns", ChannelColumns, DraftColumns)


@dataclass(frozen=True)
class AdditionOptions:
    """What is added to which trace, and how the models run; what is None is as the trace names it."""

    trace: str | Path = option(..., "the folder of a finished trace", "DIR")
    name: str = option(..., "of the channel or draft set", "NAME")
    checkpoint: str = option(..., "a name, folder, file of weights or Hub id", "CHECKPOINT")
    target: str | None = target_option(_AS_TRACE)
    dtype: str | None = dtype_option("that of the trace", None)
    device: str = device_option()
    device_map: str | None = device_map_option()
    resume: bool = option(False, "go on where an interrupted addition stopped")

    def check(self, kind: str) -> None:
        """Refuse a name that the format has not, and devices on which the target cannot be."""
        check_name(kind, self.name)
        check_device_map(self.device_map, {})


@dataclass(frozen=True)
class ChannelOptions(AdditionOptions):
    """What a network says beside a drafter's candidates, or without a drafter, as a channel."""

    settings: Mapping[str, int] = field(default_factory=dict)
    """How far it reaches, by the names that its kind has; what is left out is as the kind has it."""
    draft: str | None = draft_option(_AS_TRACE)
    draft_set: str | None = option(None, "what that drafter recorded (default: the only draft set)", "NAME")

    def __post_init__(self) -> None:
        self.check("channel")


@dataclass(frozen=True)
class DraftOptions(AdditionOptions):
    """The candidates of another drafter, as a draft set."""

    min_width: int = min_width_option()
    exact_budget: int = exact_budget_option()
    tap_offset: str | None = tap_offset_option("as its format has it")
    block: int | None = block_option()
    noise: Noise | None = noise_option()

    def __post_init__(self) -> None:
        self.check("draft set")
        check_kept(self.min_width, self.exact_budget)


@dataclass(frozen=True, slots=True, eq=False)
class Addition(Generic[Columns]):
    """What is to be added, its models loaded and seen to fit the trace.

    Attributes:
        trace: as it is.
        reads: the draft set whose rows are read beside each text, or None.
        along: makes the rows of texts.
        adder: begins or goes on to write them; whether to go on.
        write_file: a file of some texts' rows, as a shard of the trace is.
    """

    trace: Trace
    reads: str | None
    along: Along[Columns]
    adder: Callable[[bool], ShardAdder[Columns]]
    write_file: Callable[[Path, Sequence[SequenceRecord], Sequence[Columns]], None]


AnyAddition: TypeAlias = Addition[Any]


@within_memory(_MORE_MEMORY)
def add(options: ChannelOptions | DraftOptions) -> Trace:
    """Add a channel or a draft set; finished shards of an interrupted run are kept with ``resume``."""
    with exclusive_lock(folder_of(opened(options)) / MANIFEST, "--trace"):
        _write(loaded(options), options.resume)
    return open_trace(options.trace)


def loaded(options: ChannelOptions | DraftOptions) -> AnyAddition:
    """What is to be added, its models loaded and seen to fit the trace."""
    return load_channel(options) if isinstance(options, ChannelOptions) else load_draft(options)


def opened(options: ChannelOptions | DraftOptions) -> Trace:
    """The trace, to which that can be added as far as is known without models.

    Raises:
        SimlabError: there is none, it holds such a thing already, or has not what is needed.
    """
    trace = open_trace(options.trace)
    manifest = trace.manifest
    manifest.check_recorded(trace.location)
    if manifest.hidden_states is not None:
        raise TraceError(
            f"the target's states along the texts of {trace.location} were dumped by an engine and are not in the "
            "trace; record it with the target here: `simlab record --completions FILE --out DIR` without "
            "--hidden-states"
        )
    is_channel = isinstance(options, ChannelOptions)
    if not options.resume and options.name in (manifest.channels if is_channel else manifest.draft_sets):
        what = "channel" if is_channel else "draft set"
        raise TraceError(f"{trace.location} holds the {what} {options.name} already; choose another name")
    if not is_channel and options.dtype not in (None, manifest.dtype):
        raise TraceError(
            f"all draft sets of a trace are of one dtype, and {trace.location} has {manifest.dtype}; leave --dtype "
            f"out, or record anew with --text-from {shlex.quote(trace.location)}"
        )
    return trace


def base_name(trace: Trace, options: ChannelOptions) -> str:
    """The draft set that a channel is to extend: the one that was named, that it was begun with, or the only one."""
    name = options.draft_set
    if name is None and options.resume:
        name = extended_by(trace, options.name)
    names = list(trace.manifest.draft_sets)
    if name is None and len(names) > 1:
        raise TraceError(
            f"a channel extends one draft set, and {trace.location} holds {', '.join(names)}; choose with "
            f"--draft-set {names[0]}"
        )
    return trace.draft_name(name)


def load_channel(options: ChannelOptions) -> Addition[ChannelColumns]:
    """The models of a channel, checked against the trace.

    Raises:
        SimlabError: one cannot be loaded, or does not belong to the trace or to the others.
    """
    trace, files = opened(options), find_drafter(options.checkpoint)
    model = ModelInfo(repository_of(options.checkpoint), files.revision, checkpoint_digest(files.folder))
    reach = checked_reach(options, trace, read_fields(config_file(files.folder)), model.digest)
    add_to = _on_drafter if reach.needs_drafter else _without_drafter
    return add_to(options, trace, files.folder, model, reach)


def _on_drafter(
    options: ChannelOptions, trace: Trace, location: Path, model: ModelInfo, reach: Reach
) -> Addition[ChannelColumns]:
    """A channel that goes on from a draft set of the trace."""
    name = base_name(trace, options)
    base, dtype = trace.manifest.draft_sets[name], options.dtype or trace.manifest.dtype
    draft = options.draft or at_revision(base.model.name, base.model.revision)
    with _as_the_trace_names_it("--draft", options.draft):
        folder = find_drafter(draft).folder
    digest = checkpoint_digest(folder)
    if digest != base.model.digest:
        raise ModelError(
            f"the draft set {name} of {trace.location} is of the drafter {base.model.name} (sha256 "
            f"{base.model.digest[:12]}), and {draft} has the sha256 {digest[:12]}; give that drafter with --draft"
        )
    if base.root_seen:
        # A network of another drafter is refused before the target, which is large, is loaded.
        drafter = load_drafter(folder, dtype_of(dtype))
        drafter.config = drafter.config.with_block(base.block_size)
        with_models = load_producer(location, options.settings, dtype_of(dtype), drafter, digest)
        models = _load_models(options, trace, draft, base.tap_offset, base.block_size)
    else:
        models = _load_models(options, trace, draft, None, base.block_size, noise_of(base.noise))
        with_models = load_producer(location, options.settings, dtype_of(dtype), models.first_stage, digest)
    producer = with_models(models.first_stage, models.target)
    assert not isinstance(producer, TextProducer | RootProducer)
    taps = producer.taps if isinstance(producer, StagedProducer) else models.drafter.config.target_layer_ids
    info = ChannelInfo(reach.kind, model, name, trace.draft_ids[name], reach.settings(base.depth), dtype)

    def columns(recorded: RecordedSequence, tokens: Tensor, features: Tensor) -> ChannelColumns:
        assert recorded.rows is not None
        return producer.columns(features, tokens, recorded.rows)

    return _channel_addition(options, trace, info, Along(models.target, taps, columns, _threads(models.drafts)))


def _without_drafter(
    options: ChannelOptions, trace: Trace, location: Path, model: ModelInfo, reach: Reach
) -> Addition[ChannelColumns]:
    """A channel that reads nothing but the target's states."""
    dtype = options.dtype or trace.manifest.dtype
    with_models = load_producer(location, options.settings, dtype_of(dtype))
    named = _target_of(options, trace)
    target = load_only_target(named, dtype, options.device, options.device_map)
    _check_target(trace, target, named)
    producer, info = with_models(None, target), ChannelInfo(reach.kind, model, None, None, reach.settings(0), dtype)
    assert isinstance(producer, TextProducer | RootProducer)

    def columns(recorded: RecordedSequence, tokens: Tensor, features: Tensor) -> ChannelColumns:
        return producer.columns(features, tokens, len(recorded.text) - 1)

    return _channel_addition(options, trace, info, Along(target, producer.taps, columns))


def _threads(drafts: Drafts) -> int:
    """Threads in which rows are made: a target that drafts for itself runs in one."""
    return 1 if isinstance(drafts, OwnDrafter) else 2


def _channel_addition(
    options: ChannelOptions, trace: Trace, info: ChannelInfo, along: Along[ChannelColumns]
) -> Addition[ChannelColumns]:
    return Addition(
        trace,
        info.extends,
        along,
        lambda resume: ChannelAdder(folder_of(trace), options.name, info, resume),
        lambda path, records, parts: write_frame(path, channel_frame(records, parts, info.kind, info.width)),
    )


def load_draft(options: DraftOptions) -> Addition[DraftColumns]:
    """The models of a draft set, checked against the trace.

    Raises:
        SimlabError: one cannot be loaded, or does not belong to the trace.
    """
    trace = opened(options)
    models = _load_models(
        options, trace, options.checkpoint, parse_tap_offset(options.tap_offset), options.block, options.noise
    )
    texts = [(text.prompt.token_ids, text.text) for text in trace.texts[:MOST_TEXTS]]
    settle_tap_offset(models, options.tap_offset, texts)
    kept = KeptCandidates(options.min_width, options.exact_budget)
    draft_set = draft_set_of(options.checkpoint, models, kept)

    def columns(recorded: RecordedSequence, tokens: Tensor, features: Tensor) -> DraftColumns:
        return models.drafts.columns(features, tokens, len(recorded.prompt.token_ids), kept)

    def write_file(path: Path, records: Sequence[SequenceRecord], parts: Sequence[DraftColumns]) -> None:
        whole = [replace(record, drafts={options.name: part}) for record, part in zip(records, parts, strict=True)]
        write_frame(path, draft_frame(whole, options.name, draft_set.depth))

    return Addition(
        trace,
        None,
        Along(models.target, models.drafter.config.target_layer_ids, columns, _threads(models.drafts)),
        lambda resume: DraftAdder(folder_of(trace), options.name, draft_set, resume),
        write_file,
    )


def checked_reach(options: ChannelOptions, trace: Trace, fields: Fields, digest: str | None) -> Reach:
    """How far a channel will reach, which the draft set that it extends allows.

    Args:
        options: its settings, and what it extends.
        trace: holds the draft set.
        fields: of the checkpoint's ``config.json``.
        digest: of the checkpoint; None: it is not at hand, and whether it is the draft set's own drafter goes by names.
    """
    network = network_of(fields)
    if network is not None and not network.needs_drafter:
        given = [name for name, value in (("--draft", options.draft), ("--draft-set", options.draft_set)) if value]
        if given:
            raise TraceError(f"{network.what} reads the target alone, and no drafter; leave {' and '.join(given)} out")
        return reach_of(fields, options.settings, is_base=False)
    base = trace.manifest.draft_sets[base_name(trace, options)]
    is_base = repository_of(options.checkpoint) == base.model.name if digest is None else digest == base.model.digest
    if network is None:
        check_own_rows(options.checkpoint, options.settings, is_base)
    reach = reach_of(fields, options.settings, is_base)
    wanted = min(reach.width, base.num_proposable)
    if wanted > base.min_width:
        raise TraceError(
            f"the channel's network would read the first {wanted} candidates of each depth, and the draft set keeps "
            f"{base.min_width} for certain; add {reach.widest(base.min_width)} behind the checkpoint, or record the "
            f"drafter with --min-width {wanted}"
        )
    return reach


def _load_models(
    options: AdditionOptions,
    trace: Trace,
    draft: str,
    tap_offset: int | None,
    block: int | None,
    noise: Noise | None = None,
) -> Models:
    dtype = options.dtype or trace.manifest.dtype
    target = _target_of(options, trace)
    mapped = options.device_map
    models = load_models(target, draft, dtype, options.device, tap_offset, EAGER, mapped, block, noise)
    _check_target(trace, models.target, target)
    return models


def _target_of(options: AdditionOptions, trace: Trace) -> str:
    """The target that is to be loaded; it is there."""
    target = options.target or at_revision(trace.manifest.target.name, trace.manifest.target.revision)
    with _as_the_trace_names_it("--target", options.target):
        target_files(target)
    return target


def _check_target(trace: Trace, target: Target, named: str) -> None:
    recorded = trace.manifest.target
    if target.digest != recorded.digest:
        raise TraceError(
            f"the texts of {trace.location} are of the target {recorded.name} (digest {recorded.digest[:12]}), and "
            f"{named} has the digest {target.digest[:12]}; give that target with --target"
        )


@contextmanager
def _as_the_trace_names_it(option: str, typed: str | None) -> Iterator[None]:
    """Say that a name was the trace's, where a model of it is not here."""
    try:
        yield
    except ModelError as error:
        if typed is not None:
            raise
        raise ModelError(f"{error}; the trace names it so, and {option} says where it is now") from error


def _write(addition: AnyAddition, resume: bool) -> None:
    adder = addition.adder(resume)
    shards, missing = addition.trace.manifest.held().shards, adder.missing()
    done = sum(shards) - sum(shards[number] for number in missing)
    with RecordingProgress("adding", sum(shards), done) as progress:
        fill(adder, lambda texts: addition.along.columns(texts, progress.recorded))
