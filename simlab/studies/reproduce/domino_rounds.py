"""Half a million released rounds of Domino: which mean their table has, what its arms are, which comparisons remain.

The records are of the released Domino decoder, run in two arms: with CUDA graphs and without. Their table takes of each
dataset the faster arm. Theirs is the macro average (per response) of each dataset, and the mean of these. Pooled: all
tokens over all rounds, inside each dataset, or of all texts together; the latter gives most weight to datasets with
many rounds. At temperature 0 the arms should differ in speed alone; above it they draft in two ways.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from simlab.analysis.compare.estimates import (
    Estimate,
    mean_over_datasets,
    prompt_ratio,
    prompt_share,
    ratio_of_dataset_means,
)
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino import (
    ARMS,
    DATASETS,
    MODELS,
    MOST_COMMITTED,
    OWN_PROGRAM,
    REFERENCE_PROGRAM,
    ROUNDING,
    TEMPERATURES,
    Setting,
    printed_overall,
    read_setting,
    session_names,
)
from simlab.studies.reproduce.domino_pairs import comparisons_text, count_comparisons, overall_text, paired_cells
from simlab.studies.reproduce.domino_sessions import (
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
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, table

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
    folders = [f"{model.raw}/{name}/" for model in MODELS for name in (OWN_PROGRAM, REFERENCE_PROGRAM)]
    others = ("results/raw/domino_official/", "results/tables_gpunative/", f"{BASELINE_SESSION}/", f"{ABLATION}/")
    sessions = [name for model in MODELS for name in session_names(files, model)]
    files.have([*files.names(*others, *folders), *sessions], options.progress)
    settings = [read_setting(files, model, temperature) for model in MODELS for temperature in TEMPERATURES]
    means = [setting_means(files, one) for one in settings]
    cells = pl.concat([cell_means(files, one) for one in settings])
    pairs = paired_cells(files, settings)
    times = pl.concat([round_times(one) for one in settings])
    changes = session_changes(times)
    verification = next((verification_ratio(files, one.own) for one in settings if one.model.summaries), None)
    over, ablation = [over_count(one, arm) for one in settings for arm in ARMS], draft_sampling(files)
    counted = count_comparisons(pairs)
    return Findings(
        [*(figure for one in means for figure in _compared_means(one)), *_compared_pairs(pairs)],
        f"{means_follow(means, cells)} {comparisons_follow(counted, changes)} {arms_follow(settings)}",
        [
            means_text(cells, means),
            times_text(times, verification),
            comparisons_text(pairs),
            overall_text(pairs),
            arms_text(settings, cells),
            draft_sampling_text(ablation),
            _ends_text(over),
        ],
        {
            "rounds": sum(int(turns["rounds"].sum()) for one in settings for turns in one.arms.values()),
            "means": [_means_row(one) for one in means],
            "cells": [_cell_row(one) for one in cells.to_dicts()],
            "cells_reproduced": count_cells(cells),
            "sessions": [row | {"ms_per_round": round(row["ms_per_round"], 3)} for row in times.to_dicts()],
            "session_changes": {name: round(value, 4) for name, value in changes.items()},
            "verification_ratio": None if verification is None else verification.row("ratio"),
            "arms": [arm_row(one) for one in settings],
            "draft_sampling": ablation,
            "over_count": over,
            "comparisons": {
                "all": counted,
                **{one.name: count_comparisons(pairs, model=one.name) for one in MODELS},
            },
            "overall": [cell["row"] for cell in pairs if cell["rollup"] == "Overall"],
        },
    )


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
                "model": setting.model.name,
                "temperature": setting.temperature,
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


def count_cells(cells: pl.DataFrame) -> dict[str, int]:
    """How many cells there are, and how many of theirs are which mean: to all decimals, but of the pooled to two."""
    most = {"macro": ROUNDING, "pooled": 0.005, "other_warm_up": ROUNDING}
    same = {name: int(((cells[name] - cells["theirs"]).abs() < most[name]).sum()) for name in most}
    return {"cells": cells.height, **same}


def setting_means(files: ReleasedFiles, setting: Setting) -> Row:
    """Their last column, and the means of the same rounds, of the arms that their table has."""
    turns = setting.chosen
    return {
        "name": setting.name,
        "theirs": printed_overall(files, setting.model, setting.temperature, "Domino"),
        "dataset_macro": mean_over_datasets(turns, "mean", "one"),
        "dataset_pooled": mean_over_datasets(turns, "committed", "rounds"),
        "dataset_macro_over_pooled": ratio_of_dataset_means(turns, ("mean", "one"), ("committed", "rounds")),
        "macro": macro(turns),
        "pooled": pooled(turns),
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
    heading = ["all texts", "macro average", "pooled", "", "macro / pooled inside datasets", "weights by rounds"]
    rows = [
        [one["name"], one["macro"].text(), one["pooled"].text(), ""]
        + [one["dataset_macro_over_pooled"].text(3), f"{_weights_ratio(one):.3f}"]
        for one in means
    ]
    settings = cells.select("model", "temperature").unique(maintain_order=True)
    named = [f"{model.removeprefix('Qwen3-')} T={temperature}" for model, temperature in settings.iter_rows()]
    by_dataset = [
        [DATASETS[row["dataset"]], *(f"{value:.2f}" for value in row["macro_over_pooled"])]
        + [f"{100 * row['rounds_share'][0]:.0f} to {100 * row['rounds_share'][1]:.0f}"]
        + [f"{row['tokens_per_text'][0]:,.0f} to {row['tokens_per_text'][1]:,.0f}"]
        for row in _by_dataset(cells).to_dicts()
    ]
    second = table("lr", ["macro over pooled", *named, "% of rounds", "tokens a text"], by_dataset)
    return f"{first}\n\n{table('lr', heading, rows)}\n\n{second}"


def means_follow(means: Sequence[Row], cells: pl.DataFrame) -> str:
    """Whether their table is reproduced, and what pooled means would be."""
    same = count_cells(cells)["macro"]
    how = "is" if same == cells.height else "is not" if not same else "is in part"
    first = f"their table {how} reproduced as macro averages (per response): {same} of {cells.height} cells."
    ratios = [one["dataset_macro_over_pooled"] for one in means]
    least, most = (end(100 * (1 - 1 / ratio.value) for ratio in ratios) for end in (min, max))
    shown = sum(ratio.side_of() != 0 for ratio in ratios)
    if least <= 0:
        inside = f"from {-most:+.0f} to {-least:+.0f} % of it; the two differ in {shown} of {len(means)} settings"
        return f"{first} Pooled inside each dataset, the mean over datasets lies {inside}."
    name, some = _by_dataset(cells).select("dataset", "macro_over_pooled").row(0)
    weights = [100 * (1 / _weights_ratio(one) - 1) for one in means]
    return (
        f"{first} Pooled inside each dataset, the mean over datasets is {least:.0f} to {most:.0f} % smaller, in "
        f"{shown} of {len(means)} settings shown; of single datasets {DATASETS[name]} differs most, whose macro "
        f"average is {100 * (min(some) - 1):.0f} to {100 * (max(some) - 1):.0f} % larger than its pooled mean. Pooling "
        f"all texts weighs datasets by their rounds, which changes another {min(weights):+.0f} to {max(weights):+.0f} %."
    )


def comparisons_follow(counted: Mapping[str, int], changes: Mapping[str, float]) -> str:
    """Which comparisons say something, and how many of those remain."""
    first = ""
    if counted["left_out"]:
        first = (
            f"Of {counted['cells']} comparisons {counted['left_out']} tell nothing of the methods: there the others are "
            f"over an autoregressive baseline of another session{_changed(changes)}. "
        )
    return (
        f"{first}Of {counted['shown']} of the {counted['counted']} {'other ' if first else ''}comparisons whose "
        f"interval excludes 0, {counted['remain']} still do with intervals over prompts, {counted['remain_among_all']} "
        f"when each model's are corrected together (Holm), and of the {counted['shown_with_pooled']} with released "
        f"seconds {counted['remain_pooled']} by pooled speeds."
    )


def _changed(changes: Mapping[str, float]) -> str:
    """By how much the rounds of a method took another time in the other session."""
    if not changes:
        return ""
    percent = [100 * (value - 1) for value in changes.values()]
    least, most = sorted((abs(min(percent)), abs(max(percent))))
    if max(percent) < 0:
        return f", in which a round took {least:.0f} to {most:.0f} % less time, so that their speedups are too large"
    if min(percent) > 0:
        return f", in which a round took {least:.0f} to {most:.0f} % more time, so that their speedups are too small"
    return f", whose rounds differ by {min(percent):+.0f} to {max(percent):+.0f} % in time"


def arms_follow(settings: Sequence[Setting]) -> str:
    """Whether CUDA graphs change more than speed."""
    ratios, said = {one.name: one.length_ratio for one in settings}, []
    for side, word in ((1, "more"), (-1, "fewer")):
        some = {name: ratio for name, ratio in ratios.items() if ratio.side_of() == side}
        if some:
            most = max(abs(100 * (ratio.value - 1)) for ratio in some.values())
            where = f"{len(some)} of {len(ratios)} settings ({', '.join(some)})"
            said.append(f"commits {word} tokens per round in {where}, by up to {most:.0f} %")
    if not said:
        return f"No difference of acceptance lengths between the two arms is shown in any of {len(ratios)} settings."
    return f"The arm with CUDA graphs {' and '.join(said)}, so the arms differ in more than speed there."


def arm_row(one: Setting) -> Row:
    """Both arms of a setting, and one over the other, as scripts and figures read them."""
    found: Row = {"model": one.model.name, "temperature": one.temperature, "turns": one.paired_arms.height}
    for arm, turns in one.arms.items():
        found |= {f"{arm}_rounds": int(turns["rounds"].sum()), **pooled(turns).row(f"{arm}_pooled")}
        found[f"{arm}_macro"] = round(macro(turns).value, 5)
        found |= prompt_share(turns, "whole_block", "rounds").row(f"{arm}_whole_block_share")
    found["equal_turns"] = _equal_turns(one)
    for name, ratio in _arm_ratios(one).items():
        found |= ratio.row(name)
    return found


def arms_text(settings: Sequence[Setting], cells: pl.DataFrame) -> str:
    """Both arms, one over the other, and what they differ in."""
    heading = ["the two arms", "rounds", "pooled [95 %]", "macro average", f"rounds of {MOST_COMMITTED}, %"]
    arms = [
        [f"{one.name} {arm}", f"{int(turns['rounds'].sum()):,}", pooled(turns).text(), macro(turns).text()]
        + [prompt_share(turns, "whole_block", "rounds").text(1, factor=100)]
        for one in settings
        for arm, turns in one.arms.items()
    ]
    ratios = [
        [one.name, f"{_equal_turns(one)} of {one.paired_arms.height}"]
        + [ratio.text(3) for ratio in _arm_ratios(one).values()]
        for one in settings
    ]
    over = ["graph over eager, paired", "equal turns", "pooled length [95 %]", "macro length", "speed", "rounds/s"]
    eager = [
        f"{row['model']} T={row['temperature']} {row['dataset']}"
        for row in cells.filter(pl.col("arm") == "eager").to_dicts()
    ]
    best = f"The graph arm is the faster one in all {cells.height} cells, as their README says."
    if eager:
        best = (
            f"Their README (results/raw/domino_official) has the graph arm at least as fast in every cell; in "
            f"{len(eager)} of {cells.height} the eager one is faster "
            f"({', '.join(eager[:3])}{' ...' if eager[3:] else ''})."
        )
    return "\n\n".join([table("lr", heading, arms), table("lr", over, ratios), within_width(f"{_TWO_WAYS} {best}")])


def over_count(one: Setting, arm: str) -> Row:
    """Tokens in acceptance lengths that are not in the text, by how the text ended."""
    over, is_cut = pl.col("committed") - pl.col("tokens"), pl.col("tokens") >= _LENGTH_LIMIT
    counted = one.arms[arm].select(
        (~is_cut).sum().alias("ended"),
        (~is_cut & (over == 1)).sum().alias("ended_by_one"),
        (~is_cut & (over > 1)).sum().alias("ended_by_more"),
        (over < 0).sum().alias("fewer"),
        is_cut.sum().alias("cut"),
        pl.max_horizontal(over.filter(is_cut).max(), pl.lit(0)).alias("cut_most"),
        over.sum().alias("over"),
        pl.col("tokens").sum(),
    )
    row = counted.row(0, named=True)
    share = round(row.pop("over") / row.pop("tokens"), 6)
    return {"model": one.model.name, "temperature": one.temperature, "arm": arm, **row, "share": share}


def _ends_text(rows: Sequence[Row]) -> str:
    """Tokens that are counted after the end of a text."""
    heading = ["counted after the end of the text", "texts that end", "by 1", "by more", "cut", "by at most", "all, %"]
    cells = [
        [f"{row['model']} T={row['temperature']} {row['arm']}"]
        + [str(row[key]) for key in ("ended", "ended_by_one", "ended_by_more", "cut", "cut_most")]
        + [f"{100 * row['share']:.2f}"]
        for row in rows
    ]
    return table("lr", heading, cells)


def _arm_ratios(one: Setting) -> dict[str, Estimate]:
    """The graph arm over the eager arm."""
    paired = one.paired_arms
    return {
        "length_ratio": one.length_ratio,
        "macro_length_ratio": prompt_ratio(paired, mean=1, mean_eager=-1),
        "speed_ratio": prompt_ratio(paired, tokens=1, seconds=-1, tokens_eager=-1, seconds_eager=1),
        "rounds_per_s_ratio": prompt_ratio(paired, rounds=1, seconds=-1, rounds_eager=-1, seconds_eager=1),
    }


def _equal_turns(one: Setting) -> int:
    return int((one.paired_arms["lengths"] == one.paired_arms["lengths_eager"]).sum())


def _weights_ratio(means: Row) -> float:
    """The mean over datasets of pooled means, over the pooled mean: what the change of weights does."""
    return float(means["dataset_pooled"].value / means["pooled"].value)


def _means_row(means: Row) -> Row:
    found: Row = {"name": means["name"], "theirs": means["theirs"].value}
    for name, value in means.items():
        found |= value.row(name) if isinstance(value, Estimate) else {}
    return found | {"weights_ratio": round(_weights_ratio(means), 5)}


def _cell_row(cell: Row) -> Row:
    digits = {"theirs": 4, "macro": 4, "pooled": 4, "macro_over_pooled": 4, "rounds_share": 3, "tokens_per_text": None}
    named = {name: cell[name] for name in ("model", "temperature", "dataset", "arm")}
    return named | {name: round(cell[name], places) for name, places in digits.items()}


def _by_dataset(cells: pl.DataFrame) -> pl.DataFrame:
    """A row for each dataset, those first whose macro average is largest over the pooled mean; ends of shares."""
    ends = [pl.concat_list(pl.min(name), pl.max(name)).alias(name) for name in ("rounds_share", "tokens_per_text")]
    ratio = pl.col("macro_over_pooled")
    grouped = cells.group_by("dataset", maintain_order=True).agg(ratio, ratio.min().alias("least"), *ends)
    return grouped.sort("least", descending=True, maintain_order=True)


def _compared_means(means: Row) -> list[ComparedFigure]:
    named = (("macro averages", means["dataset_macro"]), ("pooled means", means["dataset_pooled"]))
    return [ComparedFigure(f"{means['name']}: mean of datasets' {what}", own, means["theirs"]) for what, own in named]


def _compared_pairs(cells: Sequence[Row]) -> list[ComparedFigure]:
    """DominoTree over Domino and over DDTree, all datasets together, in per cent."""
    found = []
    for cell in cells:
        if cell["rollup"] == "Overall" and cell["rival"] in {"Domino", "DDTree@16"}:
            own: Estimate = cell["by_turn"]
            low, high = (100 * (end - 1) for end in (own.interval.low, own.interval.high))
            name = f"{cell['model']} T={cell['temperature']}: DominoTree over {cell['rival']}, % of speed"
            found.append(ComparedFigure(name, Estimate(100 * (own.value - 1), Interval(low, high)), cell["theirs"]))
    return found
