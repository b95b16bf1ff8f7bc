"""Settings that say which values have sense: default, range and sentence stand once, where the setting is declared.

>>> @dataclasses.dataclass(frozen=True)
... class Wide:
...     width: int = at_least(1, 7)
...     def __post_init__(self):
...         check_settings(self)
>>> Wide(0)
Traceback (most recent call last):
ValueError: width must be at least 1; got 0
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

_ALLOWED = "allowed"

ALL_SIZES = "must be at least 1, or 0 for all sizes"
"""What a look-ahead must be."""

PROBABILITY = "must be a probability"


def at_least(least: float, default: object = dataclasses.MISSING, wording: str = "") -> Any:  # noqa: ANN401 - a field
    """A field whose numbers are finite and not below one.

    Args:
        least: the smallest.
        default: of the setting; None may always be given where it is the default.
        wording: what stands between the name of the setting and the refused value, if it is not said like the others.
    """
    return between(least, sys.float_info.max, default, wording or f"must be at least {least}")


def between(low: float, high: float, default: object = dataclasses.MISSING, wording: str = "") -> Any:  # noqa: ANN401 - a field
    """A field of the numbers from ``low`` to ``high``, both included; the rest as `at_least` has it."""
    return _field(lambda value: low <= value <= high, wording or f"must be from {low} to {high}", default)


def below_one(default: float) -> Any:  # noqa: ANN401 - a field
    """A field of the numbers from 0 to below 1."""
    return _field(lambda value: 0 <= value < 1, "must be from 0 to below 1", default)


def one_of(choices: Sequence[str], default: str, wording: str = "") -> Any:  # noqa: ANN401 - a field
    """A field of a few words; the rest as `at_least` has it."""
    return _field(lambda value: value in choices, wording or f"is one of {', '.join(choices)}", default)


def _field(allows: Callable[[Any], bool], wording: str, default: object) -> object:
    return dataclasses.field(default=default, metadata={_ALLOWED: (allows, wording)})


def check_settings(settings: Any) -> None:  # noqa: ANN401 - any dataclass
    """Refuse the first setting of a dataclass that is none of its allowed values.

    Raises:
        ValueError: with a sentence about it.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if _ALLOWED not in field.metadata or (value is None and field.default is None):
            continue
        allows, wording = field.metadata[_ALLOWED]
        if not allows(value):
            raise ValueError(f"{field.name} {wording}; got {value}")
