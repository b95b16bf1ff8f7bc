"""The two arms in which the released Domino decoder was run, with CUDA graphs (``graph``) and without (``eager``).

At temperature 0 they should differ in speed alone. Above it they draft in two ways.
"""

from collections.abc import Mapping, Sequence

from simlab.analysis.released.domino.means import CellMeans, macro, pooled
from simlab.analysis.released.domino.records import LENGTH_LIMIT, MOST_COMMITTED
from simlab.analysis.released.domino.settings import Setting
from simlab.analysis.released.prompt_ratios import PromptFigure, prompt_ratio, prompt_share
from simlab.analysis.table.text import aligned, within_width

_TWO_WAYS = (
    "Above temperature 0 the arms draft in two ways, as the author of DominoTree documents (`--sample-draft` of "
    "benchmark.py). In the decoder's code (github.com/jianuo-huang/Domino, code/dflash.py at commit 1e0fbf8 and "
    "code/kernel/domino.py at a2cab8a; theirs is e4aad4851) the first pure_draft_prefix_len candidates are sampled in "
    "both arms; of the others the eager arm samples each at the temperature, the graph arm takes the most probable. "
    "Either is exact. Taking the faster arm makes the baseline of DominoTree stronger."
)


def length_ratio(setting: Setting) -> PromptFigure:
    """Pooled acceptance length of the graph arm over that of the eager one, paired."""
    return prompt_ratio(setting.paired_arms, committed=1, rounds=-1, committed_eager=-1, rounds_eager=1)


def arm_row(one: Setting) -> dict[str, object]:
    """Both arms of a setting, and one over the other, as scripts and figures read them."""
    paired = one.paired_arms
    found: dict[str, object] = {"model": one.model.name, "temperature": one.temperature, "turns": paired.height}
    for arm, turns in one.arms.items():
        found |= {f"{arm}_rounds": int(turns["rounds"].sum()), **pooled(turns).row(f"{arm}_pooled")}
        found[f"{arm}_macro"] = round(macro(turns).value, 5)
        found |= prompt_share(turns, "whole_block", "rounds").row(f"{arm}_whole_block_share")
    return found | {
        "equal_turns": _equal_turns(one),
        **{key: value for name, ratio in _ratios(one).items() for key, value in ratio.row(name).items()},
    }


def over_count(one: Setting, arm: str) -> dict[str, object]:
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


def arms_text(settings: Sequence[Setting], cells: Sequence[CellMeans]) -> str:
    """Both arms, one over the other, and what they differ in."""
    lines = [["the two arms", "rounds", "pooled [95 %]", "macro average", f"rounds of {MOST_COMMITTED}, %"]]
    head = ["graph over eager, paired", "equal turns", "pooled length [95 %]", "macro length", "speed", "rounds/s"]
    ratios = [head]
    for one in settings:
        for arm, turns in one.arms.items():
            whole = prompt_share(turns, "whole_block", "rounds").text(1, factor=100)
            rounds = f"{int(turns['rounds'].sum()):,}"
            lines.append([f"{one.name} {arm}", rounds, pooled(turns).text(), macro(turns).text(), whole])
        equal = f"{_equal_turns(one)} of {one.paired_arms.height}"
        ratios.append([one.name, equal, *(ratio.text(3) for ratio in _ratios(one).values())])
    tables = [aligned(some, [True, *[False] * (len(some[0]) - 1)]) for some in (lines, ratios)]
    return "\n\n".join([*tables, within_width(f"{_TWO_WAYS} {_best_arm_text(cells)}")])


def ends_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Tokens that are counted after the end of a text."""
    lines = [["counted after the end of the text", "texts that end", "by 1", "by more", "cut", "by at most", "all, %"]]
    for row in rows:
        named = f"{row['model']} T={row['temperature']} {row['arm']}"
        counted = [str(row[key]) for key in ("ended", "ended_by_one", "ended_by_more", "cut", "cut_most")]
        lines.append([named, *counted, f"{100 * float(str(row['share'])):.2f}"])
    return aligned(lines, [True, *[False] * 6])


def _ratios(one: Setting) -> dict[str, PromptFigure]:
    """The graph arm over the eager one."""
    paired = one.paired_arms
    return {
        "length_ratio": length_ratio(one),
        "macro_length_ratio": prompt_ratio(paired, mean=1, mean_eager=-1),
        "speed_ratio": prompt_ratio(paired, tokens=1, seconds=-1, tokens_eager=-1, seconds_eager=1),
        "rounds_per_s_ratio": prompt_ratio(paired, rounds=1, seconds=-1, rounds_eager=-1, seconds_eager=1),
    }


def _equal_turns(one: Setting) -> int:
    paired = one.paired_arms
    return int((paired["lengths"] == paired["lengths_eager"]).sum())


def _best_arm_text(cells: Sequence[CellMeans]) -> str:
    """Where the eager arm was the faster one; their README says that it nowhere is."""
    eager = [f"{one.model} T={one.temperature} {one.dataset}" for one in cells if one.arm == "eager"]
    if not eager:
        return f"The graph arm is the faster one in all {len(cells)} cells, as their README says."
    return (
        f"Their README (results/raw/domino_official) has the graph arm at least as fast in every cell; in "
        f"{len(eager)} of {len(cells)} the eager one is faster ({', '.join(eager[:3])}{' ...' if eager[3:] else ''})."
    )
