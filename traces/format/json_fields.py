"""Typed values out of a JSON object that somebody else may have written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from simlab.errors import TraceError
from simlab.untrusted.json_text import parse_json

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class JsonFields:
    """One JSON object and where it stands, for messages."""

    values: Mapping[str, object]
    where: str

    def text(self, key: str) -> str:
        """The string under a key."""
        return cast(str, self._typed(key, (str,), "a string"))

    def integer(self, key: str) -> int:
        """The integer under a key."""
        return self._within(key, cast(int, self._typed(key, (int,), "an integer")))

    def optional_integer(self, key: str) -> int | None:
        """An integer or null."""
        found = cast(int | None, self._typed(key, (int, type(None)), "an integer or null"))
        return None if found is None else self._within(key, found)

    def flag(self, key: str) -> bool:
        """A boolean; False where there is none."""
        return self._typed(key, (bool,), "true or false") is True if key in self.values else False

    def number(self, key: str) -> float:
        """The number under a key, as a float."""
        found = cast(float, self._typed(key, (int, float), "a number"))
        return self._float(key, found)

    def inner(self, key: str) -> "JsonFields":
        """An object inside this one."""
        return JsonFields(cast(Json, self._typed(key, (dict,), "an object")), f"{self.where}, {key}")

    def inners(self, key: str) -> dict[str, "JsonFields"]:
        """An object of objects, by name."""
        outer = self.inner(key)
        return {name: outer.inner(name) for name in outer.values}

    def texts(self, key: str) -> dict[str, str]:
        """An object of strings."""
        outer = self.inner(key)
        return {name: outer.text(name) for name in outer.values}

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        found = cast(list[object], self._typed(key, (list,), "a list of strings"))
        if not all(isinstance(value, str) for value in found):
            raise self._wrong(key, "a list of strings", found)
        return tuple(cast(list[str], found))

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers."""
        found = cast(list[object], self._typed(key, (list,), "a list of integers"))
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in found):
            raise self._wrong(key, "a list of integers", found)
        return tuple(self._within(key, value) for value in cast(list[int], found))

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        found = cast(list[object], self._typed(key, (list,), "a list of numbers"))
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in found):
            raise self._wrong(key, "a list of numbers", found)
        return tuple(self._float(key, value) for value in cast(list[float], found))

    def objects(self, key: str) -> list["JsonFields"]:
        """A list of objects."""
        found = cast(list[object], self._typed(key, (list,), "a list of objects"))
        if not all(isinstance(value, dict) for value in found):
            raise self._wrong(key, "a list of objects", found)
        return [JsonFields(cast(Json, value), f"{self.where}, {key} {place}") for place, value in enumerate(found)]

    def _within(self, key: str, value: int) -> int:
        """The number, if 64 bits hold it; nothing that is counted or numbered has more."""
        if not -(1 << 63) <= value < 1 << 63:
            raise self._wrong(key, "an integer of at most 64 bits", value)
        return value

    def _float(self, key: str, value: float) -> float:
        try:
            return float(value)
        except OverflowError as error:
            raise self._wrong(key, "a number that a float64 holds", value) from error

    def _typed(self, key: str, types: tuple[type, ...], wanted: str) -> object:
        if key not in self.values:
            raise TraceError(f"{self.where}: expected the key {key!r}; it is missing. Copy the file again.")
        value = self.values[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise self._wrong(key, wanted, value)
        return value

    def _wrong(self, key: str, wanted: str, value: object) -> TraceError:
        shown = repr(value) if len(repr(value)) < 80 else f"{repr(value)[:80]} ..."
        return TraceError(f"{self.where}: {key!r} must be {wanted}; got {shown}. Copy the file again.")


def json_fields(text: str | bytes, where: str) -> JsonFields:
    """The fields of a JSON object.

    Args:
        text: UTF-8 where it is bytes.
        where: it stands, for messages.
    """
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return JsonFields(value, where)


def first_difference(
    found: Mapping[str, object], wanted: Mapping[str, object], there: str = "there", here: str = "here"
) -> str | None:
    """The first key in which two JSON objects differ, with both values; None where they agree.

    Args:
        found: one of them.
        wanted: the other.
        there: where the one is, behind its value.
        here: likewise of the other.
    """
    for key in [*found, *(key for key in wanted if key not in found)]:
        one, other = found.get(key), wanted.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            inner = first_difference(one, other, there, here)
            if inner is not None:
                return f"{key}.{inner}"
        elif one != other:
            return f"{key} ({_shown(one)} {there}, {_shown(other)} {here})"
    return None


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]} ..."
