"""What an addition to a trace will take: computed from its manifest, or measured with the models on some texts."""

import tempfile
import time
from pathlib import Path

from simlab.real_runner.checkpoints.contents import checkpoint_digest, checkpoint_files
from simlab.real_runner.models import within_memory
from simlab.real_runner.networks.drafter import find_drafter
from simlab.real_runner.record.additions.add import (
    ChannelOptions,
    DraftOptions,
    base_name,
    checked_reach,
    loaded,
    opened,
)
from simlab.real_runner.record.answers import RecordingProgress
from simlab.real_runner.record.dry_run import duration, size_text, spread
from simlab.real_runner.record.static_estimate import config_fields, draft_bytes, drafter_config, is_at_hand
from simlab.traces.reader import Trace

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
