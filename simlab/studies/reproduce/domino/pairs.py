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
from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.studies.reproduce.domino.records import DATASETS, METHODS, MODELS, SETTING, TREE, TURN, Figure, rows_by
from simlab.studies.reproduce.released import ReleasedFiles, Row, table

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

IN_JSON = (
    *("model", "temperature", "rival", "turns", "theirs_percent", "theirs_ci_low", "theirs_ci_high", "speed_ratio"),
    *("length_ratio", "counted", "remains", "remains_among_all", "pooled_speed_ratio"),
)
"""What JSON has of a cell, where it is known."""

_JUDGED = ("model", "rival", "counted", "theirs_side", "side", "pooled_side", "p_value")


def paired_cells(files: ReleasedFiles, domino: pl.DataFrame, turns: pl.DataFrame) -> tuple[list[Row], pl.DataFrame]:
    """All cells of their tables of comparisons, and what `judged` makes of them, which they have too.

    Of each: model, temperature, rival, rollup, turns; theirs, in per cent; speed_ratio, ours of the same; length_ratio;
    pooled_speed_ratio, of all tokens over all seconds, None where these were not released.
    """
    rows = {
        (model.name, row["temp"], row["dataset_or_rollup"], row["comparison"]): (model, row)
        for model in MODELS
        for row in files.rows(model.table("pairwise_ci"))
    }
    reuse_baseline = {
        (model.name, temperature)
        for model in MODELS
        for temperature, folder in model.summaries.items()
        if files.value(f"{folder}/MANIFEST.json").get("skip_baseline") is True
    }
    figures: dict[str, Figure] = {
        "speed_ratio": {"first": 1, "second": -1},
        "length_ratio": {"mean": 1, "mean_rival": -1},
        "pooled_speed_ratio": _pooled_speed,
    }
    cells = rows_by(_paired(domino, turns), [*SETTING, "rival", "rollup"], figures)
    for cell in cells:
        where = (cell["temperature"], cell["rollup"], f"DominoTree (16) vs {cell['rival']}")
        model, row = rows[cell["model"], *where]
        percent, low, high = (float(row[name]) for name in ("delta_pct", "ci_low", "ci_high"))
        by_turn, pooled = cell["speed_ratio"], cell["pooled_speed_ratio"]
        cell |= {
            "theirs": files.quoted(model.table("pairwise_ci"), percent, f"delta_pct of {', '.join(where)}"),
            "theirs_percent": round(percent, 4),
            "theirs_ci_low": round(low, 4),
            "theirs_ci_high": round(high, 4),
            "counted": cell["rival"] == "Domino" or (model.name, cell["temperature"]) not in reuse_baseline,
            "theirs_side": int(low > 0) - int(high < 0),
            "side": by_turn.side_of(),
            "pooled_side": None if pooled is None else pooled.side_of(),
            "p_value": by_turn.p_value,
        }
    verdicts = judged(pl.DataFrame([{name: cell[name] for name in _JUDGED} for cell in cells]))
    return [cell | verdict for cell, verdict in zip(cells, verdicts.to_dicts(), strict=True)], verdicts


def judged(cells: pl.DataFrame) -> pl.DataFrame:
    """Cells, and whether what they show is shown by ours too: alone (remains), and among all (remains_among_all).

    Among all: corrected by Holm together with all of the model that count.

    Args:
        cells: model, counted, p_value, and theirs_side, side and pooled_side: on which side of no difference their
            interval, ours, and ours of pooled speeds lie, the latter null where it is not known.
    """
    models = cells.partition_by("model", maintain_order=True)
    p_value = pl.when("counted").then("p_value").otherwise(float("nan"))
    adjusted = np.concatenate([holm(part.select(p_value).to_series().to_numpy()) for part in models])
    remains = (pl.col("theirs_side") != 0) & (pl.col("side") == pl.col("theirs_side"))
    among_all = remains & pl.col("counted") & (pl.col("adjusted") < 1 - LEVEL)
    verdicts = pl.concat(models).with_columns(pl.Series("adjusted", adjusted))
    return verdicts.with_columns(remains=remains, remains_among_all=among_all)


def count_comparisons(verdicts: pl.DataFrame) -> dict[str, dict[str, int]]:
    """How many cells count, how many of these they show to differ, and how many of these still do.

    Of all cells, of each model, and of each model over each rival, by these names.
    """
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
    groups = (pl.lit("all"), pl.col("model"), pl.format("{} over {}", "model", "rival"))
    sums = [
        verdicts.group_by(group.alias("name"), maintain_order=True).agg(
            pl.len().alias("cells"), *(number.sum().alias(name) for name, number in numbers.items())
        )
        for group in groups
    ]
    return {row.pop("name"): row for row in pl.concat(sums).to_dicts()}


def comparisons_text(counts: Mapping[str, Mapping[str, int]]) -> str:
    """How many of their comparisons remain, by model and by the other method."""
    return table(
        "lr",
        "paired comparisons = {name} | cells = {cells} | counted = {counted} | they show = {shown} | "
        "remain = {remain} | by Holm = {remain_among_all} | with seconds = {shown_with_pooled} | "
        "pooled = {remain_pooled} | sign = {sign_changed_pooled}",
        [{"name": name, **numbers} for name, numbers in counts.items()],
        "Counted: the others divide by an autoregressive baseline of another session. They show: their interval "
        "excludes 0. Remain: so does ours, over prompts, turns of a conversation together. By Holm: corrected among "
        "the cells of the model that count. Pooled: by all tokens over all seconds instead of the mean of each turn's "
        "speed, where seconds were released; sign: then the interval lies on the other side of 0.",
    )


def overall_text(cells: Sequence[Row]) -> str:
    """DominoTree over each other method, in cells of all datasets together."""
    unknown = "seconds not released"
    return table(
        "llrrrl",
        "DominoTree over, all datasets = {model} T={temperature} | = {rival} | "
        "speed, per turn [95 %] = {speed_ratio:3} | speed, pooled = {pooled_speed} | "
        "macro length = {length_ratio:3} | = {is_counted}",
        [
            cell
            | {"pooled_speed": unknown if cell["pooled_speed_ratio"] is None else f"{cell['pooled_speed_ratio']:3}"}
            | {"is_counted": "" if cell["counted"] else "not counted"}
            for cell in cells
        ],
        "Domino has the same drafter and is compared by tokens per second, of another program and, by the authors' "
        "README, another session; DDTree@16, CaDDTree and DFlash have another drafter, and each side is over its own "
        "program's autoregressive decoding.",
    )


def _paired(domino: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """A row for each turn of DominoTree and each rival, in each rollup that has its dataset.

    Columns: model, temperature, rival, rollup, those of the turn; speeds as they compare them (first, second); lengths,
    tokens and seconds of DominoTree, of the rival, and of the autoregressive decoding that each is over.
    """
    key, measures = [*SETTING, *TURN], ["tokens_per_s", "mean", "tokens", "seconds"]
    method, rivals = pl.col("method"), pl.Enum(list(RIVALS.values()))
    chosen = domino.filter("kept", pl.col("arm") == pl.col("best_arm")).with_columns(method=pl.lit("domino"))
    rival = method.replace_strict(RIVALS, return_dtype=rivals).alias("rival")
    others = [frame.filter(method.is_in(list(RIVALS))).select(*key, rival, *measures) for frame in (chosen, turns)]
    paired = turns.filter("kept", method == TREE).select(*key, *measures)
    paired = paired.join(pl.concat(others), on=key, suffix="_rival", maintain_order="left_right")
    for plain in ("ar", "baseline"):
        of_plain = turns.filter(method == plain).select(*key, *measures)
        paired = paired.join(of_plain, on=key, how="left", suffix=f"_{plain}", maintain_order="left")
    speed, other = pl.col("tokens_per_s"), pl.col("tokens_per_s_rival")
    is_domino = pl.col("rival") == "Domino"
    paired = paired.with_columns(
        first=pl.when(is_domino).then(speed).otherwise(speed / pl.col("tokens_per_s_ar")),
        second=pl.when(is_domino).then(other).otherwise(other / pl.col("tokens_per_s_baseline")),
    )
    rollups = pl.DataFrame({"rollup": list(ROLLUPS), "dataset": list(ROLLUPS.values())}).explode("dataset")
    sorted_by_rival = paired.sort(*SETTING, "rival", maintain_order=True)
    return sorted_by_rival.join(rollups, on="dataset", maintain_order="left_right")


def _pooled_speed(paired: pl.DataFrame) -> Estimate | None:
    powers = {"tokens": 1, "seconds": -1, "tokens_rival": -1, "seconds_rival": 1}
    if paired["rival"][0] != "Domino":
        powers |= {"tokens_ar": -1, "seconds_ar": 1, "tokens_baseline": 1, "seconds_baseline": -1}
    return None if any(paired[name].null_count() for name in powers) else prompt_ratio(paired, **powers)
