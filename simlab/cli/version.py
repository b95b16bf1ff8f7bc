"""``simlab version``."""

import argparse
from importlib import metadata

from simlab.cli.parser import Parser, add_command


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    add_command(commands, "version", "The version of simlab.").set_defaults(run=_run)


def _run(_options: argparse.Namespace) -> int:
    print(metadata.version("simlab"))
    return 0
