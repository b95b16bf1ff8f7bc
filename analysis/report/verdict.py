"""The verdict of a report: the best policy's speedup, whether it wins, what was measured, its lead over the chain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.verdicts import within_price_noise
from simlab.analysis.optimize.finalists import MOST_RIVALS, FinalistVerdict, judge_finalists
from simlab.analysis.report.results import CHAIN, ReportResults, family_of, interval_text
from simlab.analysis.statistics.intervals import rough_intervals
from simlab.analysis.table.summaries import BASELINE, STAGE_COLUMNS, Summary, summarise
from simlab.errors import enumerated
from simlab.sequence_replay import SUMS


@dataclass(frozen=True, slots=True)
class VerdictChoice:
    """How the policy that the verdict is about was chosen.

    Attributes:
        policy: its label; None: the fastest of the table itself.
        origin: on which prompts, in words.
        is_held_out: whether the prompts of the table are others.
    """

    policy: str | None
    origin: str
    is_held_out: bool


def verdict_of(
    results: ReportResults, choice: VerdictChoice, caveats: Sequence[str] = ()
) -> tuple[Summary | None, str, list[str]]:
    """The best policy's speedup over autoregressive decoding, and what is as good; then its lead over the chain.

    It is held against autoregressive decoding, the chain and the best of the other families, by the rule of `simlab
    optimize`: a difference counts where it is significant in the family of these comparisons. Without seconds it is the
    acceptance length.

    Args:
        results: the rows.
        choice: how the policy was chosen.
        caveats: what nobody stated or timed of the latency profile, a sentence each; they stand behind the headline.

    Returns:
        The policy that the verdict is about, None where no policy but plain decoding is there; the verdict; and what
        must be added, a sentence each: how it stands among the others, its lead over the chain, doubts.
    """
    if not results.finalists:
        return None, "Nothing to compare: there is no policy beside autoregressive decoding.", []
    named = [policy for policy in results.policies if policy.policy == choice.policy]
    best = named[0] if named else results.finalists[0]
    runs = [results.run(summary) for summary in (best, *_others(results, best))]
    standing = judge_finalists([runs], results.measure)
    headline = " ".join([_headline(results, best, choice, standing), *(caveats if results.has_seconds else ())])
    if choice.policy == BASELINE:
        headline = f"No policy: autoregressive decoding was chosen. The fastest here: {headline}"
    more = [f"Predicted: {text}" if results.ran else text for text in _standing(standing)]
    more += _over_chain(results, best, standing, choice)
    if not choice.is_held_out and len(results.policies) > 1:
        more.append(f"{best.policy} was chosen on these very prompts, so it looks better here than it is.")
    more += rough_intervals(best.prompts)
    return best, headline, more


def _others(results: ReportResults, best: Summary) -> list[Summary]:
    """What the best is held against: the chain, the baseline, and the best of other families, at most so many.

    Who does on every prompt just what the best does is no rival.
    """
    chain = results.chain()
    references = [
        *([] if chain is None else [chain]),
        *(summary for summary in results.summaries if summary.name == BASELINE),
    ]
    left_out = {best.policy_id, *(reference.policy_id for reference in references)}
    own = _sums(results, best)
    rivals = [
        finalist
        for finalist in results.finalists
        if finalist.policy_id not in left_out
        and family_of(finalist) != family_of(best)
        and not own.equals(_sums(results, finalist))
    ]
    return [*rivals[:MOST_RIVALS], *(reference for reference in references if reference.policy_id != best.policy_id)]


def _sums(results: ReportResults, summary: Summary) -> pl.DataFrame:
    """What a policy did on each text."""
    return results.run(summary).rows.select("sequence", *SUMS, *STAGE_COLUMNS).sort("sequence")


def _headline(results: ReportResults, best: Summary, choice: VerdictChoice, standing: FinalistVerdict) -> str:
    """What the best brings, then what is as good, then of how many prompts; every word of it out of the comparisons."""
    plain = _plain_label(results)
    prompts, level = _prompts(best.prompts, choice), _level(standing, plain)
    measured = _measured(results, best, None)
    if not results.has_seconds:
        length = f"{best.totals.acceptance_length:.2f}{interval_text(best.interval)}"
        return f"Acceptance length {length}: {best.policy}.{level} {prompts}."
    if not results.has_speeds:
        return f"{best.speed.tokens_per_s:.1f} tokens/s: {best.policy}.{level} {prompts}{measured}."
    speed = best.speed
    intervals = interval_text(speed.interval)
    over_plain = next((comparison for comparison in standing.comparisons if comparison.second == plain), None)
    start = f"{speed.speedup:.2f} times as fast as autoregressive decoding{intervals}: {best.policy}"
    if over_plain is not None and over_plain.is_known and not over_plain.differs:
        start += ", which is not significantly faster"
    elif over_plain is not None and over_plain.ratio < 1:
        start = f"No policy is faster than autoregressive decoding. The best is {start}"
    return f"{start}.{level} {prompts}{measured}."


def _plain_label(results: ReportResults) -> str:
    """The label of autoregressive decoding among the rows; empty where it is not."""
    return next((summary.policy for summary in results.summaries if summary.name == BASELINE), "")


def _level(standing: FinalistVerdict, plain: str) -> str:
    """The rivals that nothing tells from the best, in a sentence with a space before it; empty where there is none."""
    others = [comparison for comparison in standing.comparisons if comparison.second != plain]
    level = [comparison.second for comparison in others if comparison.is_known and not comparison.differs]
    if not level:
        return ""
    text = enumerated(["the chain" if label == CHAIN else label for label in level])
    text = f"T{text[1:]}" if level[0] == CHAIN else text
    return f" {text} {'is' if len(level) == 1 else 'are'} as good within the noise."


def _standing(standing: FinalistVerdict) -> list[str]:
    """Where the best stands among the others, as a sentence of its own."""
    if not any(comparison.is_known for comparison in standing.comparisons):
        return []
    text = standing.verdict
    return [f"{text[0].upper()}{text[1:]}" if text.startswith("no ") else text]


def _over_chain(results: ReportResults, best: Summary, standing: FinalistVerdict, choice: VerdictChoice) -> list[str]:
    """The lead over the chain, in a sentence; none where there is no chain, or it is the best."""
    chain = results.chain()
    comparisons = [
        comparison for comparison in standing.comparisons if chain is not None and comparison.second == chain.policy
    ]
    if chain is None or not comparisons or not comparisons[0].is_known:
        return []
    comparison, prompts = comparisons[0], _prompts(comparisons[0].prompts, choice)
    if comparison.equal:
        return [f"No difference: {best.policy} and {_the(chain)} did the same on {prompts}."]
    quantity = "" if results.has_seconds else "acceptance length "
    intervals = interval_text(comparison.ratio_interval, comparison.price_interval)
    ratio = f"{quantity}{comparison.ratio:.2f} × {_the(chain)}{intervals}"
    doubt = "" if comparison.differs else ", not significant"
    if comparison.differs_by_prompts and comparison.is_within_price_noise:
        doubt = f", {within_price_noise(comparison)}"
    return [f"{best.policy}: {ratio} on {prompts}{doubt}{_measured(results, best, chain)}."]


def _the(reference: Summary) -> str:
    return "the chain" if reference.policy == reference.name else reference.policy


def _prompts(number: int, choice: VerdictChoice) -> str:
    kind = "held-out " if choice.is_held_out else ""
    return f"{number} {kind}prompt" + ("" if number == 1 else "s")


def _measured(results: ReportResults, best: Summary, reference: Summary | None) -> str:
    """What was measured, and how far the prediction for the same texts is from it."""
    measured = _ratio(results.measured, best, reference)
    if math.isnan(measured):
        return "; predicted, not measured" if results.predicted.height and results.has_seconds else ""
    texts = results.measured["sequence"].unique().to_list()
    predicted = _ratio(results.predicted.filter(pl.col("sequence").is_in(texts)), best, reference)
    error = "" if math.isnan(predicted) else f"; {error_text(predicted / measured - 1)}"
    return f"; measured {measured:.2f} ×{error}"


def error_text(share: float) -> str:
    """How far a prediction is from the measurement, in words.

    >>> error_text(0.0163)
    'prediction 1.6 % high'
    """
    if abs(share) < 0.0005:
        return "prediction exact to 0.1 %"
    return f"prediction {100 * abs(share):.1f} % {'high' if share > 0 else 'low'}"


def _ratio(rows: pl.DataFrame, best: Summary, reference: Summary | None) -> float:
    """Tokens per second of a policy over those of another, or of plain decoding; NaN where either is not known."""
    if rows.is_empty():
        return math.nan
    summaries = {summary.policy_id: summary for summary in summarise(rows)}
    plain = next((summary for summary in summaries.values() if summary.name == BASELINE), None)
    other = plain if reference is None else summaries.get(reference.policy_id)
    own = summaries.get(best.policy_id)
    if own is None or other is None:
        return math.nan
    return own.speed.tokens_per_s / other.speed.tokens_per_s
