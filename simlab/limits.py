"""What is too much: memory that one thing may take, asked before it is made, and numbers as people type them.

A small file can hold a great deal: Parquet packs millions of equal values into a few bytes, and a cost file names a
number of drafted tokens up to which every number gets a price. So what is read or made by a size that a file or a
person gives is refused where it would not fit.
"""

import math
import os
import re
import resource
from functools import cache
from pathlib import Path

from simlab.errors import TooLargeError, UsageError

MAX_GIB = "SIMLAB_MAX_GIB"
"""The environment variable that sets how many GiB one thing may take."""

GIB = 1 << 30

_SHARE = 2
"""Without the variable a thing may take one of so many equal parts of the memory that there is."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where containers say how much memory they have."""


def most_bytes() -> int:
    """How many bytes one thing may take: as `MAX_GIB` says, or half of what this process may have."""
    text = os.environ.get(MAX_GIB)
    if text is None:
        return _available_bytes() // _SHARE
    try:
        gib = float(text)
    except ValueError:
        gib = 0.0
    if not 0 < gib < float("inf"):
        raise UsageError(f"the environment variable {MAX_GIB} should be a number of GiB above 0; got {text[:40]!r}")
    return int(gib * GIB)


def check_memory(num_bytes: int, what: str, otherwise: str = "") -> None:
    """Refuse what would not fit.

    Args:
        num_bytes: that it would take.
        what: the beginning of the sentence, such as "the grid of 3 contexts".
        otherwise: what a person can do instead of raising the limit, as the beginning of a clause.
    """
    most = most_bytes()
    if num_bytes > most:
        instead = f"{otherwise}, or " if otherwise else ""
        raise TooLargeError(
            f"{what} would take {_gib(num_bytes)} GiB of memory, and simlab takes at most {_gib(most)} GiB for one "
            f"thing here; {instead}set the environment variable {MAX_GIB} to a larger number of GiB"
        )


def _gib(num_bytes: int) -> str:
    gib = num_bytes / GIB
    return f"{gib:,.1f}" if gib >= 0.1 else f"{gib:.2g}"


@cache
def _available_bytes() -> int:
    """The memory of this machine, of this container, or that the shell allows this process; the least of them."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    sizes += [soft] if soft != resource.RLIM_INFINITY else []
    for cgroup in _CGROUPS:
        try:
            sizes.append(int(Path(cgroup).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return min(size for size in sizes if size > 0)


# Numbers as people type them, in options and in settings of policies.

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
