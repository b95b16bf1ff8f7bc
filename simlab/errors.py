"""What can go wrong in a way that a caller may want to catch."""

import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


class SimlabError(Exception):
    """Something a person can put right; its text is one clear sentence.

    The command line prints it without a traceback and leaves with exit code 2. Commands that would help are its notes
    (``add_note``), a line each.
    """


class TraceError(SimlabError):
    """A trace that is damaged, incomplete, foreign, or newer than this simlab."""


class MissingChannelError(SimlabError):
    """A policy or an option asks for something that the trace does not hold."""


class ModelError(SimlabError):
    """A model that cannot be fetched or loaded, or that does not fit its partner."""


class PromptError(SimlabError):
    """A prompt or completion file that cannot be used."""


class PolicyError(SimlabError):
    """An unknown policy, or settings that do not fit it."""


class CostError(SimlabError):
    """A cost file that cannot be read, or does not cover what it is to price."""


class TooLargeError(SimlabError):
    """Something that would take more memory than there is; see `simlab.limits`."""


class InUseError(SimlabError):
    """A file that another simlab is writing; once that is done, the same command goes through."""


class UsageError(SimlabError):
    """The command was typed wrong."""


class TimeUpError(SimlabError):
    """A time limit that was over before anything could be said."""


def did_you_mean(typed: str, names: Iterable[str]) -> str:
    """A question for the end of a sentence about a name that is not there; empty where no name is near.

    >>> did_you_mean("ddtre", ["chain", "ddtree"])
    '; did you mean `ddtree`?'
    """
    near = get_close_matches(typed.lower(), names, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def reason_of(error: BaseException) -> str:
    r"""The first line of what an error of others says, for the middle of a sentence; the name of its kind if nothing.

    >>> reason_of(ValueError("it is late\nand more"))
    'it is late'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def enumerated(names: Sequence[str]) -> str:
    """At least one name, as a sentence lists them.

    >>> enumerated(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def named_or_listed(typed: str, names: Iterable[str], listed: str) -> str:
    """The name that was probably meant, or all there are, for the end of a sentence about a name that is not there.

    Args:
        typed: the name that is not there.
        names: those that are.
        listed: a clause that lists them, where none is near.
    """
    return did_you_mean(typed, names) or f"; {listed}"


@contextmanager
def as_usage_error() -> Iterator[None]:
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


# Policy files of a user: where an error in one arose, and what an error of others says.

_MOST_SAID = 300

USER_CODE = "simlab_user_policy_"
"""How the names of modules begin that are policy files of a user's."""


def user_file(error: BaseException) -> str | None:
    """The policy file, with the line, in which an error or one of its causes was raised; None where none was."""
    location = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).startswith(USER_CODE):
            location = f"{frame.f_code.co_filename}, line {line},"
    earlier = error.__cause__ or error.__context__
    return user_file(earlier) if location is None and earlier is not None else location


def describe_error(error: BaseException) -> str:
    """What an error is and says, in one line that is not too long; those of others may even fail to say it."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - whatever it is
        text = "what it says cannot be shown"
    name = type(error).__name__
    return f"{name}: {text[:_MOST_SAID]}{' ...' if len(text) > _MOST_SAID else ''}" if text else name
