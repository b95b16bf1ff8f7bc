"""Damage to JSON: to its values, its keys, and its text."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from attack_cases import Damage

Place = tuple[str | int, ...]

_RAW: dict[str, str] = {
    "a whole number of 400 digits": "9" * 400,
    "a negative number of 400 digits": "-" + "9" * 400,
    "a whole number of 5,000 digits": "7" * 5000,
    "1e308": "1e308",
    "1e999": "1e999",
    "-1e999": "-1e999",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "a lone surrogate": '"\\ud800"',
    "an escape of the terminal": '"\\u001b[2J\\u001b]0;owned\\u0007"',
    "a direction mark": '"abc\\u202edcba"',
    "a raw direction mark": '"abc\u202edcba"',
    "a control character": '"a\\u0000b"',
    "null": "null",
    "true": "true",
    "false": "false",
    "zero": "0",
    "minus one": "-1",
    "minus zero": "-0.0",
    "one and a half": "1.5",
    "2^31": "2147483648",
    "2^63": "9223372036854775808",
    "2^64": "18446744073709551616",
    "a tiny number": "5e-324",
    "an empty text": '""',
    "a text": '"x"',
    "a number as text": '"7"',
    "a text of a million characters": '"' + "a" * 1_000_000 + '"',
    "a path": '"../../../../etc/passwd"',
    "a list": "[]",
    "a list of a number": "[1]",
    "an object": "{}",
    "a deep list": "[" * 900 + "]" * 900,
    "a very deep list": "[" * 200_000 + "]" * 200_000,
    "a very deep object": '{"a":' * 100_000 + "1" + "}" * 100_000,
}

_MARK = "@@here@@"


def places(value: object, before: Place = ()) -> list[Place]:
    """Every place in a JSON value, the whole first."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:8]))
    return [before, *(place for key, one in inner for place in places(one, (*before, key)))]


def _at(value: object, place: Place) -> object:
    for key in place:
        value = value[key]  # type: ignore[index]
    return value


def _put(value: object, place: Place, new: object) -> object:
    """The value with another at a place."""
    if not place:
        return new
    changed = copy.deepcopy(value)
    _at(changed, place[:-1])[place[-1]] = new  # type: ignore[index]
    return changed


def _said(place: Place) -> str:
    return ".".join(map(str, place)) or "the whole"


def _text(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


def _strange(value: object, chance: Random) -> tuple[str, str]:
    place, name = chance.choice(places(value)), chance.choice(list(_RAW))
    return _text(_put(value, place, _MARK)).replace(json.dumps(_MARK), _RAW[name]), f"{_said(place)} is {name}"


def _near(value: object, chance: Random) -> tuple[str, str]:
    """Another value of the same type in the place of one."""
    place = chance.choice([one for one in places(value) if not isinstance(_at(value, one), dict | list)] or [()])
    old = _at(value, place)
    new: object = None
    if isinstance(old, bool):
        new = not old
    elif isinstance(old, int):
        new = chance.choice((old + 1, old - 1, -old, old * 10, old * 1000, 10**9))
    elif isinstance(old, float):
        new = chance.choice((old * 2, -old, old * 1e-9, old * 1e9, old + 1e-6))
    elif isinstance(old, str):
        new = chance.choice((old + "x", old[:-1], old.upper(), old[::-1], " " + old))
    return _text(_put(value, place, new)), f"{_said(place)} is {str(new)[:40]!r} instead of {str(old)[:40]!r}"


def _key(value: object, chance: Random) -> tuple[str, str]:
    """A key gone, renamed or added."""
    place = chance.choice([one for one in places(value) if isinstance(_at(value, one), dict)] or [()])
    changed = copy.deepcopy(value)
    inner = _at(changed, place)
    if not isinstance(inner, dict) or not inner:
        return _text([value]), "in a list"
    key = chance.choice(list(inner))
    what = chance.randrange(3)
    if what == 0:
        del inner[key]
        return _text(changed), f"{_said(place)} lacks {key}"
    if what == 1:
        inner[chance.choice((key.upper(), key + " ", ""))] = inner.pop(key)
        return _text(changed), f"{_said(place)} has {key} under another name"
    inner[chance.choice(("unknown", "__class__", "a\u202eb", "\x1b[31m"))] = 1
    return _text(changed), f"{_said(place)} has a key more"


def _twice(value: object, chance: Random) -> tuple[str, str]:
    """A key that stands there twice, first with another value."""
    if not isinstance(value, dict) or not value:
        return _text([value, value]), "twice in a list"
    key = chance.choice(list(value))
    text = json.dumps(value, ensure_ascii=False)
    first = chance.choice(("0", "null", '"x"', json.dumps(value[key])))
    if chance.random() < 0.5:
        return "{" + f"{json.dumps(key)}: {first}, " + text[1:], f"{key} twice, first {first[:20]}"
    return text[:-1] + f", {json.dumps(key)}: {first}" + "}", f"{key} twice, then {first[:20]}"


def _items(value: object, chance: Random) -> tuple[str, str]:
    """Elements of a list gone, doubled, turned round."""
    lists = [one for one in places(value) if isinstance(_at(value, one), list) and _at(value, one)]
    if not lists:
        return _near(value, chance)
    place = chance.choice(lists)
    old = list(_at(value, place))  # type: ignore[call-overload]
    at = chance.randrange(len(old))
    changes: list[tuple[list[object], str]] = [
        (old[:at] + old[at + 1 :], f"lacks element {at}"),
        (old[: at + 1] + old[at:], f"has element {at} twice"),
        (old[::-1], "is turned round"),
        ([*old, None], "has null at its end"),
        (old * 50, "is fifty times as long"),
    ]
    new, note = chance.choice(changes)
    return _text(_put(value, place, new)), f"{_said(place)} {note}"


def _swap(value: object, chance: Random) -> tuple[str, str]:
    """Two values in each other's place."""
    inner = [one for one in places(value) if one]
    first, second = (chance.choice(inner), chance.choice(inner)) if inner else ((), ())
    if first[: len(second)] == second or second[: len(first)] == first:
        return _near(value, chance)
    changed = _put(_put(value, first, _at(value, second)), second, _at(value, first))
    return _text(changed), f"{_said(first)} and {_said(second)} have changed places"


_VALUES: tuple[Callable[[object, Random], tuple[str, str]], ...] = (
    *(_strange, _strange, _strange, _near, _near, _near, _key, _key, _twice, _items, _swap),
)


def _cut(text: str, chance: Random) -> tuple[bytes, str]:
    kept = chance.randrange(len(text))
    return text[:kept].encode(), f"cut after {kept} characters"


def _encoded(text: str, chance: Random) -> tuple[bytes, str]:
    name = chance.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-32"))
    return text.encode(name), f"in {name}"


def _foreign(text: str, chance: Random) -> tuple[bytes, str]:
    index = chance.randrange(len(text))
    return text[:index].encode() + b"\xff\xc0\x80" + text[index:].encode(), f"no UTF-8 at {index}"


def _around(text: str, chance: Random) -> tuple[bytes, str]:
    behind = chance.choice((" " * 1000, "\n\n", "}", "{}", "x", "\0", ",", "//"))
    return (text + behind).encode(), f"{behind[:5]!r} behind the end"


def _white(text: str, chance: Random) -> tuple[bytes, str]:
    """The same value in other clothes: whitespace and the order of keys."""
    value = json.loads(text)
    if isinstance(value, dict) and chance.random() < 0.5:
        keys = list(value)
        chance.shuffle(keys)
        return json.dumps({key: value[key] for key in keys}).encode(), "keys in another order"
    return json.dumps(value, indent=chance.choice((None, 3, 7))).encode(), "other whitespace"


def _gone(_text_: str, chance: Random) -> tuple[bytes, str]:
    new = chance.choice((b"", b"null", b"[]", b"{}", b"0", b'"x"', b"\n", b"[" * 100_000, b"\0" * 100, b"NaN", b"-"))
    return new, f"{new[:10]!r} instead of all"


_TEXTS: tuple[Callable[[str, Random], tuple[bytes, str]], ...] = (_cut, _encoded, _foreign, _around, _white, _gone)


def damage_json_text(text: str, chance: Random) -> tuple[bytes, str]:
    """A JSON text with one damage, and what it was."""
    if chance.random() < 0.25:
        return chance.choice(_TEXTS)(text, chance)
    return damage_json_values(text, chance)


def damage_json_values(text: str, chance: Random) -> tuple[bytes, str]:
    """A JSON text with a damage to its values or keys, and what it was."""
    changed, note = chance.choice(_VALUES)(json.loads(text), chance)
    return changed.encode("utf-8", "surrogatepass"), note


def damage_json(path: Path, chance: Random, possible: bool = False) -> Damage:
    """Damage one file of JSON."""
    data, note = damage_json_text(path.read_text(encoding="utf-8"), chance)
    path.write_bytes(data)
    return Damage(f"{path.name}: {note}", possible)


def damage_json_lines(path: Path, chance: Random, possible: bool = False) -> Damage:
    """Damage one line of a file of JSON lines, or their order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    at, what = chance.randrange(len(lines)), chance.randrange(10)
    if what == 0:
        path.write_text("\n".join(lines[:at] + lines[at + 1 :]) + "\n", encoding="utf-8")
        return Damage(f"{path.name}: line {at + 1} is gone", possible)
    if what == 1:
        path.write_text("\n".join(lines[: at + 1] + lines[at:]) + "\n", encoding="utf-8")
        return Damage(f"{path.name}: line {at + 1} stands there twice", possible)
    if what == 2:
        path.write_text("\n".join(lines[::-1]) + "\n", encoding="utf-8")
        return Damage(f"{path.name}: lines in another order", possible)
    data, note = damage_json_text(lines[at], chance)
    data = b" ".join(data.splitlines()) if chance.random() < 0.8 else data
    parts = [*(line.encode() for line in lines[:at]), data, *(line.encode() for line in lines[at + 1 :])]
    path.write_bytes(b"\n".join(parts) + b"\n")
    return Damage(f"{path.name}: line {at + 1}: {note}", possible)
