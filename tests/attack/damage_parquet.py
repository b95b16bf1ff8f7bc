"""Damage to the tables of Parquet files: values, rows, columns, types and the counts in their last bytes."""

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random

import polars as pl
from damage_values import TEXTS, near, number, rearranged

_TYPES: tuple[pl.DataType, ...] = (
    *(pl.Int8(), pl.Int64(), pl.UInt16(), pl.Float32(), pl.Float64(), pl.String(), pl.Boolean(), pl.Binary()),
    *(pl.Null(), pl.Date(), pl.Datetime(), pl.Decimal(20, 2), pl.List(pl.Int64()), pl.List(pl.List(pl.Int32()))),
)


def with_values(rows: pl.DataFrame, name: str, values: Sequence[object]) -> pl.DataFrame:
    """The table with other values in a column; None stands for those that its type cannot hold."""
    dtype = rows.schema[name]
    if dtype.is_integer():
        values = [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
    try:
        return rows.with_columns(pl.Series(name, values, dtype=dtype, strict=False))
    except (pl.exceptions.PolarsError, TypeError):  # of lists of one width or depth, one has another
        return rows.with_columns(pl.Series(name, list(map(repr, values))))


def metadata_of(path: Path) -> dict[str, str]:
    """What a file says beside its rows, without what polars says of columns."""
    return {key: value for key, value in pl.read_parquet_metadata(path).items() if not key.startswith("ARROW")}


def _odd(value: object, chance: Random) -> object:
    """A value of the same type that is rarely right; None now and then."""
    if chance.random() < 0.1:
        return None
    if isinstance(value, str | bytes):
        text = chance.choice(TEXTS)
        return text.encode() if isinstance(value, bytes) else text
    return number(chance) if isinstance(value, float) else math.trunc(min(max(_finite(chance), -(2**63)), 2**63 - 1))


def _finite(chance: Random) -> float:
    drawn = number(chance)
    return drawn if math.isfinite(drawn) else -1


def _another(value: object, chance: Random) -> tuple[object, str]:
    """What stands in the place of a value, or of one in its list, and how that is said."""
    if isinstance(value, list) and value:
        if chance.random() < 0.4:
            return rearranged(value, chance)
        at = chance.randrange(len(value))
        new, note = _another(value[at], chance)
        return [*value[:at], new, *value[at + 1 :]], f"at {at} {note}"
    beside = chance.random() < 0.5 and value is not None
    odd = near(value, chance) if beside else [] if isinstance(value, list) else _odd(value, chance)
    return odd, f"is {odd!r:.40} instead of {value!r:.40}"


def _cell(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """One value, or the same value in all of a column."""
    lists = [name for name, dtype in rows.schema.items() if dtype.is_nested()]
    name = chance.choice(lists if lists and chance.random() < 0.5 else rows.columns)
    row, values = chance.randrange(rows.height), rows[name].to_list()
    new, note = _another(values[row], chance)
    if chance.random() < 0.1:
        return with_values(rows, name, [new] * len(values)), f"{name} of every row {note}"
    if chance.random() < 0.1:
        values, note = rearranged(values, chance)
        return with_values(rows, name, (values * rows.height)[: rows.height]), f"{name} {note}"
    values[row] = new
    return with_values(rows, name, values), f"{name} of row {row} {note}"


def _rows(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """Rows gone, doubled, in another order."""
    kept, note = rearranged(range(rows.height), chance)
    return rows[kept], f"the table {note}, by rows"


def _columns(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A column gone, added, renamed, of another type, in another's place, or all in another order."""
    name, dtype = chance.choice(rows.columns), chance.choice(_TYPES)
    alike = [column for column in rows.columns if rows.schema[column] == rows.schema[name] and column != name]
    other = chance.choice(alike or rows.columns)
    try:
        cast = rows.with_columns(pl.col(name).cast(dtype, strict=False))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        cast = rows.with_columns(pl.lit(None, dtype).alias(name))
    changes = (
        (rows.drop(name), f"{name} is gone"),
        (rows.rename({name: name.upper()}), f"{name} is named {name.upper()}"),
        (rows.with_columns(pl.lit(1).alias("\x1b[31m\u202e")), "a column with an escape in its name more"),
        (rows.select(rows.columns[::-1]), "columns in another order"),
        (pl.DataFrame(), "no columns"),
        (cast, f"{name} is of type {dtype}"),
        (cast, f"{name} is of type {dtype}"),
        *[(rows.with_columns(**{name: pl.col(other), other: pl.col(name)}), f"{name} and {other} exchanged")] * 2,
    )
    return chance.choice(changes)


def changed_rows(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A table with one damage, and what it was."""
    return chance.choice((_cell, _cell, _cell, _rows, _columns))(rows, chance)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _footer(data: bytes, counts: Sequence[int], chance: Random) -> tuple[bytes, str]:
    """A number of rows, values or bytes in the last part of the file is another one."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8]
    wanted = [_varint(2 * count) for count in counts]
    spots = [(at, len(count)) for count in wanted for at in range(1, len(footer)) if footer.startswith(count, at)]
    if not spots:
        return data[:-1], "the last byte is gone"
    at, length = chance.choice(spots)
    new = chance.choice((0, 1, 1000, 10**6, 2**31, 2**40, 2**62))
    changed = footer[:at] + _varint(2 * new) + footer[at + length :]
    return data[:start] + changed + len(changed).to_bytes(4, "little") + data[-4:], f"a number in the footer is {new:,}"


def damage_parquet(path: Path, chance: Random) -> str:
    """Damage the table in a file, or its footer in a tenth of the cases; what stands beside the rows is kept."""
    rows, data = pl.read_parquet(path, glob=False), path.read_bytes()
    if chance.random() < 0.1 or not rows.height:
        changed, note = _footer(data, (rows.height, rows.height * 4, len(data)), chance)
        path.write_bytes(changed)
        return note
    table, note = changed_rows(rows, chance)
    table.write_parquet(path, compression="zstd", statistics=False, metadata=metadata_of(path))
    return note
