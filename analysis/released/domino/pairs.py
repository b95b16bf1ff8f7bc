"""Their paired comparisons of DominoTree with four other methods, again with intervals over prompts.

Theirs resample turns; here the turns of a conversation remain together. The comparison itself is theirs: the ratio of
the means, over turns, of each turn's own speed. Where the other method's autoregressive baseline is of another session,
the comparison tells nothing of the methods and is not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import polars as pl

from simlab.analysis.released.domino.records import MODELS, ROLLUPS, Model, with_conversations
from simlab.analysis.released.domino.sessions import TREE
from simlab.analysis.released.domino.settings import Setting
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, prompt_ratio
from simlab.analysis.statistics.intervals import LEVEL
from simlab.analysis.statistics.significance import holm
from simlab.analysis.table.text import aligned, within_width
from simlab.errors import SimlabError

RIVALS: Mapping[str, str] = MappingProxyType(
    {"domino": "Domino", "ddtree_tb16": "DDTree@16", "caddtree": "CaDDTree", "dflash": "DFlash"}
)
"""The methods that DominoTree is compared with: as records name them, and as tables do."""

_TURN = ["dataset", "prompt", "turn"]


@dataclass(frozen=True, slots=True)
class PairedCell:
    """One cell of their table of comparisons, theirs and ours.

    Attributes:
        theirs: by how much DominoTree is faster, in per cent.
        theirs_low: the lower end of their interval.
        theirs_high: the upper end.
        num_turns: turns in it.
        by_turn: ours of the same: mean of speeds per turn over mean of speeds per turn.
        pooled: all tokens over all seconds, by the same; None where these were not released.
        lengths: acceptance lengths, macro averages (per response), by each other.
        is_counted: whether the speeds on each side are over a baseline of their own session, as far as that is known.
        remains_among_all: whether it also remains with p-values corrected among the model's that count.
    """

    model: str
    temperature: str
    rollup: str
    rival: str
    theirs: Quoted
    theirs_low: float
    theirs_high: float
    num_turns: int
    by_turn: PromptFigure
    pooled: PromptFigure | None
    lengths: PromptFigure
    is_counted: bool
    remains_among_all: bool = False

    @property
    def theirs_direction(self) -> int:
        """1 or -1 where their interval lies above or below 0, else 0."""
        return 1 if self.theirs_low > 0 else -1 if self.theirs_high < 0 else 0

    @property
    def remains(self) -> bool:
        """Whether what they show is shown by ours too."""
        return self.theirs_direction != 0 and self.by_turn.direction == self.theirs_direction

    @property
    def percent(self) -> float:
        """By how much DominoTree is faster, in per cent, ours."""
        return 100 * (self.by_turn.value - 1)

    def row(self) -> dict[str, object]:
        """Flat scalars, as a script reads them."""
        found: dict[str, object] = {
            "model": self.model,
            "temperature": self.temperature,
            "rival": self.rival,
            "turns": self.num_turns,
            "theirs_percent": round(self.theirs.value, 4),
            "theirs_ci_low": round(self.theirs_low, 4),
            "theirs_ci_high": round(self.theirs_high, 4),
            **self.by_turn.row("speed_ratio"),
            **self.lengths.row("length_ratio"),
            "counted": self.is_counted,
            "remains": self.remains,
            "remains_among_all": self.remains_among_all,
        }
        return found | ({} if self.pooled is None else self.pooled.row("pooled_speed_ratio"))


def paired_cells(files: ReleasedFiles, settings: Sequence[Setting]) -> list[PairedCell]:
    """All cells of their tables of comparisons; those of a model that count are corrected as one family.

    Args:
        files: of the release.
        settings: of both models, at all temperatures.

    Raises:
        SimlabError: a file holds something else, or their table has other cells.
    """
    found = []
    for model in MODELS:
        rows, own = files.rows(model.pairwise), [one for one in settings if one.model.name == model.name]
        found += among_all([cell for one in own for cell in _cells(files, one, rows)])
    return found


def among_all(cells: Sequence[PairedCell]) -> list[PairedCell]:
    """Cells of one family with p-values corrected by Holm; those that do not count are no part of it."""
    p_values = [one.by_turn.p_value if one.is_counted else float("nan") for one in cells]
    adjusted = holm(np.array(p_values, np.float64))
    return [
        replace(one, remains_among_all=one.is_counted and one.remains and bool(p_value < 1 - LEVEL))
        for one, p_value in zip(cells, adjusted, strict=True)
    ]


def count_comparisons(cells: Sequence[PairedCell]) -> dict[str, int]:
    """How many of some cells count, how many of these they show to differ, and how many of these still do."""
    counted = [one for one in cells if one.is_counted]
    shown = [one for one in counted if one.theirs_direction]
    pooled = [(one.pooled.direction, one.theirs_direction) for one in shown if one.pooled is not None]
    return {
        "cells": len(cells),
        "left_out": len(cells) - len(counted),
        "left_out_shown": sum(one.theirs_direction != 0 for one in cells if not one.is_counted),
        "counted": len(counted),
        "shown": len(shown),
        "shown_faster": sum(one.theirs_direction > 0 for one in shown),
        "remain": sum(one.remains for one in shown),
        "remain_among_all": sum(one.remains_among_all for one in shown),
        "shown_by_ours_alone": sum(not one.theirs_direction and one.by_turn.direction != 0 for one in counted),
        "shown_with_pooled": len(pooled),
        "remain_pooled": sum(ours == theirs for ours, theirs in pooled),
        "sign_changed_pooled": sum(ours == -theirs for ours, theirs in pooled),
    }


def comparisons_text(cells: Sequence[PairedCell]) -> str:
    """How many of their comparisons remain, by model and by the other method."""
    head = [
        "paired comparisons",
        "cells",
        "counted",
        "they show",
        "remain",
        "by Holm",
        "with seconds",
        "pooled",
        "sign",
    ]
    keys = ("cells", "counted", "shown", "remain", "remain_among_all", "shown_with_pooled", "remain_pooled")
    lines = [head]
    for name, own in _groups(cells):
        found = count_comparisons(own)
        lines.append([name, *(str(found[key]) for key in (*keys, "sign_changed_pooled"))])
    note = (
        "Counted: the others divide by an autoregressive baseline of another session. They show: their interval "
        "excludes 0. Remain: so does ours, over prompts, turns of a conversation together. By Holm: corrected among "
        "the cells of the model that count. Pooled: by all tokens over all seconds instead of the mean of each turn's "
        "speed, where seconds were released; sign: then the interval lies on the other side of 0."
    )
    return f"{aligned(lines, [True, *[False] * (len(head) - 1)])}\n{within_width(note)}"


def overall_text(cells: Sequence[PairedCell]) -> str:
    """DominoTree over each other method, all datasets together."""
    lines = [["DominoTree over, all datasets", "", "speed, per turn [95 %]", "speed, pooled", "macro length", ""]]
    for one in cells:
        if one.rollup == "Overall":
            pooled = "seconds not released" if one.pooled is None else one.pooled.text(3)
            figures = [one.by_turn.text(3), pooled, one.lengths.text(3), "" if one.is_counted else "not counted"]
            lines.append([f"{one.model} T={one.temperature}", one.rival, *figures])
    note = (
        "Domino has the same drafter and is compared by tokens per second, of another program and, by the authors' "
        "README, another session; DDTree@16, CaDDTree and DFlash have another drafter, and each side is over its own "
        "program's autoregressive decoding."
    )
    return f"{aligned(lines, [True, True, False, False, False, True])}\n{within_width(note)}"


def _groups(cells: Sequence[PairedCell]) -> list[tuple[str, list[PairedCell]]]:
    models = {name: [one for one in cells if one.model == name] for name in dict.fromkeys(one.model for one in cells)}
    pairs = dict.fromkeys((one.model, one.rival) for one in cells)
    rivals = [(f"{name} over {rival}", [one for one in models[name] if one.rival == rival]) for name, rival in pairs]
    return [("all", list(cells)), *models.items(), *rivals]


def _cells(files: ReleasedFiles, setting: Setting, rows: Sequence[Mapping[str, str]]) -> list[PairedCell]:
    turns = _turns(setting)
    found = []
    for rival in RIVALS:
        paired = _paired(turns, rival)
        for rollup, datasets in ROLLUPS.items():
            part = paired.filter(pl.col("dataset").is_in(datasets))
            if part.height:
                found.append(_cell(files, setting, rollup, rival, part, rows))
    return found


def _turns(setting: Setting) -> dict[str, pl.DataFrame]:
    """The turns of each method; the first is left out where their table leaves it out."""
    tree = setting.own.filter(pl.col("method") == TREE)
    return {
        "tree": tree.filter(pl.col("place") > 0) if setting.model.tree_drops_first else tree,
        "tree's ar": setting.own.filter(pl.col("method") == "ar"),
        "domino": setting.chosen,
        **{
            name: with_conversations(setting.reference.filter(pl.col("method") == name), tree)
            for name in ("baseline", "ddtree_tb16", "caddtree", "dflash")
        },
    }


def _paired(turns: Mapping[str, pl.DataFrame], rival: str) -> pl.DataFrame:
    """A row for each turn of both: speeds as they compare them (first, second), lengths, tokens and seconds."""
    columns = [*_TURN, "tokens_per_s", "mean", "tokens", "seconds"]
    paired = turns["tree"].select(columns).join(turns[rival].select(columns), on=_TURN, suffix="_rival")
    if rival == "domino":
        return paired.with_columns(pl.col("tokens_per_s").alias("first"), pl.col("tokens_per_s_rival").alias("second"))
    for name, base in (("ar", "tree's ar"), ("plain", "baseline")):
        own = turns[base].select(*_TURN, pl.col("tokens_per_s", "tokens", "seconds").name.suffix(f"_{name}"))
        paired = paired.join(own, on=_TURN)
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
) -> PairedCell:
    row, where = _their_row(setting.model, rows, setting.temperature, rollup, rival)
    if row["n"] != str(paired.height):
        raise SimlabError(f"{setting.model.pairwise}, {where}: {row['n']} turns by their table, {paired.height} here")
    powers = {"tokens": 1, "seconds": -1, "tokens_rival": -1, "seconds_rival": 1}
    if rival != "domino":
        powers |= {"tokens_ar": -1, "seconds_ar": 1, "tokens_plain": 1, "seconds_plain": -1}
    are_released = not any(paired[name].null_count() for name in powers)
    return PairedCell(
        model=setting.model.name,
        temperature=setting.temperature,
        rollup=rollup,
        rival=RIVALS[rival],
        theirs=files.quoted(setting.model.pairwise, float(row["delta_pct"]), f"delta_pct of {where}"),
        theirs_low=float(row["ci_low"]),
        theirs_high=float(row["ci_high"]),
        num_turns=paired.height,
        by_turn=prompt_ratio(paired, first=1, second=-1),
        pooled=prompt_ratio(paired, **powers) if are_released else None,
        lengths=prompt_ratio(paired, mean=1, mean_rival=-1),
        is_counted=rival == "domino" or not setting.reuses_baseline,
    )


def _their_row(
    model: Model, rows: Sequence[Mapping[str, str]], temperature: str, rollup: str, rival: str
) -> tuple[Mapping[str, str], str]:
    """The only row of a comparison in their table, and where it is.

    Raises:
        SimlabError: there is none, or more than one, or it holds no numbers.
    """
    label = f"DominoTree (16) vs {RIVALS[rival]}"
    key = {"temp": temperature, "dataset_or_rollup": rollup, "comparison": label}
    matching = [row for row in rows if all(row.get(name) == value for name, value in key.items())]
    where = ", ".join(key.values())
    if len(matching) != 1:
        raise SimlabError(f"{model.pairwise} has {len(matching)} rows of {where}; expected one")
    for name in ("n", "delta_pct", "ci_low", "ci_high"):
        try:
            float(matching[0][name])
        except (KeyError, TypeError, ValueError) as error:
            raise SimlabError(f"{model.pairwise}, {where}: {name} is no number") from error
    return matching[0], where
