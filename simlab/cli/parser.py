"""What the commands share: a parser that fails in one sentence, and checks at the door."""

import argparse
from typing import NoReturn

from simlab.errors import UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, without the usage in front."""

    def error(self, message: str) -> NoReturn:
        """Fail with the message and the place where help is.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{message}; see `{self.prog} --help`")


def add_command(commands: "argparse._SubParsersAction[Parser]", name: str, summary: str, details: str = "") -> Parser:
    """A sub-parser with the summary as its line in the list of commands."""
    return commands.add_parser(
        name,
        help=summary.rstrip("."),
        description=f"{summary}\n\n{details}".strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def positive(text: str) -> int:
    """A whole number from 1."""
    return _at_least(text, 1)


def not_negative(text: str) -> int:
    """A whole number from 0."""
    return _at_least(text, 0)


def _at_least(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number, at least {least}; got {text!r}")
    return value
