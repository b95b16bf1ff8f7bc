"""Chains of EAGLE and n-grams on Llama 3.1 8B: how much of the oracle's gain a fixed or an adaptive length reaches."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import (
    LEVEL,
    Interval,
    finite,
    intervals_of,
    log_products,
    prompt_spread,
    ratio_interval,
)
from simlab.analysis.statistics.significance import holm
from simlab.analysis.table.estimates import Estimate, prompt_ratio, ratio_estimates
from simlab.arrays import Doubles, Longs
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, Quoted, ReleasedFiles, Row, flat
from simlab.studies.reproduce.specdecode.chains import (
    ADAPTIVE,
    BATCHES,
    DRAFTERS,
    EAGLE,
    NGRAM,
    ChainRecords,
    Chains,
    TheirSettings,
    adaptive_chain,
    autoregressive,
    combined_oracle,
    fixed_chain,
    oracle_chain,
    read_chains,
    read_settings,
    same_length,
    seconds,
    their_combined,
    their_fixed,
    their_oracle,
)
from simlab.studies.reproduce.specdecode.text import CANNOT_REPLAY, SHOWN_POLICIES, tables_text

DATASETS = ("gsm8k", "cnn", "instructcoder", "sharegpt")
CURVE_BATCHES = (1, 16, 128)
THEIR_LENGTHS, THEIR_BATCHES = (1, 3, 5), (1, 8, 64)
"""At which theirs stand beside ours."""

Seconds = Mapping[int, Doubles]
"""Of each request, float64 ``[R]``, by batch size."""

_KEYS = ("dataset", "drafter", "policy")


def specdecode_bench(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Their speedups and ours, what a fixed and an adaptive length reach of the oracle's, and spreads of lengths."""
    paths = {dataset: f"data/llama3.1-8B/combined_{dataset}.jsonl" for dataset in DATASETS}
    files.have(["predictor.py", "simulator.py", *paths.values()], options.progress)
    settings, every = read_settings(files, DATASETS), read_chains(files, paths)
    rows: dict[str, list[Row]] = {
        name: [] for name in ("steps", "combined", "reached", "means", "drafters", "survival", "curves")
    }
    matches, speedups = [], []
    for dataset, (chains, unexplained) in every.items():
        steps, combined = steps_of(chains, settings), combined_of(chains, settings)
        rows["steps"] += steps
        rows["combined"] += combined
        speedups += _compared([*steps, *combined])
        matches.append(match_figure(chains[NGRAM], settings.match_probs[dataset]))
        for records in chains.values():
            base = _by_batch(autoregressive(records), settings)
            fixed = {
                length: _by_batch(fixed_chain(records, length), settings) for length in range(1, records.longest + 1)
            }
            rows["reached"] += reach_of(records, base, fixed, settings)
            rows["means"] += means_of(records)
            rows["drafters"].append(_contents_row(records, chains, unexplained))
            rows["survival"].append(survival_row(records))
            rows["curves"] += curve_rows(records, base, fixed, settings)
    rows["reached"] = with_corrected_verdicts(rows["reached"])
    values = {
        "costs": dict(settings.costs),
        "cannot_replay": list(CANNOT_REPLAY),
        "batches": list(BATCHES),
        "their_batches": list(THEIR_BATCHES),
        "longest_chains": {name: records.longest for name, records in every[DATASETS[0]][0].items()},
    }
    return Findings([*matches, *speedups], tables_text(rows), values | _json_sections(rows))


def _by_batch(sums: Doubles, settings: TheirSettings) -> Seconds:
    return {batch: seconds(sums, settings.costs, batch) for batch in BATCHES}


def speedup(base: Doubles, own: Doubles) -> Estimate:
    """Seconds of autoregressive decoding over a policy's, both summed, with its interval over requests."""
    return Estimate(float(base.sum() / own.sum()), ratio_interval(base, own))


def steps_of(chains: Chains, settings: TheirSettings) -> list[Row]:
    """Each speedup by their formulas, by other means of the same seconds, and by our replay; a row for each batch."""
    rows: list[Row] = []
    for drafter, records in chains.items():
        sums = {f"k={length}": fixed_chain(records, length) for length in THEIR_LENGTHS}
        sums["oracle"] = oracle_chain(records)
        for policy, own in sums.items():
            for batch in THEIR_BATCHES:
                theirs = (
                    their_oracle(records, batch, settings)
                    if policy == "oracle"
                    else their_fixed(records, int(policy[2:]), batch, settings)
                )
                row = _step_row((records.dataset, drafter, policy, batch), records, own, theirs, settings)
                if policy == "oracle" and drafter == EAGLE:
                    always = _speedup_of(records, oracle_chain(records, always=True), batch, settings)
                    row["ours_always_drafting"] = always.value
                rows.append(row)
    return rows


def combined_of(chains: Chains, settings: TheirSettings) -> list[Row]:
    """The better drafter of each round by hindsight: theirs, theirs with EAGLE's drafts charged, and ours.

    Ours is of the requests for which both texts are of the same length, beside each drafter's oracle on these.
    """
    same, rows = same_length(chains), []
    if not len(same):
        return []
    eagle, ngram = (chains[name].take(same) for name in DRAFTERS)
    sums, alone = combined_oracle(eagle, ngram), [oracle_chain(records) for records in (eagle, ngram)]
    for batch in THEIR_BATCHES:
        theirs, charged = (their_combined(chains, batch, settings, charged) for charged in (False, True))
        row = _step_row((eagle.dataset, "combined", "oracle", batch), eagle, sums, theirs, settings)
        del row["theirs_pooled"], row["theirs_decode_only"]
        better = min((seconds(array, settings.costs, batch) for array in alone), key=lambda own: float(own.sum()))
        over = paired_ratio(better, seconds(sums, settings.costs, batch))
        rows.append(row | {"theirs_charged": charged[0], "over_better_drafter": over})
    return rows


def _step_row(
    what: tuple[str, str, str, int],
    records: ChainRecords,
    sums: Doubles,
    theirs: tuple[float, float, float],
    settings: TheirSettings,
) -> Row:
    row: Row = dict(zip((*_KEYS, "batch"), what, strict=True))
    row |= dict(zip(("theirs", "theirs_pooled", "theirs_decode_only"), theirs, strict=True))
    return row | {"ours": _speedup_of(records, sums, what[3], settings)}


def _speedup_of(records: ChainRecords, sums: Doubles, batch: int, settings: TheirSettings) -> Estimate:
    base, own = (seconds(array, settings.costs, batch) for array in (autoregressive(records), sums))
    return speedup(base, own)


def reach_of(records: ChainRecords, base: Seconds, fixed: Mapping[int, Seconds], settings: TheirSettings) -> list[Row]:
    """What share of the oracle's gain a fixed length reaches that is chosen on other requests, and adaptive chains do.

    Requests at even indices choose the length, those at odd indices show what it brings.

    Args:
        records: of a dataset and a drafter.
        base: of autoregressive decoding.
        fixed: of chains of each fixed length.
        settings: theirs, for costs.

    Returns:
        a row for each batch size; p-values are of equal seconds of the fixed and the adaptive chain.
    """
    choosing, shown = slice(0, None, 2), slice(1, None, 2)
    oracle = _by_batch(oracle_chain(records), settings)
    adaptive = {name: _by_batch(adaptive_chain(records, rule), settings) for name, rule in ADAPTIVE.items()}
    rows: list[Row] = []
    for batch in BATCHES:
        # The shortest of the fastest lengths.
        totals = {length: base[batch][choosing].sum() / own[batch][choosing].sum() for length, own in fixed.items()}
        chosen = max(totals, key=lambda length: (totals[length], -length))
        row: Row = {"dataset": records.dataset, "drafter": records.drafter, "batch": batch, "chosen": chosen}
        plain, best, own = (by_batch[batch][shown] for by_batch in (base, oracle, fixed[chosen]))
        row |= {"oracle": speedup(plain, best).value, "fixed": speedup(plain, own).value}
        policies = {"fixed": own, **{name: by_batch[batch][shown] for name, by_batch in adaptive.items()}}
        for name, policy in policies.items():
            row[f"{name}_reached"] = reached_share(plain, policy, best)
        for name in adaptive:
            over = paired_ratio(own, policies[name])
            row |= {f"{name}_over_fixed": over, f"{name}_verdict": verdict(over.value, over.p_value)}
        rows.append(row)
    return rows


def with_corrected_verdicts(rows: Sequence[Row]) -> list[Row]:
    """Add verdicts that hold for all rows and adaptive rules at once, by Holm."""
    ratios = [[row[f"{name}_over_fixed"] for name in ADAPTIVE] for row in rows]
    adjusted = holm(np.array([ratio.p_value for own in ratios for ratio in own], np.float64)).reshape(len(rows), -1)
    return [
        row
        | {
            f"{name}_verdict_corrected": verdict(ratio.value, p_value)
            for name, ratio, p_value in zip(ADAPTIVE, own, p_values, strict=True)
        }
        for row, own, p_values in zip(rows, ratios, adjusted.tolist(), strict=True)
    ]


def verdict(over_fixed: float, p_value: float) -> str:
    """``+`` faster than the fixed length, ``-`` slower, ``=`` no difference shown."""
    return "=" if not p_value < 1 - LEVEL else "+" if over_fixed > 1 else "-"


def paired_ratio(above_s: Doubles, below_s: Doubles) -> Estimate:
    """Summed seconds over summed seconds of the same requests in the same order, float64 ``[R]`` each, paired."""
    # Every request is a prompt of its own here.
    names = {"dataset": [""] * len(above_s), "prompt": list(range(len(above_s)))}
    return prompt_ratio(pl.DataFrame({**names, "above": above_s, "below": below_s}), above=1, below=-1)


def reached_share(base: Doubles, own: Doubles, oracle: Doubles) -> Estimate:
    """The share of the oracle's gain over autoregressive decoding that a policy reaches, paired by request.

    Student's interval may reach beyond all of the gain, and is cut there. Below 0 it is not cut: a chain may be slower
    than autoregressive decoding.
    """

    def shares(sums: Doubles) -> Doubles:
        gains = sums[..., 0] / sums[..., 1] - 1, sums[..., 0] / sums[..., 2] - 1
        return np.asarray(gains[0] / gains[1], np.float64)[..., None]

    spread = prompt_spread(np.stack([base, own, oracle], axis=1), shares)
    value, (ends,) = float(spread.whole[0]), intervals_of(spread)
    # np.minimum keeps an end that is not known.
    return Estimate(value, Interval(ends.low, float(np.minimum(ends.high, max(1.0, value)))))


def curve_rows(
    records: ChainRecords, base: Seconds, fixed: Mapping[int, Seconds], settings: TheirSettings
) -> list[Row]:
    """Speedups of each fixed length and of the oracle, over all requests; a row for each batch size.

    The longest hundredth of the texts weighs more at a large batch, where reading the context takes most of a pass;
    so each row also has the oracle without them, and their share of the seconds of autoregressive decoding.
    """
    oracle, longest = oracle_chain(records), records.longest_hundredth
    others = np.setdiff1d(np.arange(len(records.num_tokens)), longest)
    rows: list[Row] = []
    for batch in CURVE_BATCHES:
        plain, best = base[batch], seconds(oracle, settings.costs, batch)
        rows.append(
            {
                "dataset": records.dataset,
                "drafter": records.drafter,
                "batch": batch,
                "fixed": [round(float(plain.sum() / own[batch].sum()), 3) for own in fixed.values()],
                "oracle": round(float(plain.sum() / best.sum()), 3),
                "oracle_without_longest": round(float(plain[others].sum() / best[others].sum()), 3),
                "longest_seconds_share": round(float(plain[longest].sum() / plain.sum()), 3),
            }
        )
    return rows


def means_of(records: ChainRecords) -> list[Row]:
    """Acceptance lengths, pooled and averaged per response: at every position, and of the longest chain's rounds."""
    inner, roots = records.positions > 0, records.num_tokens - 1
    committed = np.minimum(records.accepted + 1, records.left)
    dense = np.bincount(records.owners[inner], committed[inner], len(roots))
    rounds = fixed_chain(records, records.longest)[:, 0].astype(np.int64)
    rows = []
    for of, tokens, number in (("every position", dense, roots), ("longest chain", roots, rounds)):
        powers = np.array([[1, -1, 0, 0], [0, 0, 1, -1], [-1, 1, 1, -1]], np.float64)
        columns = np.stack([tokens, number, tokens / number, np.ones(len(number))], axis=1)
        spread = log_products(columns.astype(np.float64), powers)
        row: Row = {"dataset": records.dataset, "drafter": records.drafter, "of": of}
        names = ("acceptance_length", "acceptance_length_macro", "macro_over_pooled")
        rows.append(row | dict(zip(names, ratio_estimates(spread), strict=True)))
    return rows


def survival_row(records: ChainRecords) -> Row:
    """The share of roots at which at least so many tokens are accepted, of those with as many tokens left."""
    inner = records.positions > 0
    accepted, left = records.accepted[inner], records.left[inner]
    depths = range(1, records.longest + 1)
    shares = [float((accepted >= depth).sum() / max(1, (left >= depth).sum())) for depth in depths]
    return {"dataset": records.dataset, "drafter": records.drafter, "shares": [round(share, 5) for share in shares]}


def match_figure(ngram: ChainRecords, assumed: Quoted) -> ComparedFigure:
    """How often prompt lookup had a match, of the positions where nothing is accepted.

    Args:
        ngram: chains of n-grams.
        assumed: the probability with which their simulator draws a match there.
    """
    failed = (ngram.accepted == 0) & (ngram.positions > 0)
    owners, num_requests = ngram.owners[failed], len(ngram.num_tokens)
    matches = np.bincount(owners, ngram.available[failed] > 0, num_requests)
    chances: Longs = np.bincount(owners, minlength=num_requests)
    share = Estimate(float(matches.sum() / chances.sum()), ratio_interval(matches, chances))
    what = f"{ngram.dataset}, ngram: where nothing is accepted, share with a match"
    return ComparedFigure(what, share, assumed, same_records=False)


def _contents_row(records: ChainRecords, chains: Chains, unexplained: int) -> Row:
    """How much was recorded of a dataset and drafter."""
    lengths = records.num_tokens
    return {
        "dataset": records.dataset,
        "drafter": records.drafter,
        "requests": len(lengths),
        "tokens": int(lengths.sum()),
        "longest_text": int(lengths.max()),
        "longest_texts_share": float(lengths[records.longest_hundredth].sum() / lengths.sum()),
        "past_end": int((records.recorded - 1 > records.left).sum()),
        "same_length": len(same_length(chains)),
        "unexplained": unexplained if records.drafter == NGRAM else None,
    }


def _compared(steps: Sequence[Row]) -> list[ComparedFigure]:
    """Speedups at a batch of 1; theirs are printed nowhere, so they are by formula."""
    figures = []
    for row in steps:
        if row["batch"] == 1 and row["policy"] in SHOWN_POLICIES:
            what = f"{row['dataset']}, {row['drafter']}, {row['policy']}, batch 1: speedup"
            figures.append(ComparedFigure(what, row["ours"], by_formula=row["theirs"], same_records=False))
    return figures


def _json_sections(rows: Mapping[str, Sequence[Row]]) -> Row:
    """Rows as JSON has them, rounded; those of batch sizes are joined to one, in which other columns become lists.

    A row of a speedup that no table shows keeps theirs and ours alone; intervals stand for uncorrected verdicts.
    """
    sections: Row = {}
    for section, of_section in rows.items():
        whole = [flat(row, digits=None) for row in of_section]
        written = [{name: _rounded(row[name]) for name in _kept_names(row)} for row in whole]
        if section in ("steps", "combined", "reached"):
            joined: dict[tuple[object, ...], list[Row]] = {}
            for row in written:
                joined.setdefault(tuple(row[name] for name in _KEYS if name in row), []).append(row)
            written = [
                {
                    name: own[0][name] if name in _KEYS else [row[name] for row in own]
                    for name in own[0]
                    if name != "batch"
                }
                for own in joined.values()
            ]
        sections[section] = written
    return sections


def _kept_names(row: Row) -> list[str]:
    if row.get("policy", SHOWN_POLICIES[0]) not in SHOWN_POLICIES:
        return [*_KEYS, "batch", "theirs", "ours"]
    return [name for name in row if not name.endswith("_verdict")]


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    known = finite(value)
    return None if known is None else round(known, 3 if abs(known) > 1 else 4)
