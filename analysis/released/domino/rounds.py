"""Half a million released rounds of Domino: which mean their table has, what its arms are, which comparisons remain.

The records are of the released Domino decoder, run in two arms: with CUDA graphs and without. Their table takes of each
dataset the faster one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.domino.arms import arm_row, arms_text, ends_text, length_ratio, over_count
from simlab.analysis.released.domino.draft_sampling import FOLDER as ABLATION
from simlab.analysis.released.domino.draft_sampling import draft_sampling, draft_sampling_text
from simlab.analysis.released.domino.means import (
    CellMeans,
    SettingMeans,
    cell_means,
    count_cells,
    means_text,
    ratios_by_dataset,
    setting_means,
)
from simlab.analysis.released.domino.pairs import (
    PairedCell,
    comparisons_text,
    count_comparisons,
    overall_text,
    paired_cells,
)
from simlab.analysis.released.domino.records import (
    ARMS,
    DATASETS,
    MODELS,
    OWN_PROGRAM,
    REFERENCE_PROGRAM,
    TEMPERATURES,
    record_names,
)
from simlab.analysis.released.domino.sessions import (
    BASELINE_SESSION,
    RoundTime,
    round_times,
    session_changes,
    session_names,
    times_text,
    verification_ratio,
)
from simlab.analysis.released.domino.settings import Setting, read_setting
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure
from simlab.analysis.statistics.intervals import Interval


@dataclass(frozen=True, slots=True)
class _Results:
    """What is worked out of all settings.

    Attributes:
        verification: as `simlab.analysis.released.domino.sessions.verification_ratio` has it.
        over_counts: of each arm.
        ablation: of how the chain drafts.
    """

    settings: Sequence[Setting]
    means: Sequence[SettingMeans]
    cells: Sequence[CellMeans]
    pairs: Sequence[PairedCell]
    times: Sequence[RoundTime]
    verification: PromptFigure | None
    over_counts: Sequence[dict[str, object]]
    ablation: Sequence[dict[str, object]]

    def follows(self) -> str:
        counted = count_comparisons(self.pairs)
        parts = (
            means_follow(self.means, self.cells),
            comparisons_follow(counted, session_changes(self.times)),
            arms_follow(self.settings),
        )
        return " ".join(parts)

    def tables(self) -> tuple[str, ...]:
        return (
            means_text(self.cells, self.means),
            times_text(self.times, self.verification),
            comparisons_text(self.pairs),
            overall_text(self.pairs),
            arms_text(self.settings, self.cells),
            draft_sampling_text(self.ablation),
            ends_text(self.over_counts),
        )

    def values(self) -> dict[str, object]:
        by_model = {one.name: [cell for cell in self.pairs if cell.model == one.name] for one in MODELS}
        return {
            "rounds": sum(int(turns["rounds"].sum()) for one in self.settings for turns in one.arms.values()),
            "means": [one.row() for one in self.means],
            "cells": [one.row() for one in self.cells],
            "cells_reproduced": count_cells(self.cells),
            "sessions": [one.row() for one in self.times],
            "session_changes": {name: round(value, 4) for name, value in session_changes(self.times).items()},
            "verification_ratio": None if self.verification is None else self.verification.row("ratio"),
            "arms": [arm_row(one) for one in self.settings],
            "draft_sampling": self.ablation,
            "over_count": self.over_counts,
            "comparisons": {name: count_comparisons(some) for name, some in (("all", self.pairs), *by_model.items())},
            "overall": [cell.row() for cell in self.pairs if cell.rollup == "Overall"],
        }


def domino_rounds(files: ReleasedFiles, progress: bool | None = None) -> Findings:
    """Means, sessions, the two arms, over-count, and the paired comparisons of the table.

    Args:
        files: of the release.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: the files cannot be had, or are not as they were released.
    """
    files.have(_names(files), progress)
    settings = [read_setting(files, model, temperature) for model in MODELS for temperature in TEMPERATURES]
    found = _Results(
        settings,
        [setting_means(files, one) for one in settings],
        [cell for one in settings for cell in cell_means(files, one)],
        paired_cells(files, settings),
        [time for one in settings for time in _times(one)],
        next((verification_ratio(files, one.own) for one in settings if one.model.summaries), None),
        [over_count(one, arm) for one in settings for arm in ARMS],
        draft_sampling(files),
    )
    headlines = [cell for cell in found.pairs if cell.rollup == "Overall" and cell.rival in _HEADLINES]
    compared = (*(figure for one in found.means for figure in one.compared()), *map(_compared_cell, headlines))
    return Findings(compared, found.follows(), found.tables(), found.values())


def _times(one: Setting) -> list[RoundTime]:
    return round_times(one.model, one.temperature, one.own, one.sums, one.arms["graph"])


_HEADLINES = {"Domino", "DDTree@16"}


def means_follow(means: Sequence[SettingMeans], cells: Sequence[CellMeans]) -> str:
    """Whether their table is reproduced, and what pooled means would be."""
    same = sum(one.is_macro for one in cells)
    how = "is" if same == len(cells) else "is not" if not same else "is in part"
    first = f"their table {how} reproduced as macro averages (per response): {same} of {len(cells)} cells."
    least, most = (end(100 * (1 - 1 / one.ratio.value) for one in means) for end in (min, max))
    shown = sum(one.ratio.differs for one in means)
    if least <= 0:
        inside = f"from {-most:+.0f} to {-least:+.0f} % of it; the two differ in {shown} of {len(means)} settings"
        return f"{first} Pooled inside each dataset, the mean over datasets lies {inside}."
    name, some = next(iter(ratios_by_dataset(cells).items()))
    largest = [100 * (one.macro_over_pooled.value - 1) for one in some]
    weights = [100 * (1 / one.weights_ratio - 1) for one in means]
    return (
        f"{first} Pooled inside each dataset, the mean over datasets is {least:.0f} to {most:.0f} % smaller, in "
        f"{shown} of {len(means)} settings shown; of single datasets {DATASETS[name]} differs most, whose macro "
        f"average is {min(largest):.0f} to {max(largest):.0f} % larger than its pooled mean. Pooling all texts weighs "
        f"datasets by their rounds, which changes another {min(weights):+.0f} to {max(weights):+.0f} %."
    )


def comparisons_follow(found: Mapping[str, int], changes: Mapping[str, float]) -> str:
    """Which comparisons say something, and how many of those remain."""
    first = ""
    if found["left_out"]:
        first = (
            f"Of {found['cells']} comparisons {found['left_out']} tell nothing of the methods: there the others are "
            f"over an autoregressive baseline of another session{_changed(changes)}. "
        )
    return (
        f"{first}Of {found['shown']} of the {found['counted']} {'other ' if first else ''}comparisons whose interval "
        f"excludes 0, {found['remain']} still do with intervals over prompts, {found['remain_among_all']} when each "
        f"model's are corrected together (Holm), and of the {found['shown_with_pooled']} with released seconds "
        f"{found['remain_pooled']} by pooled speeds."
    )


def arms_follow(settings: Sequence[Setting]) -> str:
    """Whether CUDA graphs change more than speed."""
    ratios = {one.name: length_ratio(one) for one in settings}
    told = []
    for sign, word in ((1, "more"), (-1, "fewer")):
        some = {name: ratio for name, ratio in ratios.items() if ratio.direction == sign}
        if some:
            most = max(abs(100 * (ratio.value - 1)) for ratio in some.values())
            told.append(
                f"commits {word} tokens per round in {len(some)} of {len(ratios)} settings ({', '.join(some)}), by up "
                f"to {most:.0f} %"
            )
    if not told:
        return f"No difference of acceptance lengths between the two arms is shown in any of {len(ratios)} settings."
    return f"The arm with CUDA graphs {' and '.join(told)}, so the arms differ in more than speed there."


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


def _compared_cell(cell: PairedCell) -> ComparedFigure:
    low, high = (100 * (end - 1) for end in (cell.by_turn.interval.low, cell.by_turn.interval.high))
    name = f"{cell.model} T={cell.temperature}: DominoTree over {cell.rival}, % of speed"
    return ComparedFigure(name, cell.percent, cell.theirs, Interval(low, high))


def _names(files: ReleasedFiles) -> list[str]:
    folders = [f"{model.raw}/{name}/" for model in MODELS for name in (OWN_PROGRAM, REFERENCE_PROGRAM)]
    others = ("results/raw/domino_official/", "results/tables_gpunative/", f"{BASELINE_SESSION}/", f"{ABLATION}/")
    return [
        *record_names(files, *others, *folders),
        *(name for model in MODELS for name in session_names(files, model)),
    ]
