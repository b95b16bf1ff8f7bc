"""Tables of the study of SpecDecode-Bench as people read them, and the sentence of what follows."""

from collections.abc import Mapping, Sequence

from simlab.analysis.table.text import aligned, within_width

Row = Mapping[str, object]

SHOWN_BATCHES = (1, 32, 128)
ADAPTIVE_NAMES = ("two-up-one-down", "longer-after-success")


def steps_text(steps: Sequence[Row]) -> str:
    """Which of their choices changes a speedup, at a batch of 1."""
    cells = [["speedup, batch 1", "theirs", "pooled", "decode only", "ours", "[95 %]"]]
    for row in steps:
        if row["batch"] == 1:
            names = ("theirs", "theirs_pooled", "theirs_decode_only", "ours")
            what = f"{row['dataset']}, {row['drafter']}, {row['policy']}"
            cells.append([what, *(_number(row[name]) for name in names), _ends(row, "ours")])
    note = within_width(
        "theirs: by their formulas, as their files print no figure: the ratio of mean tokens per second over a sample "
        "of requests, prefill included. pooled: the ratio of summed seconds. decode only: without prefills. ours: "
        "also from behind the first token, all requests, n-grams charged where prompt lookup finds a match in the "
        "released tokens (theirs: by coins), the oracle charged no draft where nothing is accepted (theirs charges "
        "EAGLE's), and combined: EAGLE's drafts at EAGLE's price (theirs: at an n-gram's), on requests whose texts "
        "are of the same length for both drafters."
    )
    return aligned(cells, [True, False, False, False, False, True]) + "\n" + note


def drafters_text(drafters: Sequence[Row]) -> str:
    """What the record holds of each dataset."""
    cells = [["records", "requests", "tokens", "ngram explained %", "same length %", "behind the end, eagle", "ngram"]]
    for row in drafters:
        counts = [str(row["requests"]), f"{row['tokens']:,}"]
        shares = [f"{100 * _value(row[name]):.3f}" for name in ("ngram_explained_share", "same_length_share")]
        ends = [str(row[name]) for name in ("behind_end_eagle", "behind_end_ngram")]
        cells.append([str(row["dataset"]), *counts, *shares, *ends])
    note = within_width(
        "ngram explained: entries that prompt lookup (3 to 7 tokens, the longest match, its first place) gives too, "
        "from the released tokens. same length: requests whose EAGLE text has as many tokens as the n-gram text; the "
        "others are different texts. behind the end: entries whose accepted tokens reach behind the text."
    )
    return aligned(cells, [True, *[False] * 6]) + "\n" + note


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


def follows_text(steps: Sequence[Row], reached: Sequence[Row]) -> str:
    """What follows, in numbers of this run."""
    ranges = [
        f"{_range(reached, drafter, 'fixed_reached', 1)} % at a batch of 1 and "
        f"{_range(reached, drafter, 'fixed_reached', 128)} % at 128 ({label})"
        for drafter, label in (("eagle", "EAGLE"), ("ngram", "n-grams"))
    ]
    counts = [f"{name} {_verdicts(reached, name)}" for name in ADAPTIVE_NAMES]
    dear = [
        100 * (_value(row["theirs"]) / _value(row["ours"]) - 1)
        for row in steps
        if row["drafter"] == "combined" and row["batch"] == 1 and row["ours"] is not None
    ]
    combined = f" Their combination looks {min(dear):.0f} to {max(dear):.0f} % faster than ours." if dear else ""
    return (
        f"Of the oracle's gain a fixed length chosen on other requests reaches {'; '.join(ranges)}. Against it, over "
        f"{len(reached)} cells of dataset, drafter and batch size, {'; '.join(counts)}.{combined}"
    )


def verdict(row: Row, name: str) -> str:
    """Whether an adaptive chain is faster (+) or slower (-) than the fixed one, or no difference is shown (=)."""
    low, high = row[f"{name}_over_fixed_ci_low"], row[f"{name}_over_fixed_ci_high"]
    if low is None or high is None:
        return "="
    return "+" if _value(low) > 1 else "-" if _value(high) < 1 else "="


def _verdicts(reached: Sequence[Row], name: str) -> str:
    found = [verdict(row, name) for row in reached]
    return f"is faster in {found.count('+')}, slower in {found.count('-')}, no difference shown in {found.count('=')}"


def _adaptive(row: Row, name: str) -> str:
    return f"{_percent(row, f'{name}_reached')}; {_number(row[f'{name}_over_fixed'], 3)} {verdict(row, name)}"


def _range(reached: Sequence[Row], drafter: str, name: str, batch: int) -> str:
    found = [
        100 * _value(row[name])
        for row in reached
        if row["drafter"] == drafter and row["batch"] == batch and row[name] is not None
    ]
    return f"{min(found):.0f} to {max(found):.0f}" if found else "-"


def _percent(row: Row, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_ci_low", "_ci_high"))
    if value is None:
        return "-"
    ends = "" if low is None else f" [{100 * _value(low):.0f}, {100 * _value(high):.0f}]"
    return f"{100 * _value(value):.0f}{ends}"


def _ends(row: Row, name: str) -> str:
    low, high = row[f"{name}_ci_low"], row[f"{name}_ci_high"]
    return "" if low is None or high is None else f"[{_number(low)}, {_number(high)}]"


def _number(value: object, digits: int = 2) -> str:
    return "-" if value is None else f"{_value(value):.{digits}f}"


def _value(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
