"""Result rows: one for each policy and sequence."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl

from simlab.arrays import Doubles, Longs
from simlab.cost import STAGES
from simlab.traces.format.schema import Schema
from simlab.untrusted.json_text import parse_json

Results: TypeAlias = pl.DataFrame
"""Result rows as a table, for those who hand it on without looking inside."""

KINDS = ("predicted", "measured")

HINDSIGHT, BEST_BUDGET, BEST_ROUTES = BOUNDS = ("hindsight", "hindsight-budget", "hindsight-routes")
"""Names of rows that are told the answer: the fewest rounds, the best budget and the best route in each round."""

SECONDS = tuple(f"{stage}_s" for stage in STAGES)
"""The column of each stage."""

OPTIONAL = ("draft_id", "cost_id", *SECONDS, "draws_s")
"""Columns that may be null; a row that leaves them out has null there."""

NO_CHANNELS = "{}"
"""What stands in ``channel_ids`` where a policy reads none."""

ADDED: Mapping[str, pl.Expr] = {
    "channel_ids": pl.lit(NO_CHANNELS),
    "channel_s": pl.when(pl.col("draft_s").is_not_null()).then(0.0),
    "draws_s": pl.lit(None, pl.List(pl.Float32())),
}
"""Columns that files of an older simlab do not have, and what stands there instead."""


def results_schema() -> Schema:
    """The columns of a result file, in their order."""
    texts = ("policy", "policy_id", "name", "settings", "text_id", "draft_id", "channel_ids", "cost_id")
    counts = ("rounds", "drafted", "verified", "accepted", "committed", "clipped")
    schema: Schema = {name: pl.String() for name in texts}
    schema |= {"sequence": pl.Int32(), "prompt_id": pl.String(), "dataset": pl.String()}
    schema |= {"turn": pl.Int32(), "sample": pl.Int32(), "context_length": pl.Int32(), "stop_reason": pl.String()}
    schema |= {name: pl.Int64() for name in counts}
    schema |= {name: pl.Float64() for name in SECONDS}
    # Single precision: it says how noisy prices are, a list for each row.
    return schema | {"draws_s": pl.List(pl.Float32()), "kind": pl.String(), "simlab_version": pl.String()}


def results_frame(rows: Iterable[Mapping[str, object]]) -> pl.DataFrame:
    """Result rows as a table with the columns in order.

    Args:
        rows: by column name; the columns in ``OPTIONAL`` may be left out, and by a policy without channels those of
            channels.
    """
    schema = results_schema()
    listed = [{"channel_ids": NO_CHANNELS, **_no_channel_s(row), **row} for row in rows]
    for row in listed:
        _check_names(row, schema)
    try:
        table = pl.DataFrame([[row.get(name) for name in schema] for row in listed], schema=schema, orient="row")
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"a result row has a value of another type: {error}") from error
    return checked_results(table)


def _no_channel_s(row: Mapping[str, object]) -> dict[str, float]:
    """Where a row with seconds says nothing of channels they took none."""
    return {} if row.get("draft_s") is None else {"channel_s": 0.0}


def results_of_texts(
    policies: Mapping[str, Sequence[object]],
    texts: Mapping[str, Sequence[object]],
    sums: Mapping[str, Longs | Doubles],
    shared: Mapping[str, object],
) -> Results:
    """Result rows of each policy on each text, policy after policy.

    Args:
        policies: columns with a value for each policy.
        texts: columns with a value for each text.
        sums: columns with a value for each of both, ``[P, S]``, or a list, ``[P, S, B]``; NaN stands for null.
        shared: columns with one value.
    """
    schema = results_schema()
    _check_names({**policies, **texts, **sums, **shared}, schema)
    ones = [name for name in schema if not any(name in group for group in (policies, texts, sums))]
    num_policies, num_texts = next(iter(sums.values())).shape
    by_policy, by_text = np.repeat(np.arange(num_policies), num_texts), np.tile(np.arange(num_texts), num_policies)
    per_policy = {**policies, **{name: [shared.get(name)] * num_policies for name in ones}}
    try:
        # Whole tables at once: an operation on a column by itself takes as long as one on all of them.
        parts = (
            pl.DataFrame(per_policy, schema={name: schema[name] for name in per_policy})[by_policy],
            pl.DataFrame(texts, schema={name: schema[name] for name in texts})[by_text],
            pl.DataFrame([_flat(name, values, schema[name]) for name, values in sums.items()]),
        )
        return pl.concat(parts, how="horizontal").select(list(schema))
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"a column of result rows has values of another type: {error}") from error


def _flat(name: str, values: Longs | Doubles, dtype: pl.DataType) -> pl.Series:
    """Values of policies and texts as one column; NaN, and a list that begins with NaN, is null."""
    if values.ndim == 2:
        column = pl.Series(name, values.ravel(), nan_to_null=dtype.is_float())
        return column if column.dtype == dtype else column.cast(dtype)
    lists = values.reshape(-1, values.shape[2]).astype(np.float32)
    known = ~np.isnan(lists[:, 0]) if lists.shape[1] else np.zeros(len(lists), np.bool_)
    column = pl.Series(name, lists).cast(dtype)
    if known.all():
        return column
    return column.to_frame().select(pl.when(pl.Series(known)).then(pl.col(name)).alias(name)).to_series()


def joined_results(parts: Sequence[Results]) -> Results:
    """The rows of several tables, one after the other."""
    return checked_results(pl.concat([results_frame([]), *parts]).rechunk())


def rows_in_order(rows: Results, asked: Sequence[tuple[str | None, str, str]], sequences: Iterable[int]) -> Results:
    """The rows of some policies at some prices, sequence by sequence, under the labels with which they were asked for.

    Args:
        rows: any result rows.
        asked: cost id, policy id and label of each policy, in the order wanted.
        sequences: of these texts.
    """
    columns = {"prices": pl.String, "policy_id": pl.String, "label": pl.String}
    listed = [(cost_id or "", policy_id, label) for cost_id, policy_id, label in asked]
    order = pl.DataFrame(listed, schema=columns, orient="row").with_row_index("place")
    # What is matched and sorted is the keys alone; all columns are then moved once.
    keys = rows.select("sequence", "policy_id", pl.col("cost_id").fill_null("").alias("prices")).with_row_index("row")
    wanted = keys.filter(pl.col("sequence").is_in(list(sequences)))
    ordered = wanted.join(order, on=["prices", "policy_id"]).sort("sequence", "place")
    return rows[ordered["row"]].with_columns(ordered["label"].alias("policy"))


def settings_of(text: str) -> Mapping[str, object]:
    """The settings of a policy, from the column of a result row."""
    settings = parse_json(text)
    if not isinstance(settings, dict):
        raise ValueError(f"settings must be a JSON object; got {text[:80]}")
    return settings


def channel_ids_text(ids: Mapping[str, str]) -> str:
    """The column of a result row whose policy reads some channels: JSON, by name."""
    return json.dumps(dict(ids), sort_keys=True)


def _check_channel_ids(text: str) -> None:
    ids = parse_json(text)
    if not isinstance(ids, dict) or not all(isinstance(channel_id, str) for channel_id in ids.values()):
        raise ValueError(f"channel_ids must be a JSON object of ids by channel; got {text[:80]}")


def results_at(rows: Results, cost_id: str | None) -> Results:
    """The rows that were priced with one cost file, or without any."""
    return rows.filter(pl.col("cost_id").eq_missing(pl.lit(cost_id, pl.String)))


def _check_names(row: Mapping[str, object], schema: Schema) -> None:
    missing = [name for name in schema if name not in row and name not in OPTIONAL]
    unknown = [name for name in row if name not in schema]
    if missing or unknown:
        raise ValueError(f"a result row lacks the columns {missing} and has the unknown columns {unknown}")


def checked_results(table: Results) -> Results:
    """A table whose columns can be result rows; what they say is checked where files are read."""
    for name in table.columns:
        if name not in OPTIONAL and table[name].null_count():
            raise ValueError(f"the column {name} must not be null")
    kinds = set(table["kind"].unique()) - set(KINDS)
    if kinds:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {min(kinds)}")
    for settings in table["settings"].unique():
        settings_of(settings)
    for text in table["channel_ids"].unique():
        _check_channel_ids(text)
    return table
