"""Chains of EAGLE and n-grams on Llama 3.1 8B: how much of the oracle's gain a fixed or an adaptive length reaches."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.specdecode.chain_records import (
    CANNOT_REPLAY,
    DRAFTERS,
    EAGLE,
    NGRAM,
    ChainRecords,
    DatasetChains,
    read_chains,
)
from simlab.analysis.released.specdecode.chain_replay import (
    PassCosts,
    combined_oracle,
    fixed_chain,
    oracle_chain,
    oracle_that_always_drafts,
)
from simlab.analysis.released.specdecode.chain_seconds import (
    BATCHES,
    ChainSeconds,
    Row,
    chain_seconds,
    seconds_by_length,
    with_ends,
)
from simlab.analysis.released.specdecode.follows import follows_text
from simlab.analysis.released.specdecode.reach import paired_ratio, reach_of, with_corrected_verdicts
from simlab.analysis.released.specdecode.recorded_texts import contents_of, match_figure, means_of, survival_row
from simlab.analysis.released.specdecode.tables import (
    SHOWN_POLICIES,
    columns_of,
    combined_text,
    contents_text,
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
from simlab.analysis.statistics.intervals import Interval

DATASETS = ("gsm8k", "cnn", "instructcoder", "sharegpt")
CURVE_BATCHES = (1, 16, 128)
THEIR_LENGTHS, THEIR_BATCHES = (1, 3, 5), (1, 8, 64)
"""At which theirs stand beside ours."""

_BY_BATCH = ("steps", "combined", "reached")
"""Sections with a row for each batch size, which JSON joins."""


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
    found = [_sections_of(one, settings) for one in chains.values()]
    rows = {name: [row for part in found for row in part[name]] for name in found[0]}
    rows["reached"] = with_corrected_verdicts(rows["reached"])
    matches = [match_figure(one.chains[NGRAM], settings.match_probs[name]) for name, one in chains.items()]
    speedups = [one for part in found for one in _compared_speedups([*part["steps"], *part["combined"]])]
    tables = (
        steps_text(rows["steps"]),
        combined_text(rows["combined"]),
        contents_text(rows["drafters"]),
        reach_text(rows["reached"], rows["drafters"]),
        means_text(rows["means"]),
    )
    follows = follows_text(rows["steps"], rows["combined"], rows["reached"], matches)
    values = _settings_values(settings, chains) | _json_sections(rows)
    return Findings((*matches, *speedups), follows, tables, values)


def steps_of(chains: DatasetChains, settings: TheirSettings) -> list[Row]:
    """Each speedup by their formulas, by other means of the same seconds, and by our replay; a row for each batch."""
    rows: list[Row] = []
    for drafter in DRAFTERS:
        records = chains.chains[drafter]
        for length in THEIR_LENGTHS:
            own = chain_seconds(records, fixed_chain(records, length), settings.costs)
            theirs = {batch: their_fixed(chains, drafter, length, batch, settings) for batch in THEIR_BATCHES}
            rows += _step_rows((records.dataset, drafter, f"k={length}"), own, theirs)
        own = chain_seconds(records, oracle_chain(records), settings.costs)
        theirs = {batch: their_oracle(chains, drafter, batch, settings) for batch in THEIR_BATCHES}
        oracle = _step_rows((records.dataset, drafter, "oracle"), own, theirs)
        if drafter == EAGLE:
            always = chain_seconds(records, oracle_that_always_drafts(records), settings.costs)
            oracle = [row | {"ours_always_drafting": always.speedup(int(value_of(row["batch"])))[0]} for row in oracle]
        rows += oracle
    return rows


def combined_of(chains: DatasetChains, settings: TheirSettings) -> list[Row]:
    """The better drafter of each round by hindsight: theirs, theirs with EAGLE's drafts charged, and ours.

    Ours is of the requests for which both texts are of the same length, beside each drafter's oracle on these.
    """
    same = np.flatnonzero(chains.same_length)
    if not len(same):
        return []
    eagle, ngram = (chains.chains[name].take(same) for name in DRAFTERS)
    own = chain_seconds(eagle, combined_oracle(eagle, ngram), settings.costs)
    alone = [chain_seconds(one, oracle_chain(one), settings.costs) for one in (eagle, ngram)]
    rows = []
    for batch in THEIR_BATCHES:
        theirs, charged = (their_combined(chains, batch, settings, charged) for charged in (False, True))
        (row,) = _step_rows((eagle.dataset, COMBINED, "oracle"), own, {batch: theirs})
        row["theirs_charged"] = charged.value
        del row["theirs_pooled"], row["theirs_decode_only"]
        totals = [one.total_s(batch) for one in alone]
        over = paired_ratio(alone[totals.index(min(totals))].own[batch], own.own[batch])
        rows.append(row | with_ends("over_better_drafter", over.value, over.interval))
    return rows


def curve_rows(records: ChainRecords, by_length: Mapping[int, ChainSeconds], costs: PassCosts) -> list[Row]:
    """Speedups of each fixed length and of the oracle, over all requests; a row for each batch size.

    The longest hundredth of the texts weighs more at a large batch, where reading the context takes most of a pass;
    so each row also has the oracle without them, and their share of the seconds of autoregressive decoding.
    """
    oracle = chain_seconds(records, oracle_chain(records), costs)
    longest = records.longest_hundredth
    others = np.setdiff1d(np.arange(len(records.request_ids)), longest)
    rows: list[Row] = []
    for batch in CURVE_BATCHES:
        base = oracle.base[batch]
        row: Row = {"dataset": records.dataset, "drafter": records.drafter, "batch": batch}
        row["fixed"] = [round(one.speedup(batch)[0], 3) for one in by_length.values()]
        row["oracle"] = round(oracle.speedup(batch)[0], 3)
        row["oracle_without_longest"] = round(oracle.speedup(batch, others)[0], 3)
        row["longest_seconds_share"] = round(float(base[longest].sum() / base.sum()), 3)
        rows.append(row)
    return rows


def _sections_of(chains: DatasetChains, settings: TheirSettings) -> dict[str, list[Row]]:
    """Rows of one dataset, by section."""
    found = {"steps": steps_of(chains, settings), "combined": combined_of(chains, settings)}
    found |= {"reached": [], "means": [], "drafters": contents_of(chains), "survival": [], "curves": []}
    for records in (chains.chains[name] for name in DRAFTERS):
        by_length = seconds_by_length(records, settings.costs)
        found["reached"] += reach_of(records, by_length, settings.costs)
        found["means"] += means_of(records)
        found["survival"].append(survival_row(records))
        found["curves"] += curve_rows(records, by_length, settings.costs)
    return found


def _step_rows(what: tuple[str, str, str], own: ChainSeconds, theirs: Mapping[int, TheirSpeedup]) -> list[Row]:
    rows = []
    for batch, one in theirs.items():
        row: Row = {**dict(zip(("dataset", "drafter", "policy"), what, strict=True)), "batch": batch}
        row |= {"theirs": one.value, "theirs_pooled": one.pooled, "theirs_decode_only": one.decode_only}
        rows.append(row | with_ends("ours", *own.speedup(batch)))
    return rows


def _compared_speedups(steps: Sequence[Row]) -> list[ComparedFigure]:
    """Speedups at a batch of 1; theirs are printed nowhere, so they are by formula."""
    found = []
    for row in steps:
        if row["batch"] == 1 and row["policy"] in SHOWN_POLICIES:
            theirs, ours = value_of(row["theirs"]), value_of(row["ours"])
            ends = [float("nan") if one is None else value_of(one) for one in (row["ours_ci_low"], row["ours_ci_high"])]
            what = f"{row['dataset']}, {row['drafter']}, {row['policy']}, batch 1: speedup"
            found.append(ComparedFigure(what, ours, interval=Interval(*ends), by_formula=theirs, same_records=False))
    return found


def _settings_values(settings: TheirSettings, chains: Mapping[str, DatasetChains]) -> dict[str, object]:
    return {
        "costs": asdict(settings.costs),
        "cannot_replay": list(CANNOT_REPLAY),
        "batches": list(BATCHES),
        "their_batches": list(THEIR_BATCHES),
        "longest_chains": {one.drafter: one.longest for one in chains[DATASETS[0]].chains.values()},
    }


def _json_sections(rows: Mapping[str, Sequence[Row]]) -> dict[str, object]:
    """Rows as JSON has them, rounded."""
    rounded = {name: [_rounded_row(_without_details(row)) for row in some] for name, some in rows.items()}
    return {name: columns_of(some) if name in _BY_BATCH else some for name, some in rounded.items()}


def _without_details(row: Row) -> Row:
    """A row of a speedup that no table shows keeps theirs and ours alone; intervals stand for uncorrected verdicts."""
    names = ("dataset", "drafter", "policy", "batch", "theirs", "ours")
    if row.get("policy", SHOWN_POLICIES[0]) not in SHOWN_POLICIES:
        return {name: row[name] for name in names}
    return {name: value for name, value in row.items() if not name.endswith("_verdict")}


def _rounded_row(row: Row) -> Row:
    return {name: _rounded(value) for name, value in row.items()}


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    known = finite(value)
    return None if known is None else round(known, 3 if abs(known) > 1 else 4)
