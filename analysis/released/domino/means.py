"""Which mean their table of acceptance lengths has, and what the same rounds make by others.

Theirs is the macro average (per response) of each dataset, and the mean of these. Pooled: all tokens over all rounds,
inside each dataset, or of all texts together; the latter gives most weight to datasets with many rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.released.compared import ComparedFigure
from simlab.analysis.released.domino.records import DATASETS, ROUNDING, printed_overall
from simlab.analysis.released.domino.settings import Setting
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.released.prompt_ratios import (
    PromptFigure,
    mean_over_datasets,
    prompt_ratio,
    ratio_of_dataset_means,
)
from simlab.analysis.table.text import aligned, within_width


def pooled(turns: pl.DataFrame) -> PromptFigure:
    """All tokens over all rounds; bonus tokens count."""
    return prompt_ratio(turns, committed=1, rounds=-1)


def macro(turns: pl.DataFrame) -> PromptFigure:
    """The macro average (per response): the mean over turns of each turn's own mean."""
    return prompt_ratio(turns, mean=1, one=-1)


@dataclass(frozen=True, slots=True)
class CellMeans:
    """A cell of their table, and the means of the same rounds.

    Attributes:
        arm: the faster one, which their table has.
        macro: with their rule for warm-up rows.
        other_warm_up: the macro average with the other rule.
        macro_over_pooled: paired.
        rounds_share: of all rounds of the setting.
        tokens_per_text: a mean.
    """

    model: str
    temperature: str
    dataset: str
    arm: str
    theirs: Quoted
    macro: PromptFigure
    pooled: PromptFigure
    other_warm_up: float
    macro_over_pooled: PromptFigure
    rounds_share: float
    tokens_per_text: float

    @property
    def is_macro(self) -> bool:
        """Whether theirs is the macro average to all decimals."""
        return abs(self.macro.value - self.theirs.value) < ROUNDING

    @property
    def is_pooled(self) -> bool:
        """Whether theirs is the pooled mean to two decimals."""
        return abs(self.pooled.value - self.theirs.value) < 0.005

    @property
    def is_other_warm_up(self) -> bool:
        """Whether theirs is the macro average with the other rule for warm-up rows."""
        return abs(self.other_warm_up - self.theirs.value) < ROUNDING

    def row(self) -> dict[str, object]:
        """Flat scalars, as a script reads them."""
        return {
            "model": self.model,
            "temperature": self.temperature,
            "dataset": self.dataset,
            "arm": self.arm,
            "theirs": round(self.theirs.value, 4),
            "macro": round(self.macro.value, 4),
            "pooled": round(self.pooled.value, 4),
            "macro_over_pooled": round(self.macro_over_pooled.value, 4),
            "rounds_share": round(self.rounds_share, 3),
            "tokens_per_text": round(self.tokens_per_text),
        }


@dataclass(frozen=True, slots=True)
class SettingMeans:
    """Means of a model at a temperature, of the arms that their table has.

    Attributes:
        theirs: the last column of their table.
        dataset_macro: the mean over datasets of macro averages, which theirs is.
        dataset_pooled: the mean over datasets of pooled means.
        ratio: the former over the latter, paired.
        macro: of all texts.
        pooled: of all texts.
    """

    name: str
    theirs: Quoted
    dataset_macro: PromptFigure
    dataset_pooled: PromptFigure
    ratio: PromptFigure
    macro: PromptFigure
    pooled: PromptFigure

    @property
    def weights_ratio(self) -> float:
        """The mean over datasets of pooled means, over the pooled mean: what the change of weights does."""
        return self.dataset_pooled.value / self.pooled.value

    def row(self) -> dict[str, object]:
        """Flat scalars, as a script reads them."""
        return {
            "name": self.name,
            "theirs": self.theirs.value,
            **self.dataset_macro.row("dataset_macro"),
            **self.dataset_pooled.row("dataset_pooled"),
            **self.ratio.row("dataset_macro_over_pooled"),
            **self.macro.row("macro"),
            **self.pooled.row("pooled"),
            "weights_ratio": round(self.weights_ratio, 5),
        }

    def compared(self) -> list[ComparedFigure]:
        """Theirs beside the means over datasets."""
        found = (
            ("mean of datasets' macro averages", self.dataset_macro),
            ("mean of datasets' pooled means", self.dataset_pooled),
        )
        return [ComparedFigure(f"{self.name}: {what}", own.value, self.theirs, own.interval) for what, own in found]


def cell_means(files: ReleasedFiles, setting: Setting) -> list[CellMeans]:
    """Their mean of each dataset, and ours by each choice.

    Raises:
        SimlabError: their table has other cells.
    """
    found, all_rounds = [], int(setting.chosen["rounds"].sum())
    for dataset, arm in setting.best.items():
        key = {"temp": setting.temperature, "dataset": dataset, "model": setting.model.name, "method": "Domino"}
        own, whole = (turns.filter(pl.col("dataset") == dataset) for turns in (setting.chosen, setting.arms[arm]))
        other = whole if setting.model.domino_drops_first else whole.filter(pl.col("prompt") != 0)
        found.append(
            CellMeans(
                setting.model.name,
                setting.temperature,
                dataset,
                arm,
                files.quoted_cell(setting.model.cells, "tau", **key),
                macro(own),
                pooled(own),
                macro(other).value,
                prompt_ratio(own, mean=1, one=-1, committed=-1, rounds=1),
                int(own["rounds"].sum()) / all_rounds,
                int(own["tokens"].sum()) / own.height,
            )
        )
    return found


def setting_means(files: ReleasedFiles, setting: Setting) -> SettingMeans:
    """Their last column, and the means of the same rounds.

    Raises:
        SimlabError: their table has no such row.
    """
    turns = setting.chosen
    return SettingMeans(
        setting.name,
        printed_overall(files, setting.model, setting.temperature, "Domino"),
        mean_over_datasets(turns, "mean", "one"),
        mean_over_datasets(turns, "committed", "rounds"),
        ratio_of_dataset_means(turns, ("mean", "one"), ("committed", "rounds")),
        macro(turns),
        pooled(turns),
    )


def count_cells(cells: Sequence[CellMeans]) -> dict[str, int]:
    """How many cells there are, and how many of theirs are which mean."""
    return {
        "cells": len(cells),
        "macro": sum(one.is_macro for one in cells),
        "pooled": sum(one.is_pooled for one in cells),
        "other_warm_up": sum(one.is_other_warm_up for one in cells),
    }


def means_text(cells: Sequence[CellMeans], means: Sequence[SettingMeans]) -> str:
    """How many of their cells are which mean, and what each choice does."""
    found = count_cells(cells)
    first = within_width(
        f"Acceptance lengths of their table, {found['cells']} cells of Domino: {found['macro']} are the macro average "
        "(per response) of the faster arm to all decimals, with their rule for warm-up rows (4B keeps all prompts, 8B "
        f"leaves out the first); {found['other_warm_up']} with the other rule; {found['pooled']} are the pooled mean "
        "to two decimals. Their last column is the mean over datasets, each of equal weight. Intervals of figures over "
        "all texts take the mix of datasets as drawn by chance too; the others hold it fixed."
    )
    lines = [["all texts", "macro average", "pooled", "", "macro / pooled inside datasets", "weights by rounds"]]
    lines += [
        [one.name, one.macro.text(), one.pooled.text(), "", one.ratio.text(3), f"{one.weights_ratio:.3f}"]
        for one in means
    ]
    return f"{first}\n\n{aligned(lines, [True, *[False] * 5])}\n\n{_datasets_text(cells)}"


def ratios_by_dataset(cells: Sequence[CellMeans]) -> Mapping[str, list[CellMeans]]:
    """Cells by dataset, those first whose macro average is largest over the pooled mean."""
    names = list(dict.fromkeys(one.dataset for one in cells))
    found = {name: [one for one in cells if one.dataset == name] for name in names}
    least = {name: min(one.macro_over_pooled.value for one in some) for name, some in found.items()}
    return {name: found[name] for name in sorted(names, key=lambda name: -least[name])}


def _datasets_text(cells: Sequence[CellMeans]) -> str:
    settings = list(dict.fromkeys((one.model, one.temperature) for one in cells))
    head = ["macro over pooled", *(f"{model.removeprefix('Qwen3-')} T={one}" for model, one in settings)]
    lines = [[*head, "% of rounds", "tokens a text"]]
    for name, some in ratios_by_dataset(cells).items():
        shares, tokens = ([getattr(one, key) for one in some] for key in ("rounds_share", "tokens_per_text"))
        lines.append(
            [
                DATASETS[name],
                *(f"{one.macro_over_pooled.value:.2f}" for one in some),
                f"{100 * min(shares):.0f} to {100 * max(shares):.0f}",
                f"{min(tokens):,.0f} to {max(tokens):,.0f}",
            ]
        )
    return aligned(lines, [True, *[False] * (len(lines[0]) - 1)])
