"""Half a million released rounds of Domino: which mean their table has, what its two arms are, what comparisons stay.

The records are of the released Domino decoder, in two arms that should differ in speed alone: with and without CUDA
graphs. Their table takes of each dataset the faster one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.domino.pairs import PairedCell, chosen_domino, counts, paired_cells
from simlab.analysis.released.domino.records import (
    ARMS,
    LENGTH_LIMIT,
    MODELS,
    MOST_COMMITTED,
    TEMPERATURES,
    Model,
    domino_turns,
    printed_overall,
    record_names,
)
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, mean_over_datasets, prompt_ratio, prompt_share
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.text import aligned, within_width

_TURN = ["dataset", "prompt", "turn"]
_SAME = 5e-9
"""Means that differ by less are equal: sums are added in another order."""


@dataclass(frozen=True, slots=True)
class _Arms:
    """The two arms of a model at a temperature, and what their table takes of these.

    Attributes:
        arms: turns of each.
        chosen: turns in their table.
        best: arm of each dataset.
    """

    model: Model
    temperature: str
    arms: Mapping[str, pl.DataFrame]
    chosen: pl.DataFrame
    best: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.model.name} T={self.temperature}"

    @property
    def paired(self) -> pl.DataFrame:
        first, second = (self.arms[arm] for arm in ARMS)
        return first.join(second, on=_TURN, suffix="_eager")


def domino_rounds(files: ReleasedFiles, progress: bool | None = None) -> Findings:
    """Both means, the block's cap, over-count, the two arms, and the paired comparisons of the table.

    Args:
        files: of the release.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: the files cannot be had, or are not as they were released.
    """
    folders = [f"{model.raw}/{name}/" for model in MODELS for name in ("dominotree", "baseline_ddtree_caddtree")]
    files.have(record_names(files, "results/raw/domino_official/", "results/tables_gpunative/", *folders), progress)
    parts = [_arms(files, model, temperature) for model in MODELS for temperature in TEMPERATURES]
    cells = [
        cell
        for model in MODELS
        for cell in paired_cells(
            files,
            model,
            {(one.temperature, name): arm for one in parts if one.model is model for name, arm in one.best.items()},
        )
    ]
    reproduced = [row for one in parts for row in _reproduced(files, one)]
    arms = [_arm_row(one) for one in parts]
    ends = [_over_count(one, arm) for one in parts for arm in ARMS]
    compared = [figure for one in parts for figure in _means(files, one)]
    compared += [_compared_cell(cell) for cell in cells if _is_headline(cell)]
    return Findings(
        compared=tuple(compared),
        follows=_follows(parts, reproduced, arms, cells),
        tables=(
            _reproduced_text(reproduced),
            _arms_text(parts),
            _ends_text(ends),
            _cells_text(cells),
            _overall_text(cells),
        ),
        values={
            "rounds": sum(int(turns["rounds"].sum()) for one in parts for turns in one.arms.values()),
            "cells": reproduced,
            "arms": arms,
            "over_count": ends,
            "comparisons": {"all": counts(cells), **{one.name: counts(_of(cells, one)) for one in MODELS}},
            "overall": [cell.row() for cell in cells if cell.rollup == "Overall"],
            "changed": [cell.row() for cell in cells if cell.theirs_direction and not cell.stays],
        },
    )


def _arms(files: ReleasedFiles, model: Model, temperature: str) -> _Arms:
    arms = {arm: domino_turns(files, model, temperature, arm) for arm in ARMS}
    return _Arms(model, temperature, arms, *chosen_domino(arms, model))


def _pooled(turns: pl.DataFrame) -> PromptFigure:
    return prompt_ratio(turns, committed=1, rounds=-1)


def _macro(turns: pl.DataFrame) -> PromptFigure:
    return prompt_ratio(turns, mean=1, one=-1)


def _macro_over_pooled(turns: pl.DataFrame) -> PromptFigure:
    return prompt_ratio(turns, mean=1, one=-1, committed=-1, rounds=1)


def _means(files: ReleasedFiles, one: _Arms) -> list[ComparedFigure]:
    theirs = printed_overall(files, one.model, one.temperature, "Domino")
    found = (
        ("mean of 8 datasets' macro averages", mean_over_datasets(one.chosen, "mean", "one")),
        ("macro average (per response)", _macro(one.chosen)),
        ("pooled", _pooled(one.chosen)),
    )
    return [ComparedFigure(f"{one.name}: {name}", own.value, theirs, own.interval) for name, own in found]


def _is_headline(cell: PairedCell) -> bool:
    return cell.rollup == "Overall" and cell.rival in {"Domino", "DDTree@16"}


def _compared_cell(cell: PairedCell) -> ComparedFigure:
    low, high = (100 * (end - 1) for end in (cell.by_turn.interval.low, cell.by_turn.interval.high))
    name = f"{cell.model} T={cell.temperature}: DominoTree over {cell.rival}, % of speed"
    return ComparedFigure(name, cell.percent, cell.theirs, Interval(low, high))


def _reproduced(files: ReleasedFiles, one: _Arms) -> list[dict[str, object]]:
    """Their mean of each dataset, and ours by each choice."""
    rows = []
    for name, arm in one.best.items():
        theirs = files.quoted_cell(
            one.model.cells, "tau", temp=one.temperature, dataset=name, model=one.model.name, method="Domino"
        )
        chosen, whole = (turns.filter(pl.col("dataset") == name) for turns in (one.chosen, one.arms[arm]))
        other = whole if one.model.domino_drops_first else whole.filter(pl.col("prompt") != 0)
        values = {"macro": _macro(chosen).value, "pooled": _pooled(chosen).value, "other_warm_up": _macro(other).value}
        interval = _macro(chosen).interval
        rows.append(
            {
                "model": one.model.name,
                "temperature": one.temperature,
                "dataset": name,
                "arm": arm,
                "theirs": round(theirs.value, 4),
                **{key: round(value, 4) for key, value in values.items()},
                "macro_ci_low": round(interval.low, 3),
                "macro_ci_high": round(interval.high, 3),
                "is_macro": abs(values["macro"] - theirs.value) < _SAME,
                "is_pooled": abs(values["pooled"] - theirs.value) < 0.005,
                "is_other_warm_up": abs(values["other_warm_up"] - theirs.value) < _SAME,
            }
        )
    return rows


def _arm_row(one: _Arms) -> dict[str, object]:
    paired = one.paired
    found: dict[str, object] = {"model": one.model.name, "temperature": one.temperature, "turns": paired.height}
    for arm, turns in one.arms.items():
        found |= {f"{arm}_rounds": int(turns["rounds"].sum()), **_pooled(turns).row(f"{arm}_pooled")}
        found |= _macro(turns).row(f"{arm}_macro") | _macro_over_pooled(turns).row(f"{arm}_macro_over_pooled")
        found |= prompt_share(turns, "whole_block", "rounds").row(f"{arm}_whole_block_share")
    return found | {
        "equal_turns": int((paired["lengths"] == paired["lengths_eager"]).sum()),
        **_length_ratio(paired).row("length_ratio"),
        **prompt_ratio(paired, mean=1, mean_eager=-1).row("macro_length_ratio"),
        **_speed_ratio(paired).row("speed_ratio"),
        **_round_speed_ratio(paired).row("rounds_per_s_ratio"),
    }


def _length_ratio(paired: pl.DataFrame) -> PromptFigure:
    return prompt_ratio(paired, committed=1, rounds=-1, committed_eager=-1, rounds_eager=1)


def _speed_ratio(paired: pl.DataFrame) -> PromptFigure:
    return prompt_ratio(paired, tokens=1, seconds=-1, tokens_eager=-1, seconds_eager=1)


def _round_speed_ratio(paired: pl.DataFrame) -> PromptFigure:
    return prompt_ratio(paired, rounds=1, seconds=-1, rounds_eager=-1, seconds_eager=1)


def _over_count(one: _Arms, arm: str) -> dict[str, object]:
    """Tokens in acceptance lengths that are not in the text, by how the text ended."""
    turns = one.arms[arm]
    tokens = turns["tokens"].to_numpy()
    over = turns["committed"].to_numpy() - tokens
    is_cut = tokens >= LENGTH_LIMIT
    return {
        "model": one.model.name,
        "temperature": one.temperature,
        "arm": arm,
        "ended": int((~is_cut).sum()),
        "ended_by_one": int((over[~is_cut] == 1).sum()),
        "ended_by_more": int((over[~is_cut] > 1).sum()),
        "fewer": int((over < 0).sum()),
        "cut": int(is_cut.sum()),
        "cut_most": int(over[is_cut].max(initial=0)),
        "share": round(float(over.sum() / tokens.sum()), 6),
    }


def _of(cells: Sequence[PairedCell], model: Model) -> list[PairedCell]:
    return [one for one in cells if one.model == model.name]


def _figure_text(figure: PromptFigure, digits: int = 2) -> str:
    return f"{figure.value:.{digits}f} [{figure.interval.low:.{digits}f}, {figure.interval.high:.{digits}f}]"


def _reproduced_text(rows: Sequence[Mapping[str, object]]) -> str:
    num = len(rows)
    macro, pooled, other = (
        sum(bool(row[key]) for row in rows) for key in ("is_macro", "is_pooled", "is_other_warm_up")
    )
    return within_width(
        f"Acceptance lengths of their table, {num} cells of Domino: {macro} are the macro average (per response) of "
        "the faster arm to all decimals, with their rule for warm-up rows (4B keeps all prompts, 8B leaves out the "
        f"first); {other} with the other rule; {pooled} are the pooled mean to two decimals. Their last column is the "
        "mean over datasets, each of equal weight."
    )


def _arms_text(parts: Sequence[_Arms]) -> str:
    head = [
        "the two arms",
        "rounds",
        "pooled [95 %]",
        "macro average",
        "macro / pooled",
        f"rounds of {MOST_COMMITTED}, %",
    ]
    cells = [head]
    ratios = [["graph over eager, paired", "equal turns", "pooled length [95 %]", "macro length", "speed", "rounds/s"]]
    for one in parts:
        for arm, turns in one.arms.items():
            whole = prompt_share(turns, "whole_block", "rounds")
            cells.append(
                [
                    f"{one.name} {arm}",
                    f"{int(turns['rounds'].sum()):,}",
                    _figure_text(_pooled(turns)),
                    _figure_text(_macro(turns)),
                    _figure_text(_macro_over_pooled(turns), 3),
                    f"{100 * whole.value:.1f} [{100 * whole.interval.low:.1f}, {100 * whole.interval.high:.1f}]",
                ]
            )
        paired = one.paired
        ratios.append(
            [
                one.name,
                f"{int((paired['lengths'] == paired['lengths_eager']).sum())} of {paired.height}",
                _figure_text(_length_ratio(paired), 3),
                _figure_text(prompt_ratio(paired, mean=1, mean_eager=-1), 3),
                _figure_text(_speed_ratio(paired), 3),
                _figure_text(_round_speed_ratio(paired), 3),
            ]
        )
    left = [True, False, False, False, False, False]
    note = (
        "Above temperature 0 the arms draft in two ways: by their decoder's code (github.com/jianuo-huang/Domino, "
        "code/dflash.py and code/kernel/domino.py, read at another commit than they name) the eager arm samples its "
        "candidates at the temperature, the graph arm takes the most probable one. So best-of(graph, eager) chooses "
        "between two methods there, on the prompts that are reported."
    )
    return f"{aligned(cells, left)}\n\n{aligned(ratios, left)}\n{within_width(note)}"


def _ends_text(rows: Sequence[Mapping[str, object]]) -> str:
    cells = [["tokens counted behind the end", "texts that end", "by 1", "by more", "cut", "by at most", "of all, %"]]
    for row in rows:
        named = f"{row['model']} T={row['temperature']} {row['arm']}"
        counted = [str(row[key]) for key in ("ended", "ended_by_one", "ended_by_more", "cut", "cut_most")]
        cells.append([named, *counted, f"{100 * float(str(row['share'])):.2f}"])
    return aligned(cells, [True, *[False] * 6])


def _cells_text(cells: Sequence[PairedCell]) -> str:
    lines = [
        [
            "paired comparisons",
            "cells",
            "they show",
            "stay",
            "stay, all corrected",
            "with seconds",
            "stay pooled",
            "turn",
        ]
    ]
    groups = [(model.name, _of(cells, model)) for model in MODELS]
    groups += [
        (f"{name} over {rival}", [one for one in own if one.rival == rival])
        for name, own in groups[:2]
        for rival in dict.fromkeys(one.rival for one in own)
    ]
    keys = ("cells", "shown", "stay", "stay_among_all", "shown_with_pooled", "stay_pooled", "turned_pooled")
    for name, own in [("all", list(cells)), *groups]:
        found = counts(own)
        lines.append([name, *(str(found[key]) for key in keys)])
    note = (
        "They show: their interval leaves out 0. Stay: so does ours, over prompts, turns of a conversation together. "
        "All corrected: by Holm among the model's cells. Pooled: all tokens over all seconds instead of the mean of "
        "each turn's speed, where seconds were released; turn: then the interval lies on the other side of 0."
    )
    return f"{aligned(lines, [True, *[False] * 7])}\n{within_width(note)}"


def _overall_text(cells: Sequence[PairedCell]) -> str:
    lines = [["DominoTree over, all datasets", "", "speed, per turn [95 %]", "speed, pooled", "macro length"]]
    for one in cells:
        if one.rollup == "Overall":
            pooled = "seconds not released" if one.pooled is None else _figure_text(one.pooled, 3)
            figures = [_figure_text(one.by_turn, 3), pooled, _figure_text(one.lengths, 3)]
            lines.append([f"{one.model} T={one.temperature}", one.rival, *figures])
    note = "Domino has the same drafter; DDTree@16, CaDDTree and DFlash have another, in another program."
    return f"{aligned(lines, [True, True, False, False, False])}\n{note}"


def _follows(
    parts: Sequence[_Arms],
    reproduced: Sequence[Mapping[str, object]],
    arms: Sequence[Mapping[str, object]],
    cells: Sequence[PairedCell],
) -> str:
    over = [_macro_over_pooled(turns).value for one in parts for turns in one.arms.values()]
    same = sum(bool(row["is_macro"]) for row in reproduced)
    longer = [one for one in parts if _length_ratio(one.paired).direction > 0]
    found = counts(cells)
    most = max((_length_ratio(one.paired).value for one in longer), default=1.0)
    return (
        f"their table is reproduced ({same} of {len(reproduced)} cells), and it is of macro averages (per response), "
        f"which are {100 * (min(over) - 1):.0f} to {100 * (max(over) - 1):.0f} % larger than the pooled means, more at "
        f"higher temperatures: they cannot be set beside a pooled figure. Of {found['shown']} comparisons that they "
        f"show, {found['stay']} stay with intervals over prompts, {found['stay_among_all']} when all are corrected "
        f"together, and of the {found['shown_with_pooled']} whose seconds were released {found['stay_pooled']} stay "
        f"by pooled speeds. CUDA graphs change more than speed: in {len(longer)} of {len(parts)} settings "
        f"({', '.join(one.name for one in longer) or 'none'}) that arm commits more tokens per round, by up to "
        f"{100 * (most - 1):.0f} %."
    )
