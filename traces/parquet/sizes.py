"""How much a Parquet file holds, without reading it: from its footer, and from the header of each of its pages.

Readers make room for as many bytes and values as these headers name, and a file of a few kilobytes can name billions.
The footer alone could lie about its pages, so each page is asked too; what is unpacked is what its header says. Both
are in Thrift's compact protocol (https://github.com/apache/thrift, doc/specs/thrift-compact-protocol.md), of which
this reads what the format of Parquet uses (https://github.com/apache/parquet-format, parquet.thrift).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias, cast

import polars as pl

from simlab.limits import check_memory
from simlab.untrusted.json_text import open_file

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_MOST_FOOTER_BYTES = 1 << 24
_HEADER_BYTES, _MOST_HEADER_BYTES = 1 << 10, 1 << 20
_MOST_PAGES = 1 << 20
_MOST_NESTED = 12
_MOST_VARINT_BITS = 70

_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 16}
"""Bytes of a value in memory, by its type in the footer; of strings that of their view. Others have a length."""
_FIXED = 7
_DICTIONARY = 7
_PAGE_HEADERS = (5, _DICTIONARY, 8)
"""Fields of a page's header that say how many values it holds: a page of data, a dictionary, a newer page of data."""

Thrift: TypeAlias = "bool | int | float | bytes | list[Thrift] | dict[int, Thrift]"


@dataclass(frozen=True, slots=True)
class ParquetSizes:
    """What a file holds.

    Attributes:
        num_rows: of the whole file.
        columns: of each leaf, in the order of the file: the name of the column, of one that is nested the outermost;
            its number of values, nulls and empty lists among them; and the bytes of memory that these take.
    """

    num_rows: int
    columns: tuple[tuple[str, int, int], ...]


def parquet_sizes(path: Path) -> ParquetSizes:
    """What a local Parquet file holds; one that has not changed is not looked at twice."""
    stat = path.stat()
    # A plain path: what is remembered must not hold a file in the cache.
    return _sizes(Path(path), stat.st_ino, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=32)
def _sizes(path: Path, *_state: int) -> ParquetSizes:
    with open_file(path) as file:
        num_bytes = file.seek(0, 2)
        footer = _footer(file, num_bytes)
        lengths = _fixed_lengths(footer)
        sums: dict[int, list[int]] = {}
        names: dict[int, str] = {}
        num_rows = num_pages = 0
        for group in _structs(footer, 4):
            num_rows += _number(group, 3)
            for index, chunk in enumerate(_structs(group, 1)):
                column = _struct(chunk, 3)
                width = _WIDTHS.get(_number(column, 1), lengths.get(index, 0))
                if names.setdefault(index, _name(column)) != _name(column):
                    raise ValueError("its columns do not have one order")
                of_column, promised = sums.setdefault(index, [0, 0]), _number(column, 5)
                for page in _pages(file, column, num_bytes):
                    of_column[0] += 0 if page.is_dictionary else page.num_values
                    of_column[1] += max(page.num_bytes, page.num_values * width)
                    promised -= 0 if page.is_dictionary else page.num_values
                    num_pages += 1
                    if num_pages > _MOST_PAGES:
                        raise ValueError(f"it has more than {_MOST_PAGES:,} pages")
                if promised != 0:
                    raise ValueError("its footer disagrees with its pages about the number of values")
    if _number(footer, 3) != num_rows:
        raise ValueError("its footer disagrees about the number of rows")
    columns = tuple((names[index], num_values, num_bytes) for index, (num_values, num_bytes) in sums.items())
    return ParquetSizes(num_rows, columns)


def _footer(file: IO[bytes], num_bytes: int) -> Mapping[int, Thrift]:
    """The footer's structure; nothing is read before its length is known to fit."""
    if num_bytes < _TAIL_BYTES + len(_MAGIC):
        raise ValueError("it is too short to be Parquet")
    file.seek(num_bytes - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC:
        raise ValueError("it does not end as Parquet does")
    if length > min(num_bytes - _TAIL_BYTES - len(_MAGIC), _MOST_FOOTER_BYTES):
        raise ValueError(f"its footer cannot have {length:,} bytes")
    file.seek(num_bytes - _TAIL_BYTES - length)
    return _Compact(file.read(length)).struct()


def _fixed_lengths(footer: Mapping[int, Thrift]) -> dict[int, int]:
    """Bytes of a value of each column whose type has a length of its own, by the column's place among the leaves."""
    leaves = [struct for struct in _structs(footer, 2) if 5 not in struct or struct[5] == 0]
    return {index: _number(leave, 2) for index, leave in enumerate(leaves) if leave.get(1) == _FIXED}


def _name(column: Mapping[int, Thrift]) -> str:
    path = _list(column, 3)
    if not path or not isinstance(path[0], bytes):
        raise ValueError("one of its columns has no name")
    return path[0].decode("utf-8", "replace")


class _Page(NamedTuple):
    num_values: int
    num_bytes: int
    is_dictionary: bool


def _pages(file: IO[bytes], column: Mapping[int, Thrift], num_bytes: int) -> Iterator[_Page]:
    """What each page of a column says of itself."""
    start = _number(column, 9)
    if column.get(11):
        start = _number(column, 11)
    end = start + _number(column, 7)
    if end > num_bytes:
        raise ValueError("its pages end behind the file")
    while start < end:
        page, length = _page_header(file, start, end)
        kinds = [header for header in _PAGE_HEADERS if header in page]
        if len(kinds) != 1:
            raise ValueError("one of its pages does not say how many values it has")
        yield _Page(_number(_struct(page, kinds[0]), 1), _number(page, 2), kinds[0] == _DICTIONARY)
        start += length + _number(page, 3)
    if start != end:
        raise ValueError("its pages are longer than its footer says")


def _page_header(file: IO[bytes], start: int, end: int) -> tuple[Mapping[int, Thrift], int]:
    """The structure of a page's header, and its length; statistics can make it long, which is rare."""
    for most in (_HEADER_BYTES, _MOST_HEADER_BYTES):
        file.seek(start)
        compact = _Compact(file.read(min(most, end - start)))
        try:
            return compact.struct(), compact.position
        except ValueError:
            if most == _MOST_HEADER_BYTES:
                raise
    raise AssertionError("the last length gives a header or an error")


def _number(fields: Mapping[int, Thrift], field: int) -> int:
    value = fields.get(field)
    if type(value) is not int or value < 0:
        raise ValueError(f"its headers have no number in field {field}")
    return value


def _struct(fields: Mapping[int, Thrift], field: int) -> Mapping[int, Thrift]:
    value = fields.get(field)
    if not isinstance(value, dict):
        raise ValueError(f"its headers have no structure in field {field}")
    return value


def _structs(fields: Mapping[int, Thrift], field: int) -> "list[dict[int, Thrift]]":
    values = _list(fields, field)
    if not all(isinstance(value, dict) for value in values):
        raise ValueError(f"its headers have other than structures in field {field}")
    return cast("list[dict[int, Thrift]]", values)


def _list(fields: Mapping[int, Thrift], field: int) -> "list[Thrift]":
    value = fields.get(field)
    if not isinstance(value, list):
        raise ValueError(f"its headers have no list in field {field}")
    return value


class _Compact:
    """A reader of Thrift's compact protocol; every item takes at least a byte, so nothing outgrows what was read.

    Attributes:
        place: of the next byte.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def struct(self, nested: int = 0) -> "dict[int, Thrift]":
        """The fields of a structure by their numbers; each may stand there once."""
        if nested > _MOST_NESTED:
            raise ValueError("its headers are nested too deeply")
        fields: dict[int, Thrift] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            if number in fields:
                raise ValueError("a field of its headers stands there twice")
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, nested)
        return fields

    def _value(self, kind: int, nested: int) -> Thrift:
        if kind in (1, 2):  # of a list: in a structure the kind itself is the value
            return self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return bool(self._take(8))
        if kind == 8:
            return self._take(self._varint())
        if kind in (9, 10):
            return self._items(nested)
        if kind == 12:
            return self.struct(nested + 1)
        raise ValueError("its headers hold a value of an unknown kind")

    def _items(self, nested: int) -> "list[Thrift]":
        if nested > _MOST_NESTED:
            raise ValueError("its headers are nested too deeply")
        head = self._byte()
        num = head >> 4 if head >> 4 < 15 else self._varint()
        if num > len(self._content) - self.position:
            raise ValueError("a list of its headers is longer than they are")
        return [self._value(head & 15, nested + 1) for _ in range(num)]

    def _byte(self) -> int:
        if self.position >= len(self._content):
            raise ValueError("its headers are cut short")
        self.position += 1
        return self._content[self.position - 1]

    def _take(self, num: int) -> bytes:
        if num > len(self._content) - self.position:
            raise ValueError("its headers are cut short")
        self.position += num
        return self._content[self.position - num : self.position]

    def _varint(self) -> int:
        value = shift = 0
        while shift < _MOST_VARINT_BITS:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number of its headers is too long")

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


# Refusing what is too large before it is read, by `simlab.traces.parquet.sizes`.


MOST_LISTED = 1 << 20
"""Tokens that a text or a prompt may have, more than any model reads."""

_AT_ONCE = 3
"""A column is in memory so many times while it is read: unpacked, as polars has it, as numpy has it."""


def check_size(path: Path, columns: Collection[str] | None = None, at_once: int = _AT_ONCE) -> ParquetSizes:
    """What a Parquet file on this machine holds, if that fits into memory.

    Args:
        path: of the file.
        columns: those that will be read; None: all.
        at_once: how many times as much as the values of a column its reader takes.
    """
    sizes = parquet_sizes(path)
    read = [num_bytes for name, _, num_bytes in sizes.columns if columns is None or name in columns]
    # Each row takes a little in each column, whatever the pages say of its values.
    total = sum(max(num_bytes, 8 * sizes.num_rows) for num_bytes in read)
    check_memory(at_once * total, f"reading {path} ({sizes.num_rows:,} rows)")
    return sizes


def check_promised(sizes: ParquetSizes, num_rows: int, schema: Mapping[str, pl.DataType], most_listed: int) -> None:
    """Refuse a file that does not hold what it must, where other files say how much that is.

    Args:
        sizes: what it holds.
        num_rows: how many rows it must have.
        schema: of the columns that will be read; others may hold anything.
        most_listed: values that all lists of a column together may have.
    """
    if sizes.num_rows != num_rows:
        raise ValueError(f"expected {num_rows:,} rows; found {sizes.num_rows:,}")
    for name, num_values, _ in sizes.columns:
        dtype = schema.get(name)
        most = most_listed if isinstance(dtype, pl.List) else num_rows * _width(dtype)
        if dtype is not None and num_values > most:
            raise ValueError(f"expected at most {most:,} values of {name}; found {num_values:,}")


def _width(dtype: pl.DataType | None) -> int:
    return int(dtype.size) if isinstance(dtype, pl.Array) else 1
