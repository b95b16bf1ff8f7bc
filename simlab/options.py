"""An option, declared once: a field of a frozen dataclass is an argument in Python and an option on the command line.

    @dataclass(frozen=True)
    class ReplayOptions:
        trace: str | None = option(None, "a recorded trace", "DIR")
        limit: int | None = option(None, "the first N prompts only", "N")

    @study(ReplayOptions)
    def replay(options: ReplayOptions) -> ReplayTable: ...

`replay` is then called with the fields as arguments, `replay(trace="runs/mine", limit=8)`, or `replay.run(options)`;
the parser, its help, the completion of shells and the reference pages read the same fields (`simlab.cli.parser`).
"""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from dataclasses import field as declare_field
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from reprlib import repr as shown
from types import EllipsisType, NoneType, UnionType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Union, cast, get_args, get_origin, overload

from simlab.errors import UsageError, as_usage_error, named_or_listed
from simlab.limits import MOST_COUNT, finite_number, whole_number

_KEY = "option"

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
Options = TypeVar("Options")
Result = TypeVar("Result")

Reader = Callable[[str], object]
"""From a text that was typed to a value; it raises ValueError with a sentence that says what is expected."""


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is typed on the command line.

    Attributes:
        help_text: its help, without the default.
        metavar: what stands for its value in the help.
        read: from the text to the value; None: by the field's type.
        names: as it is typed, such as ``-p`` and ``--policy``; none: from the name of the field.
        group: the heading below which the help lists it.
        choices: the only values.
        repeats: it may be given several times, and the field is a tuple.
        one_of: a name that options share of which one at most is given; with a ``!`` at the end: exactly one.
        is_positional: it is typed without a name.
        alone: its value where nothing is typed behind it; None: something must be.
        writes: what the command says of a file or folder that it writes, such as ``Result rows``.
        example: a name of such a file; none: it is a folder.
    """

    help_text: str
    metavar: str = ""
    read: Reader | None = None
    names: tuple[str, ...] = ()
    group: str = ""
    choices: tuple[str, ...] = ()
    repeats: bool = False
    one_of: str = ""
    is_positional: bool = False
    alone: str | None = None
    writes: str = ""
    example: str = ""


@overload
def option(default: EllipsisType, help_text: str, metavar: str = "", **how: Any) -> Any: ...  # noqa: ANN401 - of any type
@overload
def option(default: Value, help_text: str, metavar: str = "", **how: Any) -> Value: ...  # noqa: ANN401
def option(  # noqa: D417 - `Option` explains them
    default: object,
    help_text: str,
    metavar: str = "",
    *,
    names: str = "",
    kw_only: bool = False,
    positional: bool = False,
    **how: Any,
) -> object:
    """Declare a field as an option; `Option` explains the arguments.

    Args:
        default: its value where it is not given; ``...``: it must be given.
        names: separated by spaces, such as ``-p --policy``.
        kw_only: in Python it is given by its name alone.
        positional: it is typed without a name.
    """
    typed = Option(help_text, metavar, names=tuple(names.split()), is_positional=positional, **how)
    value = MISSING if default is ... else default
    return declare_field(default=value, metadata={_KEY: typed}, kw_only=kw_only or MISSING)


@overload
def nested(
    default: type[Value], group: str, without: Sequence[str] = (), otherwise: Mapping[str, Option] | None = None
) -> Value: ...
@overload
def nested(
    default: Value, group: str, without: Sequence[str] = (), otherwise: Mapping[str, Option] | None = None
) -> Value: ...
def nested(
    default: object,
    group: str,
    without: Sequence[str] = (),
    otherwise: Mapping[str, Option] | None = None,
) -> object:
    """Declare a field whose value is itself made of options, listed below one heading.

    Args:
        default: a value, whose own values are the defaults; or the class, of which something must be given.
        group: the heading.
        without: names of its fields that cannot be typed here.
        otherwise: how fields are typed here that are typed in another way elsewhere.
    """
    given: dict[str, Any] = {} if isinstance(default, type) else {"default": default}
    return declare_field(**given, metadata={_KEY: Nested(default, group, tuple(without), otherwise or {})})


@dataclass(frozen=True, slots=True)
class Nested:
    """How a field is typed that is made of options; `nested` explains the attributes."""

    default: Any
    group: str
    without: tuple[str, ...]
    otherwise: Mapping[str, Option]

    @property
    def kind(self) -> type:
        """The class of the value."""
        return self.default if isinstance(self.default, type) else type(self.default)


def declared(kind: type) -> Iterator[tuple[Field[Any], Option | Nested]]:
    """The fields of a class of options that can be typed, in order."""
    for field in fields(kind):
        if _KEY in field.metadata:
            yield field, field.metadata[_KEY]


def flags(field: Field[Any], typed: Option) -> tuple[str, ...]:
    """The names under which an option is typed; none where it is typed without."""
    if typed.is_positional:
        return ()
    return typed.names or (f"--{field.name.replace('_', '-')}",)


def default_of(field: Field[Any], of: object = None) -> object:
    """The default of a field, or its value in ``of``; `dataclasses.MISSING` where it must be given."""
    return field.default if of is None or isinstance(of, type) else getattr(of, field.name)


def is_switch(field: Field[Any]) -> bool:
    """Whether an option takes no value."""
    return field.type is bool or field.type == bool | None


def reader_of(field: Field[Any], typed: Option) -> Reader:
    """What reads the value of an option: its own reader, or that of the field's type."""
    if typed.read is not None:
        return typed.read
    kinds = {field.type} | {kind for part in get_args(field.type) for kind in (part, *get_args(part))}
    # What may be an address is not read as a path, which has no two slashes behind each other.
    for kind, read in ((str, str), (Path, Path), (int, count()), (float, finite_number)):
        if kind in kinds:
            return read
    return str


def count(least: int = 1, most: int = MOST_COUNT) -> Reader:
    """A reader of whole numbers within limits, both included."""
    return lambda text: whole_number(text, least, most)


def checked(kind: type[Options], given: Mapping[str, object]) -> Options:
    """Options of what was given, each value read as the command line reads it, so that both refuse the same.

    A value alone stands for a list of it where an option may be repeated. What cannot be typed, such as a trace that is
    open, is left as it is.

    Args:
        kind: a class whose fields are options.
        given: values by the names of its fields.

    Raises:
        ValueError: with a sentence that begins with the name of the option.
    """
    values = dict(given)
    for field, typed in declared(kind):
        value = values.get(field.name, field.default)
        if value is field.default:
            continue
        if isinstance(typed, Nested):
            if not isinstance(value, typed.kind):
                raise ValueError(f"{field.name}: expected {typed.kind.__name__}; got {shown(value)}")
            values[field.name] = checked(typed.kind, {own.name: getattr(value, own.name) for own in fields(typed.kind)})
            continue
        try:
            values[field.name] = _read_again(field, typed, value)
        except ValueError as error:
            raise ValueError(f"{field.name}: {error}") from None
    return kind(**values)


def _read_again(field: Field[Any], typed: Option, value: object) -> object:
    """The value of an option as its reader gives it."""
    if value is None and NoneType in get_args(field.type):
        return value
    if is_switch(field):
        if not isinstance(value, bool):
            raise ValueError(f"expected True or False; got {value!r}")
        return value
    if not typed.repeats:
        return _read_value(field, typed, value)
    if isinstance(value, Mapping) and any(get_origin(part) is Mapping for part in get_args(field.type)):
        return value
    several = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    parts = tuple(_read_value(field, typed, part) for part in (cast(Iterable[object], value) if several else (value,)))
    if not parts and field.default is MISSING:
        raise ValueError("expected one at least; got none")
    return parts


def _read_value(field: Field[Any], typed: Option, value: object) -> object:
    read, kinds = reader_of(field, typed), _classes(field.type) - ({Sequence} if typed.repeats else set())
    if typed.choices and not (isinstance(value, str) and value in typed.choices):
        raise ValueError(f"expected one of {', '.join(typed.choices)}; got {shown(value)}")
    if isinstance(value, bool):
        raise ValueError(f"expected a value, not a switch; got {value!r}")
    if isinstance(value, Real) and read not in (str, Path):
        return read(str(int(value)) if isinstance(value, Integral) else repr(float(value)))
    if isinstance(value, str | PathLike):
        value = value if isinstance(value, str) else Path(value)
        if "\0" in str(value):
            raise ValueError(f"expected a text without null characters; got {shown(value)}")
        return read(str(value)) if typed.read is not None or read not in (str, Path) or Path not in kinds else value
    several = isinstance(value, Sequence) and not isinstance(value, bytes) and Sequence in kinds
    if several and int in kinds:
        return read(",".join(map(str, cast(Sequence[object], value))))
    # What a protocol asks for, whoever uses it says.
    is_open = any(kind.__module__ == "typing" or getattr(kind, "_is_protocol", False) for kind in kinds)
    parts, wanted = cast(Sequence[object], value) if several else (value,), tuple(kinds - {Sequence})
    if not is_open and not all(isinstance(part, wanted) for part in parts):
        expected = " or ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"expected {expected}; got {shown(value)}")
    return value


def _classes(kind: object) -> set[type]:
    """The classes of a union, and of the members of a list."""
    own = get_origin(kind) or kind
    parts = get_args(kind) if own in (Union, UnionType, Sequence) else ()
    inner = set[type]().union(*map(_classes, parts))
    return inner | ({own} if isinstance(own, type) and own not in (UnionType, NoneType) else set())


def written(options: object) -> list[tuple[str, Option, Path]]:
    """The options that name what is written: as they are typed, how they are declared, and the path that was given."""
    given = [
        (flags(field, typed)[-1], typed, getattr(options, field.name))
        for field, typed in declared(type(options))
        if isinstance(typed, Option) and (typed.writes or typed.example)
    ]
    return [(name, typed, Path(path)) for name, typed, path in given if path is not None]


def check_written(options: object) -> None:
    """Refuse, before the work, a file that could not be written after it.

    Raises:
        UsageError: a folder or a device stands where a file would be written, or nothing can be written there.
    """
    for name, typed, path in written(options):
        if not typed.example:
            continue
        if path.is_dir():
            raise UsageError(f"{name} names the folder {path}; expected a file, such as {path / typed.example}")
        if path.exists() and not path.is_file():
            raise UsageError(f"{name} names {path}, which is a device or a pipe; give the name of a file")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir():
            raise UsageError(f"{name} names a file below {folder}, which is a file; expected a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{name} names {path}, and the folder {folder} cannot be written; give another")


def typed_words(command: str, options: object) -> list[str]:
    """The words that make such options again: the command, and all that differs from the defaults.

    Args:
        command: its name, such as ``study field``.
        options: a value of its class of options, made of what can be typed, without nested ones.
    """
    positional, named = list[str](), list[str]()
    for field, typed in declared(type(options)):
        value = getattr(options, field.name)
        if isinstance(typed, Nested) or value is None or value == default_of(field):
            continue
        values = value if typed.repeats else (value,)
        if typed.is_positional:
            positional += map(_spelled, values)
        elif is_switch(field):
            name = flags(field, typed)[-1]
            named.append(name if value else f"--no-{name.removeprefix('--')}")
        else:
            named += [word for part in values for word in (flags(field, typed)[0], _spelled(part))]
    return ["simlab", *command.split(), *positional, *named]


def _spelled(value: object) -> str:
    """A value as it is typed; several numbers with commas between them."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return repr(value) if isinstance(value, float) and float(short) != value else short


class Study(Protocol[Arguments, Options, Result]):
    """A function that is called with the fields of its options as arguments."""

    options: type
    run: Callable[[Options], Result]
    """The same function, of options that are made already."""

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Make the options, and run."""


class study(Generic[Arguments, Options]):  # noqa: N801 - a decorator
    """Let a function of options be called with the fields of these options as arguments.

    The values are those of the command line, see `checked`; a list in the first place, where that is a trace's, is one
    of policies. A ValueError that the options raise becomes a `UsageError`.
    """

    def __init__(self, kind: Callable[Arguments, Options]) -> None:
        self._kind = kind

    def __call__(self, function: Callable[[Options], Result]) -> Study[Arguments, Options, Result]:
        """The function that takes the fields as arguments."""
        kind, signature = self._kind, inspect.signature(self._kind)
        first = list(signature.parameters)[:2]

        @wraps(function)
        def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            for name in sorted(named.keys() - signature.parameters.keys()):
                meant = named_or_listed(name, signature.parameters, f"it has {', '.join(signature.parameters)}")
                raise TypeError(f"{function.__name__}() has no argument {name!r}{meant}")
            is_shifted = first == ["trace", "policies"] and isinstance(next(iter(arguments), None), list | tuple)
            try:
                given = signature.bind(*((None, *arguments) if is_shifted else arguments), **named).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            with as_usage_error():
                options = checked(cast(type[Options], kind), given)
            check_written(options)
            return function(options)

        made: Any = call
        made.run, made.options = function, kind
        made.__signature__ = signature.replace(return_annotation=inspect.signature(function).return_annotation)
        made.__doc__ = f"{inspect.getdoc(function)}\n\nArgs:\n{_listed(cast(type, kind))}"
        return cast(Study[Arguments, Options, Result], made)


def _listed(kind: type) -> str:
    """The arguments with their help, for a docstring."""
    return "\n".join(
        f"    {field.name}: {typed.help_text if isinstance(typed, Option) else typed.group}."
        for field, typed in declared(kind)
    )


def paths(given: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """One path or several, as paths."""
    return (Path(given),) if isinstance(given, str | Path) else tuple(map(Path, given))


def given_for(kind: type, options: object) -> dict[str, Any]:
    """What was given of the options that a class has too, by name; what is None was not.

    Args:
        kind: a dataclass.
        options: of a command.
    """
    values = {field.name: getattr(options, field.name, None) for field in fields(kind)}
    return {name: value for name, value in values.items() if value is not None}


def path_or_none(given: str | Path | None) -> Path | None:
    """A path, where one was given."""
    return None if given is None else Path(given)


# Options that several commands have, each declared once; `simlab.options` says how a class of options uses them.


SLICES = ("dataset", "context", "turn")
"""What ``--by`` cuts results by; as `simlab.analysis.statistics.slices.SLICES`."""

_MOST_THREADS = 1024


def trace_option(
    help_text: str = "a recorded trace: a folder, or an address such as hf://... (default: the packaged one)",
) -> Any:  # noqa: ANN401 - a trace, a path, or None
    """``--trace``: what is judged."""
    return option(None, help_text, "DIR")


def dev_trace_option(help_text: str) -> Any:  # noqa: ANN401 - a trace, a path, or None
    """``--dev-trace``: what settings are chosen on."""
    return option(None, help_text, "DIR")


def draft_set_option(help_text: str = "the draft set, where the trace holds more than one") -> str | None:
    """``--draft-set``: one of the draft sets of a trace."""
    return option(None, help_text, "NAME")


def policies_option(
    help_text: str = "see `simlab policies`; may be repeated",
) -> Any:  # noqa: ANN401 - `simlab.policy.GivenPolicies`, which is not loaded here
    """``-p``, which may be repeated."""
    return option((), help_text, "POLICY", names="-p --policy", repeats=True)


def cost_option() -> str | Path | None:
    """``--cost``: the latency profile of one machine."""
    help_text = "latency profile: a file of `simlab profile`, or the name of a packaged one"
    return option(None, help_text, "FILE", read=Path)


def costs_option(
    help_text: str = "latency profile: a file of `simlab profile`, or the name of a packaged one; may be repeated",
) -> str | Path | Sequence[str | Path]:
    """``--cost`` of several machines."""
    return option((), help_text, "FILE", read=Path, repeats=True)


def limit_option(help_text: str = "the first N prompts only") -> int | None:
    """``--limit``: so many prompts."""
    return option(None, help_text, "N")


def by_option(help_text: str = "a table for each, and one of all", slices: Sequence[str] = SLICES) -> str | None:
    """``--by``: slices of the results."""
    return option(None, help_text, choices=slices)


def threads_option() -> int | None:
    """Threads of the CPU: ``--threads``."""
    return option(None, "CPU threads (default: all cores)", "N", read=count(1, _MOST_THREADS))


def out_option(help_text: str, writes: str, example: str, group: str = "") -> str | Path | None:
    """A file that a study writes where it is asked for."""
    return option(None, help_text, "FILE", read=Path, writes=writes, example=example, group=group)


def progress_option() -> bool | None:
    """Whether a bar is shown: ``--progress`` and ``--no-progress``."""
    return option(None, "a progress bar; by default on a terminal, after two seconds")


def one_batch_option(help_text: str = "decode N texts at a time (default: each alone)", group: str = "") -> int | None:
    """``--batch`` of a command that runs at one batch size."""
    return option(None, help_text, "N", read=batch_size, group=group)


def batch_sizes(text: str) -> tuple[int, ...]:
    """Read batch sizes, and put them in ascending order.

    >>> batch_sizes("8,1,2")
    (1, 2, 8)
    """
    try:
        return tuple(sorted({whole_number(part, 1) for part in text.split(",")}))
    except ValueError as error:
        raise ValueError(f"expected batch sizes such as 1,2,4,8; got {text!r}") from error


def batch_size(text: str) -> int:
    """Read one batch size.

    >>> batch_size("8")
    8
    """
    if "," in text:
        raise ValueError(f"expected one batch size, such as 4; got {text!r}; run the command once for each")
    return whole_number(text, 1)
