"""What the commands share: a parser that fails in one sentence, and checks at the door."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from simlab.errors import SimlabError


class UsageError(SimlabError):
    """The command was typed wrong."""


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
        help=summary[0].lower() + summary[1:].rstrip("."),
        description=f"{summary}\n\n{details}".strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


@contextmanager
def at_the_door() -> Iterator[None]:
    """Turn a refusal of an argument (ValueError) into a sentence for the person who typed it."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


@contextmanager
def needing_models(command: str) -> Iterator[None]:
    """Turn the absence of the packages that run models into a sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "simlab":
            raise
        raise SimlabError(
            f"`simlab {command}` runs models and needs the package {error.name}, which is not installed; "
            'install it with: pip install "simlab[models]"'
        ) from error


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
