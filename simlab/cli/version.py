"""``simlab version``: the version that is installed."""

import argparse
from importlib import metadata

from simlab.cli.parser import Parser

DETAILS = ""


def add_arguments(_parser: Parser) -> None:
    """Declare no options: the command has none."""


def run(_options: argparse.Namespace) -> int:
    """Print the version of simlab."""
    print(metadata.version("simlab"))
    return 0
