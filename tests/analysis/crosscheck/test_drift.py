"""Whether a server's traffic is a trace's: against a loop, and on traffic that is and is not."""

import math

import numpy as np
import pytest
from chain_texts import predicted, sequence

from simlab.analysis.crosscheck.drift import LENGTH, drift_figures
from simlab.analysis.crosscheck.predicted import PredictedText
from simlab.analysis.crosscheck.text import drift_sentence, drift_text
from simlab.analysis.engines.answers import ServerCounters


def some_texts(seed: int, num: int, right: float) -> list[PredictedText]:
    rng = np.random.default_rng(seed)
    found = []
    for index in range(num):
        share = min(0.95, max(0.05, rng.normal(right, 0.08)))
        ranks = (rng.random((60, 4)) > share).astype(int).tolist()
        text = predicted(sequence(ranks), 4)
        object.__setattr__(text, "prompt", ("made up", f"p{index}"))
        found.append(text)
    return found


def counters_of(texts: list[PredictedText]) -> ServerCounters:
    """Counts of a server that writes these texts, and what it drafts behind their ends is never kept."""
    kept = [accepted for text in texts for _, accepted in text.rounds()]
    return ServerCounters(
        num_rounds=len(kept),
        num_drafted=4 * len(kept),
        num_accepted=sum(kept),
        accepted_at=tuple(sum(one > index for one in kept) for index in range(4)),
        num_tokens=sum(map(len, texts)),
        num_requests=len(texts),
    )


def test_figures_are_ratios_of_sums() -> None:
    texts, others = some_texts(0, 30, 0.6), some_texts(1, 12, 0.6)
    counters = counters_of(others)
    length, first, *_ = drift_figures(texts, counters)
    rounds = [len(text.rounds()) for text in texts]
    assert length.name == LENGTH
    assert length.predicted == pytest.approx(sum(len(text) - 1 for text in texts) / sum(rounds))
    assert counters.num_tokens is not None
    assert counters.num_rounds is not None
    assert length.measured == pytest.approx((counters.num_tokens - 12) / counters.num_rounds)
    assert first.predicted == pytest.approx(
        sum(accepted > 0 for text in texts for _, accepted in text.rounds()) / sum(rounds)
    )
    assert length.interval.low < length.ratio < length.interval.high


def test_equal_traffic_seldom_alarms_and_other_traffic_does() -> None:
    texts = some_texts(2, 40, 0.6)
    alarms = [drift_figures(texts, counters_of(some_texts(seed, 20, 0.6)))[0].differs for seed in range(100, 140)]
    assert sum(alarms) <= 6
    other = drift_figures(texts, counters_of(some_texts(7, 20, 0.4)))
    assert other[0].differs
    assert drift_sentence(other, 7).startswith("DRIFT")
    assert "differs" in drift_text(other)


def test_fewer_requests_make_the_interval_wider() -> None:
    texts, counters = some_texts(3, 40, 0.6), counters_of(some_texts(4, 20, 0.6))
    few = ServerCounters(counters.num_rounds, num_tokens=counters.num_tokens, num_requests=20)
    fewer = ServerCounters(counters.num_rounds, num_tokens=counters.num_tokens, num_requests=5)
    widths = [np.log(found.interval.high / found.interval.low) for found in
              (drift_figures(texts, few)[0], drift_figures(texts, fewer)[0])]  # fmt: skip
    assert widths[1] > 1.3 * widths[0]


def test_requests_that_are_told_bring_their_own_spread() -> None:
    texts, others = some_texts(5, 30, 0.6), some_texts(6, 20, 0.6)
    requests = [ServerCounters(len(text.rounds()), num_tokens=len(text)) for text in others]
    with_own = drift_figures(texts, counters_of(others), requests)[0]
    assert not math.isnan(with_own.p_value)
    assert with_own.interval != drift_figures(texts, counters_of(others))[0].interval


def test_one_prompt_allows_no_verdict() -> None:
    texts = some_texts(8, 1, 0.6)
    figures = drift_figures(texts, counters_of(texts))
    assert math.isnan(figures[0].p_value)
    assert "No verdict" in drift_sentence(figures, 7)
    assert figures[0].row()["p_value"] is None
    assert drift_figures(texts, ServerCounters()) == []
    assert "nothing is compared" in drift_sentence([], 7)
