"""JSON files that simlab writes: of the kind that is expected, within limits, and unchanged since they were written."""

import json
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from simlab.errors import TraceError, did_you_mean
from simlab.ids import content_digest
from simlab.traces.format.files import local_folder
from simlab.untrusted.json_text import file_bytes, parse_json

# Typed values out of a JSON object that somebody else may have written.


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
        value = cast(int | None, self._typed(key, (int, type(None)), "an integer or null"))
        return None if value is None else self._within(key, value)

    def flag(self, key: str) -> bool:
        """A boolean; False where there is none."""
        return self._typed(key, (bool,), "true or false") is True if key in self.values else False

    def number(self, key: str) -> float:
        """The number under a key, as a float."""
        value = cast(float, self._typed(key, (int, float), "a number"))
        return self._float(key, value)

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
        values = cast(list[object], self._typed(key, (list,), "a list of strings"))
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(key, "a list of strings", values)
        return tuple(cast(list[str], values))

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers."""
        values = cast(list[object], self._typed(key, (list,), "a list of integers"))
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise self._wrong(key, "a list of integers", values)
        return tuple(self._within(key, value) for value in cast(list[int], values))

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        values = cast(list[float], self._typed(key, (list,), "a list of numbers"))
        if not set(map(type, values)) <= {int, float}:
            raise self._wrong(key, "a list of numbers", values)
        try:
            return tuple(map(float, values))
        except OverflowError as error:
            raise self._wrong(key, "a list of numbers that a float64 holds", values) from error

    def objects(self, key: str) -> list["JsonFields"]:
        """A list of objects."""
        values = cast(list[object], self._typed(key, (list,), "a list of objects"))
        if not all(isinstance(value, dict) for value in values):
            raise self._wrong(key, "a list of objects", values)
        return [JsonFields(cast(Json, value), f"{self.where}, {key} {index}") for index, value in enumerate(values)]

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


T = TypeVar("T")

_SIMPLE: dict[object, Callable[[JsonFields, str], object]] = {
    str: JsonFields.text,
    int: JsonFields.integer,
    float: JsonFields.number,
    bool: JsonFields.flag,
    int | None: JsonFields.optional_integer,
    tuple[str, ...]: JsonFields.strings,
    tuple[int, ...]: JsonFields.integers,
    tuple[float, ...]: JsonFields.numbers,
    Mapping[str, str]: JsonFields.texts,
    Mapping[str, object]: lambda outer, key: dict(outer.inner(key).values),
}
"""What reads a value of each type that a field of a dataclass may have, beside dataclasses and objects of them."""


def value_of(kind: type[T], outer: JsonFields, **given: object) -> T:
    """A dataclass out of a JSON object, each field under its own name and checked as its type says.

    Args:
        kind: the dataclass; a key may be missing where its field has a default.
        outer: the object.
        given: fields that the file writes in another way.

    Raises:
        TraceError: a key is missing, or a value is of another type.
        ValueError: the dataclass refuses its values.
    """
    for name, hint, has_default in _fields_of(cast(Hashable, kind)):
        if name not in given and not (has_default and name not in outer.values):
            given[name] = _read(hint, outer, name)
    return kind(**given)


@cache
def _fields_of(kind: Hashable) -> list[tuple[str, Any, bool]]:
    """Name and type of each field, and whether it has a default."""
    kind = cast(type, kind)
    hints = get_type_hints(kind)
    return [
        (field.name, hints[field.name], field.default is not MISSING or field.default_factory is not MISSING)
        for field in fields(kind)
        if field.init
    ]


def _read(hint: object, outer: JsonFields, key: str) -> object:
    if hint in _SIMPLE:
        return _SIMPLE[hint](outer, key)
    if is_dataclass(hint):
        return value_of(cast(type, hint), outer.inner(key))
    inner = get_args(hint)
    if get_origin(hint) is UnionType and NoneType in inner:
        (other,) = set(inner) - {NoneType}
        return None if outer.values.get(key, key) is None else _read(other, outer, key)
    if get_origin(hint) is Mapping and is_dataclass(inner[1]):
        return {name: value_of(cast(type, inner[1]), entry) for name, entry in outer.inners(key).items()}
    raise TypeError(f"a field of the type {hint} is read by who asks for it")


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
    existing: Mapping[str, object], wanted: Mapping[str, object], there: str = "there", here: str = "here"
) -> str | None:
    """The first key in which two JSON objects differ, with both values; None where they agree.

    Args:
        existing: one of them.
        wanted: the other.
        there: where the one is, behind its value.
        here: the same of the other.
    """
    for key in [*existing, *(key for key in wanted if key not in existing)]:
        first, second = existing.get(key), wanted.get(key)
        if isinstance(first, dict) and isinstance(second, dict):
            inner = first_difference(first, second, there, here)
            if inner is not None:
                return f"{key}.{inner}"
        elif first != second:
            return f"{key} ({_shown(first)} {there}, {_shown(second)} {here})"
    return None


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]} ..."


DIGEST = "digest"
"""The last key of each file: the sha256 of all the others, whatever their order and spacing."""

MOST_BYTES = 32 << 20
"""Larger files are refused; simlab's own are under a tenth of that."""


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of JSON file.

    Attributes:
        format: what stands under ``format``.
        version: the newest that this simlab reads.
        name: in words: "cost file".
        again: a clause that says where one comes from.
    """

    format: str
    version: int
    name: str
    again: str


def read_document(typed: str | Path, kind: DocumentKind, shipped: Sequence[Path] = ()) -> JsonFields:
    """The fields of a file, whose digest is still to be checked: see `check_digest`.

    Args:
        typed: a path, or the name of a file that comes with simlab.
        kind: of which it must be.
        shipped: the files of that kind that come with simlab.

    Raises:
        TraceError: there is none, it is too large, not JSON, of another kind, or newer than this simlab.
    """
    named = {path.stem: path for path in shipped}
    path = Path(typed) if Path(typed).exists() else named.get(str(typed), Path(typed))
    try:
        num_bytes = path.stat().st_size
        if num_bytes > MOST_BYTES:
            raise TraceError(
                f"{typed} has {num_bytes:,} bytes, and a {kind.name} has at most {MOST_BYTES:,}; {kind.again}."
            )
        values = parse_json(file_bytes(path))
    except FileNotFoundError as error:
        hint = did_you_mean(str(typed), named) or "."
        listed = f", and {', '.join(named)} come with simlab" if named else ""
        raise TraceError(f"expected a {kind.name} at {typed}; there is none{hint} {kind.again}{listed}.") from error
    except OSError as error:
        raise TraceError(f"{typed} could not be read ({error.strerror or error}); {kind.again}.") from error
    except ValueError as error:
        raise TraceError(f"{typed} is not JSON ({error}), so it is no {kind.name}; {kind.again}.") from error
    if not isinstance(values, dict) or values.get("format") != kind.format:
        raise TraceError(f"{typed} is no {kind.name}; {kind.again}.")
    fields = JsonFields(values, str(typed))
    check_version(fields, kind.version, kind.again)
    return fields


def read_once(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """A reader of files that come with simlab: each is read once, until it is written anew."""
    kept = lru_cache(lambda path, _written_ns: read(path))
    return lambda path: kept(path, path.stat().st_mtime_ns)


def check_version(fields: JsonFields, newest: int, again: str) -> None:
    """Refuse a file of a format that this simlab does not know.

    Args:
        fields: all of the file.
        newest: the newest version that is read.
        again: a clause that says how the file is made again.
    """
    version = fields.integer("format_version")
    if version < 1:
        raise TraceError(f"{fields.where}: 'format_version' must be at least 1; got {version}.")
    if version > newest:
        raise TraceError(
            f"{fields.where} has format version {version}; this simlab reads up to {newest}. Upgrade simlab, or make "
            f"it again: {again}."
        )


def with_digest(values: Mapping[str, object]) -> Json:
    """A JSON object and, as its last key, the digest of all the others."""
    content = {key: value for key, value in values.items() if key != DIGEST}
    return {**content, DIGEST: content_digest(content)}


def in_lines(values: Mapping[str, object], rows: str) -> str:
    """The text of a JSON object, a line for each key, and for each entry of one list.

    Args:
        values: the object.
        rows: the key of that list.
    """
    parts = []
    for key, value in values.items():
        text = _json(value)
        if key == rows and isinstance(value, list):
            lines = ",\n".join(f"  {_json(row)}" for row in value)
            text = f"[\n{lines}\n ]"
        parts.append(f" {_json(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def check_digest(fields: JsonFields, signed: str | Path | None = None) -> None:
    """Refuse a file that was changed after it was written, or that nobody vouches for.

    Args:
        fields: all of the file.
        signed: what is given to `simlab inspect --sign`, which writes no address; None: the file, as it was named.
    """
    location = fields.where if signed is None else signed
    copy = location if local_folder(location) else "COPY"
    sign = f"`simlab inspect {shlex.quote(str(copy))} --sign`"
    if DIGEST not in fields.values:
        raise TraceError(
            f"{fields.where} has no digest of its content, so nobody can tell whether it was changed: it was written "
            f"by hand or by an older simlab. If you vouch for it, sign it: {sign}"
        )
    if fields.text(DIGEST) != with_digest(fields.values)[DIGEST]:
        raise TraceError(
            f"{fields.where} was changed after it was written: its digest is not that of its content. Copy it again; "
            f"or if you changed it and vouch for it, sign it: {sign}"
        )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
