"""Chains of EAGLE and n-grams on Llama 3.1 8B: how much of the oracle's gain a fixed or an adaptive length reaches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.released.specdecode.chain_records import (
    CANNOT_REPLAY,
    DRAFTERS,
    NGRAM,
    ChainRecords,
    DatasetChains,
    read_chains,
)
from simlab.analysis.released.specdecode.chain_replay import (
    ADAPTIVE,
    PassCosts,
    Replay,
    adaptive_chain,
    autoregressive,
    combined_oracle,
    fixed_chain,
    oracle_chain,
)
from simlab.analysis.released.specdecode.tables import (
    SHOWN_POLICIES,
    columns_of,
    combined_text,
    drafters_text,
    follows_text,
    means_text,
    reach_text,
    steps_text,
    value_of,
)
from simlab.analysis.released.specdecode.their_formulas import (
    COMBINED,
    COSTS_FILE,
    SIMULATOR_FILE,
    TheirSettings,
    TheirSpeedup,
    read_settings,
    their_combined,
    their_fixed,
    their_oracle,
)
from simlab.analysis.statistics.intervals import Interval, intervals_of, ratio_interval
from simlab.analysis.statistics.jackknife import log_products
from simlab.analysis.statistics.prompt_spread import prompt_spread
from simlab.arrays import Doubles, Longs

DATASETS = ("gsm8k", "cnn", "instructcoder", "sharegpt")
BATCHES = (1, 8, 16, 32, 64, 128)
CURVE_BATCHES = (1, 16, 128)
THEIR_LENGTHS, THEIR_BATCHES = (1, 3, 5), (1, 8, 64)
"""At which theirs stand beside ours."""

NOT_PRINTED = "by their formulas; not printed"

Row = dict[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """One policy on some requests: autoregressive seconds and its own, float64 ``[R]`` for each batch size."""

    base: Mapping[int, Doubles]
    own: Mapping[int, Doubles]

    def speedup(self, batch: int, places: Longs | slice = slice(None)) -> tuple[float, Interval]:
        base, own = self.base[batch][places], self.own[batch][places]
        return float(base.sum() / own.sum()), ratio_interval(base, own)


def specdecode_bench(files: ReleasedFiles, progress: bool | None = None) -> Findings:
    """Their speedups and ours, what a fixed and an adaptive length reach of the oracle's, and how lengths are spread.

    Args:
        files: of SpecDecode-Bench/simulator.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: a file is missing, changed, or not as expected.
    """
    paths = {one: f"data/llama3.1-8B/combined_{one}.jsonl" for one in DATASETS}
    files.have([COSTS_FILE, SIMULATOR_FILE, *paths.values()], progress)
    settings, chains = read_settings(files, DATASETS), read_chains(files, paths)
    steps: list[Row] = []
    combined: list[Row] = []
    compared, reached, means, survival, curves, drafters = [], [], [], [], [], []
    for one in chains.values():
        found = steps_of(one, settings)
        both = combined_of(one, settings)
        steps, combined = steps + found, combined + both
        compared += [_match_figure(one, settings), *_figures(files, found + both)]
        drafters.append(_drafters_row(one))
        for drafter in DRAFTERS:
            records = one.chains[drafter]
            measured = _measured_lengths(records, settings.costs)
            reached += reach_of(records, measured, settings.costs)
            means += means_of(records)
            survival.append(_survival_row(records))
            curves += _curve_rows(records, measured, settings.costs)
    longest = {one.drafter: one.longest for one in chains[DATASETS[0]].chains.values()}
    values = {
        "costs": asdict(settings.costs),
        "cannot_replay": list(CANNOT_REPLAY),
        "batches": list(BATCHES),
        "their_batches": list(THEIR_BATCHES),
        "longest_chains": longest,
        "steps": columns_of([_rounded_row(_kept(row)) for row in steps]),
        "combined": columns_of([_rounded_row(row) for row in combined]),
        "reached": columns_of([_rounded_row(row) for row in reached]),
        "means": [_rounded_row(row) for row in means],
        "drafters": drafters,
        "survival": survival,
        "curves": curves,
    }
    tables = (
        steps_text(steps),
        combined_text(combined),
        drafters_text(drafters),
        reach_text(reached),
        means_text(means),
    )
    return Findings(tuple(compared), follows_text(combined, reached), tables, values)


def steps_of(chains: DatasetChains, settings: TheirSettings) -> list[Row]:
    """Each speedup by their formulas, by other means of the same seconds, and by our replay; a row for each batch."""
    rows: list[Row] = []
    for drafter in DRAFTERS:
        records = chains.chains[drafter]
        for length in THEIR_LENGTHS:
            own = _measured(records, fixed_chain(records, length), settings.costs)
            theirs = {batch: their_fixed(chains, drafter, length, batch, settings) for batch in THEIR_BATCHES}
            rows += _step_rows((records.dataset, drafter, f"k={length}"), own, theirs)
        own = _measured(records, oracle_chain(records), settings.costs)
        theirs = {batch: their_oracle(chains, drafter, batch, settings) for batch in THEIR_BATCHES}
        rows += _step_rows((records.dataset, drafter, "oracle"), own, theirs)
    return rows


def combined_of(chains: DatasetChains, settings: TheirSettings) -> list[Row]:
    """The better drafter of each round by hindsight: theirs, theirs with EAGLE's drafts charged, and ours.

    Ours is of the requests for which both texts are of the same length, beside each drafter's oracle on these.
    """
    same = np.flatnonzero(chains.same_length)
    if not len(same):
        return []
    eagle, ngram = (chains.chains[name].take(same) for name in DRAFTERS)
    own = _measured(eagle, combined_oracle(eagle, ngram), settings.costs)
    alone = [_measured(one, oracle_chain(one), settings.costs) for one in (eagle, ngram)]
    rows = []
    for batch in THEIR_BATCHES:
        theirs, charged = (their_combined(chains, batch, settings, charged) for charged in (False, True))
        (row,) = _step_rows((eagle.dataset, COMBINED, "oracle"), own, {batch: theirs})
        row["theirs_charged"] = charged.value
        del row["theirs_pooled"], row["theirs_decode_only"]
        best = min(alone, key=_seconds_at(batch))
        seconds = best.own[batch], own.own[batch]
        over = float(seconds[0].sum() / seconds[1].sum())
        rows.append(row | _with_ends("over_better_drafter", over, ratio_interval(*seconds)))
    return rows


def reach_of(records: ChainRecords, measured: Mapping[int, _Measured], costs: PassCosts) -> list[Row]:
    """How much of the oracle's gain a fixed length reaches that is chosen on other requests, and adaptive ones.

    Requests at even places choose the length, those at odd places show what it brings; a row for each batch size.

    Args:
        records: of a dataset and a drafter.
        measured: chains of each fixed length.
        costs: of passes.
    """
    places = np.arange(len(records.request_ids))
    choosing, shown = places[::2], places[1::2]
    oracle = _measured(records, oracle_chain(records), costs)
    adaptive = {name: _measured(records, adaptive_chain(records, rule), costs) for name, rule in ADAPTIVE.items()}
    rows: list[Row] = []
    for batch in BATCHES:
        _, shorter = max((one.speedup(batch, choosing)[0], -length) for length, one in measured.items())
        chosen = -shorter
        fixed = measured[chosen]
        row: Row = {"dataset": records.dataset, "drafter": records.drafter, "batch": batch, "chosen": chosen}
        row["oracle"] = oracle.speedup(batch, shown)[0]
        row |= _with_ends("fixed", *fixed.speedup(batch, shown))
        for name, one in (("fixed", fixed), *adaptive.items()):
            row |= _with_ends(f"{name}_reached", *_reached(one, oracle, batch, shown))
        for name, one in adaptive.items():
            seconds = fixed.own[batch][shown], one.own[batch][shown]
            over = float(seconds[0].sum() / seconds[1].sum())
            row |= _with_ends(f"{name}_over_fixed", over, ratio_interval(*seconds))
        rows.append(row)
    return rows


def means_of(records: ChainRecords) -> list[Row]:
    """Acceptance lengths, pooled and averaged per response: at every position, and of the longest chain's rounds."""
    inner = records.positions > 0
    committed = np.minimum(records.accepted + 1, records.left)
    dense = np.bincount(records.owners[inner], committed[inner], len(records.request_ids))
    roots = records.num_tokens - 1
    replay = fixed_chain(records, records.longest)
    places = (("every position", dense, roots), ("longest chain", replay.committed, replay.rounds))
    return [_mean_row(records, name, tokens, rounds) for name, tokens, rounds in places]


def _measured(records: ChainRecords, replay: Replay, costs: PassCosts) -> _Measured:
    plain = autoregressive(records)
    seconds = [{batch: one.seconds(costs, batch) for batch in BATCHES} for one in (plain, replay)]
    return _Measured(*seconds)


def _measured_lengths(records: ChainRecords, costs: PassCosts) -> dict[int, _Measured]:
    lengths = range(1, records.longest + 1)
    return {length: _measured(records, fixed_chain(records, length), costs) for length in lengths}


def _seconds_at(batch: int) -> Callable[[_Measured], float]:
    return lambda one: float(one.own[batch].sum())


def _step_rows(what: tuple[str, str, str], own: _Measured, theirs: Mapping[int, TheirSpeedup]) -> list[Row]:
    rows = []
    for batch, one in theirs.items():
        row: Row = {**dict(zip(("dataset", "drafter", "policy"), what, strict=True)), "batch": batch}
        row |= {"theirs": one.value, "theirs_pooled": one.pooled, "theirs_decode_only": one.decode_only}
        value, interval = own.speedup(batch)
        rows.append(row | {"ours": value, "ours_ci_low": interval.low, "ours_ci_high": interval.high})
    return rows


def _figures(files: ReleasedFiles, steps: Sequence[Row]) -> list[ComparedFigure]:
    found = []
    for row in steps:
        if row["batch"] == 1 and row["policy"] in SHOWN_POLICIES:
            names = ("theirs", "ours", "ours_ci_low", "ours_ci_high")
            value, ours, low, high = (value_of(row[name]) for name in names)
            what = f"{row['dataset']}, {row['drafter']}, {row['policy']}, batch 1: speedup"
            found.append(
                ComparedFigure(
                    what, ours, files.quoted(SIMULATOR_FILE, round(value, 4), NOT_PRINTED), Interval(low, high)
                )
            )
    return found


def _match_figure(chains: DatasetChains, settings: TheirSettings) -> ComparedFigure:
    """How often n-grams match where nothing is accepted."""
    records = chains.chains[NGRAM]
    failed = (records.accepted == 0) & (records.positions > 0)
    owners, num_requests = records.owners[failed], len(records.request_ids)
    matches = np.bincount(owners, records.available[failed] > 0, num_requests)
    chances = np.bincount(owners, minlength=num_requests)
    what = f"{records.dataset}, ngram: share of matches where nothing is accepted"
    theirs: Quoted = settings.match_probs[records.dataset]
    return ComparedFigure(what, float(matches.sum() / chances.sum()), theirs, ratio_interval(matches, chances))


def _drafters_row(chains: DatasetChains) -> Row:
    eagle, ngram = (chains.chains[name] for name in DRAFTERS)
    lengths = np.sort(ngram.num_tokens)
    return {
        "dataset": ngram.dataset,
        "requests": len(ngram.request_ids),
        "tokens": int(ngram.num_tokens.sum()),
        "longest_text": int(lengths[-1]),
        "longest_texts_share": _rounded(float(lengths[-(len(lengths) // 100 or 1) :].sum() / lengths.sum())),
        "ngram_unexplained": chains.num_unexplained,
        "same_length": int(chains.same_length.sum()),
        "behind_end_eagle": _behind_end(eagle),
        "behind_end_ngram": _behind_end(ngram),
    }


def _behind_end(records: ChainRecords) -> int:
    """Entries whose accepted tokens reach behind the end of the text."""
    return int((records.recorded - 1 > records.left).sum())


def _survival_row(records: ChainRecords) -> Row:
    """The share of roots at which at least so many tokens are accepted, of those with as many tokens left."""
    inner = records.positions > 0
    accepted, left = records.accepted[inner], records.left[inner]
    depths = range(1, records.longest + 1)
    shares = [float((accepted >= depth).sum() / max(1, (left >= depth).sum())) for depth in depths]
    return {"dataset": records.dataset, "drafter": records.drafter, "shares": [round(one, 5) for one in shares]}


def _curve_rows(records: ChainRecords, measured: Mapping[int, _Measured], costs: PassCosts) -> list[Row]:
    """Speedups of each fixed length and of the oracle, over all requests; a row for each batch size."""
    oracle = _measured(records, oracle_chain(records), costs)
    return [
        {
            "dataset": records.dataset,
            "drafter": records.drafter,
            "batch": batch,
            "fixed": [round(one.speedup(batch)[0], 3) for one in measured.values()],
            "oracle": round(oracle.speedup(batch)[0], 3),
        }
        for batch in CURVE_BATCHES
    ]


def _reached(one: _Measured, oracle: _Measured, batch: int, places: Longs) -> tuple[float, Interval]:
    """The share of the oracle's gain over autoregressive decoding that a policy reaches, paired by request."""
    columns = [each[batch][places] for each in (oracle.base, one.own, oracle.own)]

    def shares(sums: Doubles) -> Doubles:
        gains = sums[..., 0] / sums[..., 1] - 1, sums[..., 0] / sums[..., 2] - 1
        return np.asarray(gains[0] / gains[1], np.float64)[..., None]

    spread = prompt_spread(np.stack(columns, axis=1), shares)
    return float(spread.whole[0]), intervals_of(spread)[0]


def _mean_row(records: ChainRecords, place: str, tokens: Doubles | Longs, rounds: Longs) -> Row:
    means, ones = tokens / rounds, np.ones(len(rounds))
    powers = np.array([[1, -1, 0, 0], [0, 0, 1, -1], [-1, 1, 1, -1]], np.float64)
    spread = log_products(np.stack([tokens, rounds, means, ones], axis=1).astype(np.float64), powers)
    row: Row = {"dataset": records.dataset, "drafter": records.drafter, "of": place}
    names = ("acceptance_length", "acceptance_length_macro", "macro_over_pooled")
    for name, value, ends in zip(names, np.exp(spread.whole).tolist(), intervals_of(spread), strict=True):
        row |= _with_ends(name, value, Interval(float(np.exp(ends.low)), float(np.exp(ends.high))))
    return row


def _with_ends(name: str, value: float, interval: Interval) -> Row:
    ends = {name: value, f"{name}_ci_low": interval.low, f"{name}_ci_high": interval.high}
    return {key: finite(one) for key, one in ends.items()}


def _kept(row: Row) -> Row:
    """What JSON has of a row: of lengths that no table shows, theirs and ours alone."""
    names = ("dataset", "drafter", "policy", "batch", "theirs", "ours")
    return row if row["policy"] in SHOWN_POLICIES else {name: row[name] for name in names}


def _rounded_row(row: Row) -> Row:
    return {name: _rounded(value) for name, value in row.items()}


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    known = finite(value)
    return None if known is None else round(known, 3 if abs(known) > 1 else 4)
