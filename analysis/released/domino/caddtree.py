"""CaDDTree beside DDTree with a budget of 16 (DDTree@16): where both draft the same, costs had nothing to decide.

CaDDTree (arXiv 2606.01813) grows its tree while the expected gain is worth the price of a larger verification: the
milliseconds that it takes. Here both had at most 16 nodes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.domino.records import (
    MODELS,
    OWN_PROGRAM,
    REFERENCE_PROGRAM,
    TEMPERATURES,
    Model,
    printed_overall,
    program_turns,
    record_names,
    with_conversations,
)
from simlab.analysis.released.domino.sessions import program_sums, session_names
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, mean_over_datasets, prompt_ratio
from simlab.analysis.statistics.intervals import UNKNOWN
from simlab.analysis.table.text import aligned, number, within_width

CADDTREE, DDTREE, PLAIN = "caddtree", "ddtree_tb16", "baseline"
LABELS = {DDTREE: "DDTree@16", CADDTREE: "CaDDTree"}

_EQUAL = 1e-9
_BOUND = 0.99
"""A mean budget of at least so much of what is allowed: the bound decided, and not the costs."""

_RATIOS = {
    "macro_length_ratio": ("mean", "one"),
    "pooled_length_ratio": ("committed", "rounds"),
    "speed_ratio": ("tokens_per_s", "one"),
    "pooled_speed_ratio": ("tokens", "seconds"),
    "rounds_per_s_ratio": ("rounds", "seconds"),
}
"""CaDDTree over DDTree@16: what is summed above and below."""
_OF_TURNS = ("macro_length_ratio", "speed_ratio")
"""Those that take no rounds and no seconds."""

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
        sums: of each method, all turns together: tokens, seconds, rounds, committed, and nodes times turns.
        has_rounds: whether tokens, rounds and seconds of each turn were released.
        nodes: the mean budget that CaDDTree chose; NaN where it was not released.
        allowed: nodes at most, as the program was told; likewise.
    """

    model: Model
    temperature: str
    turns: dict[str, pl.DataFrame]
    paired: pl.DataFrame
    sums: dict[str, dict[str, float]]
    has_rounds: bool
    nodes: float
    allowed: float

    @property
    def name(self) -> str:
        return f"{self.model.name} T={self.temperature}"

    @property
    def num_same(self) -> int:
        return int(self.paired["same"].sum())

    def ratio(self, name: str) -> PromptFigure:
        """CaDDTree over DDTree, one of `_RATIOS`; without an interval where only sums were released."""
        above, below = _RATIOS[name]
        if self.has_rounds or name in _OF_TURNS:
            signs = {above: 1, f"{above}_other": -1}
            return prompt_ratio(self.paired, **signs, **{below: -1, f"{below}_other": 1})
        first, second = (self.sums[method][above] / self.sums[method][below] for method in (CADDTREE, DDTREE))
        return PromptFigure(first / second, UNKNOWN, float("nan"), 0)

    def pooled(self, method: str) -> PromptFigure:
        if self.has_rounds:
            return prompt_ratio(self.turns[method], committed=1, rounds=-1)
        sums = self.sums[method]
        return PromptFigure(sums["committed"] / sums["rounds"], UNKNOWN, float("nan"), 0)


def domino_caddtree(files: ReleasedFiles, progress: bool | None = None) -> Findings:
    """Lengths and speeds of CaDDTree and DDTree of 16 by each other, turn by turn, and the nodes that costs chose.

    Args:
        files: of the release.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: the files cannot be had, or are not as they were released.
    """
    folders = [f"{model.raw}/{name}/" for model in MODELS for name in (REFERENCE_PROGRAM, OWN_PROGRAM)]
    names = record_names(files, *folders, "results/tables_gpunative/table1")
    files.have([*names, *(name for model in MODELS for name in session_names(files, model))], progress)
    settings = [_setting(files, model, temperature) for model in MODELS for temperature in TEMPERATURES]
    return Findings(
        compared=tuple(figure for one in settings for figure in _printed(files, one)),
        follows=f"{_lengths_follow(settings)} {_nodes_follow(settings)} {_ratios_follow(settings)}",
        tables=(_text(settings), _means_text(settings), within_width(_LIMITS)),
        values={"settings": [_row(one) for one in settings], "limits": _LIMITS},
    )


def _setting(files: ReleasedFiles, model: Model, temperature: str) -> _Setting:
    tree = program_turns(files, model, temperature, OWN_PROGRAM).filter(pl.col("method") == "ar")
    found = program_turns(files, model, temperature, REFERENCE_PROGRAM)
    turns = {
        method: with_conversations(found.filter(pl.col("method") == method), tree)
        for method in (CADDTREE, DDTREE, PLAIN)
    }
    key = ["dataset", "prompt", "turn"]
    plain = turns.pop(PLAIN).select(*key, pl.col("tokens_per_s").alias("plain_per_s"))
    turns = {
        method: one.join(plain, on=key).with_columns((pl.col("mean") * pl.col("rounds")).round().alias("committed"))
        for method, one in turns.items()
    }
    paired = turns[CADDTREE].join(turns[DDTREE], on=key, suffix="_other")
    has_rounds = not paired["rounds"].null_count()
    same = (pl.col("mean") - pl.col("mean_other")).abs() < _EQUAL
    if has_rounds:
        same &= (pl.col("rounds") == pl.col("rounds_other")) & (pl.col("tokens") == pl.col("tokens_other"))
    paired = paired.with_columns(same.alias("same"))
    table = program_sums(files, model, temperature)
    chosen = table.filter((pl.col("method") == CADDTREE) & pl.col("nodes").is_not_null())
    nodes, turns_of, allowed = (chosen[name].to_numpy() for name in ("nodes", "turns", "nodes_allowed"))
    return _Setting(
        model,
        temperature,
        turns,
        paired,
        _sums(table),
        has_rounds,
        nodes=float((nodes * turns_of).sum() / turns_of.sum()) if len(nodes) else math.nan,
        allowed=float(allowed.max()) if len(nodes) else math.nan,
    )


def _sums(table: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Sums over datasets, of each method."""
    total = table.group_by("method").agg(pl.col("turns", "tokens", "seconds", "rounds", "committed").sum())
    return {row.pop("method"): row for row in total.to_dicts()}


def _printed(files: ReleasedFiles, one: _Setting) -> list[ComparedFigure]:
    found = []
    for method, label in LABELS.items():
        for what, unit, columns in (
            ("tau", "acceptance length", ("mean", "one")),
            ("speedup", "speedup", ("tokens_per_s", "plain_per_s")),
        ):
            own = mean_over_datasets(one.turns[method], *columns)
            theirs = printed_overall(files, one.model, one.temperature, label, what)
            found.append(ComparedFigure(f"{one.name}: {label}, {unit}", own.value, theirs, own.interval))
    return found


def _row(one: _Setting) -> dict[str, object]:
    found: dict[str, object] = {
        "model": one.model.name,
        "temperature": one.temperature,
        "turns": one.paired.height,
        "same": one.num_same,
        "compared_by": "tokens, rounds and mean" if one.has_rounds else "mean",
        "nodes_chosen": finite(round(one.nodes, 5)),
        "nodes_allowed": finite(one.allowed),
    }
    for name in _RATIOS:
        found |= one.ratio(name).row(name)
    for method, turns in one.turns.items():
        found |= one.pooled(method).row(f"{method}_pooled")
        found |= prompt_ratio(turns, mean=1, one=-1).row(f"{method}_macro")
    return found


def _text(settings: Sequence[_Setting]) -> str:
    head = [
        "same turns",
        "nodes",
        "macro length [95 %]",
        "pooled length",
        "speed, per turn",
        "speed, pooled",
        "rounds/s",
    ]
    cells = [["CaDDTree over DDTree@16, paired", *head]]
    for one in settings:
        ratios = [one.ratio(name).text(3) for name in _RATIOS]
        cells.append([one.name, f"{one.num_same} of {one.paired.height}", number(one.nodes, 3), *ratios])
    note = (
        "Same: equal tokens, rounds and mean (4B), or equal mean (8B, of whose turns tokens, rounds and seconds were "
        "not released; their sums were, so pooled figures have no interval). Nodes: the mean budget that CaDDTree "
        "chose, where it was released. Above temperature 0 the two drew other texts, so lengths differ by chance too."
    )
    return f"{aligned(cells, [True, *[False] * len(head)])}\n{within_width(note)}"


def _means_text(settings: Sequence[_Setting]) -> str:
    cells = [["acceptance length [95 %]", "", "pooled", "macro average"]]
    for one in settings:
        for method, label in LABELS.items():
            macro = prompt_ratio(one.turns[method], mean=1, one=-1)
            cells.append([one.name, label, one.pooled(method).text(), macro.text()])
    return aligned(cells, [True, True, False, False])


def _lengths_follow(settings: Sequence[_Setting]) -> str:
    """In how many turns at temperature 0 the two have equal lengths."""
    greedy = [one for one in settings if float(one.temperature) == 0]
    counted = " and ".join(f"{one.num_same} of {one.paired.height} turns ({one.model.name})" for one in greedy)
    same, turns = sum(one.num_same for one in greedy), sum(one.paired.height for one in greedy)
    first = f"at temperature 0 the two have equal acceptance lengths in {counted}"
    if 2 * same >= turns:
        return f"{first}; there nothing that costs could decide mattered."
    return f"{first}; so in most turns they drafted other trees."


def _nodes_follow(settings: Sequence[_Setting]) -> str:
    """Whether the bound or the costs decided how many nodes CaDDTree drafted, where that was released."""
    known = [one for one in settings if not (math.isnan(one.nodes) or math.isnan(one.allowed))]
    if not known:
        return "How many nodes CaDDTree chose was not released."
    least, most = (end(one.nodes for one in known) for end in (min, max))
    models = ", ".join(dict.fromkeys(one.model.name for one in known))
    first = f"Of {known[0].allowed:.0f} nodes allowed it chose {least:.3f} to {most:.3f} on average ({models})"
    num_bound = sum(one.nodes >= _BOUND * one.allowed for one in known)
    if num_bound == len(known):
        return f"{first}: it was DDTree with that budget, and the comparison says nothing of cost-awareness."
    if not num_bound:
        return f"{first}: costs made its trees smaller, so the comparison is one of cost-awareness."
    return f"{first}: costs made its trees smaller in {len(known) - num_bound} of {len(known)} settings."


def _ratios_follow(settings: Sequence[_Setting]) -> str:
    """How many intervals exclude 1, of all ratios that have one."""
    named = {f"{name.removesuffix('_ratio')} {one.name}": one.ratio(name) for one in settings for name in _RATIOS}
    tested = {name: ratio for name, ratio in named.items() if ratio.interval.low < ratio.interval.high}
    differing = [f"{name.replace('_', ' ')}: {ratio.text(3)}" for name, ratio in tested.items() if ratio.differs]
    if not differing:
        return f"None of {len(tested)} intervals of ratios excludes 1."
    return (
        f"Of {len(tested)} intervals of ratios {len(differing)} exclude{'s' if len(differing) == 1 else ''} 1, as "
        f"about {0.05 * len(tested):.0f} would by chance, without a correction: {'; '.join(differing)}."
    )
