"""Work on threads: in order, a few parts at a time, ended by the first error."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_jobs import Squares

from simlab.errors import SimlabError
from simlab.workers.threads import Threads, difference, in_order, kind_of_this_process, not_told, num_cores


def test_values_come_in_the_order_of_the_units_and_reports_are_heard(tmp_path: Path) -> None:
    heard: list[int] = []
    values = Threads(3).results(Squares(tmp_path), [2, 0, 3], lambda _what, number: heard.append(number))
    assert list(values) == [0, 1, 4, 0, 0, 1, 4, 9]
    assert sum(heard) == 8


def test_an_error_of_one_part_ends_all(tmp_path: Path) -> None:
    with pytest.raises(SimlabError, match="no square of 7"):
        list(Threads(2).results(Squares(tmp_path, fails_at=7), [20], not_told))


def test_parts_are_read_as_threads_become_free() -> None:
    read: list[int] = []

    def parts() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    assert next(in_order(parts(), abs, 2)) == 0
    assert len(read) <= 6


def test_as_many_threads_as_cores_are_free() -> None:
    assert num_cores() >= 1


def test_kinds_that_differ_are_told_apart() -> None:
    here = kind_of_this_process()
    assert difference(here, dict(here)) is None
    assert difference({"python": "3.12"}, {}) == "python none, and the driver has python 3.12"
    assert difference(here, {**here, "numpy": "1.0"}) == f"numpy 1.0, and the driver has numpy {here['numpy']}"
