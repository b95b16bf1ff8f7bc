"""Work in units that any worker does alike: what a job is, and what does it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Unit = TypeVar("Unit")
Unit_contra = TypeVar("Unit_contra", contravariant=True)
Part = TypeVar("Part")
Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)

Report = Callable[[str, int], None]
"""Told what a worker is at, and how much more of it is done, while a unit goes on."""


class Opened(Protocol[Unit_contra, Part, Value_co]):
    """A job in one process, with what it reads in memory."""

    def parts(self, unit: Unit_contra, /) -> Iterable[Part]:
        """What a unit is made of, read one after the other."""
        ...

    def work(self, part: Part, /) -> Value_co:
        """What comes of a part; threads call this at the same time."""
        ...


class Job(Protocol[Unit_contra, Part, Value_co]):
    """Work on units. It can be pickled, and a unit that is done twice gives the same."""

    def open(self, report: Report, /) -> Opened[Unit_contra, Part, Value_co]:
        """Read what all units need, once in each process."""
        ...


class Workers(Protocol):
    """Whatever does jobs: threads, or workers of Ray."""

    @property
    def shares_memory(self) -> bool:
        """Whether a job is opened in this process, so that it may hold what is open here."""
        ...

    def results(self, job: Job[Unit, Part, Value], units: Iterable[Unit], told: Report) -> Iterator[Value]:
        """The values of all parts, in the order of the units; few units are held at a time.

        Args:
            job: what is done.
            units: of which; read as workers become free.
            told: hears what workers report.
        """
        ...


def not_told(_what: str, _number: int) -> None:
    """Hear nothing of what workers report."""
