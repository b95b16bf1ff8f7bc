"""How many prompts a difference takes, as it is asked and answered."""

import pytest

from simlab.studies.prompts.how_many import NUMBERS, PromptNumbers
from simlab.studies.prompts.prompts import prompts


@pytest.fixture(scope="module")
def packaged() -> PromptNumbers:
    found = prompts(difference=1.03)
    assert isinstance(found, PromptNumbers)
    return found


def test_more_prompts_find_less(packaged: PromptNumbers) -> None:
    """And the number that is named lies between its neighbours in the table."""
    assert [one.second for one in packaged.comparisons] == ["autoregressive", "chain", "ddtree:budget=16"]
    for one in packaged.comparisons:
        found, needed = packaged.detectable(one), packaged.needed(one)
        assert found == sorted(found, reverse=True)
        assert needed is not None
        enough = [number for number, ratio in zip(NUMBERS, found, strict=True) if ratio <= packaged.ratio]
        assert all(number >= needed for number in enough)
        assert all(number < needed for number in NUMBERS if number not in enough)
