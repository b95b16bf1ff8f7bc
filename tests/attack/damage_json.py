"""Damage to the values, keys, members and elements of JSON."""

import json
from collections.abc import Iterator
from random import Random

from damage_values import TEXTS, near, number, rearranged

_MOST_ELEMENTS = 8
"""So many of an array are damaged, that a long one does not hide the rest."""


class Raw(str):
    """JSON as it stands in a file, which no value of Python's need have."""

    __slots__ = ()


class Members(list["Member"]):
    """An object, whose keys may stand there twice."""


Member = tuple[object, object]
Path = tuple[object, ...]

_RAW = (
    *("9" * 400, "-" + "9" * 400, "7" * 5000, "1e308", "1e999", "-1e999", '"\\ud800"', '"a\\u0000b"', '"\\u202e"'),
    *("null", "true", "false", '"' + "a" * 1_000_000 + '"', "[]", "[1]", "{}", "[" * 900 + "]" * 900),
    *("[" * 200_000 + "]" * 200_000, '{"a":' * 100_000 + "1" + "}" * 100_000),
)


def parsed(text: str) -> object:
    """The value of a text, its objects as `Members`."""
    return json.loads(text, object_pairs_hook=Members)


def text_of(value: object) -> str:
    """The value as JSON."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, Members):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _spots(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every value in one, with the indices that lead to it, itself first."""
    yield path, value
    for index, inner in enumerate(value if isinstance(value, list) else ()):
        if isinstance(value, Members) or index < _MOST_ELEMENTS:
            yield from _spots(inner[1] if isinstance(value, Members) else inner, (*path, index))


def _put(value: object, path: Path, new: object) -> object:
    """The value with another one where indices lead."""
    if not path:
        return new
    assert isinstance(value, list)
    changed, index = value[:], path[0]
    assert isinstance(index, int)
    held = changed[index]
    is_member = isinstance(value, Members)
    changed[index] = (held[0], _put(held[1], path[1:], new)) if is_member else _put(held, path[1:], new)
    return Members(changed) if is_member else changed


def _odd(chance: Random) -> object:
    """A value that is rarely right."""
    return chance.choice((Raw(chance.choice(_RAW)), number(chance), chance.choice(TEXTS)))


def _another(value: object, chance: Random) -> tuple[object, str]:
    """What stands in the place of a value, and how that is said."""
    if not isinstance(value, list) or not value or chance.random() < 0.2:
        new = near(value, chance) if chance.random() < 0.5 else _odd(chance)
        return new, f"is {text_of(new)[:40]!r} instead of {text_of(value)[:40]!r}"
    if not isinstance(value, Members) or chance.random() < 0.4:
        items, note = rearranged(value, chance)
        return type(value)(items), note
    members, at = Members(value), chance.randrange(len(value))
    key, inner = members[at]
    new_key = chance.choice((near(key, chance), chance.choice(TEXTS), "__class__"))
    if chance.random() < 0.5:
        members[at] = (new_key, inner)
        return members, f"has {key} under the name {new_key!r}"
    members.insert(chance.randrange(len(members) + 1), (chance.choice((key, key, new_key)), _odd(chance)))
    return members, f"has one more beside {key}: {text_of(members)[:60]!r}"


def damage_json(text: str, chance: Random) -> tuple[str, str]:
    """A JSON text with one damage, and what it was."""
    value = parsed(text)
    spots = list(_spots(value))
    # Arrays and objects are few beside what they hold, and have as many mistakes in them.
    lists = [spot for spot in spots if isinstance(spot[1], list)]
    path, old = chance.choice(lists if lists and chance.random() < 0.4 else spots)
    if chance.random() < 0.1:
        other_path, other = chance.choice(spots)
        if path[: len(other_path)] != other_path and other_path[: len(path)] != path:
            changed = _put(_put(value, path, other), other_path, old)
            return text_of(changed), f"the values at {path} and {other_path} have changed places"
    new, note = _another(old, chance)
    return text_of(_put(value, path, new)), f"the value at {path} {note}"
