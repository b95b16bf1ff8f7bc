"""Is a server's traffic that of a trace? Its acceptance length and rates by position against the trace's.

A server's counts are sums over its requests, and say nothing of how these differ. Where nothing tells more they are
taken to differ as the trace's prompts do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from simlab.analysis.crosscheck.predicted import PredictedText
from simlab.analysis.engines.answers import ServerCounters
from simlab.analysis.statistics.intervals import LEVEL, UNKNOWN, Interval, finite, log_products
from simlab.analysis.statistics.significance import detectable_ratios, holm
from simlab.arrays import Doubles

LENGTH, FIRST = "acceptance length", "kept at position 1"

NONE_KEPT, ALL_KEPT = "hardly a draft kept", "nearly every draft kept"
"""What no other traffic does: a fault of the drafter, and repeated text."""

_LEAST_KEPT = 0.1
"""Of the first drafted tokens that the trace keeps, a server with any drafter that works keeps more."""

_NEARLY_ALL, _USUALLY = 0.95, 0.8
"""Of all drafted tokens: kept where texts repeat themselves, if the trace keeps less than the second."""


@dataclass(frozen=True, slots=True)
class DriftFigure:
    """One figure of a server beside the trace's.

    Attributes:
        name: the acceptance length, or a rate of a position.
        measured: the server's.
        predicted: the trace's.
        interval: of their ratio, over prompts and requests.
        p_value: of no difference, adjusted for the number of figures (Holm); nan where it is not known.
        detectable: the ratio above 1 that as many prompts and requests would find.
    """

    name: str
    measured: float
    predicted: float
    interval: Interval = UNKNOWN
    p_value: float = math.nan
    detectable: float = math.nan

    @property
    def ratio(self) -> float:
        """The figure of the server over that of the trace."""
        without = math.inf if self.measured else math.nan
        return self.measured / self.predicted if self.predicted else without

    @property
    def differs(self) -> bool:
        """Whether the difference is significant among all figures."""
        return self.p_value < 1 - LEVEL

    def row(self) -> dict[str, object]:
        """As a script reads it; null: not known."""
        return {
            "figure": self.name,
            "measured": finite(self.measured),
            "foretold": finite(self.predicted),
            "ratio": finite(self.ratio),
            **self.interval.row("ratio_ci"),
            "p_value": finite(self.p_value),
            "detectable_ratio": finite(self.detectable),
            "differs": self.differs,
        }


def drift_figures(
    texts: Sequence[PredictedText], counters: ServerCounters, requests: Sequence[ServerCounters] = ()
) -> list[DriftFigure]:
    """The figures that the server tells, the acceptance length first.

    Args:
        texts: of the trace.
        counters: of the server, over some requests.
        requests: the counts of each, where they are told.
    """
    length = counters.acceptance_length
    if length is None or not counters.num_rounds:
        return []
    tokens, rounds, known, kept = _sums(texts)
    at = [times / counters.num_rounds for times in (counters.accepted_at or ())[: kept.shape[1]]]
    names = [LENGTH, *(f"kept at position {position + 1}" for position in range(len(at)))]
    sums = [tokens, rounds, *(part[:, position] for position in range(len(at)) for part in (kept, known))]
    powers = np.kron(np.eye(len(names)), np.array([1.0, -1.0])).astype(np.float64)
    spread = log_products(np.stack(sums, axis=1), powers)
    measured, predicted = np.array([length, *at]), np.exp(spread.whole)
    if len(tokens) < 2:
        return [DriftFigure(*values) for values in zip(names, measured.tolist(), predicted.tolist(), strict=True)]
    num_requests = counters.num_requests or counters.num_rounds / max(rounds.mean(), 1.0)
    errors, degrees = spread.standard_errors(), spread.degrees_of_freedom()
    of_requests = errors * math.sqrt(len(tokens) / num_requests)
    own = _own_error(requests)
    of_requests[0] = of_requests[0] if math.isnan(own) else own
    both = np.sqrt(errors**2 + of_requests**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(measured / predicted)
        p_values = np.where(both > 0, 2 * stdtr(degrees, -np.abs(logs) / both), np.where(logs == 0, 1.0, 0.0))
    adjusted = holm(np.where(np.isfinite(logs), p_values, np.nan))
    reach = np.where(np.isfinite(logs), stdtrit(degrees, (1 + LEVEL) / 2) * both, np.nan)
    ends = map(Interval, np.exp(logs - reach).tolist(), np.exp(logs + reach).tolist())
    detectable = detectable_ratios(both, degrees, len(names)).tolist()
    columns = (names, measured.tolist(), predicted.tolist(), ends, adjusted.tolist(), detectable)
    return [DriftFigure(*values) for values in zip(*columns, strict=True)]


def suspicion(figures: Sequence[DriftFigure], k: int) -> str:
    """What the difference looks like that is not one of traffic; empty: nothing, or no difference.

    Args:
        figures: as `drift_figures` gives them, the acceptance length first.
        k: drafted tokens of a round.
    """
    if not figures or not figures[0].differs:
        return ""
    length = figures[0]
    first = next((figure for figure in figures if figure.name == FIRST), None)
    # Without rates by position the accepted tokens of a round stand for the first.
    measured, predicted = (
        (length.measured - 1, length.predicted - 1) if first is None else (first.measured, first.predicted)
    )
    if measured < _LEAST_KEPT * predicted:
        return NONE_KEPT
    return ALL_KEPT if length.measured - 1 > _NEARLY_ALL * k and length.predicted - 1 < _USUALLY * k else ""


def _sums(texts: Sequence[PredictedText]) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Tokens and rounds ``[prompts]``, and rounds that reach a position and that keep it ``[prompts, k]``."""
    names = sorted({text.prompt for text in texts})
    k = texts[0].k
    tokens, rounds = np.zeros(len(names)), np.zeros(len(names))
    known, kept = np.zeros((len(names), k)), np.zeros((len(names), k))
    for text in texts:
        at = names.index(text.prompt)
        for root, accepted in text.rounds():
            rounds[at] += 1
            # Behind the end of the recorded text nothing is known, while an engine counts what it drafts there.
            known[at, : min(k, len(text) - 1 - root)] += 1
            kept[at, :accepted] += 1
        tokens[at] += len(text) - 1
    return tokens, rounds, known, kept


def _own_error(requests: Sequence[ServerCounters]) -> float:
    """The standard error of the logarithm of the requests' own acceptance length; nan where they do not tell it."""
    lengths = [
        (tokens - 1, request.num_rounds)
        for request in requests
        if request.num_rounds and (tokens := request.num_tokens or 0) > 1
    ]
    if len(lengths) < 2 or len(lengths) < len(requests):
        return math.nan
    spread = log_products(np.array(lengths, np.float64), np.array([[1.0, -1.0]]))
    return float(spread.standard_errors()[0])
