"""Tables of the study of SpecDecode-Bench as people read them."""

from collections.abc import Mapping, Sequence

from simlab.analysis.released.specdecode.chain_records import CANNOT_REPLAY
from simlab.analysis.released.specdecode.chain_replay import ADAPTIVE
from simlab.analysis.table.text import aligned, within_width

Row = Mapping[str, object]

SHOWN_BATCHES = (1, 32, 128)
"""In the table of what is reached; all are in JSON, as for the others."""

STEP_BATCHES, SHOWN_POLICIES = (1, 64), ("k=3", "oracle")
"""In the tables of what changes a speedup."""

LARGE_SHARE = 0.25
"""Where the longest hundredth of the texts hold more of the tokens, a table warns that intervals rest on few texts."""


def steps_text(steps: Sequence[Row]) -> str:
    """Which of their choices changes a speedup."""
    cells = [["speedup", "batch", "theirs", "pooled", "decode only", "ours, always drafting", "ours", "[95 %]"]]
    for row in steps:
        if row["batch"] in STEP_BATCHES and row["policy"] in SHOWN_POLICIES:
            names = ("theirs", "theirs_pooled", "theirs_decode_only", "ours_always_drafting", "ours")
            what = [f"{row['dataset']}, {row['drafter']}, {row['policy']}", str(row["batch"])]
            cells.append([*what, *(_number(row.get(name)) for name in names), _ends(row, "ours")])
    note = within_width(
        "theirs: the formulas of simulator.py with the costs of predictor.py, evaluated by our code: mean tokens/s "
        "over mean tokens/s of a sample of requests, prefill included. pooled: summed seconds over summed seconds of "
        "the same. decode only: pooled, without prefills. ours: of all requests, pooled, without prefills; n-grams are "
        "charged where prompt lookup finds a match in the released tokens (theirs: by chance, with a fixed "
        "probability). Our oracle drafts nothing where nothing will be accepted: our definition, no error of theirs. "
        "always drafting: ours, charged EAGLE's draft there too, as theirs is."
    )
    return aligned(cells, [True, False, False, False, False, False, False, True]) + "\n" + note


def combined_text(combined: Sequence[Row]) -> str:
    """The better drafter of each round by hindsight."""
    cells = [["combined", "batch", "theirs", "at EAGLE's cost", "ours", "[95 %]", "over the better drafter [95 %]"]]
    for row in combined:
        if row["batch"] in STEP_BATCHES:
            theirs = [_number(row[name]) for name in ("theirs", "theirs_charged", "ours")]
            over = f"{_number(row['over_better_drafter'])} {_ends(row, 'over_better_drafter')}"
            cells.append([str(row["dataset"]), str(row["batch"]), *theirs, _ends(row, "ours"), over])
    note = within_width(
        "The drafter with more accepted tokens in each round, known beforehand. theirs: all rounds charged as n-grams. "
        "at EAGLE's cost: theirs, but charged as EAGLE where EAGLE drafts. ours: on requests whose texts have the same "
        "length for both drafters; texts of other lengths are certainly different, and those of equal length may be "
        "different too. over the better drafter: its oracle's seconds over those of the combination, on the same "
        "requests, paired."
    )
    return aligned(cells, [True, False, False, False, False, True, True]) + "\n" + note


def contents_text(drafters: Sequence[Row]) -> str:
    """What the records of each dataset and drafter hold."""
    heads = ["records", "requests", "tokens", "longest", "in longest 1 %", "past the end", "same length", "unexplained"]
    cells = [heads]
    for row in drafters:
        shown = [str(row["requests"]), f"{row['tokens']:,}", f"{row['longest_text']:,}"]
        shown += [f"{100 * value_of(row['longest_texts_share']):.1f} %", str(row["past_end"]), str(row["same_length"])]
        unexplained = "" if row["unexplained"] is None else str(row["unexplained"])
        cells.append([f"{row['dataset']}, {row['drafter']}", *shown, unexplained])
    note = within_width(
        "in longest 1 %: share of the tokens that the longest hundredth of the texts, and those as long, hold. past "
        "the end: entries whose accepted tokens reach past the end of the text; they are cut there. same length: "
        "requests whose EAGLE text has as many tokens as the n-gram text. unexplained: n-gram entries that prompt "
        "lookup (3 to 7 tokens, the longest match, its first place) does not give from the released tokens. The record "
        "replays none of these: " + "; ".join(CANNOT_REPLAY) + "."
    )
    return aligned(cells, [True, *[False] * 7]) + "\n" + note


def reach_text(reached: Sequence[Row], drafters: Sequence[Row]) -> str:
    """How much of the oracle's gain is reached, and by what; with a warning where few texts hold many of the tokens."""
    cells = [["speedup", "batch", "oracle", "fixed k", "", "reached %, [95 %]", *ADAPTIVE]]
    cells.append(["", "", "", "", "", "", *["reached %, [95 %]; over fixed"] * len(ADAPTIVE)])
    for row in reached:
        if row["batch"] in SHOWN_BATCHES:
            what = [f"{row['dataset']}, {row['drafter']}", str(row["batch"]), _number(row["oracle"])]
            fixed = [f"k={row['chosen']}", _number(row["fixed"]), _percent(row, "fixed_reached")]
            cells.append([*what, *fixed, *(_adaptive(row, name) for name in ADAPTIVE)])
    note = within_width(
        "On the requests at odd places; the fixed length was chosen on those at even places. reached: gain over "
        "autoregressive decoding, as a share of the oracle's; intervals are cut at 100. over fixed: seconds of the "
        "fixed chain over the adaptive one's, paired; + faster, - slower, = no difference shown, by p-values corrected "
        "for all cells and both rules (Holm). Adaptive chains begin at 5 in each request; two-up-one-down: +2 once all "
        "is accepted, else -1; longer-after-success: one more than was accepted." + _warning(drafters)
    )
    return aligned(cells, [True, False, False, True, False, False, False, False]) + "\n" + note


def means_text(means: Sequence[Row]) -> str:
    """Both means of the acceptance length, at every position and in the rounds of the longest chain."""
    cells = [["acceptance length", "of", "pooled [95 %]", "macro average [95 %]", "macro over pooled [95 %]"]]
    for row in means:
        names = ("acceptance_length", "acceptance_length_macro", "macro_over_pooled")
        shown = [f"{_number(row[name])} {_ends(row, name)}" for name in names]
        cells.append([f"{row['dataset']}, {row['drafter']}", str(row["of"]), *shown])
    return aligned(cells, [True, True, False, False, False])


def columns_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Rows of batch sizes, joined to one for each dataset, drafter and policy; other columns become lists."""
    joined: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        joined.setdefault(tuple(row[name] for name in _KEYS if name in row), []).append(row)
    return [
        {name: some[0][name] if name in _KEYS else [row[name] for row in some] for name in some[0] if name != "batch"}
        for some in joined.values()
    ]


_KEYS = ("dataset", "drafter", "policy")


def value_of(value: object) -> float:
    """The number that a row holds, which must be known."""
    assert isinstance(value, int | float)
    return float(value)


def _warning(drafters: Sequence[Row]) -> str:
    """Where few texts hold many of the tokens; empty where they do nowhere."""
    found = [row for row in drafters if value_of(row["longest_texts_share"]) > LARGE_SHARE]
    if not found:
        return ""
    shares = [
        f"{100 * value_of(row['longest_texts_share']):.0f} % ({row['dataset']}, {row['drafter']})" for row in found
    ]
    return (
        f" WARNING: the longest hundredth of the texts hold {' and '.join(shares)} of the tokens; intervals there "
        "rest on few texts."
    )


def _adaptive(row: Row, name: str) -> str:
    over = _number(row[f"{name}_over_fixed"], 3)
    return f"{_percent(row, f'{name}_reached')}; {over} {row[f'{name}_verdict_corrected']}"


def _percent(row: Row, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_ci_low", "_ci_high"))
    if value is None:
        return "-"
    ends = "" if low is None else f" [{100 * value_of(low):.0f}, {100 * value_of(high):.0f}]"
    return f"{100 * value_of(value):.0f}{ends}"


def _ends(row: Row, name: str) -> str:
    low, high = row[f"{name}_ci_low"], row[f"{name}_ci_high"]
    return "" if low is None or high is None else f"[{_number(low)}, {_number(high)}]"


def _number(value: object, digits: int = 2) -> str:
    return "-" if value is None else f"{value_of(value):.{digits}f}"
