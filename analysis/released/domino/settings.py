"""All that was released of a model at a temperature: both arms of the Domino decoder, and both other programs."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from simlab.analysis.released.domino.records import (
    ARMS,
    OWN_PROGRAM,
    REFERENCE_PROGRAM,
    Model,
    domino_turns,
    program_turns,
)
from simlab.analysis.released.domino.sessions import program_sums, reuses_baseline
from simlab.analysis.released.files import ReleasedFiles


@dataclass(frozen=True, slots=True)
class Setting:
    """Turns and sums of a model at a temperature.

    Attributes:
        arms: turns of each arm of the Domino decoder: with CUDA graphs (``graph``) and without (``eager``).
        chosen: of these the turns that their table is of.
        best: arm of each dataset, by their rule the faster one.
        own: turns of their own program.
        reference: turns of the program with DFlash, DDTree and CaDDTree.
        sums: of the latter, as `simlab.analysis.released.domino.sessions.program_sums` has them.
        reuses_baseline: whether its autoregressive baseline is of another session.
    """

    model: Model
    temperature: str
    arms: Mapping[str, pl.DataFrame]
    chosen: pl.DataFrame
    best: Mapping[str, str]
    own: pl.DataFrame
    reference: pl.DataFrame
    sums: pl.DataFrame
    reuses_baseline: bool

    @property
    def name(self) -> str:
        """As tables name it."""
        return f"{self.model.name} T={self.temperature}"

    @property
    def paired_arms(self) -> pl.DataFrame:
        """Turns of both arms side by side; the eager one's columns end in ``_eager``."""
        first, second = (self.arms[arm] for arm in ARMS)
        return first.join(second, on=["dataset", "prompt", "turn"], suffix="_eager")


def read_setting(files: ReleasedFiles, model: Model, temperature: str) -> Setting:
    """Everything of a model at a temperature.

    Raises:
        SimlabError: a file cannot be had, or holds something else.
    """
    arms = {arm: domino_turns(files, model, temperature, arm) for arm in ARMS}
    chosen, best = chosen_domino(arms, model)
    return Setting(
        model,
        temperature,
        arms,
        chosen,
        best,
        own=program_turns(files, model, temperature, OWN_PROGRAM),
        reference=program_turns(files, model, temperature, REFERENCE_PROGRAM),
        sums=program_sums(files, model, temperature),
        reuses_baseline=reuses_baseline(files, model, temperature),
    )


def chosen_domino(turns: Mapping[str, pl.DataFrame], model: Model) -> tuple[pl.DataFrame, dict[str, str]]:
    """The turns of the Domino decoder that their tables are of: of each dataset the faster arm, by their rule.

    Args:
        turns: of each arm, as `simlab.analysis.released.domino.records.domino_turns` has them.
        model: whose; it says whether the first prompt is left out.

    Returns:
        the turns, and the arm of each dataset.
    """
    warm = {arm: one.filter(pl.col("prompt") != 0) if model.domino_drops_first else one for arm, one in turns.items()}
    speeds = {arm: dict(one.group_by("dataset").agg(pl.mean("tokens_per_s")).iter_rows()) for arm, one in warm.items()}
    first, second = warm
    names = warm[first]["dataset"].unique(maintain_order=True)
    best = {name: first if speeds[first][name] >= speeds[second][name] else second for name in names}
    parts = [warm[arm].filter(pl.col("dataset") == name) for name, arm in best.items()]
    return pl.concat(parts), best
