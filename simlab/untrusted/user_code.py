"""Policy files of a user's: where an error in one arose, and what an error of others says."""

import traceback

_MOST_SAID = 300

USER_MODULE = "simlab_user_policy_"
"""How the names of modules begin that are policy files of a user's."""


def user_file_of(error: BaseException) -> str | None:
    """The policy file, with the line, in which an error or one of its causes was raised; None where none was."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).startswith(USER_MODULE):
            found = f"{frame.f_code.co_filename}, line {line},"
    earlier = error.__cause__ or error.__context__
    return user_file_of(earlier) if found is None and earlier is not None else found


def describe_error(error: BaseException) -> str:
    """What an error is and says, in one line that is not too long; those of others may even fail to say it."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - whatever it is
        said = "what it says cannot be shown"
    name = type(error).__name__
    return f"{name}: {said[:_MOST_SAID]}{' ...' if len(said) > _MOST_SAID else ''}" if said else name
