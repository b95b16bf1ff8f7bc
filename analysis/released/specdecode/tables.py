"""Tables of the study of SpecDecode-Bench as people read them, and the sentence of what follows."""

from collections.abc import Mapping, Sequence

from simlab.analysis.released.specdecode.chain_records import CANNOT_REPLAY
from simlab.analysis.table.text import aligned, within_width

Row = Mapping[str, object]

SHOWN_BATCHES = (1, 32, 128)
"""In the table of what is reached; all are in JSON, as for the others."""

STEP_BATCHES, SHOWN_POLICIES = (1, 64), ("k=3", "oracle")
"""In the tables of what changes a speedup."""

ADAPTIVE_NAMES = ("two-up-one-down", "longer-after-success")


def steps_text(steps: Sequence[Row]) -> str:
    """Which of their choices changes a speedup."""
    cells = [["speedup", "batch", "theirs", "pooled", "decode only", "ours", "[95 %]"]]
    for row in steps:
        if row["batch"] in STEP_BATCHES and row["policy"] in SHOWN_POLICIES:
            names = ("theirs", "theirs_pooled", "theirs_decode_only", "ours")
            what = [f"{row['dataset']}, {row['drafter']}, {row['policy']}", str(row["batch"])]
            cells.append([*what, *(_number(row[name]) for name in names), _ends(row, "ours")])
    note = within_width(
        "theirs: by their formulas, as their files print no figure: the ratio of mean tokens per second over a sample "
        "of requests, prefill included. pooled: the ratio of summed seconds. decode only: without prefills. ours: "
        "also all requests, from behind the first token; n-grams charged where prompt lookup finds a match in the "
        "released tokens (theirs: by coins); the oracle charged no draft where nothing is accepted (theirs charges "
        "EAGLE's)."
    )
    return aligned(cells, [True, False, False, False, False, False, True]) + "\n" + note


def combined_text(combined: Sequence[Row]) -> str:
    """The better drafter of each round by hindsight."""
    cells = [["combined", "batch", "theirs", "charged", "ours", "[95 %]", "over the better drafter [95 %]"]]
    for row in combined:
        if row["batch"] in STEP_BATCHES:
            theirs = [_number(row[name]) for name in ("theirs", "theirs_charged", "ours")]
            over = f"{_number(row['over_better_drafter'])} {_ends(row, 'over_better_drafter')}"
            cells.append([str(row["dataset"]), str(row["batch"]), *theirs, _ends(row, "ours"), over])
    note = within_width(
        "The drafter with more accepted tokens in each round, known beforehand. theirs: all rounds charged as n-grams. "
        "charged: theirs but for EAGLE's price where EAGLE drafts. ours: on requests whose texts have the same length "
        "for both drafters, since the others are different texts. over the better drafter: its oracle's seconds over "
        "those of the combination, on the same requests, paired."
    )
    return aligned(cells, [True, False, False, False, False, True, True]) + "\n" + note


def drafters_text(drafters: Sequence[Row]) -> str:
    """What the record holds of each dataset."""
    cells = [
        [
            "records",
            "requests",
            "tokens",
            "longest",
            "in longest 1 %",
            "unexplained",
            "same length",
            "behind the end",
            "",
        ]
    ]
    for row in drafters:
        counts = [str(row["requests"]), f"{row['tokens']:,}", f"{row['longest_text']:,}"]
        counts.append(f"{100 * value_of(row['longest_texts_share']):.1f} %")
        counts += [str(row["ngram_unexplained"]), str(row["same_length"])]
        ends = [f"eagle {row['behind_end_eagle']}", f"ngram {row['behind_end_ngram']}"]
        cells.append([str(row["dataset"]), *counts, *ends])
    note = within_width(
        "in longest 1 %: tokens in the longest hundredth of the texts. unexplained: n-gram entries that prompt lookup "
        "(3 to 7 tokens, the longest match, its first place) does not give from the released tokens. same length: "
        "requests whose EAGLE text has as many tokens as the n-gram text. behind the end: entries whose accepted "
        "tokens reach behind the text. The record replays none of these: " + "; ".join(CANNOT_REPLAY) + "."
    )
    return aligned(cells, [True, *[False] * 6, True, True]) + "\n" + note


def reach_text(reached: Sequence[Row]) -> str:
    """How much of the oracle's gain is reached, and by what."""
    cells = [["speedup", "batch", "oracle", "fixed k", "", "reached %, [95 %]", *ADAPTIVE_NAMES]]
    cells.append(["", "", "", "", "", "", *["reached %, [95 %]; over fixed"] * len(ADAPTIVE_NAMES)])
    for row in reached:
        if row["batch"] in SHOWN_BATCHES:
            what = [f"{row['dataset']}, {row['drafter']}", str(row["batch"]), _number(row["oracle"])]
            fixed = [f"k={row['chosen']}", _number(row["fixed"]), _percent(row, "fixed_reached")]
            cells.append([*what, *fixed, *(_adaptive(row, name) for name in ADAPTIVE_NAMES)])
    note = within_width(
        "On the requests at odd places; the fixed length was chosen on those at even places. reached: gain over "
        "autoregressive decoding, as a share of the oracle's. over fixed: seconds of the fixed chain over the "
        "adaptive one's, paired [95 %]; + faster, - slower, = no difference shown. Adaptive chains begin at 5 in each "
        "request; two-up-one-down: +2 once all is accepted, else -1; longer-after-success: one more than was accepted."
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


def follows_text(combined: Sequence[Row], reached: Sequence[Row]) -> str:
    """What follows, in numbers of this run."""
    ranges = [
        f"{_range(reached, drafter, 'fixed_reached', 1)} % at a batch of 1 and "
        f"{_range(reached, drafter, 'fixed_reached', 128)} % at 128 ({label})"
        for drafter, label in (("eagle", "EAGLE"), ("ngram", "n-grams"))
    ]
    counts = [f"{name} {_verdicts(reached, name)}" for name in ADAPTIVE_NAMES]
    dear = [
        100 * (1 - value_of(row["theirs_charged"]) / value_of(row["theirs"])) for row in combined if row["batch"] == 1
    ]
    lower = (
        f" Their combined figure charges EAGLE's drafts as n-grams'; at EAGLE's price it is {min(dear):.0f} to "
        f"{max(dear):.0f} % lower at a batch of 1."
        if dear
        else ""
    )
    return (
        f"Of the oracle's gain a fixed length chosen on other requests reaches {'; '.join(ranges)}. Against it, over "
        f"{len(reached)} cells of dataset, drafter and batch size, {'; '.join(counts)}.{lower}"
    )


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


def verdict(row: Row, name: str) -> str:
    """Whether an adaptive chain is faster (+) or slower (-) than the fixed one, or no difference is shown (=)."""
    low, high = row[f"{name}_over_fixed_ci_low"], row[f"{name}_over_fixed_ci_high"]
    if low is None or high is None:
        return "="
    return "+" if value_of(low) > 1 else "-" if value_of(high) < 1 else "="


def _verdicts(reached: Sequence[Row], name: str) -> str:
    found = [verdict(row, name) for row in reached]
    return f"is faster in {found.count('+')}, slower in {found.count('-')}, no difference shown in {found.count('=')}"


def _adaptive(row: Row, name: str) -> str:
    return f"{_percent(row, f'{name}_reached')}; {_number(row[f'{name}_over_fixed'], 3)} {verdict(row, name)}"


def _range(reached: Sequence[Row], drafter: str, name: str, batch: int) -> str:
    found = [
        100 * value_of(row[name])
        for row in reached
        if row["drafter"] == drafter and row["batch"] == batch and row[name] is not None
    ]
    return f"{min(found):.0f} to {max(found):.0f}" if found else "-"


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


def value_of(value: object) -> float:
    """The number that a row holds, which must be known."""
    assert isinstance(value, int | float)
    return float(value)
