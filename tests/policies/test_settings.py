"""Which values of settings have sense, said at the field."""

import math
from dataclasses import dataclass

import pytest

from simlab.policies.settings import at_least, below_one, between, check_settings, one_of


@dataclass(frozen=True)
class Settings:
    """One of each kind."""

    budget: int = at_least(1)
    width: int | None = at_least(2, None, "must be at least 2, or left out")
    share: float = between(0, 1, 0.5)
    memory: float = below_one(0.9)
    kind: str = one_of(("a", "b"), "a")
    free: float = 7.0

    def __post_init__(self) -> None:
        check_settings(self)


def test_ends_of_ranges_have_sense_and_so_has_what_is_left_out() -> None:
    assert Settings(1) == Settings(1, None, 0.5, 0.9, "a", 7.0)
    Settings(10**9, 2, 0.0, 0.0, "b", math.nan)
    Settings(1, share=1, memory=math.nextafter(1, 0))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget": 0}, "budget must be at least 1; got 0"),
        ({"budget": math.inf}, "budget must be at least 1; got inf"),
        ({"budget": math.nan}, "budget must be at least 1; got nan"),
        ({"width": 1}, "width must be at least 2, or left out; got 1"),
        ({"share": -0.001}, "share must be from 0 to 1; got -0.001"),
        ({"share": 1.001}, "share must be from 0 to 1; got 1.001"),
        ({"memory": 1}, "memory must be from 0 to below 1; got 1"),
        ({"memory": -0.1}, "memory must be from 0 to below 1; got -0.1"),
        ({"kind": "c"}, "kind is one of a, b; got c"),
    ],
)
def test_what_has_no_sense_is_refused(settings: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        Settings(**{"budget": 1, **settings})  # type: ignore[arg-type]
