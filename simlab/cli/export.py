"""``simlab export``: to a file, to standard output, or to where traces are published."""

import sys
from dataclasses import fields
from pathlib import Path

from simlab.errors import UsageError
from simlab.studies.export.export import ExportOptions, export
from simlab.studies.inputs.trace import opened
from simlab.traces.format.files import write_beside
from simlab.traces.publication import publication
from simlab.untrusted.visible import visible

_PUSHED = ("push", "trace", "public", "license", "dry_run")


def run(options: ExportOptions) -> int:
    """Make the file, and write or print it; or send a trace."""
    if options.push is not None:
        return _push(options, options.push)
    for name in ("public", "license", "dry_run"):
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} is read with --push, not with --format {options.file_format}")
    out = None if options.out is None else Path(options.out)
    made = export.run(options)
    if out is None:
        sys.stdout.write(made.text)
    else:
        write_beside(out, lambda file: file.write(made.text.encode()))
        print(f"{made.summary}: {out}")
    for note in made.notes:
        print(visible(note), file=sys.stderr)
    return 0


def _push(options: ExportOptions, address: str) -> int:
    """Send a trace, or print what would be sent."""
    for field in fields(options):
        if field.name not in _PUSHED and getattr(options, field.name) != field.default:
            typed = {"file_format": "format"}.get(field.name, field.name).replace("_", "-")
            raise UsageError(f"--{typed} is read with --format, not with --push")
    if options.trace is None:
        raise UsageError("--push sends the trace of --trace DIR; name one")
    made = publication(opened(options.trace), address, options.license, options.public)
    if options.dry_run:
        print(visible(made.text()))
        print("\nNothing was sent.", file=sys.stderr)
        return 0
    sent_to = made.send()
    print(f"{len(made.sizes())} files, {sum(made.sizes().values()):,} bytes: {sent_to}")
    return 0
