"""CaDDTree beside DDTree with a budget of 16 (DDTree@16): where both draft the same, costs had nothing to decide.

CaDDTree (arXiv 2606.01813) grows its tree while the expected gain is worth the price of a larger verification: the
milliseconds that it takes. Here both had at most 16 nodes.
"""

import math
from collections.abc import Iterator, Sequence

import polars as pl

from simlab.analysis.statistics.intervals import finite
from simlab.analysis.table.estimates import Estimate, mean_over_datasets, prompt_ratio
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino import records
from simlab.studies.reproduce.domino.records import METHODS, SETTING, TURN
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, flat, table

CADDTREE, DDTREE = "caddtree", "ddtree_tb16"

_EQUAL = 1e-9

_RATIOS = {
    "macro_length_ratio": ("mean", "one"),
    "pooled_length_ratio": ("committed", "rounds"),
    "speed_ratio": ("tokens_per_s", "one"),
    "pooled_speed_ratio": ("tokens", "seconds"),
    "rounds_per_s_ratio": ("rounds", "seconds"),
}
"""CaDDTree over DDTree@16: what is summed above and below."""

_POWERS = {
    **{name: {a: 1, b: -1, f"{a}_other": -1, f"{b}_other": 1} for name, (a, b) in _RATIOS.items()},
    f"{CADDTREE}_pooled": {"committed": 1, "rounds": -1},
    f"{CADDTREE}_macro": {"mean": 1, "one": -1},
    f"{DDTREE}_pooled": {"committed_other": 1, "rounds_other": -1},
    f"{DDTREE}_macro": {"mean_other": 1, "one_other": -1},
}
"""Each figure as a product of powers of sums over paired turns: of CaDDTree, and of DDTree with ``_other``."""

_PRINTED = {"tau": ("acceptance length", "mean", "one"), "speedup": ("speedup", "tokens_per_s", "plain_per_s")}

_LIMITS = (
    "Whether costs should decide shows only where they do: with a larger budget, a batch, a long context, or a machine "
    "on which 16 nodes are not nearly free. What would tell: nodes drafted and seconds of verification of each round, "
    "the prices that the rule used, and the same prompts at budgets well above 16."
)


def domino_caddtree(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Lengths and speeds of CaDDTree and DDTree of 16 by each other, turn by turn, and the nodes that costs chose."""
    files.have(files.names(*records.PROGRAM_FILES, "results/tables_gpunative/table1"), options.progress)
    turns, method = records.program_turns(files), pl.col("method")
    sums = records.program_sums(files, turns)
    plain = turns.filter(method == "baseline").select(*SETTING, *TURN, plain_per_s="tokens_per_s")
    turns = turns.join(plain, on=[*SETTING, *TURN], maintain_order="left")
    paired, totals = (
        frame.filter(method == CADDTREE).join(
            frame.filter(method == DDTREE), on=key, suffix="_other", maintain_order="left"
        )
        for frame, key in ((turns, [*SETTING, *TURN]), (sums, SETTING))
    )
    parts = zip(paired.partition_by(SETTING, maintain_order=True), totals.to_dicts(), strict=True)
    rows = [_row(part, total) for part, total in parts]
    values = {"settings": [flat(row) for row in rows], "limits": _LIMITS}
    return Findings(list(_compared(files, turns)), [_text(rows), within_width(_LIMITS)], values)


def _row(paired: pl.DataFrame, total: Row) -> Row:
    """Both methods of a setting, paired turn by turn.

    A figure has no interval where what it is worked out from was released summed over all turns only.
    """

    def figure(powers: dict[str, int]) -> Estimate:
        if any(paired[name].null_count() for name in powers):
            return Estimate(math.prod(total[name] ** power for name, power in powers.items()))
        return prompt_ratio(paired, **powers)

    same_by = ["mean"] if paired["rounds"].null_count() else ["tokens", "rounds", "mean"]
    is_same = pl.all_horizontal((pl.col(name) - pl.col(f"{name}_other")).abs() < _EQUAL for name in same_by)
    return {
        **paired.select(SETTING).row(0, named=True),
        "turns": paired.height,
        "same": int(paired.select(is_same.sum()).item()),
        "compared_by": "mean" if len(same_by) == 1 else "tokens, rounds and mean",
        "nodes_chosen": finite(round(total["nodes"], 5)),
        "nodes_allowed": total["nodes_allowed"],
        **{name: figure(powers) for name, powers in _POWERS.items()},
    }


def _compared(files: ReleasedFiles, turns: pl.DataFrame) -> Iterator[ComparedFigure]:
    """Both figures of each method that their main table prints over all datasets."""
    both = turns.filter(pl.col("method").is_in([CADDTREE, DDTREE]))
    for (model, temperature, method), own in both.group_by(*SETTING, "method", maintain_order=True):
        for what, (unit, above, below) in _PRINTED.items():
            name, label = f"{model} T={temperature}", METHODS[str(method)]
            theirs = records.printed_overall(files, str(model), str(temperature), label, what)
            yield ComparedFigure(f"{name}: {label}, {unit}", mean_over_datasets(own, above, below), theirs)


def _text(rows: Sequence[Row]) -> str:
    ratios = table(
        "lr",
        "CaDDTree over DDTree@16, paired = {model} T={temperature} | same turns = {same} of {turns} | "
        "nodes = {nodes} | macro length [95 %] = {macro_length_ratio:3} | "
        "pooled length = {pooled_length_ratio:3} | speed, per turn = {speed_ratio:3} | "
        "speed, pooled = {pooled_speed_ratio:3} | rounds/s = {rounds_per_s_ratio:3}",
        [row | {"nodes": "-" if row["nodes_chosen"] is None else f"{row['nodes_chosen']:.3f}"} for row in rows],
        "Same: equal tokens, rounds and mean (4B), or equal mean (8B, of whose turns tokens, rounds and seconds were "
        "not released; their sums were, so pooled figures have no interval). Nodes: the mean budget that CaDDTree "
        "chose, where it was released. Above temperature 0 the two drew other texts, so lengths differ by chance too.",
    )
    means = table(
        "llr",
        "acceptance length [95 %] = {model} T={temperature} | = {label} | pooled = {pooled} | macro average = {macro}",
        [
            row | {"label": METHODS[method], "pooled": row[f"{method}_pooled"], "macro": row[f"{method}_macro"]}
            for row in rows
            for method in (DDTREE, CADDTREE)
        ],
    )
    return f"{ratios}\n\n{means}"
