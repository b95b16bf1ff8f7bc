"""``simlab train``."""

import argparse

from simlab.command_line import Parser, add_command
from simlab.errors import SimlabError


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "train", "Train a drafter for a target.")
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    add_command(kinds, "dflash", "Train a block-diffusion drafter.").set_defaults(run=_run)


def _run(_options: argparse.Namespace) -> int:
    raise SimlabError("training from the command line is not connected yet")
