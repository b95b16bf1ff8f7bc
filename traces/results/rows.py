"""Result rows: one for each policy and sequence."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import polars as pl

from simlab.arrays import Doubles, Longs
from simlab.cost import STAGES
from simlab.sequence_replay import SUMS
from simlab.traces.format.frames import STOP_REASONS
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


# What must hold of result rows, each by itself and beside the others.

WHERE = ("kind", "text_id", "draft_id", "cost_id")
"""Columns that say under which circumstances a row was made; a table adds up rows that agree in them."""

KEYS = (*WHERE, "policy_id", "sequence")
"""Columns in which no two predicted rows agree. Of measured ones several do, where a run was repeated."""

_OF_A_TEXT = ("prompt_id", "dataset", "turn", "sample", "context_length")
_MOST_S = 1e15


def find_row_problem(rows: pl.DataFrame, sequences: Mapping[str, int]) -> str | None:
    """The first thing that is wrong with result rows, in words; None where all holds.

    Args:
        rows: of a result file.
        sequences: how many the trace of each ``text_id`` holds, as far as that is known.
    """
    return next(_problems(rows, sequences), None)


def find_missing_rows(rows: pl.DataFrame) -> str | None:
    """Which policy does not have the texts that others have, in words; None where all have the same.

    Figures of such policies stand side by side in a table, and are not of the same texts.

    Args:
        rows: of a result file.
    """
    texts = rows.group_by(*WHERE, "policy_id", "policy", maintain_order=True).agg(pl.col("sequence").sort())
    most = pl.col("sequence").sort_by(pl.col("sequence").list.len(), descending=True, maintain_order=True).first()
    beside = texts.with_columns(others=most.over(WHERE))
    differ = beside.filter(pl.col("sequence") != pl.col("others"))
    if differ.is_empty():
        return None
    row = differ.row(0, named=True)
    own, others = row["sequence"], row["others"]
    return (
        f"{row['policy']} has {len(own)} {row['kind']} rows of {len(set(own))} texts, and other policies have "
        f"{len(others)} of {len(set(others))}{_only(set(others) - set(own))}"
    )


def _only(sequences: set[int]) -> str:
    """The first few of the texts that are not there."""
    if not sequences:
        return ""
    more = f" and {len(sequences) - 3} more" if len(sequences) > 3 else ""
    return f"; sequence {', '.join(map(str, sorted(sequences)[:3]))}{more} is missing"


def _problems(rows: pl.DataFrame, sequences: Mapping[str, int]) -> Iterator[str]:
    reasons = sorted(set(rows["stop_reason"]) - set(STOP_REASONS))
    if reasons:
        yield f"stop_reason must be one of {', '.join(STOP_REASONS)}; got {reasons[0]!r}"
    for rule, wrong in _RULES.items():
        wrong_rows = rows.filter(wrong)
        if not wrong_rows.is_empty():
            yield f"{rule}; {_named(wrong_rows)}"
    yield from _draws_problems(rows)
    yield from _text_problems(rows, sequences)
    doubled = rows.filter(pl.col("kind") == "predicted", pl.struct(KEYS).is_duplicated())
    if not doubled.is_empty():
        yield f"a policy has one predicted row of each text under one latency profile; {_named(doubled)} has more"


def _draws_problems(rows: pl.DataFrame) -> Iterator[str]:
    draws = rows.select(*WHERE, "policy", "sequence", "draws_s").drop_nulls("draws_s")
    values = draws["draws_s"].explode()
    if values.null_count() or not (values.is_finite() & (values >= 0)).all():
        yield "draws_s must be finite and not negative"
    if draws.group_by(WHERE).agg(pl.col("draws_s").list.len().n_unique()).filter(pl.col("draws_s") > 1).height:
        yield "the rows of one latency profile have as many draws_s each"


def _text_problems(rows: pl.DataFrame, sequences: Mapping[str, int]) -> Iterator[str]:
    for text_id, most in sequences.items():
        beyond = rows.filter(pl.col("text_id") == text_id, pl.col("sequence") >= most)
        if not beyond.is_empty():
            yield f"the trace {text_id} holds {most} sequences, from 0 to {most - 1}; {_named(beyond)}"
    texts = rows.group_by("text_id", "sequence").agg(pl.col(_OF_A_TEXT).n_unique())
    for name in _OF_A_TEXT:
        if (texts[name] > 1).any():
            yield f"{name} must be the same in all rows of a text, and is not"
    replayed = rows.filter(pl.col("kind") == "predicted").group_by("text_id", "sequence")
    if (replayed.agg(pl.col("committed").n_unique())["committed"] > 1).any():
        yield "every policy commits each token of a text once, and some committed more than others"
    heads = rows.group_by(*WHERE, "policy_id", maintain_order=True).agg(
        pl.col("policy").first(), pl.n_unique("channel_ids")
    )
    several = heads.filter(pl.col("channel_ids") > 1)
    if not several.is_empty():
        yield f"all rows of a policy are of the same channels, and those of {several['policy'][0]} are of several"


def _named(rows: pl.DataFrame) -> str:
    policy, sequence = rows.select("policy", "sequence").row(0)
    return f"{policy} on sequence {sequence}"


def _finite(columns: Sequence[str]) -> pl.Expr:
    """Whether numbers are times: null, or at least 0 and less than what no machine takes."""
    return pl.all_horizontal(
        pl.col(name).is_null() | (pl.col(name).is_finite() & pl.col(name).is_between(0, _MOST_S)) for name in columns
    )


def _known(name: str) -> pl.Expr:
    return pl.col(name).is_not_null()


_NOT_NEGATIVE = (*SUMS, "sequence", "turn", "sample", "context_length")
_WHOLE = 1 << 53

_RULES: dict[str, pl.Expr] = {
    f"{', '.join(_NOT_NEGATIVE)} must not be negative": pl.any_horizontal(pl.col(name) < 0 for name in _NOT_NEGATIVE),
    "sums must be below 2^53": pl.any_horizontal(pl.col(name) >= _WHOLE for name in SUMS),
    "verified must be drafted + rounds": pl.col("verified") != pl.col("drafted") + pl.col("rounds"),
    "committed must be accepted + rounds - clipped": (
        pl.col("committed") != pl.col("accepted") + pl.col("rounds") - pl.col("clipped")
    ),
    "accepted must be at most drafted": pl.col("accepted") > pl.col("drafted"),
    "a text ends once, so clipped is at most 1": pl.col("clipped") > 1,
    "a round commits at least one token": pl.col("committed") < pl.col("rounds"),
    "seconds must be finite and not negative": ~_finite(SECONDS),
    "seconds must be there of all stages or of none": pl.any_horizontal(
        _known(name) != _known(SECONDS[0]) for name in SECONDS
    ),
    "predicted rows have seconds where they have a latency profile, and only there": (
        (pl.col("kind") == "predicted")
        & (_known("cost_id") != _known(SECONDS[0]))
        & (pl.col("channel_ids") == NO_CHANNELS)
    ),
    "predicted rows without a latency profile have no seconds": (
        (pl.col("kind") == "predicted") & ~_known("cost_id") & _known(SECONDS[0])
    ),
    "measured rows have seconds, and no latency profile": (
        (pl.col("kind") == "measured") & (_known("cost_id") | ~_known(SECONDS[0]))
    ),
}
"""What must hold of every row, in words, and what is true of a row that breaks it."""
