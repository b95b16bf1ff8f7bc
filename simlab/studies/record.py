"""A recording: what a drafter proposed and a target said, at every position of real text."""

from pathlib import Path

from simlab.errors import TraceError, UsageError, as_usage_error
from simlab.options import given_for, study
from simlab.real_runner.record.additions import ChannelOptions, DraftOptions, add
from simlab.real_runner.record.options import OF_DRAFTS, OF_TEXTS, RecordOptions
from simlab.real_runner.record.record import record as write_recording
from simlab.traces.format.documents import json_fields
from simlab.traces.parts import missing_shards
from simlab.traces.reader import Trace, open_trace
from simlab.untrusted.json_text import file_bytes


@study(RecordOptions)
def record(options: RecordOptions) -> Trace:
    """Record a drafter and a target on real text, and open the trace; or add to the trace that is named.

    Of a head that drafts a chain the trees are added too, as a channel of the same name, where the target runs here.

    Raises:
        SimlabError: options do not fit each other, or models, text or folder cannot be used; what was finished stays.
    """
    if options.trace is not None:
        return add(addition_of(options))
    if options.part is not None:
        raise UsageError("--shard records a part of a trace, which `record_part` does; leave it out")
    trace = open_trace(write_recording(options))
    chain = next((name for name, draft_set in trace.manifest.draft_sets.items() if draft_set.is_chain), None)
    if chain is None or chain in trace.manifest.channels or trace.manifest.hidden_states is not None:
        return trace
    head = ChannelOptions(
        str(options.folder),
        chain,
        options.draft_name,
        target=options.target_name,
        device=options.first_device,
        device_map=options.device_map,
        resume=options.resume,
    )
    return add(head)


@study(RecordOptions)
def record_part(options: RecordOptions) -> list[int]:
    """Record one part of the shards, for one of several machines; give back the shards that the folder still lacks.

    The trace is finished where the folder then holds all parts; else `simlab.merge` does that. The trees of a head that
    drafts a chain are added to the finished trace, with `add_channel`.

    Raises:
        SimlabError: models, text or folder cannot be used; what was finished stays.
    """
    return missing_shards(write_recording(options))


@study(ChannelOptions)
def add_channel(options: ChannelOptions) -> Trace:
    """Add what a TreeFlash head or a TAPS scorer says along the texts of a finished trace, as a channel.

    Raises:
        SimlabError: trace or models cannot be used, or do not fit each other; what was finished stays.
    """
    return add(options)


@study(DraftOptions)
def add_draft(options: DraftOptions) -> Trace:
    """Add what another drafter proposes along the texts of a finished trace, as a draft set; the trace with it.

    Its models run in the trace's dtype.

    Raises:
        SimlabError: trace or models cannot be used, or do not fit each other; what was finished stays.
    """
    return add(options)


def addition_of(options: RecordOptions) -> ChannelOptions | DraftOptions:
    """What ``simlab record --trace`` adds."""
    if options.add_channel is None and options.add_draft is None:
        raise UsageError("--trace names what is added to; say what with --add-channel or --add-draft NAME=CHECKPOINT")
    is_channel = options.add_channel is not None
    names = (*OF_TEXTS, *(OF_DRAFTS if is_channel else ("draft", "draft_set")))
    changed = {name for name in names if getattr(options, name) != getattr(RecordOptions, name)} | options.typed_names
    given = [f"--{name.replace('_', '-')}" for name in names if name in changed]
    if given:
        what = "--add-channel" if is_channel else "--add-draft"
        raise UsageError(f"{', '.join(given)} can change nothing about {what}; leave it out")
    if len(options.devices) > 1:
        raise UsageError(f"an addition runs on one device; give --device {options.first_device}")
    asked: dict[str, object] = {"trace": str(options.trace), "device": options.first_device}
    with as_usage_error():
        if options.add_channel is not None:
            name, checkpoint, settings = options.add_channel
            asked |= {"name": name, "checkpoint": checkpoint, "settings": dict(settings)}
            return ChannelOptions(**given_for(ChannelOptions, options) | asked)
        assert options.add_draft is not None
        name, checkpoint = options.add_draft
        asked |= {"name": name, "checkpoint": checkpoint}
        return DraftOptions(**given_for(DraftOptions, options) | asked)


def recording_speed(folder: Path) -> str:
    """How fast the last run of a recording was, in words, as its ``recording.json`` says; empty where there is none."""
    path = folder / "recording.json"
    if not path.is_file():
        return ""
    try:
        run = json_fields(file_bytes(path), str(path))
        positions, seconds, rate = run.integer("positions"), run.number("seconds"), run.number("positions_per_s")
    except (ValueError, TraceError):
        # It is outside every id and read by people only.
        return ""
    return f"{positions:,} positions in {seconds:,.0f} s, {rate:,.0f} positions/s"
