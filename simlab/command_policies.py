"""``simlab policies``: what can be replayed."""

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from simlab.command_line import Parser, add_command

if TYPE_CHECKING:
    from simlab.policies.describe import PolicyInfo

_HEADINGS = ("policy", "settings", "reads", "exactness", "source")
_DETAILS = """Write `-p NAME` or `-p NAME:key=value,key=value`; a/b/c and a..b make grids.
A policy of your own: `-p path/to/mine.py:MyPolicy`."""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "policies", "The policies, their settings and where they come from.", _DETAILS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab.policies.describe import describe_policies

    found = describe_policies()
    print(json.dumps([dataclasses.asdict(one) for one in found], indent=1) if options.json else _table(found))
    return 0


def _table(found: "list[PolicyInfo]") -> str:
    rows = [(one.name, ", ".join(one.settings) or "-", one.reads, one.exactness, one.source) for one in found]
    widths = [max(len(row[column]) for row in (_HEADINGS, *rows)) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (_HEADINGS, *rows)
    ]
    lines += ["", *(f"{one.name.ljust(widths[0])}  {one.summary}" for one in found), "", *_DETAILS.splitlines()]
    return "\n".join(line.rstrip() for line in lines)
