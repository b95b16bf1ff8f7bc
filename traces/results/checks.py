"""What must hold of result rows, each by itself and beside the others."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from simlab.totals import SUMS
from simlab.traces.format.frames import STOP_REASONS
from simlab.traces.results.rows import NO_CHANNELS, SECONDS

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
