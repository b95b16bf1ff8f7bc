"""Tables of single rounds: one row for each policy, sequence and round."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl

from simlab.arrays import Ints, Longs
from simlab.traces.format.schema import Schema

RoundRows: TypeAlias = pl.DataFrame
"""Rows of rounds, for those who hand them on without looking inside."""

ENDINGS = ("not kept", "not in tree", "block end", "text end")
"""Why a round accepted no more: the true token was not among the candidates that the policy reads; it was, and no
node of the tree; nothing is drafted so deep; nothing of the text was left."""

_TEXTS = ("policy", "policy_id", "text_id", "draft_id", "channel_ids")
_NUMBERS = ("position", "context", "num_drafted", "num_accepted", "num_committed")


def rounds_schema() -> Schema:
    """The columns of a table of rounds, in their order."""
    schema: Schema = {name: pl.String() for name in _TEXTS}
    schema |= {"sequence": pl.Int32()} | {name: pl.Int32() for name in _NUMBERS}
    return schema | {"clipped": pl.Boolean(), "miss_depth": pl.Int32(), "ended": pl.String()}


def round_rows(
    identities: Sequence[Mapping[str, str]],
    num_rounds: Longs,
    numbers: Mapping[str, Ints | Longs],
    endings: Longs,
    shared: Mapping[str, object],
) -> RoundRows:
    """The rounds of several policies on one text.

    Args:
        identities: label, id and channel_ids of each policy.
        num_rounds: int64 ``[P]``, rounds of each.
        numbers: columns ``[sum R]``, policy after policy.
        endings: int64 ``[sum R]``, places in `ENDINGS`.
        shared: columns with one value for all.

    Raises:
        ValueError: the columns do not fit each other.
    """
    which = np.repeat(np.arange(len(identities)), num_rounds)
    columns: dict[str, object] = {
        name: pl.Series([one[name] for one in identities], dtype=pl.String).gather(which)
        for name in ("policy", "policy_id", "channel_ids")
    }
    columns |= {name: pl.Series(values).cast(rounds_schema()[name]) for name, values in numbers.items()}
    columns |= {"ended": pl.Series(list(ENDINGS)).gather(endings)}
    given = pl.DataFrame(columns)
    others = [pl.lit(value, rounds_schema()[name]).alias(name) for name, value in shared.items()]
    return given.with_columns(others).select(list(rounds_schema()))


def joined_rounds(parts: Sequence[RoundRows]) -> RoundRows:
    """The rows of several tables, one after the other."""
    return pl.concat(parts)
