"""One part of a piece of work, as each of several machines is told which is its own: ``--shard 1/4``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from simlab.limits import MOST_COUNT, shown
from simlab.options import option

_TYPED = re.compile(r"(0|[1-9][0-9]{0,9})/([1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One of so many parts; written ``1/4``, the second of four, as Slurm arrays and ranks count.

    Attributes:
        number: from 0.
        count: how many parts there are.

    >>> print(Part(1, 4), list(Part(1, 4).strided(10)), list(Part(1, 4).neighbours(10)))
    1/4 [1, 5, 9] [2, 3, 4]
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count <= MOST_COUNT:
            raise ValueError(_expected(f"{self.number}/{self.count}", self.count))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def is_whole(self) -> bool:
        """Whether it is the only part."""
        return self.count == 1

    @property
    def note(self) -> str:
        """The line that says that a table is of a part."""
        return f"This is part {self} of the prompts alone; `simlab merge` puts the files of all {self.count} together."

    def strided(self, total: int) -> range:
        """Every count-th number below a total: parts have alike shares of whatever follows each other.

        A recording is split so, since the prompts of one dataset take about as long as each other.
        """
        return range(self.number, total, self.count)

    def neighbours(self, total: int) -> range:
        """Consecutive numbers below a total: a part reads few of the files that hold them.

        A replay is split so, since whoever reads one text of a shard reads the shard's files.
        """
        return range(self.number * total // self.count, (self.number + 1) * total // self.count)


def parse_part(text: str) -> Part:
    """The part that was typed.

    Raises:
        ValueError: it is none; the sentence says what is one.

    >>> parse_part("3/4")
    Part(number=3, count=4)
    """
    match = _TYPED.fullmatch(text)
    if match is None:
        raise ValueError(_expected(shown(text), 4))
    return Part(int(match[1]), int(match[2]))


def missing_parts(parts: Sequence[Part]) -> list[Part]:
    """Those that are lacking beside some parts of one work.

    >>> [str(one) for one in missing_parts([Part(0, 4), Part(2, 4)])]
    ['1/4', '3/4']
    """
    counts = sorted({part.count for part in parts})
    if len(counts) != 1:
        raise ValueError(f"expected parts of one work; got some of {' and '.join(map(str, counts)) or 'none'}")
    return [Part(number, counts[0]) for number in range(counts[0]) if Part(number, counts[0]) not in parts]


def _expected(got: str, count: int) -> str:
    known = f"0/{count} to {count - 1}/{count}" if count > 0 else "0/4 to 3/4"
    return f"expected the number of a part and how many there are, counted from 0: {known}; got {got}"


# Options of commands whose work can be spread over processes and machines.


def ray_option(group: str = "") -> str | None:
    """``--ray``: the workers of a Ray."""
    help_text = "work on a local Ray, or on that of a cluster (HOST:PORT; on one of its machines: auto)"
    return option(None, help_text, "local|ADDRESS", group=group)


def workers_option(group: str = "") -> int | None:
    """How many workers Ray has: ``--workers``."""
    return option(None, "workers of --ray (default: as many as it has room for)", "N", group=group)


def shard_option(help_text: str, group: str) -> str | Part | None:
    """``--shard I/N``: one part of the work, for one of several machines.

    Args:
        help_text: its help; `simlab merge` is said behind it.
        group: the heading.
    """
    return option(None, f"{help_text}; `simlab merge` puts them together", "I/N", read=parse_part, group=group)
