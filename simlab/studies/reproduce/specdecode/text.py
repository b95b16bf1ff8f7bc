"""The study of SpecDecode-Bench in tables, and in sentences that are worked out from the figures of a run."""

import math
from collections.abc import Mapping, Sequence

from simlab.analysis.table.text import number
from simlab.studies.reproduce.released import Row, table
from simlab.studies.reproduce.specdecode.chains import ADAPTIVE, BATCHES, FIRST_LENGTH, THEIR_BATCHES

SHOWN_POLICIES = ("k=3", "oracle")
"""In the tables of what changes a speedup."""

_BATCHES = {
    "steps": (THEIR_BATCHES, (1, 64)),
    "combined": (THEIR_BATCHES, (1, 64)),
    "reached": (BATCHES, (1, 32, 128)),
}
"""Batch sizes that rows have, as JSON does, and those that tables show."""

_NOTES = {
    "steps": (
        "theirs: by their formulas and costs, mean tokens/s over mean tokens/s of a sample of requests, prefill "
        "included. pooled: summed seconds over summed seconds of the same. decode only: pooled, without prefills. "
        "ours: of all requests, pooled, without prefills. always drafting: ours, charged EAGLE's draft where nothing "
        "will be accepted too, as theirs is."
    ),
    "combined": (
        "at EAGLE's cost: theirs, but charged as EAGLE where EAGLE drafts. ours: on requests whose texts have the same "
        "length for both drafters; they may be different all the same. over the better drafter: its oracle's seconds "
        "over those of the combination, on the same requests, paired."
    ),
    "drafters": (
        "in longest 1 %: share of the tokens that the longest hundredth of the texts, and those as long, hold; where "
        "it is large, intervals rest on few texts. past the end: entries whose accepted tokens reach past the end of "
        "the text; they are cut there. same length: requests whose EAGLE text has as many tokens as the n-gram text. "
        "unexplained: n-gram entries that prompt lookup does not give from the released tokens."
    ),
    "reached": (
        "On the requests at odd places; the fixed length was chosen on those at even places. reached: gain over "
        "autoregressive decoding, as a share of the oracle's; intervals are cut at 100. over fixed: seconds of the "
        "fixed chain over the adaptive one's, paired; + faster, - slower, = no difference shown, by p-values corrected "
        f"for all cells and both rules (Holm). Adaptive chains begin at {FIRST_LENGTH} in each request."
    ),
}

_TABLES = {
    "steps": (
        "lrrrrrrl",
        "speedup = {dataset}, {drafter}, {policy} | batch = {batch} | theirs = {theirs:.2f}",
        "pooled = {theirs_pooled:.2f} | decode only = {theirs_decode_only:.2f}",
        "ours, always drafting = {always} | ours = {ours:v} | [95 %] = {ours:i}",
    ),
    "combined": (
        "lrrrrll",
        "combined = {dataset} | batch = {batch} | theirs = {theirs:.2f} | at EAGLE's cost = {theirs_charged:.2f}",
        "ours = {ours:v} | [95 %] = {ours:i} | over the better drafter [95 %] = {over_better_drafter}",
    ),
    "drafters": (
        "lr",
        "records = {dataset}, {drafter} | requests = {requests} | tokens = {tokens:,} | longest = {longest_text:,}",
        "in longest 1 % = {percent:.1f} % | past the end = {past_end} | same length = {same_length}",
        "unexplained = {unexplained}",
    ),
    "reached": (
        "lrrlrrrr",
        "speedup = {dataset}, {drafter} | batch = {batch} | oracle = {oracle:.2f} | fixed k = k={chosen}",
        "= {fixed:.2f} | reached %, [95 %] = {fixed_reached:0%}",
        *(
            f"{name}\nreached %, [95 %]; over fixed = "
            f"{{{name}_reached:0%}}; {{{name}_over_fixed:v3}} {{{name}_verdict_corrected}}"
            for name in ADAPTIVE
        ),
    ),
    "means": (
        "llr",
        "acceptance length = {dataset}, {drafter} | of = {of} | pooled [95 %] = {acceptance_length}",
        "macro average [95 %] = {acceptance_length_macro} | macro over pooled [95 %] = {macro_over_pooled}",
    ),
}


def tables_text(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Which of their choices changes a speedup, combined drafters, what was recorded, what is reached, and means.

    Args:
        rows: by table; lists in them have a value for each batch size.
    """
    texts = []
    for name, (sides, *lines) in _TABLES.items():
        batches, shown = _BATCHES.get(name, ((1,), (1,)))
        named = [row for row in rows[name] if row.get("policy", SHOWN_POLICIES[0]) in SHOWN_POLICIES]
        cells = [_cells(row, batches.index(batch)) | {"batch": batch} for row in named for batch in shown]
        texts.append(table(sides, " | ".join(lines), cells, _NOTES.get(name, "")))
    return texts


def _cells(row: Row, index: int) -> Row:
    """What a table prints of a row at a batch size."""
    cells = {name: value[index] if isinstance(value, list) else value for name, value in row.items()}
    return cells | {
        "always": number(cells.get("ours_always_drafting", math.nan), 2),
        "percent": 100 * cells.get("longest_texts_share", math.nan),
        "unexplained": "" if cells.get("unexplained") is None else cells["unexplained"],
    }
