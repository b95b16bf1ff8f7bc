"""Result rows of several runs as sums of each prompt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from simlab.analysis.statistics.slices import Slice, split_by_slice
from simlab.analysis.table.summaries import STAGE_COLUMNS, log_seconds_at_draws
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import NUM_DRAWS

COLUMNS = ("committed", "rounds", "response_means", "responses", "seconds", "plain_committed", "plain_seconds")
"""What is summed of each prompt; ``response_means`` are over the ``responses`` that have a round."""

Prompt: TypeAlias = tuple[str, str]
"""Dataset and name."""

_PROMPT = ("dataset", "prompt_id")
_TEXT = (*_PROMPT, "turn", "sample")


@dataclass(frozen=True, slots=True, eq=False)
class PolicyRun:
    """One policy at one place: its result rows, all of one kind and at one machine's prices.

    Attributes:
        name: what it is called in comparisons.
        rows: of the policy.
        plain: of plain decoding at the same place; may be empty.
    """

    name: str
    rows: pl.DataFrame
    plain: pl.DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class PromptSums:
    """Sums over some prompts for each run, prompts in an order that depends on them alone.

    Attributes:
        prompts: dataset and name of each.
        sums: float64 ``[prompts, runs, len(COLUMNS)]``; nan where a run has no seconds, or plain decoding does not
            have the same texts.
        log_draws: float64 ``[runs, 2, NUM_DRAWS]``, logarithms of the seconds of a run and of plain decoding on all
            prompts together, at each draw of the prices; nan where not known.
        profiles: of each run, the id of the latency profile of these; None where it has none.
    """

    prompts: tuple[Prompt, ...]
    sums: Doubles
    log_draws: Doubles
    profiles: tuple[str | None, ...]


def shared_runs(runs: Sequence[PolicyRun]) -> tuple[list[PolicyRun], dict[str, tuple[Prompt, ...]]]:
    """The runs on the prompts that all of them have, and which prompts are left out of each, by the run's name.

    A prompt is left out too where runs have other turns or samples of it.
    """
    of_runs = [{(dataset, prompt, texts) for dataset, prompt, texts, *_ in _by_prompt(run.rows)} for run in runs]
    shared = set.intersection(*of_runs)
    prompts = sorted((dataset, prompt) for dataset, prompt, _ in shared)
    table = pl.DataFrame(prompts, schema=dict.fromkeys(_PROMPT, pl.String), orient="row")
    left_out = {
        run.name: tuple(sorted((dataset, prompt) for dataset, prompt, _ in own - shared))
        for run, own in zip(runs, of_runs, strict=True)
    }
    return [_restricted(run, table, _PROMPT) for run in runs], left_out


def runs_by_slice(runs: Sequence[PolicyRun], by: str | None) -> list[tuple[Slice, list[PolicyRun]]]:
    """Runs cut slice by slice; what a text's slice is, the first run says, so that no text is lost between two.

    Args:
        runs: of the same prompts.
        by: as for `simlab.analysis.statistics.slices.split_by_slice`.
    """
    return [
        (value, [_restricted(run, rows.select(_TEXT).unique(), _TEXT) for run in runs])
        for value, rows in split_by_slice(runs[0].rows, by)
    ]


def prompt_sums(runs: Sequence[PolicyRun]) -> PromptSums:
    """Sums over the turns, samples and repeats of each prompt.

    Args:
        runs: of the same prompts.
    """
    tables = [{(row[0], row[1]): row[2:] for row in _by_prompt(run.rows)} for run in runs]
    prompts = tuple(sorted(tables[0]))
    sums = np.full((len(prompts), len(runs), len(COLUMNS)), np.nan)
    log_draws = np.full((len(runs), 2, NUM_DRAWS), np.nan)
    for index, (run, table) in enumerate(zip(runs, tables, strict=True)):
        if set(table) != set(prompts):
            raise ValueError(f"the runs {runs[0].name} and {run.name} are not of the same prompts")
        plain = {(row[0], row[1]): row[2:] for row in _by_prompt(run.plain)}
        for number, prompt in enumerate(prompts):
            texts, *values = table[prompt]
            sums[number, index, :5] = values
            if prompt in plain and plain[prompt][0] == texts:
                sums[number, index, 5:] = plain[prompt][1], plain[prompt][5]
        log_draws[index] = log_seconds_at_draws(run.rows), log_seconds_at_draws(run.plain)
    return PromptSums(prompts, sums, log_draws, tuple(_profile(run.rows) for run in runs))


def _restricted(run: PolicyRun, keys: pl.DataFrame, columns: Sequence[str]) -> PolicyRun:
    parts = (run.rows, run.plain)
    rows, plain = (part.join(keys, on=list(columns), how="semi", maintain_order="left") for part in parts)
    return PolicyRun(run.name, rows, plain)


def _profile(rows: pl.DataFrame) -> str | None:
    ids: list[str | None] = rows["cost_id"].unique().to_list()
    return ids[0] if len(ids) == 1 else None


def _by_prompt(rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Dataset and name of each prompt, which turns and samples there are, and the sums of the rows."""
    with_rounds = pl.col("rounds") > 0
    seconds = pl.sum_horizontal(pl.col(STAGE_COLUMNS), ignore_nulls=False)
    table = rows.group_by(*_PROMPT, maintain_order=True).agg(
        pl.format("{}/{}", "turn", "sample").unique().sort().str.join(" ").alias("texts"),
        pl.col("committed", "rounds").cast(pl.Int64).sum(),
        (pl.col("committed") / pl.col("rounds")).filter(with_rounds).sum().alias("response_means"),
        with_rounds.sum().alias("responses"),
        pl.when(seconds.is_null().any()).then(math.nan).otherwise(seconds.sum()).alias("seconds"),
    )
    return table.select(*_PROMPT, "texts", *COLUMNS[:5]).rows()
