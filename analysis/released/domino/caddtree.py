"""CaDDTree beside DDTree with a budget of 16: where both draft the same, costs had nothing to decide.

CaDDTree grows its tree while the expected gain is worth the price of a larger verification.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.domino.records import (
    MODELS,
    TEMPERATURES,
    Model,
    printed_overall,
    program_turns,
    record_names,
    with_conversations,
)
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, mean_over_datasets, prompt_ratio
from simlab.analysis.table.text import aligned, within_width

CADDTREE, DDTREE, PLAIN = "caddtree", "ddtree_tb16", "baseline"
LABELS = {DDTREE: "DDTree@16", CADDTREE: "CaDDTree"}

_PROGRAM = "baseline_ddtree_caddtree"
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class _Setting:
    """Both methods of a model at a temperature, paired turn by turn.

    Attributes:
        turns: of each method, with the speed of autoregressive decoding.
        paired: CaDDTree's columns, and DDTree's with ``_other``; ``same``: equal in all that was released of lengths.
        has_rounds: whether tokens, rounds and seconds were released.
    """

    model: Model
    temperature: str
    turns: dict[str, pl.DataFrame]
    paired: pl.DataFrame
    has_rounds: bool

    @property
    def name(self) -> str:
        return f"{self.model.name} T={self.temperature}"

    @property
    def num_same(self) -> int:
        return int(self.paired["same"].sum())

    def over(self, powers: Sequence[str]) -> PromptFigure:
        """CaDDTree over DDTree: the first column over the others."""
        above, *below = powers
        signs = {above: 1, f"{above}_other": -1}
        for name in below:
            signs |= {name: -1, f"{name}_other": 1}
        return prompt_ratio(self.paired, **signs)


def domino_caddtree(files: ReleasedFiles, progress: bool | None = None) -> Findings:
    """Lengths and speeds of CaDDTree and DDTree of 16 by each other, turn by turn.

    Args:
        files: of the release.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: the files cannot be had, or are not as they were released.
    """
    folders = [f"{model.raw}/{name}/" for model in MODELS for name in (_PROGRAM, "dominotree")]
    files.have(record_names(files, *folders, "results/tables_gpunative/table1"), progress)
    settings = [_setting(files, model, temperature) for model in MODELS for temperature in TEMPERATURES]
    rows = [_row(one) for one in settings]
    return Findings(
        compared=tuple(figure for one in settings for figure in _printed(files, one)),
        follows=_follows(settings),
        tables=(_text(settings), _means_text(settings), within_width(_LIMITS)),
        values={"settings": rows, "limits": _LIMITS},
    )


_LIMITS = (
    "What was drafted was not released: no nodes per round, and no budget that CaDDTree chose. Equal rounds and "
    "lengths say that where its trees were other ones, this never cost or won a token. Whether costs should decide "
    "shows only where they do: with a larger budget, a batch, a long context, or a machine on which 16 nodes are not "
    "nearly free. What would have to be released: nodes drafted and seconds of verification of each round, the prices "
    "that the rule used, and the same prompts at budgets well above 16."
)


def _setting(files: ReleasedFiles, model: Model, temperature: str) -> _Setting:
    tree = program_turns(files, model, temperature, "dominotree").filter(pl.col("method") == "ar")
    found = program_turns(files, model, temperature, _PROGRAM)
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
    same = (pl.col("mean") - pl.col("mean_other")).abs() < _SAME
    if has_rounds:
        same &= (pl.col("rounds") == pl.col("rounds_other")) & (pl.col("tokens") == pl.col("tokens_other"))
    return _Setting(model, temperature, turns, paired.with_columns(same.alias("same")), has_rounds)


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
        **one.over(["mean", "one"]).row("macro_length_ratio"),
        **one.over(["tokens_per_s", "one"]).row("speed_ratio"),
    }
    if one.num_same:
        same = one.paired.filter(pl.col("same"))
        found |= prompt_ratio(same, tokens_per_s=1, tokens_per_s_other=-1).row("speed_ratio_where_same")
    if one.has_rounds:
        found |= one.over(["committed", "rounds"]).row("pooled_length_ratio")
        found |= one.over(["tokens", "seconds"]).row("pooled_speed_ratio")
        found |= one.over(["rounds", "seconds"]).row("rounds_per_s_ratio")
        for method, turns in one.turns.items():
            found |= prompt_ratio(turns, committed=1, rounds=-1).row(f"{method}_pooled")
    for method, turns in one.turns.items():
        found |= prompt_ratio(turns, mean=1, one=-1).row(f"{method}_macro")
    return found


def _interval_text(figure: PromptFigure, digits: int = 3) -> str:
    return f"{figure.value:.{digits}f} [{figure.interval.low:.{digits}f}, {figure.interval.high:.{digits}f}]"


def _text(settings: Sequence[_Setting]) -> str:
    head = ["same turns", "macro length [95 %]", "pooled length", "speed, per turn", "speed, pooled", "rounds/s"]
    cells = [["CaDDTree over DDTree@16, paired", *head]]
    for one in settings:
        pooled, seconds, rounds = ("-" for _ in range(3))
        if one.has_rounds:
            pooled = _interval_text(one.over(["committed", "rounds"]))
            seconds = _interval_text(one.over(["tokens", "seconds"]))
            rounds = _interval_text(one.over(["rounds", "seconds"]))
        lengths, speeds = (_interval_text(one.over([name, "one"])) for name in ("mean", "tokens_per_s"))
        same = f"{one.num_same} of {one.paired.height}"
        cells.append([one.name, same, lengths, pooled, speeds, seconds, rounds])
    note = (
        "Same: equal tokens, rounds and mean (4B), or equal mean (8B, of which tokens, rounds and seconds were not "
        "released). Above temperature 0 the two drew other texts, so lengths differ by chance too."
    )
    return f"{aligned(cells, [True, *[False] * 6])}\n{within_width(note)}"


def _means_text(settings: Sequence[_Setting]) -> str:
    cells = [["acceptance length [95 %]", "", "pooled", "macro average"]]
    for one in settings:
        for method, label in LABELS.items():
            turns = one.turns[method]
            pooled = _interval_text(prompt_ratio(turns, committed=1, rounds=-1), 2) if one.has_rounds else "-"
            cells.append([one.name, label, pooled, _interval_text(prompt_ratio(turns, mean=1, one=-1), 2)])
    return aligned(cells, [True, True, False, False])


def _follows(settings: Sequence[_Setting]) -> str:
    greedy = [one for one in settings if float(one.temperature) == 0]
    counts = " and ".join(f"{one.num_same} of {one.paired.height} turns ({one.model.name})" for one in greedy)
    sampled = [one for one in settings if one not in greedy]
    longer = [one.name for one in sampled if one.over(["mean", "one"]).differs]
    faster = [one.name for one in settings if one.over(["tokens_per_s", "one"]).differs]
    widest = max(
        max(abs(end - 1) for end in (figure.interval.low, figure.interval.high))
        for figure in (one.over(["tokens_per_s", "one"]) for one in greedy)
    )
    return (
        f"at temperature 0 the two have the same acceptance lengths in {counts}: there the comparison says nothing of "
        f"cost-awareness, since what costs could decide did not matter, and speeds differ by less than "
        f"{100 * widest:.1f} %. Above it, a difference of acceptance lengths is shown in {len(longer)} of "
        f"{len(sampled)} settings{_named(longer)}; one of speeds in {len(faster)} of {len(settings)}{_named(faster)}."
    )


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
