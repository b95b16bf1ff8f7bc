"""Work on threads: in order, a few parts at a time, ended by the first error."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray_jobs import Squares

from simlab.errors import SimlabError
from simlab.workers.parts import Part, missing_parts, parse_part
from simlab.workers.threads import Threads, difference, ignore_progress, in_order, kind_of_this_process, num_cores


def test_values_come_in_the_order_of_the_units_and_reports_are_heard(tmp_path: Path) -> None:
    heard: list[int] = []
    values = Threads(3).results(Squares(tmp_path), [2, 0, 3], lambda _what, number: heard.append(number))
    assert list(values) == [0, 1, 4, 0, 0, 1, 4, 9]
    assert sum(heard) == 8


def test_an_error_of_one_part_ends_all(tmp_path: Path) -> None:
    with pytest.raises(SimlabError, match="no square of 7"):
        list(Threads(2).results(Squares(tmp_path, fails_at=7), [20], ignore_progress))


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


# A split into parts: each number is in one of them, however many there are, and nothing else is a part


COUNTS, TOTALS = st.integers(1, 40), st.integers(0, 300)


@given(COUNTS, TOTALS)
def test_each_number_is_in_one_part(count: int, total: int) -> None:
    parts = [Part(number, count) for number in range(count)]
    for split in (Part.strided, Part.neighbours):
        shares = [list(split(part, total)) for part in parts]
        assert sorted(number for share in shares for number in share) == list(range(total))
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1
    in_order = [number for part in parts for number in part.neighbours(total)]
    assert in_order == list(range(total))


@given(COUNTS, st.data())
def test_what_is_written_is_read(count: int, data: st.DataObject) -> None:
    part = Part(data.draw(st.integers(0, count - 1)), count)
    assert parse_part(str(part)) == part
    assert part.is_whole == (count == 1)


@given(COUNTS, st.data())
def test_the_missing_parts_are_those_that_are_not_there(count: int, data: st.DataObject) -> None:
    there = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    found = missing_parts([Part(number, count) for number in there])
    assert {part.number for part in found} == set(range(count)) - there


def test_parts_of_two_splits_are_no_work() -> None:
    with pytest.raises(ValueError, match="parts of one work; got some of 2 and 3"):
        missing_parts([Part(0, 2), Part(1, 3)])
    with pytest.raises(ValueError, match="got some of none"):
        missing_parts([])


@pytest.mark.parametrize("text", ["4/4", "1", "1/0", "0/0", "-1/4", "01/4", "1/4 ", "1/04", "a/b", "", "9" * 40 + "/4"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected the number of a part and how many there are, counted from 0: 0/"):
        parse_part(text)


def test_the_refusal_names_the_parts_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"0/3 to 2/3; got 3/3$"):
        parse_part("3/3")
