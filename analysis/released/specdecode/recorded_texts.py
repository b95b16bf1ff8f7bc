"""What the records hold: how many texts of which lengths, accepted lengths, and where prompt lookup has a match."""

import numpy as np

from simlab.analysis.released.compared import ComparedFigure
from simlab.analysis.released.files import Quoted
from simlab.analysis.released.specdecode.chain_records import DRAFTERS, NGRAM, ChainRecords, DatasetChains
from simlab.analysis.released.specdecode.chain_replay import fixed_chain
from simlab.analysis.released.specdecode.chain_seconds import Row, with_ends
from simlab.analysis.statistics.intervals import Interval, intervals_of, log_products, ratio_interval
from simlab.arrays import Doubles, Longs


def contents_of(chains: DatasetChains) -> list[Row]:
    """How much was recorded of a dataset, a row for each drafter."""
    rows: list[Row] = []
    for name in DRAFTERS:
        records = chains.chains[name]
        lengths = records.num_tokens
        rows.append(
            {
                "dataset": records.dataset,
                "drafter": name,
                "requests": len(lengths),
                "tokens": int(lengths.sum()),
                "longest_text": int(lengths.max()),
                "longest_texts_share": float(lengths[records.longest_hundredth].sum() / lengths.sum()),
                "past_end": int((records.recorded - 1 > records.left).sum()),
                "same_length": int(chains.same_length.sum()),
                "unexplained": chains.num_unexplained if name == NGRAM else None,
            }
        )
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


def survival_row(records: ChainRecords) -> Row:
    """The share of roots at which at least so many tokens are accepted, of those with as many tokens left."""
    inner = records.positions > 0
    accepted, left = records.accepted[inner], records.left[inner]
    depths = range(1, records.longest + 1)
    shares = [float((accepted >= depth).sum() / max(1, (left >= depth).sum())) for depth in depths]
    return {"dataset": records.dataset, "drafter": records.drafter, "shares": [round(one, 5) for one in shares]}


def match_figure(ngram: ChainRecords, assumed: Quoted) -> ComparedFigure:
    """How often prompt lookup had a match, of the places where nothing is accepted.

    Args:
        ngram: chains of n-grams.
        assumed: the probability with which their simulator draws a match there.
    """
    failed = (ngram.accepted == 0) & (ngram.positions > 0)
    owners, num_requests = ngram.owners[failed], len(ngram.request_ids)
    matches = np.bincount(owners, ngram.available[failed] > 0, num_requests)
    chances = np.bincount(owners, minlength=num_requests)
    what = f"{ngram.dataset}, ngram: where nothing is accepted, share with a match"
    share = float(matches.sum() / chances.sum())
    return ComparedFigure(what, share, assumed, ratio_interval(matches, chances), same_records=False)


def _mean_row(records: ChainRecords, place: str, tokens: Doubles | Longs, rounds: Longs) -> Row:
    means, ones = tokens / rounds, np.ones(len(rounds))
    powers = np.array([[1, -1, 0, 0], [0, 0, 1, -1], [-1, 1, 1, -1]], np.float64)
    spread = log_products(np.stack([tokens, rounds, means, ones], axis=1).astype(np.float64), powers)
    row: Row = {"dataset": records.dataset, "drafter": records.drafter, "of": place}
    names = ("acceptance_length", "acceptance_length_macro", "macro_over_pooled")
    for name, value, ends in zip(names, np.exp(spread.whole).tolist(), intervals_of(spread), strict=True):
        row |= with_ends(name, value, Interval(float(np.exp(ends.low)), float(np.exp(ends.high))))
    return row
