"""The study of SpecDecode-Bench in tables, and in sentences that are worked out from the figures of a run."""

from collections.abc import Mapping, Sequence

from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.released import Row, table
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
        "in longest 1 %: share of the tokens that the longest hundredth of the texts, and those as long, hold; where "
        "it is large, intervals rest on few texts. past the end: entries whose accepted tokens reach past the end of "
        "the text; they are cut there. same length: requests whose EAGLE text has as many tokens as the n-gram text. "
        "unexplained: n-gram entries that prompt lookup (3 to 7 tokens, the longest match, its first place) does not "
        "give from the released tokens. The record replays none of these: " + "; ".join(CANNOT_REPLAY) + "."
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
        "steps": [row | added for row, added in zip(steps, more, strict=True)],
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
    texts = {name: table(*_COLUMNS[name], of_table) for name, of_table in shown.items()}
    notes = {name: f"\n{within_width(note)}" for name, note in _NOTES.items()}
    return [text + notes.get(name, "") for name, text in texts.items()]
