"""CaDDTree beside DDTree with a budget of 16 (DDTree@16): where both draft the same, costs had nothing to decide.

CaDDTree (arXiv 2606.01813) grows its tree while the expected gain is worth the price of a larger verification: the
milliseconds that it takes. Here both had at most 16 nodes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.statistics.intervals import finite
from simlab.analysis.table.estimates import Estimate, mean_over_datasets, prompt_ratio
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino.records import (
    MODELS,
    OWN_PROGRAM,
    REFERENCE_PROGRAM,
    TEMPERATURES,
    TURN,
    Model,
    printed_overall,
    program_sums,
    program_turns,
    session_names,
    with_conversations,
)
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, flat, table

CADDTREE, DDTREE = "caddtree", "ddtree_tb16"
LABELS = {DDTREE: "DDTree@16", CADDTREE: "CaDDTree"}

_EQUAL = 1e-9

_RATIOS = {
    "macro_length_ratio": ("mean", "one"),
    "pooled_length_ratio": ("committed", "rounds"),
    "speed_ratio": ("tokens_per_s", "one"),
    "pooled_speed_ratio": ("tokens", "seconds"),
    "rounds_per_s_ratio": ("rounds", "seconds"),
}
"""CaDDTree over DDTree@16: what is summed above and below."""

_LIMITS = (
    "Whether costs should decide shows only where they do: with a larger budget, a batch, a long context, or a machine "
    "on which 16 nodes are not nearly free. What would tell: nodes drafted and seconds of verification of each round, "
    "the prices that the rule used, and the same prompts at budgets well above 16."
)


@dataclass(frozen=True, slots=True)
class _Setting:
    """Both methods of a model at a temperature, paired turn by turn.

    Attributes:
        turns: of each method, with the speed of autoregressive decoding.
        paired: CaDDTree's columns, and DDTree's with ``_other``; ``same``: equal in all that was released of lengths.
        ratios: CaDDTree over DDTree, by the names of `_RATIOS`; without an interval where only sums were released.
        pooled: acceptance lengths by method.
        nodes: the mean budget that CaDDTree chose; NaN where it was not released.
        allowed: nodes at most, as the program was given; NaN where that was not released.
    """

    model: Model
    temperature: str
    turns: dict[str, pl.DataFrame]
    paired: pl.DataFrame
    ratios: dict[str, Estimate]
    pooled: dict[str, Estimate]
    nodes: float
    allowed: float

    @property
    def name(self) -> str:
        return f"{self.model.name} T={self.temperature}"

    @property
    def num_same(self) -> int:
        return int(self.paired["same"].sum())

    def macro(self, method: str) -> Estimate:
        return prompt_ratio(self.turns[method], mean=1, one=-1)


def domino_caddtree(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Lengths and speeds of CaDDTree and DDTree of 16 by each other, turn by turn, and the nodes that costs chose."""
    folders = [f"{model.raw}/{name}/" for model in MODELS for name in (REFERENCE_PROGRAM, OWN_PROGRAM)]
    names = files.names(*folders, "results/tables_gpunative/table1")
    files.have([*names, *(name for model in MODELS for name in session_names(files, model))], options.progress)
    settings = [_setting(files, model, temperature) for model in MODELS for temperature in TEMPERATURES]
    rows = [_row(setting) for setting in settings]
    return Findings(
        [figure for setting in settings for figure in _printed(files, setting)],
        [_text(rows), within_width(_LIMITS)],
        {"settings": [flat(row) for row in rows], "limits": _LIMITS},
    )


def _setting(files: ReleasedFiles, model: Model, temperature: str) -> _Setting:
    own = program_turns(files, model, temperature, OWN_PROGRAM).filter(pl.col("method") == "ar")
    every = program_turns(files, model, temperature, REFERENCE_PROGRAM)
    plain, *both = (
        with_conversations(every.filter(pl.col("method") == method), own) for method in ("baseline", CADDTREE, DDTREE)
    )
    plain = plain.select(*TURN, pl.col("tokens_per_s").alias("plain_per_s"))
    committed = (pl.col("mean") * pl.col("rounds")).round().alias("committed")
    turns = {
        method: frame.join(plain, on=TURN, maintain_order="left").with_columns(committed)
        for method, frame in zip((CADDTREE, DDTREE), both, strict=True)
    }
    paired = turns[CADDTREE].join(turns[DDTREE], on=TURN, suffix="_other", maintain_order="left")
    has_rounds = not paired["rounds"].null_count()
    same = (pl.col("mean") - pl.col("mean_other")).abs() < _EQUAL
    if has_rounds:
        same &= (pl.col("rounds") == pl.col("rounds_other")) & (pl.col("tokens") == pl.col("tokens_other"))
    sums = program_sums(files, model, temperature)
    total = sums.group_by("method", maintain_order=True).agg(pl.col("tokens", "seconds", "rounds", "committed").sum())
    totals: dict[str, Row] = {row["method"]: row for row in total.to_dicts()}

    def ratio(above: str, below: str) -> Estimate:
        if has_rounds or below == "one":
            return prompt_ratio(paired, **{above: 1, f"{above}_other": -1}, **{below: -1, f"{below}_other": 1})
        first, second = (totals[method][above] / totals[method][below] for method in (CADDTREE, DDTREE))
        return Estimate(first / second)

    chosen = sums.filter((pl.col("method") == CADDTREE) & pl.col("nodes").is_not_null())
    weighed = chosen.select((pl.col("nodes") * pl.col("turns")).sum() / pl.col("turns").sum()).item()
    return _Setting(
        model,
        temperature,
        turns,
        paired.with_columns(same.alias("same")),
        {name: ratio(*columns) for name, columns in _RATIOS.items()},
        {
            method: prompt_ratio(own, committed=1, rounds=-1)
            if has_rounds
            else Estimate(totals[method]["committed"] / totals[method]["rounds"])
            for method, own in turns.items()
        },
        nodes=math.nan if chosen.is_empty() else float(weighed),
        allowed=math.nan if chosen["nodes_allowed"].max() is None else float(str(chosen["nodes_allowed"].max())),
    )


def _printed(files: ReleasedFiles, setting: _Setting) -> list[ComparedFigure]:
    measures = (("tau", "acceptance length", ("mean", "one")), ("speedup", "speedup", ("tokens_per_s", "plain_per_s")))
    return [
        ComparedFigure(
            f"{setting.name}: {label}, {unit}",
            mean_over_datasets(setting.turns[method], *columns),
            printed_overall(files, setting.model, setting.temperature, label, what),
        )
        for method, label in LABELS.items()
        for what, unit, columns in measures
    ]


def _row(setting: _Setting) -> Row:
    row: Row = {
        "model": setting.model.name,
        "temperature": setting.temperature,
        "turns": setting.paired.height,
        "same": setting.num_same,
        "compared_by": "mean" if setting.paired["rounds"].null_count() else "tokens, rounds and mean",
        "nodes_chosen": finite(round(setting.nodes, 5)),
        "nodes_allowed": finite(setting.allowed),
        **setting.ratios,
    }
    for method in setting.turns:
        row |= {f"{method}_pooled": setting.pooled[method], f"{method}_macro": setting.macro(method)}
    return row


def _text(rows: Sequence[Row]) -> str:
    columns = [
        ("CaDDTree over DDTree@16, paired", "{model} T={temperature}"),
        ("same turns", "{same} of {turns}"),
        ("nodes", "{nodes}"),
        ("macro length [95 %]", "{macro_length_ratio:3}"),
        ("pooled length", "{pooled_length_ratio:3}"),
        ("speed, per turn", "{speed_ratio:3}"),
        ("speed, pooled", "{pooled_speed_ratio:3}"),
        ("rounds/s", "{rounds_per_s_ratio:3}"),
    ]
    nodes = [{"nodes": "-" if row["nodes_chosen"] is None else f"{row['nodes_chosen']:.3f}"} for row in rows]
    note = (
        "Same: equal tokens, rounds and mean (4B), or equal mean (8B, of whose turns tokens, rounds and seconds were "
        "not released; their sums were, so pooled figures have no interval). Nodes: the mean budget that CaDDTree "
        "chose, where it was released. Above temperature 0 the two drew other texts, so lengths differ by chance too."
    )
    ratios = table("lr", columns, [row | more for row, more in zip(rows, nodes, strict=True)])
    means = [
        row | {"label": label, "pooled": row[f"{method}_pooled"], "macro": row[f"{method}_macro"]}
        for row in rows
        for method, label in LABELS.items()
    ]
    columns = [("acceptance length [95 %]", "{model} T={temperature}"), ("", "{label}")]
    columns += [("pooled", "{pooled}"), ("macro average", "{macro}")]
    return f"{ratios}\n{within_width(note)}\n\n{table('llr', columns, means)}"
