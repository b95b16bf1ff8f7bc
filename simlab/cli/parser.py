"""What the commands share: a parser that fails in one sentence, and checks at the door."""

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from simlab.errors import UsageError, did_you_mean, named_or_listed
from simlab.limits.typed_numbers import MOST_COUNT, MOST_SEED, finite_number, whole_number

_MOST_THREADS = 1024


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, without the usage in front.

    Attributes:
        commands: what stands behind its name first, if it has commands or kinds.
    """

    commands: "argparse._SubParsersAction[Parser] | None" = None

    def add_commands(self, title: str, metavar: str, dest: str) -> "argparse._SubParsersAction[Parser]":
        """Let it have commands, one of which must be typed."""
        self.commands = self.add_subparsers(title=title, metavar=metavar, dest=dest, required=True, parser_class=Parser)
        return self.commands

    def error(self, message: str) -> NoReturn:
        """Fail with the message and the place where help is.

        Raises:
            UsageError: always.
        """
        see = " See" if message.endswith("?") else "; see"
        raise UsageError(f"{message}{see} `{self.prog} --help`")

    def read(self, typed: Sequence[str]) -> argparse.Namespace:
        """The options that were typed, and ``typed``, the words themselves.

        Raises:
            UsageError: something was typed wrong.
        """
        parser, rest = self._parser_of(typed)
        for word in _long_options(rest):
            if word == "--":
                parser.error("an option followed by `=--` has no value")
            if word not in parser._option_string_actions:
                parser.error(f"there is no option `{word}`{did_you_mean(word, parser._option_string_actions)}")
        options, unexpected = self.parse_known_args(typed, argparse.Namespace(typed=tuple(typed)))
        if unexpected:
            what = "option" if unexpected[0].startswith("-") else "argument"
            parser.error(f"the {what} `{unexpected[0]}` is not expected here{parser._with_option()}")
        return options

    def _parser_of(self, typed: Sequence[str]) -> "tuple[Parser, Sequence[str]]":
        """The parser of the command that was typed, and what stands behind it."""
        if self.commands is None or not typed or typed[0] not in self.commands.choices:
            return self, typed
        return self.commands.choices[typed[0]]._parser_of(typed[1:])

    def _with_option(self) -> str:
        """How to name what people most often name without its option."""
        named = {"-p": "a policy with -p", "--trace": "a trace with --trace"}
        known = [said for option, said in named.items() if option in self._option_string_actions]
        return f"; name {', '.join(known)}" if known else ""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse what is not among the choices; called by argparse."""
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            what = f"{action.dest} `{value}`"
            self.error(f"there is no {what}{named_or_listed(str(value), names, f'expected {_either(names)}')}")
        name = "/".join(action.option_strings) or action.metavar or action.dest
        self.error(f"{name} should be {_either(names)}; got `{value}`{did_you_mean(str(value), names)}")


def _number(text: str) -> float:
    try:
        return finite_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _long_options(typed: Sequence[str]) -> Iterator[str]:
    """The words that argparse takes for long options, without their values."""
    for word in itertools.takewhile(lambda word: word != "--", typed):
        if word.startswith("--") and word.endswith("=--"):
            # argparse takes the two dashes out and hands on an empty list.
            yield "--"
        elif word.startswith("--") and " " not in word:
            yield word.partition("=")[0]


def _either(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def add_command(commands: "argparse._SubParsersAction[Parser]", name: str, summary: str, details: str = "") -> Parser:
    """A sub-parser with the summary as its line in the list of commands."""
    command = commands.add_parser(
        name,
        help=summary.rstrip("."),
        description=f"{summary}\n\n{details}".strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.register("type", float, _number)
    return command


def positive(text: str) -> int:
    """A whole number from 1."""
    return _whole(text, 1, MOST_COUNT)


def not_negative(text: str) -> int:
    """A whole number from 0."""
    return _whole(text, 0, MOST_COUNT)


def threads(text: str) -> int:
    """A number of threads that a machine can have."""
    return _whole(text, 1, _MOST_THREADS)


def between(least: int, most: int) -> Callable[[str], int]:
    """A reader of whole numbers within limits, both included."""
    return lambda text: _whole(text, least, most)


def seed(text: str) -> int:
    """A whole number from 0 that every generator of random numbers takes."""
    return _whole(text, 0, MOST_SEED)


def _whole(text: str, least: int, most: int) -> int:
    try:
        return whole_number(text, least, most)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
