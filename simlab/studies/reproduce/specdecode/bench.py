"""Chains of EAGLE and n-grams on Llama 3.1 8B: how much of the oracle's gain a fixed or an adaptive length reaches."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from simlab.analysis.compare.averaging import both_means
from simlab.analysis.statistics.intervals import LEVEL, Interval, intervals_of, prompt_spread
from simlab.analysis.statistics.significance import holm
from simlab.analysis.table.estimates import Estimate, flat, prompt_ratio
from simlab.analysis.table.text import number
from simlab.arrays import Bools, Doubles
from simlab.studies.reproduce.ddtreepp_rounds import run_of_rounds
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, Quoted, ReleasedFiles, Row, table
from simlab.studies.reproduce.specdecode.chains import (
    ADAPTIVE,
    BATCHES,
    DRAFTERS,
    EAGLE,
    FIRST_LENGTH,
    NGRAM,
    OUR_ROOTS,
    THEIR_BATCHES,
    TheirSettings,
    chain,
    combined,
    heads,
    oracle,
    read_chains,
    read_settings,
    seconds,
    their_roots,
    their_speedup,
)

DATASETS = ("gsm8k", "cnn", "instructcoder", "sharegpt")
CURVE_BATCHES = (1, 16, 128)
THEIR_LENGTHS = (1, 3, 5)
"""Lengths of fixed chains at which theirs stand beside ours."""

CANNOT_REPLAY = (
    "trees (it has no second candidates)",
    "rules that read confidences (it has no probabilities)",
    "chains longer than the longest that was recorded",
    "other texts",
)
"""What a record of chains alone does not know."""

PLAIN, ORACLE = "autoregressive", "oracle"

Seconds = Mapping[str, Doubles]
"""Seconds of each request at each of `BATCHES`, float64 ``[R, B]``, by policy: plain, k=1 .., oracle, adaptive."""

_THEIRS = ("theirs", "theirs_pooled", "theirs_decode_only")
_WRITTEN = ("survival", "curves")
"""Sections whose figures are rounded as they are made."""

_AT_THEIRS = [BATCHES.index(batch) for batch in THEIR_BATCHES]


def specdecode_bench(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Their speedups and ours, what a fixed and an adaptive length reach of the oracle's, and spreads of lengths."""
    paths = {dataset: f"data/llama3.1-8B/combined_{dataset}.jsonl" for dataset in DATASETS}
    files.have(["predictor.py", "simulator.py", *paths.values()], options.progress)
    settings, every = read_settings(files, DATASETS), read_chains(files, paths)
    sections = ("steps", "combined", "reached", "means", "drafters", "survival", "curves")
    rows: dict[str, list[Row]] = {name: [] for name in sections}
    matches, speedups = [], []
    rows["drafters"] = _contents(every)
    for dataset in DATASETS:
        entries = {drafter: every.filter(dataset=dataset, drafter=drafter) for drafter in DRAFTERS}
        roots = {drafter: own.filter(OUR_ROOTS) for drafter, own in entries.items()}
        own_s = {drafter: seconds_of(own, settings) for drafter, own in roots.items()}
        steps = [row for drafter in DRAFTERS for row in steps_of(entries[drafter], own_s[drafter], settings)]
        pair = combined_of(entries, own_s, settings)
        rows["steps"] += steps
        rows["combined"].append(pair)
        speedups += [_compared(row) for row in (*steps, pair) if row["policy"] in SHOWN_POLICIES]
        matches.append(match_figure(roots[NGRAM], settings.match_probs[dataset]))
        for drafter, own in roots.items():
            key = {"dataset": dataset, "drafter": drafter}
            longest = own.filter(position=1)["is_longest"].to_numpy()
            rows["reached"].append(key | reach_of(own_s[drafter]))
            rows["means"] += [key | row for row in means_of(own)]
            rows["survival"].append(key | {"shares": survival_of(own)})
            rows["curves"] += [key | row for row in curve_rows(own_s[drafter], longest)]
    add_corrected_verdicts(rows["reached"])
    values: Row = {
        "costs": dict(settings.costs),
        "cannot_replay": list(CANNOT_REPLAY),
        "batches": list(BATCHES),
        "their_batches": list(THEIR_BATCHES),
        "longest_chains": {drafter: own["longest"][0] for drafter, own in entries.items()},
    }
    written = {name: own if name in _WRITTEN else list(map(_json_row, own)) for name, own in rows.items()}
    return Findings([*matches, *speedups], tables_text(rows), values | written)


def seconds_of(roots: pl.DataFrame, settings: TheirSettings) -> Seconds:
    """Seconds of every policy on a dataset and drafter."""
    lengths = range(1, roots["longest"][0] + 1)
    rounds = {PLAIN: chain(roots, 0), **{f"k={length}": chain(roots, length) for length in lengths}}
    rounds |= {ORACLE: oracle(roots), **{name: chain(roots, FIRST_LENGTH, rule) for name, rule in ADAPTIVE.items()}}
    return {policy: seconds(roots, verified, settings.costs) for policy, verified in rounds.items()}


def ratios(above_s: Doubles, below_s: Doubles) -> list[Estimate]:
    """Summed seconds over summed seconds of the same requests, float64 ``[R, B]`` each, paired; for each batch size."""
    # Every request is a prompt of its own here.
    names = {"dataset": [""] * len(above_s), "prompt": list(range(len(above_s)))}
    pairs = zip(above_s.T, below_s.T, strict=True)
    return [prompt_ratio(pl.DataFrame({**names, "above": a, "below": b}), above=1, below=-1) for a, b in pairs]


def speedup(own_s: Seconds, policy: str, requests: slice | Bools = slice(None)) -> Doubles:
    """Seconds of autoregressive decoding over a policy's, both summed over some requests, float64 ``[B]``."""
    return np.asarray(own_s[PLAIN][requests].sum(axis=0) / own_s[policy][requests].sum(axis=0), np.float64)


def steps_of(entries: pl.DataFrame, own_s: Seconds, settings: TheirSettings) -> list[Row]:
    """Each speedup by their formulas, by other means of the same seconds, and by our replay; lists by batch size.

    Of a speedup that no table shows, theirs and ours alone.
    """
    roots, coins = their_roots(entries, settings)
    dataset, drafter = entries.select("dataset", "drafter").row(0)
    rounds = {f"k={length}": chain(roots, length) for length in THEIR_LENGTHS} | {ORACLE: oracle(roots)}
    rows: list[Row] = []
    for policy, verified in rounds.items():
        theirs = []
        for batch in THEIR_BATCHES:
            # Their oracle is charged EAGLE where nothing is accepted, and n-grams are not; else these match by coins.
            drafting = ((verified > 1) | (drafter == EAGLE)).astype(np.float64)
            if policy != ORACLE and drafter == NGRAM:
                failed = (roots["accepted"] == 0).to_numpy() & (verified > 0)
                drafting[failed] = heads(coins, int(failed.sum()), batch, settings.match_probs[dataset].value)
            theirs.append(their_speedup(roots, verified, drafting, batch, settings))
        row: Row = {"dataset": dataset, "drafter": drafter, "policy": policy}
        if policy not in SHOWN_POLICIES:
            ours = speedup(own_s, policy)[_AT_THEIRS].tolist()
            rows.append(row | {"theirs": [own for own, *_ in theirs], "ours": ours})
            continue
        row |= {name: list(own) for name, own in zip(_THEIRS, zip(*theirs, strict=True), strict=True)}
        row["ours"] = ratios(*(own_s[name][:, _AT_THEIRS] for name in (PLAIN, policy)))
        if policy == ORACLE and drafter == EAGLE:
            own = entries.filter(OUR_ROOTS)
            always = seconds(own, oracle(own), settings.costs, np.ones(own.height))
            row["ours_always_drafting"] = speedup({**own_s, policy: always}, policy)[_AT_THEIRS].tolist()
        rows.append(row)
    return rows


def combined_of(entries: Mapping[str, pl.DataFrame], own_s: Mapping[str, Seconds], settings: TheirSettings) -> Row:
    """The better drafter of each round by hindsight: theirs, theirs with EAGLE's drafts charged, and ours.

    Ours is of the requests for which both texts are of the same length, beside the oracle of the better drafter on
    these.

    Args:
        entries: by drafter.
        own_s: seconds of each drafter.
        settings: theirs.
    """
    roots = combined(*(their_roots(entries[drafter], settings)[0] for drafter in (EAGLE, NGRAM)))
    verified, all_draft = oracle(roots), np.ones(roots.height)
    theirs, charged = (
        [their_speedup(own, verified, all_draft, batch, settings)[0] for batch in THEIR_BATCHES]
        for own in (roots.with_columns(by_eagle=False), roots)
    )
    eagle, ngram = (entries[drafter].filter(OUR_ROOTS, "is_same") for drafter in (EAGLE, NGRAM))
    same = combined(eagle, ngram)
    of_same = (eagle["request"].unique().sort().to_numpy(), slice(None))
    own, plain, *alone = (
        sums[:, _AT_THEIRS]
        for sums in (
            seconds(same, oracle(same), settings.costs),
            own_s[EAGLE][PLAIN][of_same],
            own_s[EAGLE][ORACLE][of_same],
            own_s[NGRAM][ORACLE][of_same],
        )
    )
    better = np.where(alone[0].sum(axis=0) <= alone[1].sum(axis=0), *alone)
    row: Row = {"dataset": same["dataset"][0], "drafter": "combined", "policy": ORACLE, "theirs": theirs}
    row |= {"ours": ratios(plain, own), "theirs_charged": charged}
    return row | {"over_better_drafter": ratios(better, own)}


def reach_of(own_s: Seconds) -> Row:
    """What share of the oracle's gain a fixed length reaches that is chosen on other requests, and adaptive chains do.

    Requests at even indices choose the length, those at odd indices show what it brings; lists are by batch size, and
    p-values of equal seconds of the fixed and the adaptive chain.
    """
    fixed = np.stack([own for policy, own in own_s.items() if policy.startswith("k=")])
    # The shortest of the fastest lengths; shapes [lengths, R, B] and [B].
    chosen = fixed[:, ::2].sum(axis=1).argmin(axis=0)
    shown = {policy: own[1::2] for policy, own in own_s.items()}
    shown["fixed"] = np.stack([fixed[length, 1::2, batch] for batch, length in enumerate(chosen)], axis=1)
    row: Row = {"chosen": (chosen + 1).tolist()}
    row |= {name: speedup(shown, name).tolist() for name in (ORACLE, "fixed")}
    for name in ("fixed", *ADAPTIVE):
        row[f"{name}_reached"] = reached_shares(shown[PLAIN], shown[name], shown[ORACLE])
    return row | {f"{name}_over_fixed": ratios(shown["fixed"], shown[name]) for name in ADAPTIVE}


def reached_shares(base: Doubles, own: Doubles, best: Doubles) -> list[Estimate]:
    """The share of the oracle's gain over autoregressive decoding that a policy reaches, paired by request.

    Student's interval may reach beyond all of the gain, and is cut there. Below 0 it is not cut: a chain may be slower
    than autoregressive decoding.

    Args:
        base: seconds of autoregressive decoding, float64 ``[R, B]``.
        own: the policy's.
        best: the oracle's.
    """

    def shares(sums: Doubles) -> Doubles:
        gains = sums[..., 0] / sums[..., 1] - 1, sums[..., 0] / sums[..., 2] - 1
        return np.asarray(gains[0] / gains[1], np.float64)[..., None]

    estimates = []
    for of_batch in np.stack([base, own, best], axis=2).swapaxes(0, 1):
        spread = prompt_spread(of_batch, shares)
        value, (ends,) = float(spread.whole[0]), intervals_of(spread)
        # np.minimum keeps an end that is not known.
        estimates.append(Estimate(value, Interval(ends.low, float(np.minimum(ends.high, max(1.0, value))))))
    return estimates


def add_corrected_verdicts(rows: Sequence[Row]) -> None:
    """Add verdicts to rows that hold for all rows, batch sizes and adaptive rules at once, by Holm.

    ``+``: faster than the fixed length, ``-``: slower, ``=``: no difference shown.
    """
    cells = [(row, name, row[f"{name}_over_fixed"]) for row in rows for name in ADAPTIVE]
    p_values = np.array([[ratio.p_value for ratio in over] for *_, over in cells], np.float64)
    adjusted = holm(p_values.ravel()).reshape(p_values.shape) < 1 - LEVEL
    for (row, name, over), differs in zip(cells, adjusted, strict=True):
        signs = ("+" if ratio.value > 1 else "-" for ratio in over)
        row[f"{name}_verdict_corrected"] = [sign if sure else "=" for sign, sure in zip(signs, differs, strict=True)]


def curve_rows(own_s: Seconds, longest: Bools) -> list[Row]:
    """Speedups of each fixed length and of the oracle, over all requests; a row for each batch size.

    The longest hundredth of the texts weighs more at a large batch, where reading the context takes most of a pass;
    so each row also has the oracle without them, and their share of the seconds of autoregressive decoding.

    Args:
        own_s: seconds of each policy.
        longest: which requests have the longest texts, bool ``[R]``.
    """
    base_s, fixed = own_s[PLAIN], [policy for policy in own_s if policy.startswith("k=")]
    figures = {
        "fixed": np.stack([speedup(own_s, policy) for policy in fixed], axis=1),
        "oracle": speedup(own_s, ORACLE),
        "oracle_without_longest": speedup(own_s, ORACLE, ~longest),
        "longest_seconds_share": base_s[longest].sum(axis=0) / base_s.sum(axis=0),
    }
    rounded = {name: own.round(3).tolist() for name, own in figures.items()}
    places = [BATCHES.index(batch) for batch in CURVE_BATCHES]
    return [{"batch": BATCHES[at], **{name: own[at] for name, own in rounded.items()}} for at in places]


def means_of(roots: pl.DataFrame) -> list[Row]:
    """Acceptance lengths, pooled and averaged per response: at every position, and of the longest chain's rounds."""
    committed = pl.min_horizontal(pl.col("accepted") + 1, "left")
    every = roots.select(sample_index="request", num_committed=committed, latency_ms=0.0)
    of_longest = every.filter(chain(roots, roots["longest"][0]) > 0)
    rows = []
    for of, rounds in {"every position": every, "longest chain": of_longest}.items():
        means = both_means(run_of_rounds(rounds, of))
        both = {"acceptance_length": means.pooled, "acceptance_length_macro": means.macro}
        rows.append({"of": of, **both, "macro_over_pooled": means.over})
    return rows


def survival_of(roots: pl.DataFrame) -> list[float]:
    """The share of roots at which at least so many tokens are accepted, of those with as many tokens left."""
    accepted, left = roots["accepted"], roots["left"]
    depths = range(1, roots["longest"][0] + 1)
    return [round(int((accepted >= depth).sum()) / max(1, int((left >= depth).sum())), 5) for depth in depths]


def match_figure(ngram: pl.DataFrame, assumed: Quoted) -> ComparedFigure:
    """How often prompt lookup had a match, of the positions where nothing is accepted.

    Args:
        ngram: roots of n-grams.
        assumed: the probability with which their simulator draws a match there.
    """
    chance = pl.col("accepted") == 0
    turns = ngram.select("dataset", prompt="request", match=chance & (pl.col("available") > 0), chance=chance)
    what = f"{ngram['dataset'][0]}, ngram: where nothing is accepted, share with a match"
    return ComparedFigure(what, prompt_ratio(turns, match=1, chance=-1), assumed, same_records=False)


def _contents(entries: pl.DataFrame) -> list[Row]:
    """How much was recorded of each dataset and drafter; a text has as many entries as tokens."""
    is_text, differs = pl.col("position") == 0, pl.col("looked_up") != pl.col("accepted")
    by_drafter = entries.group_by("dataset", "drafter", maintain_order=True).agg(
        requests=is_text.sum(),
        tokens=pl.len(),
        longest_text=pl.max("num_tokens"),
        longest_texts_share=pl.mean("is_longest"),
        past_end=(pl.col("recorded") - 1 > pl.col("left")).sum(),
        same_length=(is_text & pl.col("is_same")).sum(),
        unexplained=pl.when(pl.col("looked_up").is_not_null().any()).then(differs.sum()),
    )
    return by_drafter.to_dicts()


def _compared(row: Row) -> ComparedFigure:
    """A speedup at a batch of 1; theirs are printed nowhere, so they are by formula."""
    what = f"{row['dataset']}, {row['drafter']}, {row['policy']}, batch 1: speedup"
    return ComparedFigure(what, row["ours"][0], by_formula=row["theirs"][0], same_records=False)


def _json_row(row: Row) -> Row:
    """A row as JSON has it, rounded: estimates as values and ends, lists of them as lists of these."""
    written: Row = {}
    for name, value in row.items():
        parts = [flat({name: own}) for own in (value if isinstance(value, list) else [value])]
        for key in parts[0]:
            rounded = [_rounded(part[key]) for part in parts]
            written[key] = rounded if isinstance(value, list) else rounded[0]
    return written


def _rounded(value: object) -> object:
    return round(value, 3 if abs(value) > 1 else 4) if isinstance(value, float) else value


# The study of SpecDecode-Bench in tables, and in sentences that are worked out from the figures of a run.

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
