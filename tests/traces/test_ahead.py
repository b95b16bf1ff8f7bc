"""Work ahead: in order, bounded, lazy, and errors where they belong."""

import threading

import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab.traces.decoded import work_ahead


@settings(max_examples=examples(50))
@given(weights=st.lists(st.integers(0, 10), max_size=30), most=st.integers(0, 20))
def test_values_come_in_order_and_weigh_little(weights: list[int], most: int) -> None:
    begun: list[int] = []

    def work(place: int) -> int:
        begun.append(place)
        return place

    taken = []
    for index in work_ahead(enumerate(weights), work, most):
        taken.append(index)
        ahead = [one for one in list(begun) if one > index]
        assert len(ahead) <= 1 or sum(weights[one] for one in ahead) <= most
    assert taken == list(range(len(weights)))


def test_the_next_is_worked_on_while_one_is_taken() -> None:
    second = threading.Event()

    def work(place: int) -> int:
        if place == 1:
            second.set()
        return place

    found = work_ahead(((index, 1) for index in range(3)), work, 10)
    assert next(found) == 0
    assert second.wait(30)
    assert list(found) == [1, 2]


def test_an_error_stands_where_its_value_would() -> None:
    def work(place: int) -> int:
        if place == 2:
            raise ValueError("two")
        return place

    found = work_ahead(((index, 1) for index in range(5)), work, 10)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(found)
