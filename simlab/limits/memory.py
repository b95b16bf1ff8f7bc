"""How much memory one thing may take, which is asked before it is made.

A small file can hold a great deal: Parquet packs millions of equal values into a few bytes, and a cost file names a
number of drafted tokens up to which every number gets a price. So what is read or made by a size that a file or a
person gives is refused where it would not fit.
"""

import os
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
