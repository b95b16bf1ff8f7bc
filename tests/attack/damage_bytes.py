"""Damage that knows nothing of a file's format: bits, cuts, insertions, zeroes, files in each other's place."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from attack_cases import Damage


def _flip(data: bytes, chance: Random) -> tuple[bytes, str]:
    changed, number = bytearray(data), chance.choice((1, 1, 1, 2, 8))
    places = [chance.randrange(len(data)) for _ in range(number)]
    for index in places:
        changed[index] ^= 1 << chance.randrange(8)
    return bytes(changed), f"bits flipped at {places}"


def _cut(data: bytes, chance: Random) -> tuple[bytes, str]:
    kept = chance.choice((0, 1, 4, len(data) // 2, len(data) - 1, chance.randrange(len(data))))
    return data[:kept], f"cut after {kept} of {len(data)} bytes"


def _cut_front(data: bytes, chance: Random) -> tuple[bytes, str]:
    gone = chance.randrange(1, len(data))
    return data[gone:], f"the first {gone} bytes gone"


def _insert(data: bytes, chance: Random) -> tuple[bytes, str]:
    index, added = chance.randrange(len(data) + 1), chance.randbytes(chance.choice((1, 2, 16, 512)))
    return data[:index] + added + data[index:], f"{len(added)} bytes inserted at {index}"


def _zero(data: bytes, chance: Random) -> tuple[bytes, str]:
    index = chance.randrange(len(data))
    size = min(chance.choice((1, 16, 64, 512)), len(data) - index)
    return data[:index] + bytes(size) + data[index + size :], f"{size} bytes zeroed at {index}"


def _overwrite(data: bytes, chance: Random) -> tuple[bytes, str]:
    index = chance.randrange(len(data))
    added = chance.randbytes(min(chance.choice((1, 4, 16, 64)), len(data) - index))
    return data[:index] + added + data[index + len(added) :], f"{len(added)} bytes overwritten at {index}"


def _remove(data: bytes, chance: Random) -> tuple[bytes, str]:
    index = chance.randrange(len(data))
    size = chance.choice((1, 4, 64))
    return data[:index] + data[index + size :], f"{size} bytes gone at {index}"


def _double(data: bytes, _chance: Random) -> tuple[bytes, str]:
    return data + data, "the file twice, one behind the other"


def _append(data: bytes, chance: Random) -> tuple[bytes, str]:
    return data + chance.randbytes(chance.choice((1, 100))), "something behind the end"


_CHANGES: tuple[Callable[[bytes, Random], tuple[bytes, str]], ...] = (
    *(_flip, _flip, _flip, _cut, _cut, _cut_front, _insert, _zero),
    *(_overwrite, _remove, _double, _append),
)


def damage_bytes(path: Path, chance: Random, possible: bool = False) -> Damage:
    """Damage one file."""
    data = path.read_bytes() or b"\n"
    changed, note = chance.choice(_CHANGES)(data, chance)
    path.write_bytes(changed)
    return Damage(f"{path.name}: {note}", possible)


def damage_folder(folder: Path, chance: Random, possible: bool = False) -> Damage:
    """Damage one file of a folder, take it away, put another in its place, or put something else there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    path, kind = chance.choice(paths), chance.randrange(12)
    name = path.relative_to(folder)
    if kind == 0:
        path.unlink()
        return Damage(f"{name} is gone", possible)
    if kind == 1 and len(paths) > 1:
        other = chance.choice([one for one in paths if one != path])
        path.write_bytes(other.read_bytes())
        return Damage(f"{name} is a copy of {other.relative_to(folder)}", possible)
    if kind == 2 and len(paths) > 1:
        other = chance.choice([one for one in paths if one != path])
        first, second = path.read_bytes(), other.read_bytes()
        path.write_bytes(second)
        other.write_bytes(first)
        return Damage(f"{name} and {other.relative_to(folder)} have changed places", possible)
    if kind == 3:
        path.unlink()
        path.mkdir()
        return Damage(f"{name} is a folder", possible)
    return damage_bytes(path, chance, possible)
