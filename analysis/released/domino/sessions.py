"""Sessions of measurement: seconds of a round in each, and whose baseline was measured in another one.

A speedup is sound where both speeds were measured in one session. Of Qwen3-8B above temperature 0 the reference program
ran without its autoregressive baseline, which was taken from an earlier session. Rounds of a method need equally long
at every temperature, so their seconds say whether the machine was the same.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.domino.records import (
    DATASETS,
    REFERENCE_PROGRAM,
    Model,
    program_turns,
)
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, prompt_ratio
from simlab.analysis.table.text import aligned, number, within_width
from simlab.errors import SimlabError

BASELINE_SESSION = "results/raw/8b/collect_8b_2048_20260704/our"
"""Where the autoregressive baseline of their own program was measured, of Qwen3-8B, with the same trees."""

METHODS: Mapping[str, str] = {
    "baseline": "autoregressive",
    "dflash": "DFlash",
    "ddtree_tb16": "DDTree@16",
    "caddtree": "CaDDTree",
}
"""Of the reference program, as its records and as tables name them. DDTree@16: a budget of 16 nodes."""

TREE = "dominotree@16"
"""DominoTree with 16 nodes, in records."""

_SUMS = ("samples", "output_tokens", "decode_seconds", "decode_rounds_mean", "accept_len_round_weighted")


@dataclass(frozen=True, slots=True)
class RoundTime:
    """How long a round took.

    Attributes:
        session: of the rounds, where more than one is known; else empty.
        ms: milliseconds, all seconds over all rounds.
    """

    model: str
    temperature: str
    method: str
    session: str
    ms: float

    def row(self) -> dict[str, object]:
        """Flat scalars, as a script reads them."""
        return {
            "model": self.model,
            "temperature": self.temperature,
            "method": self.method,
            "session": self.session,
            "ms_per_round": round(self.ms, 3),
        }


def session_names(files: ReleasedFiles, model: Model) -> list[str]:
    """Paths of the files with sums, and of the lists of what each session was to do."""
    return [name for name in files.release.files if name.startswith(tuple(f"{one}/" for one in _folders(model)))]


def program_sums(
    files: ReleasedFiles, model: Model, temperature: str, datasets: Collection[str] = DATASETS
) -> pl.DataFrame:
    """Sums of the reference program: a row for each method and dataset.

    Columns: method, dataset, turns, tokens, seconds, rounds, committed, nodes, nodes_allowed. Committed: tokens of all
    acceptance lengths. Nodes: the mean budget that CaDDTree chose, by turns; null of other methods. Both are null where
    they were not released.

    Raises:
        SimlabError: a file holds something else.
    """
    if not model.summaries:
        return _sums_of_turns(program_turns(files, model, temperature, REFERENCE_PROGRAM, datasets))
    found = []
    for dataset in datasets:
        name = f"{model.summaries[temperature]}/{dataset}_T{temperature}.pt.summary.json"
        if name in files.release.files:
            found += _rows_of_summary(files, name, dataset)
    if not found:
        raise SimlabError(f"the release has no sums of {model.name} at {temperature}")
    return pl.DataFrame(found, schema_overrides={"nodes": pl.Float64, "nodes_allowed": pl.Float64})


def reuses_baseline(files: ReleasedFiles, model: Model, temperature: str) -> bool:
    """Whether the reference program's autoregressive baseline at this temperature is of another session.

    Raises:
        SimlabError: the list of what the session was to do holds something else.
    """
    if not model.summaries:
        return False
    name = f"{model.summaries[temperature]}/MANIFEST.json"
    found = files.value(name)
    if not isinstance(found, dict):
        raise SimlabError(f"{name} is no JSON object")
    return found.get("skip_baseline") is True


def round_times(
    model: Model, temperature: str, own: pl.DataFrame, sums: pl.DataFrame, graph: pl.DataFrame
) -> list[RoundTime]:
    """Milliseconds of a round of each method, at one temperature.

    Args:
        model: whose.
        temperature: one of three.
        own: turns of their own program.
        sums: of the reference program.
        graph: turns of the Domino decoder with CUDA graphs.
    """
    session = model.summaries.get(temperature, "").removeprefix(f"{model.raw}/")
    total = {row["method"]: row for row in sums.group_by("method").agg(pl.sum("seconds", "rounds")).to_dicts()}
    found = {METHODS[key]: (row["seconds"], row["rounds"], session) for key, row in total.items() if key in METHODS}
    ordered = {label: found[label] for label in METHODS.values() if label in found}
    tree = own.filter(pl.col("method") == TREE)
    ordered["DominoTree"] = (tree["seconds"].sum(), tree.select(num_rounds()).to_series().sum(), "")
    ordered["Domino, graph arm"] = (graph["seconds"].sum(), graph["rounds"].sum(), "")
    return [
        RoundTime(model.name, temperature, label, where, 1000 * seconds / rounds)
        for label, (seconds, rounds, where) in ordered.items()
    ]


def session_changes(times: Sequence[RoundTime]) -> dict[str, float]:
    """Seconds of a round in the session without a baseline over those in the one with it, by method.

    Of a method at several temperatures in a session, all: the mean.
    """
    found = {}
    sessions = list(dict.fromkeys(one.session for one in times if one.session))
    if len(sessions) < 2:
        return {}
    for method in dict.fromkeys(one.method for one in times):
        first, second = (
            [one.ms for one in times if one.method == method and one.session == name] for name in sessions[:2]
        )
        if first and second:
            found[method] = sum(second) / len(second) / (sum(first) / len(first))
    return found


def verification_ratio(files: ReleasedFiles, own: pl.DataFrame) -> PromptFigure | None:
    """Milliseconds of DominoTree's verifications in the session of its baseline, over those in its own; paired.

    Of the turns with equal acceptance lengths in both, which verified the same trees.

    Args:
        files: of the release.
        own: turns of their own program, Qwen3-8B at temperature 0.

    Returns:
        None where the other session was not released.

    Raises:
        SimlabError: a record of the other session holds something else.
    """
    there = _verifications(files)
    tree = own.filter(pl.col("method") == TREE)
    both = tree.join(there, on=["dataset", "prompt", "turn"]).filter((pl.col("mean") - pl.col("length")).abs() < 1e-9)
    if both.is_empty() or both["verify_ms"].null_count():
        return None
    rounds = num_rounds()
    summed = both.with_columns((pl.col("ms") * rounds).alias("there"), (pl.col("verify_ms") * rounds).alias("here"))
    return prompt_ratio(summed, there=1, here=-1)


def num_rounds() -> pl.Expr:
    """Rounds of a turn, of its tokens and its mean; a text that is cut counts one fewer at most."""
    return (pl.col("tokens") / pl.col("mean")).round()


def times_text(times: Sequence[RoundTime], verification: PromptFigure | None) -> str:
    """Milliseconds of a round, a row for each model and method."""
    temperatures = list(dict.fromkeys(one.temperature for one in times))
    cells = [["milliseconds of a round", "", *(f"T={one}" for one in temperatures)]]
    for model, method in dict.fromkeys((one.model, one.method) for one in times):
        by_temperature = {one.temperature: one.ms for one in times if (one.model, one.method) == (model, method)}
        cells.append([model, method, *(number(by_temperature.get(one, float("nan")), 1) for one in temperatures)])
    text = aligned(cells, [True, True, *[False] * len(temperatures)])
    if verification is None:
        return text
    size = {0: "about right", 1: "too large", -1: "too small"}[verification.direction]
    note = (
        "DominoTree's own autoregressive baseline of Qwen3-8B is of an earlier session too, at every temperature: the "
        f"same trees took {verification.text(3)} times as long to verify there, so its speedups are {size} as well."
    )
    return f"{text}\n{within_width(note)}"


def _verifications(files: ReleasedFiles) -> pl.DataFrame:
    """Milliseconds of a verification of the same trees in the session of their own program's baseline."""
    found = []
    for dataset in DATASETS:
        name = f"{BASELINE_SESSION}/{dataset}_T0.0.jsonl"
        records = files.objects(name) if name in files.release.files else ()
        found += [
            (dataset, *(one.get(key) for key in ("sample_idx", "turn_index", "ms_verify", "mean_accept")))
            for one in records
            if one.get("method") == "cond@16"
        ]
    schema = {"dataset": pl.String, "prompt": pl.Int64, "turn": pl.Int64, "ms": pl.Float64, "length": pl.Float64}
    table = pl.DataFrame(found, schema=schema, orient="row", strict=False)
    if any(table.null_count().row(0)):
        raise SimlabError(f"{BASELINE_SESSION} has a record without turn, time or acceptance length")
    return table


def _folders(model: Model) -> list[str]:
    return list(dict.fromkeys(model.summaries.values()))


def _sums_of_turns(turns: pl.DataFrame) -> pl.DataFrame:
    committed = (pl.col("mean") * pl.col("rounds")).round().sum().alias("committed")
    return turns.group_by("method", "dataset", maintain_order=True).agg(
        pl.len().alias("turns"),
        pl.col("tokens", "seconds", "rounds").sum(),
        committed,
        pl.lit(None, pl.Float64).alias("nodes"),
        pl.lit(None, pl.Float64).alias("nodes_allowed"),
    )


def _rows_of_summary(files: ReleasedFiles, name: str, dataset: str) -> list[dict[str, object]]:
    """Sums of each method in a file of the reference program."""
    summary = files.value(name)
    rows = summary.get("rows") if isinstance(summary, dict) else None
    if not isinstance(summary, dict) or not isinstance(rows, list):
        raise SimlabError(f"{name} has no rows; expected one for each method")
    given = summary.get("args")
    allowed = _number(given, "max_tree_budget") if isinstance(given, dict) else math.nan
    return [{**_sums_row(name, dataset, row), "nodes_allowed": finite(allowed)} for row in rows]


def _sums_row(name: str, dataset: str, row: object) -> dict[str, object]:
    """A row of their sums; the rounds are their mean over turns times the turns."""
    if not isinstance(row, dict) or not isinstance(row.get("method"), str):
        raise SimlabError(f"{name} has a row without a method")
    values = [_number(row, key) for key in _SUMS]
    if not all(one > 0 for one in values):
        raise SimlabError(f"{name}, {row['method']}: expected positive numbers {', '.join(_SUMS)}")
    turns, tokens, seconds, rounds_mean, length = values
    rounds = round(rounds_mean * turns)
    return {
        "method": row["method"],
        "dataset": dataset,
        "turns": int(turns),
        "tokens": int(tokens),
        "seconds": seconds,
        "rounds": rounds,
        "committed": round(length * rounds),
        "nodes": finite(_number(row, "budget_mean_unweighted")),
    }


def _number(row: Mapping[str, object], name: str) -> float:
    """A number of a row; NaN where there is none."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
