"""The parser of a command, made from its class of options; its errors are one sentence."""

import argparse
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from typing import Any, NoReturn

from simlab.errors import UsageError, did_you_mean, named_or_listed
from simlab.options import Nested, Option, Reader, declared, default_of, flags, is_switch, reader_of

# Spellings that earlier versions had: whoever types one is told the new one.

_OPTIONS: dict[str, dict[str, str]] = {
    "replay": {"--draft": "--draft-set"},
    "compare": {"--draft": "--draft-set"},
    "optimize": {
        "--draft": "--draft-set",
        "--report-on": "--trace, and the trace that settings are chosen on is --dev-trace,",
    },
    "advise": {"--draft": "--draft-set", "--choose-on": "--dev-trace"},
    "report": {"--draft": "--draft-set"},
    "crosscheck": {"--draft": "--draft-set"},
    "export": {"--draft": "--draft-set", "--batches": "--batch", "--made-up": "--synthetic", "--by": "--columns"},
    "import": {"--draft": "--draft-set"},
    "study": {"--draft": "--draft-set"},
    "train": {"--draft": "--draft-set"},
}
"""By command and old option the new one."""

COMMANDS = {
    "import-cost": "import",
    "import-metrics": "import",
    "curves": "study curves",
    "scoring": "study scoring",
    "engine-rules": "study engine-rules",
    "reproduce": "study reproduce",
    "field": "study field",
}
"""By old command the new one."""

GONE = {"sparse": "docs/explanation/findings.md keeps what it showed, and the version that measured it"}
"""Commands that are no more, and where their findings are."""


def renamed_option(prog: str, option: str) -> str:
    """The end of a sentence about an option that is not there, where it has another name now; else empty.

    Args:
        prog: the command as it is typed, ``simlab replay``.
        option: as it was typed.
    """
    command = prog.split()[1] if " " in prog else ""
    new = _OPTIONS.get(command, {}).get(option)
    return "" if new is None else f"; it is {new} now"


def renamed_command(name: str) -> str:
    """A sentence about a command that has another name now, or is no more; empty for all others."""
    if name in COMMANDS:
        return f"`simlab {name}` is `simlab {COMMANDS[name]}` now"
    return f"there is no command `{name}` any more; {GONE[name]}" if name in GONE else ""


_Options = argparse.ArgumentParser | argparse._ArgumentGroup
_MOST_SHOWN = 80
"""Characters of a word that was typed, in a sentence about it."""

MOST_LINES = 50
"""A longer help is shortened to the options that most people need, and the names of the others."""
_HELP_WIDTH, _MOST_EXAMPLES = 100, 4
_BETWEEN = "."
"""Between the name of a field and that of an option within it."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, without the usage in front.

    Attributes:
        commands: what stands behind its name first, if it has commands or kinds.
    """

    commands: "argparse._SubParsersAction[Parser] | None" = None

    def format_help(self) -> str:
        """What ``--help`` prints: on one screen, with the options below headings by their names alone where need be."""
        whole = super().format_help()
        return whole if whole.count("\n") <= MOST_LINES else self._short_help()

    def whole_help(self) -> str:
        """What ``--help-all`` prints: everything."""
        return super().format_help()

    def _short_help(self) -> str:
        positionals, options, *titled = self._action_groups
        words = [str(action.metavar or action.dest) for action in positionals._group_actions]
        summary, _, details = (self.description or "").partition("\n\n")
        examples = re.findall(r"^  simlab .*\n?(?:^    .*\n?)*", details, re.MULTILINE)
        formatter = argparse.RawDescriptionHelpFormatter(self.prog, max_help_position=30, width=_HELP_WIDTH)
        formatter.add_usage(" ".join([self.prog, "[options]", *words]), [], [], prefix="usage: ")
        formatter.add_text(f"{summary}\n\n{''.join(examples[:_MOST_EXAMPLES])}".rstrip())
        for group in (positionals, options):
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        for group in titled:
            names = ", ".join(action.option_strings[0] for action in group._group_actions)
            lines = textwrap.wrap(f"{group.title}: {names}", _HELP_WIDTH, break_on_hyphens=False)
            formatter.add_text("\n  ".join(lines))
        formatter.add_text(f"`{self.prog} --help-all` explains all of this.")
        return re.sub(r"\n{3,}", "\n\n", formatter.format_help())

    def add_commands(self, title: str, metavar: str, dest: str) -> "argparse._SubParsersAction[Parser]":
        """Let it have commands, one of which must be typed."""
        self.commands = self.add_subparsers(title=title, metavar=metavar, dest=dest, required=True, parser_class=Parser)
        return self.commands

    def error(self, message: str) -> NoReturn:
        """Fail with the message and where help is."""
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
                hint = renamed_option(parser.prog, word) or parser._setting(word) or parser._near_option(word)
                parser.error(f"there is no option `{word}`{hint}")
        options, unexpected = self.parse_known_args(typed, argparse.Namespace(typed=tuple(typed)))
        if unexpected:
            what = "option" if unexpected[0].startswith("-") else "argument"
            parser.error(f"the {what} `{unexpected[0]}` is not expected here{parser._with_option()}")
        return options

    def _setting(self, word: str) -> str:
        """The end of a sentence about an option that is a setting of policies; else empty."""
        if "-p" not in self._option_string_actions:
            return ""
        # Only who has mistyped waits for all policies to be loaded.
        from simlab.policies import POLICIES  # noqa: PLC0415

        name = word.removeprefix("--").replace("-", "_")
        names = sorted(POLICIES, key=lambda policy: policy != "ddtree")
        owner = next(
            (policy for policy in names if name in getattr(POLICIES[policy], "__dataclass_fields__", ())), None
        )
        return f"; settings stand behind a policy's name, such as -p {owner}:{name}=..." if owner else ""

    def _near_option(self, word: str) -> str:
        """The option that was probably meant, found without the dashes that all have."""
        names = [name.removeprefix("--") for name in self._option_string_actions if name.startswith("--")]
        return did_you_mean(word.removeprefix("--"), names).replace("`", "`--", 1)

    def _parser_of(self, typed: Sequence[str]) -> "tuple[Parser, Sequence[str]]":
        """The parser of the command that was typed, and what stands behind it."""
        if self.commands is None or not typed or typed[0] not in self.commands.choices:
            return self, typed
        return self.commands.choices[typed[0]]._parser_of(typed[1:])

    def _with_option(self) -> str:
        """How to name what people most often name without its option."""
        named = {"-p": "a policy with -p", "--trace": "a trace with --trace"}
        known = [hint for option, hint in named.items() if option in self._option_string_actions]
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


class _WholeHelp(argparse.Action):
    """Print all that there is to say of a command, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print everything; called by argparse."""
        assert isinstance(parser, Parser)
        parser._print_message(parser.whole_help(), sys.stdout)
        parser.exit()


class _Kept(argparse.Action):
    """Keep a value, of an option that is typed again the last; a second list is refused: it may be the first's rest."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, value: object, typed: str | None = None
    ) -> None:
        """Keep the value; called by argparse."""
        is_list = isinstance(value, tuple) or "," in str(self.metavar)
        if typed is not None and is_list and hasattr(options, self.dest):
            parser.error(f"{typed} was given twice; give it once: {typed} {self.metavar}")
        setattr(options, self.dest, value)


def add_command(commands: "argparse._SubParsersAction[Parser]", name: str, summary: str, details: str = "") -> Parser:
    """A sub-parser with the summary as its line in the list of commands."""
    parser = commands.add_parser(
        name,
        help=summary.rstrip("."),
        description=f"{summary}\n\n{details}".strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--help-all", action=_WholeHelp, nargs=0, help="explain every option and exit")
    return parser


def add_options(parser: Parser, kind: type) -> None:
    """Give a parser the options of a class; what is not typed is absent from what it reads."""
    # The usage line has the options in the order in which they are added: those below no heading come first.
    for field, typed in sorted(declared(kind), key=lambda pair: pair[1].group != ""):
        if isinstance(typed, Nested):
            _add_nested(parser, field.name, typed, typed.default, typed)
        else:
            _add_option(parser, field, typed, field.default, field.name, typed.group)


def _add_nested(parser: Parser, within: str, nested: Nested, value: object, outer: Nested) -> None:
    """Add the options that a value is made of.

    Args:
        parser: to which they are added.
        within: the field that holds the value.
        nested: how that field is declared.
        value: whose own values are the defaults; or its class.
        outer: the declaration in the command's own class, which says what is left out or typed otherwise.
    """
    for field, typed in declared(nested.kind):
        if field.name in outer.without:
            continue
        dest, default = f"{within}{_BETWEEN}{field.name}", default_of(field, value)
        if isinstance(typed, Nested):
            _add_nested(parser, dest, typed, default, outer)
        else:
            here = outer.otherwise.get(field.name, typed)
            _add_option(parser, field, here, default, dest, here.group or outer.group)


def _add_option(parser: Parser, field: Field[Any], typed: Option, default: object, dest: str, group: str) -> None:
    names = flags(field, typed)
    help_text = typed.help_text.replace("%", "%%")
    how: dict[str, Any] = {"help": help_text, "default": argparse.SUPPRESS}
    if is_switch(field):
        how["action"] = "store_true" if field.type is bool else argparse.BooleanOptionalAction
    else:
        how["type"] = _reader(reader_of(field, typed))
        how |= {"metavar": typed.metavar} if typed.metavar else {}
        how |= {"choices": typed.choices} if typed.choices else {}
        how |= {"nargs": "?", "const": typed.alone} if typed.alone is not None else {}
        if default not in (None, (), "", MISSING):
            how["help"] = f"{help_text} (default {_shown(default)})"
        how["action"] = _Kept
    if names:
        how |= {"action": "append"} if typed.repeats else {}
        how |= {"dest": dest, "required": default is MISSING and not typed.one_of}
    elif typed.repeats:
        how["nargs"] = "+" if default is MISSING else "*"
    elif default is not MISSING:
        how |= {"nargs": "?", "default": None}
    _target(parser, group, typed.one_of).add_argument(*(names or (dest,)), **how)


def _target(parser: Parser, title: str, one_of: str) -> Any:  # noqa: ANN401 - argparse's groups have no common public type
    """The group of a heading, or within it that of options of which one may be given; made when first asked for."""
    groups: dict[str, Any] = parser.__dict__.setdefault("titled", {"": parser})
    if title not in groups:
        groups[title] = parser.add_argument_group(title)
    if not one_of:
        return groups[title]
    key = f"{title}\n{one_of}"
    if key not in groups:
        groups[key] = groups[title].add_mutually_exclusive_group(required=one_of.endswith("!"))
    return groups[key]


def made_options(kind: type, given: Mapping[str, object]) -> object:
    """The options of a command from what was typed.

    Args:
        kind: their class.
        given: values by the names of fields; within a field behind its name and a dot; others are left alone.
    """
    return kind(**_values(kind, given, ""))


def _values(kind: type, given: Mapping[str, object], within: str, of: object = None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field, typed in declared(kind):
        name = f"{within}{field.name}"
        if isinstance(typed, Nested):
            default = typed.default if of is None or isinstance(of, type) else getattr(of, field.name)
            inner = _values(typed.kind, given, f"{name}{_BETWEEN}", default)
            values[field.name] = typed.kind(**inner) if isinstance(default, type) else replace(default, **inner)
        elif name in given:
            value = given[name]
            values[field.name] = tuple(value) if typed.repeats and isinstance(value, list) else value
    if not within and "command" in {field.name for field in fields(kind)}:
        values["command"] = given["command_line"]
    if not within and "typed_names" in {field.name for field in fields(kind)}:
        values["typed_names"] = frozenset(values)
    return values


def _reader(read: Reader) -> Reader:
    """A reader whose refusals argparse puts behind the name of the option."""

    def checked(text: str) -> object:
        try:
            return read(text)
        except ValueError as error:
            long = len(text) - _MOST_SHOWN
            shown = f"{text[:_MOST_SHOWN]!r} and {long:,} more" if long > 0 else repr(text)
            raise argparse.ArgumentTypeError(str(error).replace(repr(text), shown)) from error

    return checked


def _shown(default: object) -> str:
    if isinstance(default, tuple | list):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


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
