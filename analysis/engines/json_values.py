"""Values out of an engine's JSON, which may lack any of them."""

from collections.abc import Mapping, Sequence
from typing import cast

from simlab.analysis.engines.answers import EngineError
from simlab.untrusted.json_text import parse_json

Json = Mapping[str, object]

_MOST_TOKENS = 1 << 24


def parsed_object(text: str | bytes, where: str) -> Json:
    """A JSON object that an engine wrote.

    Raises:
        EngineError: it is none.
    """
    try:
        value = parse_json(text)
    except ValueError as error:
        raise EngineError(f"{where} is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise EngineError(f"{where} is no JSON object; it is a {type(value).__name__}")
    return value


def inner(values: Json, *keys: str) -> Json:
    """An object inside, step by step; an empty one where a step is missing or no object."""
    found: object = values
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return cast(Json, found) if isinstance(found, Mapping) else {}


def first_of(values: Json, key: str) -> Json:
    """The first object of a list; an empty one where there is none."""
    found = values.get(key)
    return cast(Json, found[0]) if isinstance(found, list) and found and isinstance(found[0], dict) else {}


def count(values: Json, key: str, where: str) -> int | None:
    """A whole number from 0; None where it is missing or null."""
    found = values.get(key)
    if found is None:
        return None
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise EngineError(f"expected {key} of {where} to be a whole number from 0; got {str(found)[:60]!r}")
    return found


def counts(values: Json, key: str, where: str) -> tuple[int, ...] | None:
    """A list of whole numbers from 0; None where it is missing or null."""
    found = values.get(key)
    if found is None:
        return None
    if not isinstance(found, list) or not all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one < _MOST_TOKENS for one in found
    ):
        raise EngineError(f"expected {key} of {where} to be a list of whole numbers from 0; got {str(found)[:60]!r}")
    return tuple(cast(Sequence[int], found))


def number(values: Json, key: str, where: str) -> float | None:
    """A number; None where it is missing or null."""
    found = values.get(key)
    if found is None:
        return None
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise EngineError(f"expected {key} of {where} to be a number; got {str(found)[:60]!r}")
    return float(found)


def text(values: Json, *keys: str) -> str | None:
    """The first of these keys that is a string with something in it; None: none is."""
    for key in keys:
        found = values.get(key)
        if isinstance(found, str) and found:
            return found
    return None
