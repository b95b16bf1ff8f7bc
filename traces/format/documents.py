"""JSON files that simlab writes: of the kind that is expected, within limits, and unchanged since they were written."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.errors import TraceError, did_you_mean
from simlab.ids import content_digest
from simlab.traces.format.files import local_folder
from simlab.traces.format.json_fields import Json, JsonFields
from simlab.untrusted.json_text import parse_json

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
    named = {one.stem: one for one in shipped}
    path = Path(typed) if Path(typed).exists() else named.get(str(typed), Path(typed))
    try:
        num_bytes = path.stat().st_size
        if num_bytes > MOST_BYTES:
            raise TraceError(
                f"{typed} has {num_bytes:,} bytes, and a {kind.name} has at most {MOST_BYTES:,}; {kind.again}."
            )
        values = parse_json(path.read_bytes())
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
    found = {key: value for key, value in values.items() if key != DIGEST}
    return {**found, DIGEST: content_digest(found)}


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
            lines = ",\n".join(f"  {_json(one)}" for one in value)
            text = f"[\n{lines}\n ]"
        parts.append(f" {_json(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def check_digest(fields: JsonFields, signed: str | Path | None = None) -> None:
    """Refuse a file that was changed after it was written, or that nobody vouches for.

    Args:
        fields: all of the file.
        signed: what is given to `simlab inspect --sign`, which writes no address; None: the file, as it was named.
    """
    place = fields.where if signed is None else signed
    copy = place if local_folder(place) else "COPY"
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
