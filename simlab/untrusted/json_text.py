"""Files and JSON that somebody else may have written: read within limits, or refused with a reason."""

import errno
import json
import math
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import NoReturn


def open_file(path: str | Path) -> BufferedReader:
    """Open a file to be read, if it is one: a pipe may never end, and the size of a device says nothing.

    Raises:
        OSError: it cannot be opened, or is a pipe or a device.
    """
    # Without O_NONBLOCK the opening of a pipe waits for whoever writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is a pipe or a device; write what it gives to a file, and name that", str(path))
    return os.fdopen(descriptor, "rb")


def typed_path(text: str | Path) -> Path:
    """The path that a person types; ``~`` is a home, where there is such a user."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - the other raises where there is no such user


def file_bytes(path: str | Path) -> bytes:
    """All of a file; see `open_file`."""
    with open_file(path) as file:
        return file.read()


def file_text(path: str | Path, encoding: str = "utf-8") -> str:
    """All of a file of text; see `open_file`.

    Raises:
        UnicodeDecodeError: it is no such text.
    """
    return file_bytes(path).decode(encoding)


MOST_DEEP = 64
"""So many lists and objects within each other; simlab's own files have under ten."""

_LARGEST = 2**63
_MOST_DIGITS = len(str(_LARGEST))


def parse_json(text: str | bytes) -> object:
    """The value of a JSON text, as the standard asks for it and a little stricter.

    Refused are a key that stands twice in an object, numbers that are not finite or beyond 64 bits, halves of UTF-16
    pairs, and values that are nested deeper than `MOST_DEEP`. Each would mean something else to another reader, or
    fail somewhere later.

    Args:
        text: UTF-8 where it is bytes.

    Raises:
        ValueError: it is not such a text; the message says why, without capital and full stop.

    >>> parse_json('{"budget": 8}')
    {'budget': 8}
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        value: object = json.loads(
            decoded, parse_int=_integer, parse_float=_number, parse_constant=_refused, object_pairs_hook=_object
        )
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    _check_depth(value)
    if "\\u" in decoded:
        _check_pairs(value)
    return value


_TOO_DEEP = f"it is nested deeper than {MOST_DEEP} lists and objects"


def _integer(digits: str) -> int:
    if len(digits) <= _MOST_DIGITS + 1:
        value = int(digits)
        if -_LARGEST <= value < _LARGEST:
            return value
    raise ValueError(f"a whole number of {len(digits.lstrip('-'))} digits does not fit into 64 bits")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return value


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MOST_DEEP + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _check_pairs(value: object) -> None:
    """Refuse text that UTF-8 cannot hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise ValueError(f"it holds half of a UTF-16 pair, \\u{half:04x}, which is no character") from error
