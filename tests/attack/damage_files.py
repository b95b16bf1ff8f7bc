"""Damage to files of every format: to their bytes, their places and what they say; and signing what was damaged."""

import json
import os
import re
import shutil
from pathlib import Path
from random import Random

import polars as pl
from damage_json import damage_json
from damage_parquet import damage_parquet, metadata_of
from damage_values import number, rearranged

from simlab.ids import content_digest
from simlab.traces.format.documents import DIGEST, with_digest
from simlab.traces.format.files import FAILURES, file_sha256
from simlab.traces.format.tables import ENTRY, rows_digest

MANIFEST = "manifest.json"

_WHOLES = (b"", b"null", b"[]", b"{}", b'"x"', b"\n", b"[" * 100_000, b"\0" * 100, b"NaN")
_ENDS = (b" " * 1000, b"\n\n", b"}", b"{}", b"x", b"\0", b",", b"//")


def changed_bytes(data: bytes, chance: Random) -> tuple[bytes, str]:
    """Bytes that are others, gone or more, whatever the format, and what was done."""
    at, size = chance.randrange(len(data) or 1), chance.choice((1, 4, 16, 64, 512))
    noise, bit, encoding = chance.randbytes(size), 1 << chance.randrange(8), chance.choice(("utf-16", "utf-32"))
    flipped = bytes([data[at] ^ bit]) if data else b"\1"
    inside = (
        (flipped, 1, "a bit is flipped"),
        (flipped, 1, "a bit is flipped"),
        (noise, 0, f"{size} bytes are inserted"),
        (noise, size, f"{size} bytes are others"),
        (bytes(size), size, f"{size} bytes are zero"),
        (b"", size, f"{size} bytes are gone"),
        (b"\xff\xc0\x80", 0, "bytes are inserted that are no UTF-8"),
        (b"", len(data), "the file ends"),
        (b"", len(data), "the file ends"),
    )
    wholes = (
        (data[at + 1 :], f"the first {at + 1} bytes are gone"),
        (data[:-1], "the last byte is gone"),
        (data + data, "the file stands there twice"),
        (data + chance.choice((noise, *_ENDS)), "something stands behind the end"),
        (chance.choice(_WHOLES), "something else is all of it"),
        (b"\xef\xbb\xbf" + data, "a mark of UTF-8 stands before it"),
        (data.decode("latin-1").encode(encoding), f"in {encoding}"),
    )
    if chance.random() < 0.4:
        return chance.choice(wholes)
    new, gone, note = chance.choice(inside)
    return data[:at] + new + data[at + gone :], f"{note} at {at} of {len(data)}"


def damage_bytes(path: Path, chance: Random) -> str:
    """Damage the bytes of a file."""
    changed, note = changed_bytes(path.read_bytes(), chance)
    path.write_bytes(changed)
    return f"{path.name}: {note}"


def changed_line(line: str, chance: Random) -> tuple[str, str]:
    """A line with another number in it, or with a change to its JSON, and what was done."""
    if line.startswith("{"):
        return damage_json(line, chance)
    numbers = list(re.finditer(r"(?<![\w.])\d+(\.\d+)?", line))
    if not numbers or chance.random() < 0.2:
        parts, note = rearranged(line.split(","), chance)
        return ",".join(parts), f"by its commas {note}"
    spot = chance.choice(numbers)
    odd = (str(number(chance)), "", " ", '"7"', "x", "0x10", "1_000", "٣", "=1+1", "1e999", "9" * 400, "7" * 5000)
    new = chance.choice((*odd, spot[0] + "0" * 400 if "." in spot[0] else spot[0] + "1", str(float(spot[0]) + 5)))
    return line[: spot.start()] + new + line[spot.end() :], f"{new:.20} instead of {spot[0]:.20}"


def damage_lines(path: Path, chance: Random) -> str:
    """Damage one line of a text, or the order of all."""
    lines = path.read_text(encoding="utf-8").splitlines()
    at = chance.randrange(len(lines))
    if chance.random() < 0.3:
        lines, note = rearranged(lines, chance)
    else:
        lines[at], note = changed_line(lines[at], chance)
        note = f"line {at + 1}: {note}"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
    return f"{path.name}: {note}"


def damage_content(path: Path, chance: Random) -> str:
    """Damage what a file says, in its own format; its bytes where it has none."""
    if path.suffix in (".jsonl", ".csv", ".txt"):
        return damage_lines(path, chance)
    if path.suffix == ".parquet":
        return f"{path.name}: {damage_parquet(path, chance)}"
    if path.suffix != ".json":
        return damage_bytes(path, chance)
    text, note = damage_json(path.read_text(encoding="utf-8"), chance)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return f"{path.name}: {note}"


def damage_file(path: Path, chance: Random) -> str:
    """Damage a file: its bytes in a quarter of the cases, else what it says."""
    return (damage_bytes if chance.random() < 0.25 else damage_content)(path, chance)


def damage_folder(folder: Path, chance: Random) -> str:
    """Damage the bytes of a file in a folder, take it away, or put another, or a folder, in its place."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    path, other, what = chance.choice(paths), chance.choice(paths), chance.randrange(12)
    name, other_name, data = path.relative_to(folder), other.relative_to(folder), path.read_bytes()
    if what in (0, 1):
        path.unlink()
        if what == 0:
            return f"{name} is gone"
        path.mkdir()
        return f"{name} is a folder"
    if what in (2, 3) and other != path:
        path.write_bytes(other.read_bytes())
        if what == 2:
            return f"{name} is a copy of {other_name}"
        other.write_bytes(data)
        return f"{name} and {other_name} have changed places"
    return damage_bytes(path, chance)


ITSELF = "a link to the file itself"
_LINKS = ("/dev/zero", "/dev/urandom", "/dev/null", "/proc/self/mem", "nowhere")


def put_special(path: Path, chance: Random) -> str:
    """Put in the place of a file, or of a folder, what is none, or a link that leads to it; what that is."""
    what = chance.choice((ITSELF, "a pipe", "a folder", "a link to its own name", *_LINKS))
    if what == ITSELF:
        path.rename(path.with_name(f"moved-{path.name}"))
        path.symlink_to(f"moved-{path.name}")
        return what
    if path.exists():
        (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a folder":
        path.mkdir()
    else:
        path.symlink_to(what if what in _LINKS else path.name)
    return what


def sign(path: Path) -> bool:
    """Give a file the digest of what it says now, as somebody does who changed it on purpose.

    Returns:
        Whether it is one that can have a digest.
    """
    try:
        if path.suffix == ".parquet":
            rows, facts = pl.read_parquet(path, glob=False), json.loads(metadata_of(path).get(ENTRY, "{}"))
            facts = {key: value for key, value in facts.items() if key != DIGEST}
            facts[DIGEST] = content_digest({"facts": facts, "rows": rows_digest(rows)})
            metadata = {ENTRY: json.dumps(facts, sort_keys=True, ensure_ascii=False)}
            rows.write_parquet(path, compression="zstd", statistics=False, metadata=metadata)
            return True
        values = json.loads(path.read_bytes())
        if isinstance(values, dict):
            path.write_text(json.dumps(with_digest(values), indent=1, ensure_ascii=False), encoding="utf-8")
        return isinstance(values, dict)
    except (*FAILURES, ValueError, RecursionError, OverflowError, TypeError):
        return False


def mend(trace: Path) -> None:
    """Make the manifest of a trace agree with the bytes of its files, and sign it."""
    path = trace / MANIFEST
    values = json.loads(path.read_text())
    for name in values["contents"]["files"]:
        if (file := trace / name).is_file():
            facts = {"num_bytes": file.stat().st_size, "sha256": file_sha256(file)}
            values["contents"]["files"][name] = facts
    path.write_text(json.dumps(values))
    sign(path)
