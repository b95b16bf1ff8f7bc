"""Damage to the tables of Parquet files: values, rows, columns, types and the counts in their last bytes."""

import math
from collections.abc import Callable
from pathlib import Path
from random import Random

import polars as pl
from attack_cases import Damage

Change = Callable[[pl.DataFrame, Random], tuple[pl.DataFrame, str]]

_FLOATS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1.0, 1e30, -1e30, 1e-40, -0.0)
_INTEGERS = (-1, 0, 1, 7, 255, 65_535, -(2**31), 2**31 - 1)
_TEXTS = ("", "x", "\x1b[2J\x1b[31mred", "abc\u202edcba", "a\nb", "\0", "a" * 100_000, "NaN", "{", "predicted")


def strange(dtype: pl.DataType, chance: Random) -> object:
    """A value of a type that is rarely right; None now and then."""
    if chance.random() < 0.1:
        return None
    if isinstance(dtype, pl.List):
        return [strange(_inner(dtype), chance) for _ in range(chance.choice((0, 1, 3)))]
    if isinstance(dtype, pl.Array):
        return [strange(_inner(dtype), chance) for _ in range(dtype.size)]
    if dtype.is_float():
        return chance.choice(_FLOATS)
    if dtype == pl.String:
        return chance.choice(_TEXTS)
    if dtype == pl.Binary:
        return chance.choice(_TEXTS).encode()
    if dtype.is_unsigned_integer():
        return chance.choice((0, 1, 2, 255))
    return chance.choice((*_INTEGERS, 2**62, -(2**62)) if dtype == pl.Int64 else _INTEGERS)


def _inner(dtype: pl.List | pl.Array) -> pl.DataType:
    inner = dtype.inner
    return inner() if isinstance(inner, type) else inner


def _with(rows: pl.DataFrame, name: str, values: list[object]) -> pl.DataFrame:
    return rows.with_columns(pl.Series(name, values, dtype=rows.schema[name], strict=False))


def set_value(rows: pl.DataFrame, name: str, row: int, value: object) -> pl.DataFrame:
    """The table with another value at one place."""
    values = rows[name].to_list()
    values[row] = value
    return _with(rows, name, values)


def _value(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    name, row = chance.choice(rows.columns), chance.randrange(max(rows.height, 1))
    value = strange(rows.schema[name], chance)
    return set_value(rows, name, row, value), f"{name} of row {row} is {value!r:.60}"


def _element(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """One element of a list."""
    names = [name for name, dtype in rows.schema.items() if isinstance(dtype, pl.List | pl.Array)]
    if not names:
        return _value(rows, chance)
    name, row = chance.choice(names), chance.randrange(rows.height)
    values = list(rows[name][row]) if rows[name][row] is not None else []
    if not values:
        return _value(rows, chance)
    at = chance.randrange(len(values))
    dtype = rows.schema[name]
    assert isinstance(dtype, pl.List | pl.Array)
    values[at] = strange(_inner(dtype), chance)
    return set_value(rows, name, row, values), f"{name}[{at}] of row {row} is {values[at]!r:.60}"


def _length(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A list that is longer or shorter."""
    names = [name for name, dtype in rows.schema.items() if isinstance(dtype, pl.List)]
    if not names:
        return _dtype(rows, chance)
    name, row = chance.choice(names), chance.randrange(rows.height)
    values = list(rows[name][row]) if rows[name][row] is not None else []
    new = chance.choice((values[:-1], values[1:], values + values[-1:], [], values * 3, values[::-1]))
    return set_value(rows, name, row, new), f"{name} of row {row} has {len(new)} elements instead of {len(values)}"


def _column(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A whole column of one strange value."""
    name = chance.choice(rows.columns)
    value = strange(rows.schema[name], chance)
    return _with(rows, name, [value] * rows.height), f"{name} is {value!r:.60} in every row"


def _rows(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """Rows gone, doubled, in another order."""
    at = chance.randrange(rows.height)
    some = rows.slice(at, chance.choice((1, 1, rows.height)))
    changes = [
        (rows.clear(), "no rows"),
        (pl.concat([rows.head(at), rows.slice(at + 1)]), f"row {at} is gone"),
        (pl.concat([rows, some]), f"{some.height} rows twice"),
        (pl.concat([rows.head(at), rows.slice(at, 1), rows.slice(at)]), f"row {at} twice"),
        (rows.reverse(), "rows turned round"),
        (rows.sample(fraction=1.0, shuffle=True, seed=chance.randrange(1000)), "rows shuffled"),
        (rows.head(at), f"the first {at} rows only"),
        (pl.concat([rows] * 40), "all rows forty times"),
    ]
    return chance.choice(changes)


def _swap(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """Two columns under each other's name."""
    first = chance.choice(rows.columns)
    same = [name for name in rows.columns if rows.schema[name] == rows.schema[first] and name != first]
    second = chance.choice(same or rows.columns)
    swapped = [pl.col(second).alias(first), pl.col(first).alias(second)] if first != second else []
    return rows.with_columns(swapped), f"{first} and {second} have changed places"


def _exchange(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """Two values of a column in each other's place."""
    name = chance.choice(rows.columns)
    first, second = chance.randrange(rows.height), chance.randrange(rows.height)
    values = rows[name].to_list()
    values[first], values[second] = values[second], values[first]
    return _with(rows, name, values), f"{name} of rows {first} and {second} have changed places"


_OTHER_TYPES: tuple[pl.DataType, ...] = (
    *(pl.Int8(), pl.Int32(), pl.Int64(), pl.UInt16(), pl.Float32(), pl.Float64(), pl.String(), pl.Boolean()),
    *(pl.Binary(), pl.Null(), pl.Date(), pl.Datetime(), pl.List(pl.Int64()), pl.List(pl.List(pl.Int32()))),
    pl.Decimal(20, 2),
)


def _dtype(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A column of another type."""
    name, dtype = chance.choice(rows.columns), chance.choice(_OTHER_TYPES)
    try:
        return rows.with_columns(pl.col(name).cast(dtype, strict=False)), f"{name} is of type {dtype}"
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return rows.with_columns(pl.lit(None, dtype).alias(name)), f"{name} is null of type {dtype}"


def _columns(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A column gone, added or renamed, or all in another order."""
    name = chance.choice(rows.columns)
    names = rows.columns[::-1]
    changes = [
        (rows.drop(name), f"{name} is gone"),
        (rows.rename({name: name.upper()}), f"{name} is named {name.upper()}"),
        (rows.with_columns(pl.lit(1).alias("more")), "a column more"),
        (rows.with_columns(pl.lit(1).alias("\x1b[31m\u202e")), "a column with an escape in its name more"),
        (rows.select(names), "columns in another order"),
        (pl.DataFrame(), "no columns"),
    ]
    return chance.choice(changes)


CHANGES: tuple[Change, ...] = (
    *(_value, _value, _value, _element, _element, _element, _length, _column),
    *(_rows, _rows, _swap, _exchange, _exchange, _dtype, _columns),
)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def damage_footer(data: bytes, chance: Random, counts: tuple[int, ...]) -> tuple[bytes, str]:
    """A number of rows, values or bytes in the last part of the file is another one."""
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    footer = data[start:-8]
    wanted = [_varint(2 * count) for count in counts]
    found = [(i, len(one)) for one in wanted for i in range(1, len(footer)) if footer[i : i + len(one)] == one]
    if not found:
        return data, "nothing: no such number in the footer"
    at, length = chance.choice(found)
    new = chance.choice((0, 1, 1000, 10**6, 2**31, 2**40, 2**62))
    changed = footer[:at] + _varint(2 * new) + footer[at + length :]
    note = f"a number in the footer is {new:,}"
    return data[:start] + changed + len(changed).to_bytes(4, "little") + data[-4:], note


def damage_parquet(
    path: Path, chance: Random, possible: bool = False, changes: tuple[Change, ...] = CHANGES, footers: float = 0.1
) -> Damage:
    """Damage the table in a file, or its footer in a share of the cases; what its metadata say beside it is kept."""
    rows, data = pl.read_parquet(path, glob=False), path.read_bytes()
    if chance.random() < footers:
        changed, note = damage_footer(data, chance, (rows.height, rows.height * 4, len(data)))
        path.write_bytes(changed)
        return Damage(f"{path.name}: {note}", possible)
    table, note = chance.choice(changes)(rows, chance)
    kept = {key: value for key, value in pl.read_parquet_metadata(path).items() if not key.startswith("ARROW")}
    table.write_parquet(path, compression="zstd", statistics=False, metadata=kept)
    return Damage(f"{path.name}: {note}", possible)
