"""Their paired comparisons of DominoTree with four other methods, again with intervals over prompts.

Theirs resample turns; here the turns of a conversation stay together. The comparison itself is theirs: the ratio of
the means, over turns, of each turn's own speed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import polars as pl

from simlab.analysis.released.domino.records import (
    ROLLUPS,
    TEMPERATURES,
    Model,
    domino_turns,
    program_turns,
    with_conversations,
)
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, prompt_ratio, significance_level
from simlab.analysis.statistics.significance import holm
from simlab.errors import SimlabError

TREE = "dominotree@16"
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
        num_theirs: turns in it, as they say.
        num_turns: turns in it here.
        by_turn: ours of the same: mean of speeds per turn over mean of speeds per turn.
        pooled: all tokens over all seconds, by the same; None where these were not released.
        lengths: acceptance lengths, macro averages (per response), by each other.
        stays_among_all: whether ours differs in the same direction by p-values corrected among all of the model's.
    """

    model: str
    temperature: str
    rollup: str
    rival: str
    theirs: Quoted
    theirs_low: float
    theirs_high: float
    num_theirs: int
    num_turns: int
    by_turn: PromptFigure
    pooled: PromptFigure | None
    lengths: PromptFigure
    stays_among_all: bool = False

    @property
    def theirs_direction(self) -> int:
        """1 or -1 where their interval lies above or below 0, else 0."""
        return 1 if self.theirs_low > 0 else -1 if self.theirs_high < 0 else 0

    @property
    def stays(self) -> bool:
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
            "rollup": self.rollup,
            "rival": self.rival,
            "turns": self.num_turns,
            "theirs_percent": round(self.theirs.value, 4),
            "theirs_ci_low": round(self.theirs_low, 4),
            "theirs_ci_high": round(self.theirs_high, 4),
            **self.by_turn.row("speed_ratio"),
            **self.lengths.row("length_ratio"),
            "stays": self.stays,
            "stays_among_all": self.stays_among_all,
        }
        return found | ({} if self.pooled is None else self.pooled.row("pooled_speed_ratio"))


def paired_cells(files: ReleasedFiles, model: Model, best_arm: Mapping[tuple[str, str], str]) -> list[PairedCell]:
    """All cells of their table of comparisons of a model, corrected as one family.

    Args:
        files: of the release.
        model: which.
        best_arm: of the Domino decoder, by temperature and dataset.

    Raises:
        SimlabError: a file holds something else, or their table has other cells.
    """
    rows = files.rows(model.pairwise)
    found = []
    for temperature in TEMPERATURES:
        turns = _turns(files, model, temperature, best_arm)
        for rival in RIVALS:
            paired = _paired(turns, model, rival)
            found += [
                _cell(files, model, temperature, rollup, rival, part, rows)
                for rollup, datasets in ROLLUPS.items()
                if (part := paired.filter(pl.col("dataset").is_in(datasets))).height
            ]
    return _among_all(found)


def chosen_domino(turns: Mapping[str, pl.DataFrame], model: Model) -> tuple[pl.DataFrame, dict[str, str]]:
    """The turns of the Domino decoder that their tables are of: of each dataset the faster arm, by their rule.

    Args:
        turns: of each arm, as `simlab.analysis.released.domino.records.domino_turns` has them.
        model: whose; it says whether the first prompt is left out.

    Returns:
        the turns, and the arm of each dataset.
    """
    kept = {arm: one.filter(pl.col("prompt") != 0) if model.domino_drops_first else one for arm, one in turns.items()}
    speeds = {arm: dict(one.group_by("dataset").agg(pl.mean("tokens_per_s")).iter_rows()) for arm, one in kept.items()}
    first, second = kept
    names = kept[first]["dataset"].unique(maintain_order=True)
    best = {name: first if speeds[first][name] >= speeds[second][name] else second for name in names}
    parts = [kept[arm].filter(pl.col("dataset") == name) for name, arm in best.items()]
    return pl.concat(parts), best


def counts(cells: Sequence[PairedCell]) -> dict[str, int]:
    """How many of some cells they show to differ, and how many of these still do."""
    shown = [one for one in cells if one.theirs_direction]
    with_pooled = [one for one in shown if one.pooled is not None]
    return {
        "cells": len(cells),
        "shown": len(shown),
        "shown_faster": sum(one.theirs_direction > 0 for one in shown),
        "stay": sum(one.stays for one in shown),
        "stay_among_all": sum(one.stays_among_all for one in shown),
        "shown_by_ours_alone": sum(not one.theirs_direction and one.by_turn.direction != 0 for one in cells),
        "shown_with_pooled": len(with_pooled),
        "stay_pooled": sum(
            one.pooled is not None and one.pooled.direction == one.theirs_direction for one in with_pooled
        ),
        "turned_pooled": sum(
            one.pooled is not None and one.pooled.direction == -one.theirs_direction for one in with_pooled
        ),
    }


def _turns(
    files: ReleasedFiles, model: Model, temperature: str, best_arm: Mapping[tuple[str, str], str]
) -> dict[str, pl.DataFrame]:
    """The turns of each method; the first is left out where their table leaves it out."""
    own = program_turns(files, model, temperature, "dominotree")
    tree = own.filter(pl.col("method") == TREE)
    others = program_turns(files, model, temperature, "baseline_ddtree_caddtree")
    arms = {arm: domino_turns(files, model, temperature, arm) for arm in set(best_arm.values())}
    domino = [
        arms[best_arm[temperature, name]].filter(pl.col("dataset") == name)
        for name in tree["dataset"].unique(maintain_order=True)
        if (temperature, name) in best_arm
    ]
    dropped = pl.col("place") > 0 if model.tree_drops_first else pl.lit(True)
    first_prompt = pl.col("prompt") != 0 if model.domino_drops_first else pl.lit(True)
    return {
        "tree": tree.filter(dropped),
        "tree's ar": own.filter(pl.col("method") == "ar"),
        "domino": pl.concat(domino).filter(first_prompt),
        **{
            name: with_conversations(others.filter(pl.col("method") == name), tree)
            for name in ("baseline", "ddtree_tb16", "caddtree", "dflash")
        },
    }


def _paired(turns: Mapping[str, pl.DataFrame], model: Model, rival: str) -> pl.DataFrame:
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
    model: Model,
    temperature: str,
    rollup: str,
    rival: str,
    paired: pl.DataFrame,
    rows: Sequence[Mapping[str, str]],
) -> PairedCell:
    label = f"DominoTree (16) vs {RIVALS[rival]}"
    key = {"temp": temperature, "dataset_or_rollup": rollup, "comparison": label}
    matching = [row for row in rows if all(row[name] == value for name, value in key.items())]
    if len(matching) != 1:
        raise SimlabError(f"{model.pairwise} has {len(matching)} rows of {', '.join(key.values())}; expected one")
    row = matching[0]
    powers = {"tokens": 1, "seconds": -1, "tokens_rival": -1, "seconds_rival": 1}
    if rival != "domino":
        powers |= {"tokens_ar": -1, "seconds_ar": 1, "tokens_plain": 1, "seconds_plain": -1}
    are_released = not any(paired[name].null_count() for name in powers)
    return PairedCell(
        model=model.name,
        temperature=temperature,
        rollup=rollup,
        rival=RIVALS[rival],
        theirs=files.quoted(model.pairwise, float(row["delta_pct"]), f"delta_pct of {', '.join(key.values())}"),
        theirs_low=float(row["ci_low"]),
        theirs_high=float(row["ci_high"]),
        num_theirs=int(row["n"]),
        num_turns=paired.height,
        by_turn=prompt_ratio(paired, first=1, second=-1),
        pooled=prompt_ratio(paired, **powers) if are_released else None,
        lengths=prompt_ratio(paired, mean=1, mean_rival=-1),
    )


def _among_all(cells: Sequence[PairedCell]) -> list[PairedCell]:
    adjusted = holm(np.array([one.by_turn.p_value for one in cells], np.float64))
    return [
        replace(one, stays_among_all=one.stays and bool(p_value < significance_level()))
        for one, p_value in zip(cells, adjusted, strict=True)
    ]
