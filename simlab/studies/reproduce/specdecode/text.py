"""The study of SpecDecode-Bench in tables, and in sentences that are worked out from the figures of a run."""

import math
from collections.abc import Mapping, Sequence

from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.released import ComparedFigure, Row, table
from simlab.studies.reproduce.specdecode.chains import ADAPTIVE

SHOWN_BATCHES = (1, 32, 128)
"""In the table of what is reached; all are in JSON, as for the others."""

STEP_BATCHES, SHOWN_POLICIES = (1, 64), ("k=3", "oracle")
"""In the tables of what changes a speedup."""

CANNOT_REPLAY = (
    "trees (it has no second candidates)",
    "rules that read confidences (it has no probabilities)",
    "chains longer than the longest that was recorded",
    "other texts",
)
"""What a record of chains alone does not know."""

_LARGE_SHARE = 0.25
"""Where the longest hundredth of the texts hold more of the tokens, a table warns that intervals rest on few texts."""

_LABELS = {"eagle": "EAGLE", "ngram": "n-grams"}
_NEAR = 0.75
"""So much of the oracle's gain is called most of it."""

_NOTES = {
    "steps": (
        "theirs: the formulas of simulator.py with the costs of predictor.py, evaluated by our code: mean tokens/s "
        "over mean tokens/s of a sample of requests, prefill included. pooled: summed seconds over summed seconds of "
        "the same. decode only: pooled, without prefills. ours: of all requests, pooled, without prefills; n-grams are "
        "charged where prompt lookup finds a match in the released tokens (theirs: by chance, with a fixed "
        "probability). Our oracle drafts nothing where nothing will be accepted: our definition, no error of theirs. "
        "always drafting: ours, charged EAGLE's draft there too, as theirs is."
    ),
    "combined": (
        "The drafter with more accepted tokens in each round, known beforehand. theirs: all rounds charged as n-grams. "
        "at EAGLE's cost: theirs, but charged as EAGLE where EAGLE drafts. ours: on requests whose texts have the same "
        "length for both drafters; texts of other lengths are certainly different, and those of equal length may be "
        "different too. over the better drafter: its oracle's seconds over those of the combination, on the same "
        "requests, paired."
    ),
    "drafters": (
        "in longest 1 %: share of the tokens that the longest hundredth of the texts, and those as long, hold. past "
        "the end: entries whose accepted tokens reach past the end of the text; they are cut there. same length: "
        "requests whose EAGLE text has as many tokens as the n-gram text. unexplained: n-gram entries that prompt "
        "lookup (3 to 7 tokens, the longest match, its first place) does not give from the released tokens. The record "
        "replays none of these: " + "; ".join(CANNOT_REPLAY) + "."
    ),
    "reached": (
        "On the requests at odd places; the fixed length was chosen on those at even places. reached: gain over "
        "autoregressive decoding, as a share of the oracle's; intervals are cut at 100. over fixed: seconds of the "
        "fixed chain over the adaptive one's, paired; + faster, - slower, = no difference shown, by p-values corrected "
        "for all cells and both rules (Holm). Adaptive chains begin at 5 in each request; two-up-one-down: +2 once all "
        "is accepted, else -1; longer-after-success: one more than was accepted."
    ),
}

_COLUMNS: Mapping[str, tuple[str, list[tuple[str, str]]]] = {
    "steps": (
        "lrrrrrrl",
        [
            ("speedup", "{dataset}, {drafter}, {policy}"),
            ("batch", "{batch}"),
            ("theirs", "{theirs:.2f}"),
            ("pooled", "{theirs_pooled:.2f}"),
            ("decode only", "{theirs_decode_only:.2f}"),
            ("ours, always drafting", "{always}"),
            ("ours", "{ours:v}"),
            ("[95 %]", "{ours:i}"),
        ],
    ),
    "combined": (
        "lrrrrll",
        [
            ("combined", "{dataset}"),
            ("batch", "{batch}"),
            ("theirs", "{theirs:.2f}"),
            ("at EAGLE's cost", "{theirs_charged:.2f}"),
            ("ours", "{ours:v}"),
            ("[95 %]", "{ours:i}"),
            ("over the better drafter [95 %]", "{over_better_drafter}"),
        ],
    ),
    "drafters": (
        "lr",
        [
            ("records", "{dataset}, {drafter}"),
            ("requests", "{requests}"),
            ("tokens", "{tokens:,}"),
            ("longest", "{longest_text:,}"),
            ("in longest 1 %", "{percent:.1f} %"),
            ("past the end", "{past_end}"),
            ("same length", "{same_length}"),
            ("unexplained", "{shown}"),
        ],
    ),
    "reached": (
        "lrrlrrrr",
        [
            ("speedup", "{dataset}, {drafter}"),
            ("batch", "{batch}"),
            ("oracle", "{oracle:.2f}"),
            ("fixed k", "k={chosen}"),
            ("", "{fixed:.2f}"),
            ("reached %, [95 %]", "{fixed_reached:0%}"),
            *(
                (
                    f"{name}\nreached %, [95 %]; over fixed",
                    f"{{{name}_reached:0%}}; {{{name}_over_fixed:v3}} {{{name}_verdict_corrected}}",
                )
                for name in ADAPTIVE
            ),
        ],
    ),
    "means": (
        "llr",
        [
            ("acceptance length", "{dataset}, {drafter}"),
            ("of", "{of}"),
            ("pooled [95 %]", "{acceptance_length}"),
            ("macro average [95 %]", "{acceptance_length_macro}"),
            ("macro over pooled [95 %]", "{macro_over_pooled}"),
        ],
    ),
}


def tables_text(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Which of their choices changes a speedup, combined drafters, what was recorded, what is reached, and means."""
    steps, combined = (
        [row for row in rows[name] if row["batch"] in STEP_BATCHES and row["policy"] in SHOWN_POLICIES]
        for name in ("steps", "combined")
    )
    always = [row.get("ours_always_drafting") for row in steps]
    more = [{"always": "-" if value is None else f"{value:.2f}"} for value in always]
    shown = {
        "steps": [row | one for row, one in zip(steps, more, strict=True)],
        "combined": combined,
        "drafters": [
            row
            | {"percent": 100 * row["longest_texts_share"]}
            | {"shown": "" if row["unexplained"] is None else row["unexplained"]}
            for row in rows["drafters"]
        ],
        "reached": [row for row in rows["reached"] if row["batch"] in SHOWN_BATCHES],
        "means": rows["means"],
    }
    texts = {name: table(*_COLUMNS[name], some) for name, some in shown.items()}
    notes = {**_NOTES, "reached": _NOTES["reached"] + _warning(rows["drafters"])}
    return ["\n".join([text, *([within_width(notes[name])] if name in notes else [])]) for name, text in texts.items()]


def _warning(drafters: Sequence[Row]) -> str:
    """Where few texts hold many of the tokens; empty where they do nowhere."""
    shares = [
        f"{100 * row['longest_texts_share']:.0f} % ({row['dataset']}, {row['drafter']})"
        for row in drafters
        if row["longest_texts_share"] > _LARGE_SHARE
    ]
    hold = f"the longest hundredth of the texts hold {' and '.join(shares)} of the tokens"
    return f" WARNING: {hold}; intervals there rest on few texts." if shares else ""


def follows_text(
    steps: Sequence[Row], combined: Sequence[Row], reached: Sequence[Row], matches: Sequence[ComparedFigure]
) -> str:
    """What follows, in numbers of this run.

    Args:
        steps: rows of speedups.
        combined: rows of both drafters combined.
        reached: rows of shares of the oracle's gain, with verdicts.
        matches: how often prompt lookup has a match where nothing is accepted, as assumed and as it was.
    """
    parts = [_reach_sentence(reached, drafter) for drafter in _LABELS]
    parts += [adaptive_sentence(reached), oracle_sentence(steps), charge_sentence(combined), match_sentence(matches)]
    return " ".join(part for part in parts if part)


def adaptive_sentence(reached: Sequence[Row]) -> str:
    """Whether adaptive chains are faster than the fixed length, after the correction for all cells and before it."""

    def faster_and_slower(name: str, kind: str) -> tuple[int, int]:
        verdicts = [row[f"{name}_verdict{kind}"] for row in reached]
        return verdicts.count("+"), verdicts.count("-")

    counted = {name: (*faster_and_slower(name, "_corrected"), *faster_and_slower(name, "")) for name in ADAPTIVE}
    better = [name for name, (faster, slower, *_) in counted.items() if faster > slower]
    lead = "No adaptive rule is faster than the fixed length in more cells than it is slower"
    if better:
        verb = "is" if len(better) == 1 else "are"
        lead = f"{' and '.join(better)} {verb} faster than the fixed length in more cells than slower"
    numbers = [
        f"{name} faster in {faster} and slower in {slower} (uncorrected: {before[0]} and {before[1]})"
        for name, (faster, slower, *before) in counted.items()
    ]
    return (
        f"{lead}: of {len(reached)} cells of dataset, drafter and batch size, by p-values corrected over all "
        f"{len(reached) * len(ADAPTIVE)} (Holm), {'; '.join(numbers)}."
    )


def oracle_sentence(steps: Sequence[Row]) -> str:
    """What our definition of EAGLE's oracle adds, and whether ours is nearer to theirs without it."""
    rows = [row for row in steps if row["batch"] == 1 and "ours_always_drafting" in row]
    if not rows:
        return ""
    pairs = [(row["ours_always_drafting"], row["ours"].value, row["theirs"]) for row in rows]
    added = _range([own - always for always, own, _ in pairs], digits=2)
    nearer = sum(abs(always - theirs) < abs(own - theirs) for always, own, theirs in pairs)
    return (
        f"Our oracle drafts nothing where nothing will be accepted, which adds {added} to EAGLE's oracle at a batch of "
        f"1; without that, ours is nearer to theirs in {nearer} of {len(rows)} datasets."
    )


def charge_sentence(combined: Sequence[Row]) -> str:
    """By how much their combined figure changes with EAGLE's cost; nothing where there is none."""
    changes = [100 * (row["theirs_charged"] / row["theirs"] - 1) for row in combined if row["batch"] == 1]
    if not changes:
        return ""
    low, high = min(changes), max(changes)
    if high <= -0.5:
        change = f"{_range([-high, -low])} % lower"
    elif low >= 0.5:
        change = f"{_range([low, high])} % higher"
    elif max(-low, high) < 0.5:
        change = "the same to less than 0.5 %"
    else:
        change = f"changed by {low:+.0f} to {high:+.0f} %"
    return f"Their combined figure charges EAGLE's drafts as n-grams'; at EAGLE's cost it is {change} at a batch of 1."


def match_sentence(matches: Sequence[ComparedFigure]) -> str:
    """Whether prompt lookup has a match, where nothing is accepted, as often as they assume."""
    pairs = [(match.theirs.value, match.ours) for match in matches if match.theirs is not None]
    if not pairs:
        return ""
    above, below = (sum(own.side_of(assumed) == side for assumed, own in pairs) for side in (-1, 1))
    had = _range([100 * own.value for _, own in pairs])
    assumed = _range([100 * value for value, _ in pairs])
    return (
        f"Where nothing is accepted, prompt lookup had a match at {had} % of places; their simulator assumes "
        f"{assumed} %, more than our interval holds in {above} of {len(pairs)} datasets and less in {below}."
    )


def _reach_sentence(reached: Sequence[Row], drafter: str) -> str:
    """What a fixed length reaches at the smallest and at the largest batch."""
    small, large = (end(row["batch"] for row in reached) for end in (min, max))
    near, far = (
        [row["fixed_reached"] for row in reached if (row["drafter"], row["batch"]) == (drafter, batch)]
        for batch in (small, large)
    )
    at_small, at_large = ([one.value for one in some if not math.isnan(one.value)] for some in (near, far))
    if not at_small or not at_large:
        return ""
    first = "most" if min(at_small) >= _NEAR else "a part"
    change = "less" if max(at_large) < min(at_small) else "about as much"
    change = "more" if min(at_large) > max(at_small) else change
    return (
        f"{_LABELS[drafter]}: a fixed length chosen on other requests reaches {first} of the oracle's gain at a batch "
        f"of {small}, {_share_range(near)}, and {change} at {large}, {_share_range(far)}."
    )


def _share_range(shares: Sequence[Estimate]) -> str:
    """The range of some shares over datasets, and how far their intervals reach."""
    lows, highs = (
        [end for share in shares if not math.isnan(end := getattr(share.interval, name))] for name in ("low", "high")
    )
    outer = f" (intervals from {100 * min(lows):.0f} to {100 * max(highs):.0f} %)" if lows and highs else ""
    return f"{_range([100 * share.value for share in shares if not math.isnan(share.value)])} %{outer}"


def _range(values: Sequence[float], digits: int = 0) -> str:
    """The least and the largest, or one number where they are printed alike."""
    return " to ".join(dict.fromkeys(f"{end(values):.{digits}f}" for end in (min, max)))
