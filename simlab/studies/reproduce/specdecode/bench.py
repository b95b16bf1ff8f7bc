"""Chains of EAGLE and n-grams on Llama 3.1 8B: how much of the oracle's gain a fixed or an adaptive length reaches."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from simlab.analysis.compare.averaging import both_means
from simlab.analysis.statistics.intervals import LEVEL, Interval, finite, intervals_of, prompt_spread
from simlab.analysis.statistics.significance import holm
from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.arrays import Bools, Doubles, Longs
from simlab.studies.reproduce.ddtreepp_rounds import run_of_rounds
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, Quoted, ReleasedFiles, Row, flat
from simlab.studies.reproduce.specdecode.chains import (
    ADAPTIVE,
    BATCHES,
    DRAFTERS,
    EAGLE,
    FIRST_LENGTH,
    NGRAM,
    THEIR_BATCHES,
    TheirSettings,
    chain,
    combined,
    heads,
    oracle,
    our_roots,
    read_chains,
    read_settings,
    seconds,
    their_roots,
    their_speedup,
)
from simlab.studies.reproduce.specdecode.text import SHOWN_POLICIES, tables_text

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
_MEANS = ("acceptance_length", "acceptance_length_macro", "macro_over_pooled")
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
    for dataset in DATASETS:
        entries = {drafter: every.filter(dataset=dataset, drafter=drafter) for drafter in DRAFTERS}
        roots = {drafter: our_roots(own) for drafter, own in entries.items()}
        own_s = {drafter: seconds_of(own, settings) for drafter, own in roots.items()}
        same = combined(roots[EAGLE], roots[NGRAM], "num_tokens")
        steps = [row for drafter in DRAFTERS for row in steps_of(entries[drafter], own_s[drafter], settings)]
        steps.append(combined_of(entries, same, own_s, settings))
        rows["steps"] += steps[:-1]
        rows["combined"] += steps[-1:]
        speedups += [_compared(row) for row in steps if row["policy"] in SHOWN_POLICIES]
        matches.append(match_figure(roots[NGRAM], settings.match_probs[dataset]))
        for drafter, own in roots.items():
            lengths = entries[drafter].filter(position=0)["num_tokens"].to_numpy()
            longest = lengths >= np.sort(lengths)[-(len(lengths) // 100 or 1)]
            rows["reached"].append(_named(own) | reach_of(own_s[drafter]))
            rows["means"] += means_of(own)
            rows["drafters"].append(_contents_row(entries[drafter], lengths, longest, same["request"].n_unique()))
            rows["survival"].append(survival_row(own))
            rows["curves"] += [_named(own) | row for row in curve_rows(own_s[drafter], longest)]
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


def _named(entries: pl.DataFrame) -> Row:
    return dict(entries.select("dataset", "drafter").row(0, named=True))


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


def steps_of(entries: pl.DataFrame, own_s: Seconds, settings: TheirSettings) -> list[Row]:
    """Each speedup by their formulas, by other means of the same seconds, and by our replay; lists by batch size.

    Of a speedup that no table shows, theirs and ours alone.
    """
    roots, coins = their_roots(entries, settings)
    by_eagle, refused = roots["by_eagle"].to_numpy(), (roots["accepted"] == 0).to_numpy()
    match_prob = settings.match_probs[roots["dataset"][0]].value
    rounds = {f"k={length}": chain(roots, length) for length in THEIR_LENGTHS} | {ORACLE: oracle(roots)}
    rows: list[Row] = []
    for policy, verified in rounds.items():
        theirs = []
        for batch in THEIR_BATCHES:
            # Their oracle is charged EAGLE where nothing is accepted, and n-grams are not; else these match by coins.
            drafting = (by_eagle | (verified > 1)).astype(np.float64)
            if policy != ORACLE and not by_eagle[0]:
                failed = refused & (verified > 0)
                drafting[failed] = heads(coins, int(failed.sum()), batch, match_prob)
            theirs.append(their_speedup(roots, verified, drafting, batch, settings))
        row = _named(roots) | {"policy": policy} | _columns(theirs)
        row["ours"] = ratios(own_s[PLAIN][:, _AT_THEIRS], own_s[policy][:, _AT_THEIRS])
        if policy not in SHOWN_POLICIES:
            row |= {"ours": [estimate.value for estimate in row["ours"]]}
            row = {name: row[name] for name in row if name not in _THEIRS[1:]}
        elif policy == ORACLE and by_eagle[0]:
            own = our_roots(entries)
            always = seconds(own, oracle(own), settings.costs, np.ones(own.height), THEIR_BATCHES)
            row["ours_always_drafting"] = (own_s[PLAIN][:, _AT_THEIRS].sum(axis=0) / always.sum(axis=0)).tolist()
        rows.append(row)
    return rows


def _columns(theirs: Sequence[tuple[float, float, float]]) -> Row:
    return {name: list(own) for name, own in zip(_THEIRS, zip(*theirs, strict=True), strict=True)}


def combined_of(
    entries: Mapping[str, pl.DataFrame], same: pl.DataFrame, own_s: Mapping[str, Seconds], settings: TheirSettings
) -> Row:
    """The better drafter of each round by hindsight: theirs, theirs with EAGLE's drafts charged, and ours.

    Args:
        entries: by drafter.
        same: our roots of the requests for which both texts are of the same length; of these ours is.
        own_s: seconds of each drafter.
        settings: theirs.
    """
    eagle, ngram = (their_roots(entries[drafter], settings)[0] for drafter in DRAFTERS)
    roots = combined(eagle, ngram)
    verified, all_draft = oracle(roots), np.ones(roots.height)
    theirs, charged = (
        [their_speedup(own, verified, all_draft, batch, settings)[0] for batch in THEIR_BATCHES]
        for own in (roots.with_columns(by_eagle=False), roots)
    )
    requests = same["request"].unique().sort().to_numpy()
    plain_s, eagle_s, ngram_s = (
        own_s[drafter][policy][requests][:, _AT_THEIRS]
        for drafter, policy in ((EAGLE, PLAIN), (EAGLE, ORACLE), (NGRAM, ORACLE))
    )
    own = seconds(same, oracle(same), settings.costs, batches=THEIR_BATCHES)
    better = np.where(eagle_s.sum(axis=0) <= ngram_s.sum(axis=0), eagle_s, ngram_s)
    row = _named(same) | {"drafter": "combined", "policy": ORACLE, "theirs": theirs, "ours": ratios(plain_s, own)}
    return row | {"theirs_charged": charged, "over_better_drafter": ratios(better, own)}


def reach_of(own_s: Seconds) -> Row:
    """What share of the oracle's gain a fixed length reaches that is chosen on other requests, and adaptive chains do.

    Requests at even indices choose the length, those at odd indices show what it brings; lists are by batch size, and
    p-values of equal seconds of the fixed and the adaptive chain.
    """
    fixed = np.stack([seconds for policy, seconds in own_s.items() if policy.startswith("k=")])
    # The shortest of the fastest lengths; shapes [lengths, R, B] and [B].
    chosen = fixed[:, ::2].sum(axis=1).argmin(axis=0)
    shown = {policy: seconds[1::2] for policy, seconds in own_s.items()}
    shown["fixed"] = np.stack([fixed[length, 1::2, batch] for batch, length in enumerate(chosen)], axis=1)
    row: Row = {"chosen": (chosen + 1).tolist()}
    row |= {name: (shown[PLAIN].sum(axis=0) / shown[name].sum(axis=0)).tolist() for name in (ORACLE, "fixed")}
    row |= {
        f"{name}_reached": reached_shares(shown[PLAIN], shown[name], shown[ORACLE]) for name in ("fixed", *ADAPTIVE)
    }
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
    rows: list[Row] = []
    for batch in CURVE_BATCHES:
        of_batch = {policy: own[:, BATCHES.index(batch)] for policy, own in own_s.items()}
        plain, best = of_batch[PLAIN], of_batch[ORACLE]
        figures = {
            "oracle": plain.sum() / best.sum(),
            "oracle_without_longest": plain[~longest].sum() / best[~longest].sum(),
            "longest_seconds_share": plain[longest].sum() / plain.sum(),
        }
        fixed = [plain.sum() / own.sum() for policy, own in of_batch.items() if policy.startswith("k=")]
        row = {"batch": batch, "fixed": np.round(fixed, 3).tolist()}
        rows.append(row | {name: round(float(value), 3) for name, value in figures.items()})
    return rows


def means_of(roots: pl.DataFrame) -> list[Row]:
    """Acceptance lengths, pooled and averaged per response: at every position, and of the longest chain's rounds."""
    committed = pl.min_horizontal(pl.col("accepted") + 1, "left")
    every = roots.select(sample_index="request", num_committed=committed, latency_ms=0.0)
    rows = []
    for of, is_begun in (("every position", pl.lit(True)), ("longest chain", chain(roots, roots["longest"][0]) > 0)):
        means = both_means(run_of_rounds(every.filter(is_begun), of))
        figures = (means.pooled, means.macro, means.over)
        rows.append(_named(roots) | {"of": of} | dict(zip(_MEANS, figures, strict=True)))
    return rows


def survival_row(roots: pl.DataFrame) -> Row:
    """The share of roots at which at least so many tokens are accepted, of those with as many tokens left."""
    accepted, left = roots["accepted"], roots["left"]
    depths = range(1, roots["longest"][0] + 1)
    shares = [int((accepted >= depth).sum()) / max(1, int((left >= depth).sum())) for depth in depths]
    return _named(roots) | {"shares": [round(share, 5) for share in shares]}


def match_figure(ngram: pl.DataFrame, assumed: Quoted) -> ComparedFigure:
    """How often prompt lookup had a match, of the positions where nothing is accepted.

    Args:
        ngram: roots of n-grams.
        assumed: the probability with which their simulator draws a match there.
    """
    chance = pl.col("accepted") == 0
    refused = ngram.select("dataset", prompt="request", match=chance & (pl.col("available") > 0), chance=chance)
    what = f"{ngram['dataset'][0]}, ngram: where nothing is accepted, share with a match"
    return ComparedFigure(what, prompt_ratio(refused, match=1, chance=-1), assumed, same_records=False)


def _contents_row(entries: pl.DataFrame, lengths: Longs, longest: Bools, num_same: int) -> Row:
    """How much was recorded of a dataset and drafter; lengths are tokens of each text."""
    unexplained = entries.filter(pl.col("looked_up") != pl.col("accepted")).height
    return _named(entries) | {
        "requests": len(lengths),
        "tokens": int(lengths.sum()),
        "longest_text": int(lengths.max()),
        "longest_texts_share": float(lengths[longest].sum() / lengths.sum()),
        "past_end": entries.filter(pl.col("recorded") - 1 > pl.col("left")).height,
        "same_length": num_same,
        "unexplained": unexplained if entries["drafter"][0] == NGRAM else None,
    }


def _compared(row: Row) -> ComparedFigure:
    """A speedup at a batch of 1; theirs are printed nowhere, so they are by formula."""
    what = f"{row['dataset']}, {row['drafter']}, {row['policy']}, batch 1: speedup"
    return ComparedFigure(what, row["ours"][0], by_formula=row["theirs"][0], same_records=False)


def _json_row(row: Row) -> Row:
    """A row as JSON has it, rounded: estimates as values and ends, lists of them as lists of these."""
    written: Row = {}
    for name, value in row.items():
        parts = [flat({name: own}, digits=None) for own in (value if isinstance(value, list) else [value])]
        for key in parts[0]:
            rounded = [_rounded(part[key]) for part in parts]
            written[key] = rounded if isinstance(value, list) else rounded[0]
    return written


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    known = finite(value)
    return None if known is None else round(known, 3 if abs(known) > 1 else 4)
