"""``simlab record``: what a recording prints, or what one would be."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from simlab.cli.interruption import set_resume_hint
from simlab.errors import UsageError
from simlab.real_runner.networks.known import first_policies
from simlab.real_runner.record.additions import add
from simlab.real_runner.record.dry_run import dry_run, estimate_addition, measure_addition
from simlab.real_runner.record.options import CONFIGS, RecordOptions
from simlab.real_runner.record.static_estimate import estimate_text
from simlab.studies.record import addition_of, record, record_part, recording_speed
from simlab.workers.parts import Part

UNO_FIRST = "-p uno:budget=15,top_k=4"
"""For a first replay of an adapter of UNO's."""


def run(options: RecordOptions) -> int:
    """Record, and say where the trace is; or say what a recording would be."""
    if options.trace is not None:
        return _add(options)
    for name in ("add_channel", "add_draft", "draft_set"):
        if getattr(options, name) is not None:
            typed = f"--{name.replace('_', '-')}"
            raise UsageError(f"{typed} adds to a finished trace; name it with --trace, in place of a text")
    if options.out is None:
        raise UsageError("the following arguments are required: --out; see `simlab record --help`")
    if options.dry_run is not None:
        if options.shard is not None:
            raise UsageError("--dry-run estimates a whole recording; leave out --shard")
        print(estimate_text(options) if options.dry_run == CONFIGS else dry_run(options))
        return 0
    set_resume_hint(f"finished batches are in {options.out}: add --resume to go on")
    if options.part is not None:
        return _print_part(options.folder, options.part, record_part.run(options))
    trace = record.run(options)
    speed = recording_speed(options.folder)
    print(f"Recorded: {options.out}{f' ({speed})' if speed else ''}")
    is_uno = any(draft_set.noise for draft_set in trace.manifest.draft_sets.values())
    policies = UNO_FIRST if is_uno else first_policies(list(trace.manifest.draft_sets))
    print(f"Replay it with `simlab replay --trace {shlex.quote(str(options.out))} {policies}`.")
    return 0


def _add(options: RecordOptions) -> int:
    """Add to a trace, and say how it is replayed; or say what that would take."""
    wanted = addition_of(options)
    if options.dry_run is not None:
        print(estimate_addition(wanted) if options.dry_run == CONFIGS else measure_addition(wanted))
        return 0
    set_resume_hint(f"finished shards are in {options.trace}: add --resume to go on")
    add(wanted)
    path, name = shlex.quote(str(options.trace)), wanted.name
    if options.add_channel is not None:
        print(f"Added: the channel {name} of {options.trace}; `simlab inspect {path}` checks it.")
    else:
        print(f"Added: the draft set {name} of {options.trace}")
        print(f"Replay it with `simlab replay --trace {path} --draft-set {name} {first_policies([])}`.")
    return 0


def _print_part(out: Path, part: Part, missing: Sequence[int]) -> int:
    """Say what a part of a recording lacks to be a trace, and how it becomes one."""
    if missing:
        print(f"Recorded: part {part} in {out}; it lacks {len(missing):,} batches of other parts.")
        print("When all are recorded, in folders of their own: `simlab merge FOLDER FOLDER ... --out TRACE`.")
    else:
        print(f"Recorded: part {part}, and with it all of {out}; see `simlab inspect {shlex.quote(str(out))}`.")
    return 0
