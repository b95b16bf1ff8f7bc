"""Numbers as people type them, in options and in settings of policies."""

import math
import re

MOST_COUNT = 2**31 - 1
"""The largest number of anything that is counted, and the largest setting: what an int32 holds."""

MOST_SEED = 2**63 - 1
"""The largest seed: it is stored as an int64, and torch and numpy take it."""

_PLAIN = re.compile("0|-?[1-9][0-9]*")
_MOST_DIGITS = 20
"""More digits than any limit has: so many are not even read."""

_SHOWN = 40


def is_whole(text: str) -> bool:
    """Whether a text is a whole number in plain digits: ASCII, without a plus, underscores, spaces or zeros in front.

    >>> [is_whole(text) for text in ("12", "-3", "0", "012", "1_000", "+5", "1e3")]
    [True, True, True, False, False, False, False]
    """
    return _PLAIN.fullmatch(text) is not None


def whole_number(text: str, least: int = -MOST_COUNT, most: int = MOST_COUNT) -> int:
    """The number that was typed.

    Args:
        text: as it was typed.
        least: the smallest that will do.
        most: the largest that will do.

    >>> whole_number("12", 1)
    12
    """
    if is_whole(text) and len(text) <= _MOST_DIGITS and least <= int(text) <= most:
        return int(text)
    if is_whole(text) and not text.startswith("-") and (len(text) > _MOST_DIGITS or int(text) > most):
        raise ValueError(f"expected a whole number up to {most:,}; got {shown(text)}")
    wanted = f", at least {least:,}" if least > -MOST_COUNT else f" from {least:,} to {most:,}"
    raise ValueError(f"expected a whole number{wanted}; got {shown(text)}")


def finite_number(text: str) -> float:
    """The number that was typed, in plain digits: finite, without underscores and digits of other scripts.

    >>> finite_number("1e-3")
    0.001
    """
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"expected a number; got {shown(text)}")
    return value


def shown(text: str) -> str:
    """What was typed, in quotes, and cut where it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text):,} characters)"
