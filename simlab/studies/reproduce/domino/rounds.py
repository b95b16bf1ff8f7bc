"""Half a million released rounds of Domino: which mean their table has, what its arms are, which comparisons remain.

The records are of the released Domino decoder, run in two arms: with CUDA graphs and without. Their table takes of each
dataset the faster arm. Theirs is the macro average (per response) of each dataset, and the mean of these. Pooled: all
tokens over all rounds, inside each dataset, or of all texts together; the latter gives most weight to datasets with
many rounds. At temperature 0 the arms should differ in speed alone; above it they draft in two ways.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table import estimates
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino import pairs, records, sessions
from simlab.studies.reproduce.domino.records import ARMS, DATASETS, MODELS, SETTING, TURN, Figure, rows_by
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, flat, table

_LENGTH_LIMIT = 2048
"""Tokens at which a text is cut."""

_MEANS: dict[str, Figure] = {
    "dataset_macro": partial(estimates.mean_over_datasets, above="mean", below="one"),
    "dataset_pooled": partial(estimates.mean_over_datasets, above="committed", below="rounds"),
    "dataset_macro_over_pooled": partial(
        estimates.ratio_of_dataset_means, first=("mean", "one"), second=("committed", "rounds")
    ),
    "macro": records.MACRO,
    "pooled": records.POOLED,
}

_CELL = ("model", "temp", "dataset", "method", "tau")
_OF_ARM: dict[str, Figure] = {
    "rounds": pl.sum("rounds"),
    "pooled": records.POOLED,
    "macro": records.MACRO,
    "whole_block_share": partial(estimates.prompt_share, part="whole_block", whole="rounds"),
}
_OF_BOTH: dict[str, Figure] = {
    "equal_turns": (pl.col("lengths") == pl.col("lengths_eager")).sum(),
    "length_ratio": {"committed": 1, "rounds": -1, "committed_eager": -1, "rounds_eager": 1},
    "macro_length_ratio": {"mean": 1, "mean_eager": -1},
    "speed_ratio": {"tokens": 1, "seconds": -1, "tokens_eager": -1, "seconds_eager": 1},
    "rounds_per_s_ratio": {"rounds": 1, "seconds": -1, "rounds_eager": -1, "seconds_eager": 1},
}
"""Figures of an arm, and of the graph arm over the eager arm, paired."""

_MORE, _IS_CUT = pl.col("committed") - pl.col("tokens"), pl.col("tokens") >= _LENGTH_LIMIT
_OVER_COUNT: dict[str, Figure] = {
    "ended": (~_IS_CUT).sum(),
    "ended_by_one": (~_IS_CUT & (_MORE == 1)).sum(),
    "ended_by_more": (~_IS_CUT & (_MORE > 1)).sum(),
    "fewer": (_MORE < 0).sum(),
    "cut": _IS_CUT.sum(),
    "cut_most": _MORE.filter(_IS_CUT).max().clip(0).fill_null(0),
    "share": _MORE.sum() / pl.sum("tokens"),
}
"""Tokens in acceptance lengths that are not in the text, by how the text ended."""

_TWO_WAYS = (
    "Above temperature 0 the arms draft in two ways, and either is exact: the first candidates are sampled in both; of "
    "the others the eager arm samples each at the temperature, the graph arm takes the most probable."
)


def domino_rounds(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Means, sessions, the two arms, over-count, and the paired comparisons of the table."""
    others = ("results/raw/domino_official/", "results/tables_gpunative/", f"{sessions.BASELINE_SESSION}/")
    files.have(files.names(*others, f"{sessions.ABLATION}/", *records.PROGRAM_FILES), options.progress)
    domino, turns = records.domino_turns(files), records.program_turns(files)
    cells, means = cell_means(files, domino), setting_means(files, domino)
    reproduced = count_cells(cells)
    arms = rows_by(domino, [*SETTING, "arm"], _OF_ARM | _OVER_COUNT)
    graph, eager = (domino.filter(pl.col("arm") == arm) for arm in ARMS)
    paired = graph.join(eager, on=[*SETTING, *TURN], suffix="_eager", maintain_order="left")
    both = rows_by(paired, SETTING, _OF_BOTH)
    times = sessions.round_times(domino, turns, records.program_sums(files, turns))
    verification, ablation = sessions.verification_ratio(files, turns), sessions.draft_sampling(files)
    compared, verdicts = pairs.paired_cells(files, domino, turns)
    overall, counts = [cell for cell in compared if cell["rollup"] == "Overall"], pairs.count_comparisons(verdicts)
    tables = [
        _means_text(cells, reproduced, means),
        sessions.times_text(times, verification),
        pairs.comparisons_text(counts),
        pairs.overall_text(overall),
        _arms_text(arms, both, cells),
        sessions.draft_sampling_text(ablation),
        _over_count_text(arms),
    ]
    digits = {"theirs": 4, "macro": 4, "pooled": 4, "macro_over_pooled": 4, "rounds_share": 3, "tokens_per_text": None}
    changes = sessions.session_changes(times)
    values = {
        "rounds": int(domino["rounds"].sum()),
        "means": [flat({**row, "theirs": row["theirs"].value}) for row in means],
        "cells": [
            row | {name: round(row[name], num_digits) for name, num_digits in digits.items()}
            for row in cells.drop("other_warm_up").to_dicts()
        ],
        "cells_reproduced": reproduced,
        "sessions": [row | {"ms_per_round": round(row["ms_per_round"], 3)} for row in times.to_dicts()],
        "session_changes": {name: round(value, 4) for name, value in changes.items()},
        "verification_ratio": verification.row("ratio"),
        "arms": [_arms_row(row, arms) for row in both],
        "draft_sampling": [flat(row) for row in ablation],
        "over_count": [
            {name: row[name] for name in (*SETTING, "arm", *_OVER_COUNT)} | {"share": round(row["share"], 6)}
            for row in arms
        ],
        "comparisons": {name: counts[name] for name in ("all", *(model.name for model in MODELS))},
        "overall": [flat({name: cell[name] for name in pairs.IN_JSON if cell[name] is not None}) for cell in overall],
    }
    return Findings([*_compared_means(means), *_compared_pairs(overall)], tables, values)


def cell_means(files: ReleasedFiles, domino: pl.DataFrame) -> pl.DataFrame:
    """Their mean of each dataset, and ours by each choice.

    Columns: model, temperature, dataset, arm, theirs, macro, pooled, macro_over_pooled, rounds_share (of all rounds of
    the setting), tokens_per_text (a mean), other_warm_up (the macro average with the other rule for warm-up rows).
    """
    printed = pl.concat(pl.DataFrame(files.rows(model.table("table1_cells"))).select(*_CELL) for model in MODELS)
    printed = printed.filter(pl.col("method") == "Domino").rename({"temp": "temperature", "tau": "theirs"})
    own = domino.filter(pl.col("arm") == pl.col("best_arm")).join(
        printed, on=[*SETTING, "dataset"], maintain_order="left"
    )
    mean, kept = pl.col("mean"), pl.col("kept")
    committed, rounds, tokens = (pl.col(name).filter(kept).sum() for name in ("committed", "rounds", "tokens"))
    cells = own.group_by(*SETTING, "dataset", "arm", maintain_order=True).agg(
        theirs=pl.first("theirs").cast(pl.Float64),
        macro=mean.filter(kept).mean(),
        pooled=committed / rounds,
        macro_over_pooled=mean.filter(kept).mean() * rounds / committed,
        rounds_share=rounds,
        tokens_per_text=tokens / kept.sum(),
        other_warm_up=mean.filter(pl.col("drops_first") | (pl.col("prompt") != 0)).mean(),
    )
    return cells.with_columns(pl.col("rounds_share") / pl.sum("rounds_share").over(SETTING))


def count_cells(cells: pl.DataFrame) -> dict[str, int]:
    """How many cells there are, and how many of theirs are which mean: to all decimals, but of the pooled to two."""
    most = {"macro": records.ROUNDING, "pooled": 0.005, "other_warm_up": records.ROUNDING}
    same = {name: int(((cells[name] - cells["theirs"]).abs() < most[name]).sum()) for name in most}
    return {"cells": cells.height, **same}


def setting_means(files: ReleasedFiles, domino: pl.DataFrame) -> list[Row]:
    """Their last column, and the means of the same rounds, of the arms that their table has.

    The weights ratio, the mean over datasets of pooled means over the pooled mean, is what the change of weights does.
    """
    rows = rows_by(domino.filter("kept", pl.col("arm") == pl.col("best_arm")), SETTING, _MEANS)
    return [
        {
            "name": "{model} T={temperature}".format_map(row),
            "theirs": records.printed_overall(files, row["model"], row["temperature"], "Domino"),
            **{name: row[name] for name in _MEANS},
            "weights_ratio": round(row["dataset_pooled"].value / row["pooled"].value, 5),
        }
        for row in rows
    ]


def _means_text(cells: pl.DataFrame, reproduced: Mapping[str, int], means: Sequence[Row]) -> str:
    """How many of their cells are which mean, and what each choice does."""
    first = (
        "Acceptance lengths of their table, {cells} cells of Domino: {macro} are the macro average (per response) of "
        "the faster arm to all decimals, with their rule for warm-up rows (4B keeps all prompts, 8B leaves out the "
        "first); {other_warm_up} with the other rule; {pooled} are the pooled mean to two decimals. Their last column "
        "is the mean over datasets, each of equal weight. Intervals of figures over all texts take the mix of datasets "
        "as drawn by chance too; the others hold it fixed."
    )
    of_settings = table(
        "lr",
        "all texts = {name} | macro average = {macro} | pooled = {pooled} | = | "
        "macro / pooled inside datasets = {dataset_macro_over_pooled:3} | "
        "weights by rounds = {weights_ratio:.3f}",
        means,
    )
    # Those first whose macro average is largest over the pooled mean.
    datasets = cells.group_by(pl.col("dataset").replace_strict(DATASETS).alias("label"), maintain_order=True).agg(
        "macro_over_pooled",
        least=pl.min("macro_over_pooled"),
        least_percent=100 * pl.min("rounds_share"),
        most_percent=100 * pl.max("rounds_share"),
        least_tokens=pl.min("tokens_per_text"),
        most_tokens=pl.max("tokens_per_text"),
    )
    settings = [row["name"].removeprefix("Qwen3-") for row in means]
    by_dataset = table(
        "lr",
        "macro over pooled = {label} | "
        + "".join(f"{name} = {{macro_over_pooled[{at}]:.2f}} | " for at, name in enumerate(settings))
        + "% of rounds = {least_percent:.0f} to {most_percent:.0f} | "
        + "tokens a text = {least_tokens:,.0f} to {most_tokens:,.0f}",
        datasets.sort("least", descending=True, maintain_order=True).to_dicts(),
    )
    return f"{within_width(first.format_map(reproduced))}\n\n{of_settings}\n\n{by_dataset}"


def _arms_row(both: Row, arms: Sequence[Row]) -> Row:
    """A setting in JSON: figures of both of its arms before those of the graph arm over the eager one."""
    own = [row for row in arms if all(row[name] == both[name] for name in SETTING)]
    of_arms = {f"{row['arm']}_{name}": row[name] for row in own for name in _OF_ARM}
    of_arms |= {f"{row['arm']}_macro": round(row["macro"].value, 5) for row in own}
    return flat({name: both[name] for name in (*SETTING, "turns")} | of_arms | both)


def _arms_text(arms: Sequence[Row], both: Sequence[Row], cells: pl.DataFrame) -> str:
    """Both arms, the graph arm over the eager arm, and what they differ in."""
    singly = table(
        "lr",
        "the two arms = {model} T={temperature} {arm} | rounds = {rounds:,} | "
        "pooled [95 %] = {pooled} | macro average = {macro} | "
        f"rounds of {records.MOST_COMMITTED}, % = {{whole_block_share:1%}}",
        arms,
    )
    paired = table(
        "lr",
        "graph over eager, paired = {model} T={temperature} | equal turns = {equal_turns} of {turns} | "
        "pooled length [95 %] = {length_ratio:3} | macro length = {macro_length_ratio:3} | "
        "speed = {speed_ratio:3} | rounds/s = {rounds_per_s_ratio:3}",
        both,
    )
    eager = cells.filter(pl.col("arm") == "eager")
    named = eager.select(pl.format("{} T={} {}", "model", "temperature", "dataset")).to_series().to_list()
    best = f"The eager arm is faster in {eager.height} of {cells.height} cells ({', '.join(named)})."
    return "\n\n".join([singly, paired, within_width(f"{_TWO_WAYS} {best}")])


def _over_count_text(arms: Sequence[Row]) -> str:
    """Tokens that are counted after the end of a text."""
    return table(
        "lr",
        "counted after the end of the text = {model} T={temperature} {arm} | "
        "texts that end = {ended} | by 1 = {ended_by_one} | by more = {ended_by_more} | cut = {cut} | "
        "by at most = {cut_most} | all, % = {percent:.2f}",
        [row | {"percent": 100 * row["share"]} for row in arms],
    )


def _compared_means(means: Sequence[Row]) -> list[ComparedFigure]:
    return [
        ComparedFigure(f"{row['name']}: mean of datasets' {what}", row[name], row["theirs"])
        for row in means
        for what, name in (("macro averages", "dataset_macro"), ("pooled means", "dataset_pooled"))
    ]


def _compared_pairs(overall: Sequence[Row]) -> list[ComparedFigure]:
    """DominoTree over Domino and over DDTree, all datasets together, in per cent."""
    return [
        ComparedFigure(
            f"{cell['model']} T={cell['temperature']}: DominoTree over {cell['rival']}, % of speed",
            _more_percent(cell["speed_ratio"]),
            cell["theirs"],
        )
        for cell in overall
        if cell["rival"] in ("Domino", "DDTree@16")
    ]


def _more_percent(ratio: Estimate) -> Estimate:
    value, low, high = (100 * (end - 1) for end in (ratio.value, ratio.interval.low, ratio.interval.high))
    return Estimate(value, Interval(low, high))
