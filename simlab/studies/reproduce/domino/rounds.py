"""Half a million released rounds of Domino: which mean their table has, what its arms are, which comparisons remain.

The records are of the released Domino decoder, run in two arms: with CUDA graphs and without. Their table takes of each
dataset the faster arm. Theirs is the macro average (per response) of each dataset, and the mean of these. Pooled: all
tokens over all rounds, inside each dataset, or of all texts together; the latter gives most weight to datasets with
many rounds. At temperature 0 the arms should differ in speed alone; above it they draft in two ways.
"""

from collections.abc import Sequence

import polars as pl

from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table import estimates as over
from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino import records as domino
from simlab.studies.reproduce.domino.pairs import comparisons_text, count_comparisons, overall_text, paired_cells
from simlab.studies.reproduce.domino.records import ARMS, DATASETS, MODELS, TEMPERATURES, Setting
from simlab.studies.reproduce.domino.sessions import (
    ABLATION,
    BASELINE_SESSION,
    draft_sampling,
    draft_sampling_text,
    round_times,
    session_changes,
    times_text,
    verification_ratio,
)
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, flat, table

_LENGTH_LIMIT = 2048
"""Tokens at which a text is cut."""

_TWO_WAYS = (
    "Above temperature 0 the arms draft in two ways, as the author of DominoTree documents (`--sample-draft` of "
    "benchmark.py). In the decoder's code (github.com/jianuo-huang/Domino, code/dflash.py at commit 1e0fbf8 and "
    "code/kernel/domino.py at a2cab8a; theirs is e4aad4851) the first pure_draft_prefix_len candidates are sampled in "
    "both arms; of the others the eager arm samples each at the temperature, the graph arm takes the most probable. "
    "Either is exact. Taking the faster arm makes the baseline of DominoTree stronger."
)


def domino_rounds(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Means, sessions, the two arms, over-count, and the paired comparisons of the table."""
    programs = (domino.OWN_PROGRAM, domino.REFERENCE_PROGRAM)
    folders = [f"{model.raw}/{name}/" for model in MODELS for name in programs]
    others = ("results/raw/domino_official/", "results/tables_gpunative/", f"{BASELINE_SESSION}/", f"{ABLATION}/")
    sessions = [name for model in MODELS for name in domino.session_names(files, model)]
    files.have([*files.names(*others, *folders), *sessions], options.progress)
    settings = [domino.read_setting(files, model, temperature) for model in MODELS for temperature in TEMPERATURES]
    means = [setting_means(files, setting) for setting in settings]
    cells = pl.concat([cell_means(files, setting) for setting in settings])
    pairs, times = paired_cells(files, settings), pl.concat([round_times(setting) for setting in settings])
    changes, counted = session_changes(times), count_comparisons(pairs)
    verification = verification_ratio(files, next(setting.own for setting in settings if setting.model.summaries))
    arms, ablation = [arms_of(setting) for setting in settings], draft_sampling(files)
    ends = [over_count(setting, arm) for setting in settings for arm in ARMS]
    tables = [
        means_text(cells, means),
        times_text(times, verification),
        comparisons_text(pairs),
        overall_text(pairs),
        arms_text(arms, cells),
        draft_sampling_text(ablation),
        _ends_text(ends),
    ]
    values = {
        "rounds": sum(row[f"{arm}_rounds"] for row in arms for arm in ARMS),
        "means": [flat({**row, "theirs": row["theirs"].value}) for row in means],
        "cells": [_cell_row(row) for row in cells.to_dicts()],
        "cells_reproduced": count_cells(cells),
        "sessions": [row | {"ms_per_round": round(row["ms_per_round"], 3)} for row in times.to_dicts()],
        "session_changes": {name: round(value, 4) for name, value in changes.items()},
        "verification_ratio": verification.row("ratio"),
        "arms": [_arm_row(row) for row in arms],
        "draft_sampling": [flat(row) for row in ablation],
        "over_count": ends,
        "comparisons": {"all": counted, **{model.name: count_comparisons(pairs, model=model.name) for model in MODELS}},
        "overall": [cell["row"] for cell in pairs if cell["rollup"] == "Overall"],
    }
    compared = [*(figure for row in means for figure in _compared_means(row)), *_compared_pairs(pairs)]
    return Findings(compared, tables, values)


def pooled(turns: pl.DataFrame) -> Estimate:
    """All tokens over all rounds; bonus tokens count."""
    return prompt_ratio(turns, committed=1, rounds=-1)


def macro(turns: pl.DataFrame) -> Estimate:
    """The macro average (per response): the mean over turns of each turn's own mean."""
    return prompt_ratio(turns, mean=1, one=-1)


def cell_means(files: ReleasedFiles, setting: Setting) -> pl.DataFrame:
    """Their mean of each dataset, and ours by each choice.

    Columns: model, temperature, dataset, arm, theirs, macro, pooled, macro_over_pooled, rounds_share (of all rounds of
    the setting), tokens_per_text (a mean), other_warm_up (the macro average with the other rule for warm-up rows).
    """
    rows, all_rounds = [], int(setting.chosen["rounds"].sum())
    for dataset, arm in setting.best.items():
        key = {"temp": setting.temperature, "dataset": dataset, "model": setting.model.name, "method": "Domino"}
        own, whole = (turns.filter(pl.col("dataset") == dataset) for turns in (setting.chosen, setting.arms[arm]))
        other = whole if setting.model.domino_drops_first else whole.filter(pl.col("prompt") != 0)
        rows.append(
            {
                **setting.key,
                "dataset": dataset,
                "arm": arm,
                "theirs": files.quoted_cell(setting.model.cells, "tau", **key).value,
                "macro": macro(own).value,
                "pooled": pooled(own).value,
                "macro_over_pooled": prompt_ratio(own, mean=1, one=-1, committed=-1, rounds=1).value,
                "rounds_share": int(own["rounds"].sum()) / all_rounds,
                "tokens_per_text": int(own["tokens"].sum()) / own.height,
                "other_warm_up": macro(other).value,
            }
        )
    return pl.DataFrame(rows)


def _cell_row(cell: Row) -> Row:
    digits = {"theirs": 4, "macro": 4, "pooled": 4, "macro_over_pooled": 4, "rounds_share": 3, "tokens_per_text": None}
    del cell["other_warm_up"]
    return cell | {name: round(cell[name], num_digits) for name, num_digits in digits.items()}


def count_cells(cells: pl.DataFrame) -> dict[str, int]:
    """How many cells there are, and how many of theirs are which mean: to all decimals, but of the pooled to two."""
    most = {"macro": domino.ROUNDING, "pooled": 0.005, "other_warm_up": domino.ROUNDING}
    same = {name: int(((cells[name] - cells["theirs"]).abs() < most[name]).sum()) for name in most}
    return {"cells": cells.height, **same}


def setting_means(files: ReleasedFiles, setting: Setting) -> Row:
    """Their last column, and the means of the same rounds, of the arms that their table has.

    The weights ratio, the mean over datasets of pooled means over the pooled mean, is what the change of weights does.
    """
    turns = setting.chosen
    means, tokens = ("mean", "one"), ("committed", "rounds")
    by_dataset, of_all = over.mean_over_datasets(turns, *tokens), pooled(turns)
    return {
        "name": setting.name,
        "theirs": domino.printed_overall(files, setting.model, setting.temperature, "Domino"),
        "dataset_macro": over.mean_over_datasets(turns, *means),
        "dataset_pooled": by_dataset,
        "dataset_macro_over_pooled": over.ratio_of_dataset_means(turns, means, tokens),
        "macro": macro(turns),
        "pooled": of_all,
        "weights_ratio": round(by_dataset.value / of_all.value, 5),
    }


def means_text(cells: pl.DataFrame, means: Sequence[Row]) -> str:
    """How many of their cells are which mean, and what each choice does."""
    counted = count_cells(cells)
    first = within_width(
        f"Acceptance lengths of their table, {counted['cells']} cells of Domino: {counted['macro']} are the macro "
        "average (per response) of the faster arm to all decimals, with their rule for warm-up rows (4B keeps all "
        f"prompts, 8B leaves out the first); {counted['other_warm_up']} with the other rule; {counted['pooled']} are "
        "the pooled mean to two decimals. Their last column is the mean over datasets, each of equal weight. Intervals "
        "of figures over all texts take the mix of datasets as drawn by chance too; the others hold it fixed."
    )
    columns = [("all texts", "{name}"), ("macro average", "{macro}"), ("pooled", "{pooled}"), ("", "")]
    columns += [("macro / pooled inside datasets", "{dataset_macro_over_pooled:3}")]
    columns += [("weights by rounds", "{weights_ratio:.3f}")]
    settings = cells.select("model", "temperature").unique(maintain_order=True).rows()
    of_settings = [
        (f"{model.removeprefix('Qwen3-')} T={temperature}", f"{{macro_over_pooled[{at}]:.2f}}")
        for at, (model, temperature) in enumerate(settings)
    ]
    by_dataset = [
        ("macro over pooled", "{label}"),
        *of_settings,
        ("% of rounds", "{rounds_share[0]:.0f} to {rounds_share[1]:.0f}"),
        ("tokens a text", "{tokens_per_text[0]:,.0f} to {tokens_per_text[1]:,.0f}"),
    ]
    return f"{first}\n\n{table('lr', columns, means)}\n\n{table('lr', by_dataset, _by_dataset(cells))}"


def _by_dataset(cells: pl.DataFrame) -> list[Row]:
    """A row for each dataset, those first whose macro average is largest over the pooled mean; ends of shares."""
    ratio, share = pl.col("macro_over_pooled"), 100 * pl.col("rounds_share")
    both = ((share, "rounds_share"), (pl.col("tokens_per_text"), "tokens_per_text"))
    ends = [pl.concat_list(expr.min(), expr.max()).alias(name) for expr, name in both]
    grouped = cells.group_by("dataset", maintain_order=True).agg(ratio, ratio.min().alias("least"), *ends)
    named = grouped.with_columns(pl.col("dataset").replace_strict(DATASETS).alias("label"))
    return named.sort("least", descending=True, maintain_order=True).to_dicts()


def arms_of(setting: Setting) -> Row:
    """Both arms of a setting, and the graph arm over the eager arm, paired."""
    first, second = (setting.arms[arm] for arm in ARMS)
    paired = first.join(second, on=domino.TURN, suffix="_eager", maintain_order="left")
    row: Row = {**setting.key, "turns": paired.height}
    for arm, turns in setting.arms.items():
        row |= {f"{arm}_rounds": int(turns["rounds"].sum()), f"{arm}_pooled": pooled(turns)}
        row[f"{arm}_macro"] = macro(turns)
        row[f"{arm}_whole_block_share"] = over.prompt_share(turns, "whole_block", "rounds")
    return row | {
        "equal_turns": int((paired["lengths"] == paired["lengths_eager"]).sum()),
        "length_ratio": prompt_ratio(paired, committed=1, rounds=-1, committed_eager=-1, rounds_eager=1),
        "macro_length_ratio": prompt_ratio(paired, mean=1, mean_eager=-1),
        "speed_ratio": prompt_ratio(paired, tokens=1, seconds=-1, tokens_eager=-1, seconds_eager=1),
        "rounds_per_s_ratio": prompt_ratio(paired, rounds=1, seconds=-1, rounds_eager=-1, seconds_eager=1),
    }


def _arm_row(row: Row) -> Row:
    return flat(row | {f"{arm}_macro": round(row[f"{arm}_macro"].value, 5) for arm in ARMS})


def arms_text(arms: Sequence[Row], cells: pl.DataFrame) -> str:
    """Both arms, the graph arm over the eager arm, and what they differ in."""
    singly = [
        {"name": f"{row['model']} T={row['temperature']} {arm}"}
        | {name: row[f"{arm}_{name}"] for name in ("rounds", "pooled", "macro", "whole_block_share")}
        for row in arms
        for arm in ARMS
    ]
    columns = [("the two arms", "{name}"), ("rounds", "{rounds:,}"), ("pooled [95 %]", "{pooled}")]
    columns += [("macro average", "{macro}"), (f"rounds of {domino.MOST_COMMITTED}, %", "{whole_block_share:1%}")]
    both = [
        ("graph over eager, paired", "{model} T={temperature}"),
        ("equal turns", "{equal_turns} of {turns}"),
        ("pooled length [95 %]", "{length_ratio:3}"),
        ("macro length", "{macro_length_ratio:3}"),
        ("speed", "{speed_ratio:3}"),
        ("rounds/s", "{rounds_per_s_ratio:3}"),
    ]
    eager = cells.filter(pl.col("arm") == "eager")
    named = eager.select(pl.format("{} T={} {}", "model", "temperature", "dataset")).to_series().to_list()
    best = (
        "Their README (results/raw/domino_official) has the graph arm at least as fast in every cell; the eager one is "
        f"faster in {eager.height} of {cells.height} ({', '.join(named)})."
    )
    return "\n\n".join([table("lr", columns, singly), table("lr", both, arms), within_width(f"{_TWO_WAYS} {best}")])


def over_count(setting: Setting, arm: str) -> Row:
    """Tokens in acceptance lengths that are not in the text, by how the text ended."""
    more, is_cut = pl.col("committed") - pl.col("tokens"), pl.col("tokens") >= _LENGTH_LIMIT
    counts = {
        "ended": (~is_cut).sum(),
        "ended_by_one": (~is_cut & (more == 1)).sum(),
        "ended_by_more": (~is_cut & (more > 1)).sum(),
        "fewer": (more < 0).sum(),
        "cut": is_cut.sum(),
        "cut_most": pl.max_horizontal(more.filter(is_cut).max(), pl.lit(0)),
        "share": more.sum() / pl.col("tokens").sum(),
    }
    row = setting.arms[arm].select(count.alias(name) for name, count in counts.items()).row(0, named=True)
    return {**setting.key, "arm": arm, **row, "share": round(row["share"], 6)}


def _ends_text(rows: Sequence[Row]) -> str:
    """Tokens that are counted after the end of a text."""
    columns = [
        ("counted after the end of the text", "{model} T={temperature} {arm}"),
        ("texts that end", "{ended}"),
        ("by 1", "{ended_by_one}"),
        ("by more", "{ended_by_more}"),
        ("cut", "{cut}"),
        ("by at most", "{cut_most}"),
        ("all, %", "{percent:.2f}"),
    ]
    return table("lr", columns, [row | {"percent": 100 * row["share"]} for row in rows])


def _compared_means(means: Row) -> list[ComparedFigure]:
    named = (("macro averages", means["dataset_macro"]), ("pooled means", means["dataset_pooled"]))
    return [ComparedFigure(f"{means['name']}: mean of datasets' {what}", own, means["theirs"]) for what, own in named]


def _compared_pairs(cells: Sequence[Row]) -> list[ComparedFigure]:
    """DominoTree over Domino and over DDTree, all datasets together, in per cent."""
    figures = []
    for cell in cells:
        if cell["rollup"] == "Overall" and cell["rival"] in ("Domino", "DDTree@16"):
            own: Estimate = cell["by_turn"]
            low, high = (100 * (end - 1) for end in (own.interval.low, own.interval.high))
            name = f"{cell['model']} T={cell['temperature']}: DominoTree over {cell['rival']}, % of speed"
            figures.append(ComparedFigure(name, Estimate(100 * (own.value - 1), Interval(low, high)), cell["theirs"]))
    return figures
