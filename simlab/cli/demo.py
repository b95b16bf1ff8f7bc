"""``simlab demo``: the whole story in a few minutes, from a recorded trace to a measured winner."""

import argparse
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.parser import Parser
from simlab.studies.demo.demo import demo

FAILED = 1

DETAILS = """Replays the packaged trace; then, with a small target (fetched once, 98 MB), measures a latency profile
on this machine, records eight dev and eight fresh prompts, searches policies on the dev
prompts, and runs the best on the fresh ones: is it as fast as predicted, and is the text the target's own?
It ends with a report, one HTML file. Progress goes to stderr; what was found, verdict first, to stdout."""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="where all files go; finished parts that are there are used again (default runs/demo)",
    )


def run(options: argparse.Namespace) -> int:
    """Go through all steps, and print what was found."""
    keep(f"finished parts are in {options.out}: the same command goes on")
    result = demo(options.out)
    print(result.text())
    return FAILED if result.has_failed else 0
