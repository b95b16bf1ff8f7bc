"""Their paired comparisons of DominoTree with four other methods, again with intervals over prompts.

Theirs resample turns; here the turns of a conversation remain together. The comparison itself is theirs: the ratio of
the means, over turns, of each turn's own speed. Where the other method's autoregressive baseline is of another session,
the comparison tells nothing of the methods and is not counted.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import LEVEL
from simlab.analysis.statistics.significance import holm
from simlab.analysis.table.estimates import prompt_ratio
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino.records import (
    DATASETS,
    METHODS,
    MODELS,
    TREE,
    TURN,
    Model,
    Setting,
    with_conversations,
)
from simlab.studies.reproduce.released import ReleasedFiles, Row, flat, table

ROLLUPS = {
    **{label: (name,) for name, label in DATASETS.items()},
    "Math": ("gsm8k", "math500", "aime25"),
    "Code": ("humaneval", "mbpp", "livecodebench"),
    "Chat": ("mt-bench", "alpaca"),
    "Overall": tuple(DATASETS),
}
"""The datasets of each row of their table of comparisons."""

RIVALS = {"domino": "Domino", **{name: METHODS[name] for name in ("ddtree_tb16", "caddtree", "dflash")}}
"""The methods that DominoTree is compared with: as records name them, and as tables do."""

_FLAGS = {
    "counted": pl.Boolean,
    "theirs_side": pl.Int64,
    "side": pl.Int64,
    "pooled_side": pl.Int64,
    "remains": pl.Boolean,
    "remains_among_all": pl.Boolean,
}


def paired_cells(files: ReleasedFiles, settings: Sequence[Setting]) -> list[Row]:
    """All cells of their tables of comparisons; those of a model that count are corrected together.

    Args:
        files: of the release.
        settings: of both models, at all temperatures.

    Returns:
        model, temperature, rollup and rival; theirs, in per cent; by_turn, ours of the same as a ratio; pooled, all
        tokens over all seconds, None where these were not released; row, what JSON has; and for `count_comparisons`
        whether it is counted, on which side of no difference theirs, ours and the pooled interval lie, and whether
        what they show is shown by ours too, alone (remains) and among all of the model that count.
    """
    cells: list[Row] = []
    for model in MODELS:
        rows = files.rows(model.pairwise)
        own = [setting for setting in settings if setting.model.name == model.name]
        cells += among_all([cell for setting in own for cell in _cells(files, setting, rows)])
    return [cell | {"row": _row(cell)} for cell in cells]


def among_all(cells: Sequence[Row]) -> list[Row]:
    """Cells with p-values corrected together by Holm; those that do not count are left out of that."""
    p_values = [cell["by_turn"].p_value if cell["counted"] else float("nan") for cell in cells]
    adjusted = holm(np.array(p_values, np.float64))
    return [
        cell | {"remains_among_all": cell["counted"] and cell["remains"] and bool(p_value < 1 - LEVEL)}
        for cell, p_value in zip(cells, adjusted, strict=True)
    ]


def count_comparisons(cells: Sequence[Row], **only: str) -> dict[str, int]:
    """How many of some cells count, how many of these they show to differ, and how many of these still do.

    Args:
        cells: as `paired_cells` has them.
        only: values of keys, such as ``model``; others are left out.
    """
    values = [
        [cell[name] for name in _FLAGS] for cell in cells if all(cell[key] == value for key, value in only.items())
    ]
    flags = pl.DataFrame(values, schema=_FLAGS, orient="row")
    counted, theirs, pooled = pl.col("counted"), pl.col("theirs_side"), pl.col("pooled_side")
    shown = counted & (theirs != 0)
    numbers = {
        "left_out": ~counted,
        "left_out_shown": ~counted & (theirs != 0),
        "counted": counted,
        "shown": shown,
        "shown_faster": counted & (theirs > 0),
        "remain": shown & pl.col("remains"),
        "remain_among_all": shown & pl.col("remains_among_all"),
        "shown_by_ours_alone": counted & (theirs == 0) & (pl.col("side") != 0),
        "shown_with_pooled": shown & pooled.is_not_null(),
        "remain_pooled": shown & (pooled == theirs),
        "sign_changed_pooled": shown & (pooled == -theirs),
    }
    sums = flags.select(number.sum().alias(name) for name, number in numbers.items())
    return {"cells": flags.height, **sums.row(0, named=True)}


def comparisons_text(cells: Sequence[Row]) -> str:
    """How many of their comparisons remain, by model and by the other method."""
    groups: dict[str, dict[str, str]] = {"all": {}, **{cell["model"]: {"model": cell["model"]} for cell in cells}}
    for cell in cells:
        groups[f"{cell['model']} over {cell['rival']}"] = {key: cell[key] for key in ("model", "rival")}
    columns = [
        ("paired comparisons", "{name}"),
        ("cells", "{cells}"),
        ("counted", "{counted}"),
        ("they show", "{shown}"),
        ("remain", "{remain}"),
        ("by Holm", "{remain_among_all}"),
        ("with seconds", "{shown_with_pooled}"),
        ("pooled", "{remain_pooled}"),
        ("sign", "{sign_changed_pooled}"),
    ]
    rows = [{"name": name, **count_comparisons(cells, **only)} for name, only in groups.items()]
    note = (
        "Counted: the others divide by an autoregressive baseline of another session. They show: their interval "
        "excludes 0. Remain: so does ours, over prompts, turns of a conversation together. By Holm: corrected among "
        "the cells of the model that count. Pooled: by all tokens over all seconds instead of the mean of each turn's "
        "speed, where seconds were released; sign: then the interval lies on the other side of 0."
    )
    return f"{table('lr', columns, rows)}\n{within_width(note)}"


def overall_text(cells: Sequence[Row]) -> str:
    """DominoTree over each other method, all datasets together."""
    columns = [
        ("DominoTree over, all datasets", "{model} T={temperature}"),
        ("", "{rival}"),
        ("speed, per turn [95 %]", "{by_turn:3}"),
        ("speed, pooled", "{shown_pooled}"),
        ("macro length", "{lengths:3}"),
        ("", "{shown_counted}"),
    ]
    rows = [
        cell
        | {"shown_pooled": "seconds not released" if cell["pooled"] is None else f"{cell['pooled']:3}"}
        | {"shown_counted": "" if cell["counted"] else "not counted"}
        for cell in cells
        if cell["rollup"] == "Overall"
    ]
    note = (
        "Domino has the same drafter and is compared by tokens per second, of another program and, by the authors' "
        "README, another session; DDTree@16, CaDDTree and DFlash have another drafter, and each side is over its own "
        "program's autoregressive decoding."
    )
    return f"{table('llrrrl', columns, rows)}\n{within_width(note)}"


def _row(cell: Row) -> Row:
    theirs = {"percent": cell["theirs"].value, "ci_low": cell["theirs_low"], "ci_high": cell["theirs_high"]}
    named = {name: cell[name] for name in ("model", "temperature", "rival", "turns")}
    named |= {f"theirs_{name}": round(value, 4) for name, value in theirs.items()}
    named |= {"speed_ratio": cell["by_turn"], "length_ratio": cell["lengths"]}
    named |= {name: cell[name] for name in ("counted", "remains", "remains_among_all")}
    return flat(named if cell["pooled"] is None else named | {"pooled_speed_ratio": cell["pooled"]})


def _cells(files: ReleasedFiles, setting: Setting, rows: Sequence[Mapping[str, str]]) -> list[Row]:
    turns, cells = _turns(setting), []
    for rival in RIVALS:
        paired = _paired(turns, rival)
        for rollup, datasets in ROLLUPS.items():
            part = paired.filter(pl.col("dataset").is_in(datasets))
            if part.height:
                cells.append(_cell(files, setting, rollup, rival, part, rows))
    return cells


def _turns(setting: Setting) -> dict[str, pl.DataFrame]:
    """The turns of each method; the first is left out where their table leaves it out."""
    tree = setting.own.filter(pl.col("method") == TREE)
    return {
        "tree": tree.filter(pl.col("place") > 0) if setting.model.tree_drops_first else tree,
        "tree's ar": setting.own.filter(pl.col("method") == "ar"),
        "domino": setting.chosen,
        **{name: with_conversations(setting.reference.filter(pl.col("method") == name), tree) for name in METHODS},
    }


def _paired(turns: Mapping[str, pl.DataFrame], rival: str) -> pl.DataFrame:
    """A row for each turn of both: speeds as they compare them (first, second), lengths, tokens and seconds."""
    columns = [*TURN, "tokens_per_s", "mean", "tokens", "seconds"]
    paired = (
        turns["tree"]
        .select(columns)
        .join(turns[rival].select(columns), on=TURN, suffix="_rival", maintain_order="left")
    )
    if rival == "domino":
        return paired.with_columns(pl.col("tokens_per_s").alias("first"), pl.col("tokens_per_s_rival").alias("second"))
    for name, base in (("ar", "tree's ar"), ("plain", "baseline")):
        own = turns[base].select(*TURN, pl.col("tokens_per_s", "tokens", "seconds").name.suffix(f"_{name}"))
        paired = paired.join(own, on=TURN, maintain_order="left")
    return paired.with_columns(
        (pl.col("tokens_per_s") / pl.col("tokens_per_s_ar")).alias("first"),
        (pl.col("tokens_per_s_rival") / pl.col("tokens_per_s_plain")).alias("second"),
    )


def _cell(
    files: ReleasedFiles,
    setting: Setting,
    rollup: str,
    rival: str,
    paired: pl.DataFrame,
    rows: Sequence[Mapping[str, str]],
) -> Row:
    row, where = _their_row(setting.model, rows, setting.temperature, rollup, rival)
    powers = {"tokens": 1, "seconds": -1, "tokens_rival": -1, "seconds_rival": 1}
    if rival != "domino":
        powers |= {"tokens_ar": -1, "seconds_ar": 1, "tokens_plain": 1, "seconds_plain": -1}
    are_released = not any(paired[name].null_count() for name in powers)
    by_turn = prompt_ratio(paired, first=1, second=-1)
    pooled = prompt_ratio(paired, **powers) if are_released else None
    low, high = float(row["ci_low"]), float(row["ci_high"])
    theirs_side = int(low > 0) - int(high < 0)
    return {
        **setting.key,
        "rollup": rollup,
        "rival": RIVALS[rival],
        "turns": paired.height,
        "theirs": files.quoted(setting.model.pairwise, float(row["delta_pct"]), f"delta_pct of {where}"),
        "theirs_low": low,
        "theirs_high": high,
        "by_turn": by_turn,
        "pooled": pooled,
        "lengths": prompt_ratio(paired, mean=1, mean_rival=-1),
        "counted": rival == "domino" or not setting.reuses_baseline,
        "theirs_side": theirs_side,
        "side": by_turn.side_of(),
        "pooled_side": None if pooled is None else pooled.side_of(),
        "remains": theirs_side != 0 and by_turn.side_of() == theirs_side,
    }


def _their_row(
    model: Model, rows: Sequence[Mapping[str, str]], temperature: str, rollup: str, rival: str
) -> tuple[Mapping[str, str], str]:
    """The only row of a comparison in their table, and where it is."""
    label = f"DominoTree (16) vs {RIVALS[rival]}"
    key = {"temp": temperature, "dataset_or_rollup": rollup, "comparison": label}
    (row,) = [row for row in rows if all(row[name] == value for name, value in key.items())]
    return row, ", ".join(key.values())
