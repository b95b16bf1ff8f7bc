"""The verdict of a report: who is ahead of the chain, by how much, what was measured, and who cannot be told apart."""

import math
from dataclasses import dataclass, replace

import polars as pl

from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.compare.verdicts import standing_sentence, within_price_noise
from simlab.analysis.report.results import ReportResults, family_of, ratio_text
from simlab.analysis.table.summaries import BASELINE, Summary, summarise


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


@dataclass(frozen=True, slots=True)
class ReportVerdict:
    """What the numbers say.

    Attributes:
        best: the policy that it is about; None where no policy but plain decoding is there.
        sentence: the verdict.
        more: what must be added, a sentence each.
    """

    best: Summary | None
    sentence: str
    more: tuple[str, ...]


def verdict_of(results: ReportResults, choice: VerdictChoice) -> ReportVerdict:
    """The verdict over the best of each family, by tokens per second where these are known.

    The policy that was chosen is held against the chain, and against the best of every other family; a difference
    that cannot be resolved is no win.
    """
    if not results.finalists:
        return ReportVerdict(None, "Nothing to compare: there is no policy beside autoregressive decoding.", ())
    if choice.policy == BASELINE:
        alone = _alone(results, results.finalists[0], choice)
        return replace(
            alone, sentence=f"No policy: autoregressive decoding was chosen. The fastest here is {alone.sentence}"
        )
    named = [one for one in results.policies if one.policy == choice.policy]
    best = named[0] if named else results.finalists[0]
    measure = "tokens_per_s" if results.has_speeds else "acceptance_length"
    reference = results.chain()
    if reference is None or reference.policy_id == best.policy_id:
        return _alone(results, best, choice)
    others = [
        one for one in results.finalists if family_of(one) != family_of(best) and one.policy_id != reference.policy_id
    ]
    others = [reference, *others]
    runs = [results.run(one) for one in (best, *others)]
    found = compare_runs(runs, [(0, place) for place in range(1, len(runs))])
    of_measure = [one for one in found if one.measure == measure]
    first = of_measure[0]
    more = [f"Predicted: {text}" if results.ran else text for text in _of_rivals(of_measure)]
    if not choice.is_held_out and len(results.policies) > 1:
        more.append(f"{best.policy} was chosen on these very prompts, so it looks better here than it is.")
    return ReportVerdict(best, _sentence(results, best, first, reference, choice), tuple(more))


def _alone(results: ReportResults, best: Summary, choice: VerdictChoice) -> ReportVerdict:
    """Where there is no chain to hold the best against, or it is the chain."""
    others = [one for one in results.finalists if one.policy_id != best.policy_id]
    prompts = _prompts(best.prompts, choice)
    if not results.has_speeds:
        text = f"{best.policy}: acceptance length {best.totals.acceptance_length:.2f} on {prompts}."
    else:
        speed = best.speed
        ratio = ratio_text(speed.speedup, speed.interval, speed.price_interval)
        text = f"{best.policy}: {ratio} autoregressive decoding"
        text = f"{text} on {prompts}{_measured(results, best, None)}."
    if not others:
        return ReportVerdict(best, text, ())
    runs = [results.run(one) for one in (best, *others)]
    measure = "tokens_per_s" if results.has_speeds else "acceptance_length"
    found = compare_runs(runs, [(0, place) for place in range(1, len(runs))])
    return ReportVerdict(best, text, tuple(_of_rivals([one for one in found if one.measure == measure])))


def _sentence(
    results: ReportResults, best: Summary, comparison: Comparison, reference: Summary, choice: VerdictChoice
) -> str:
    prompts = _prompts(comparison.prompts, choice)
    if comparison.equal:
        return f"No difference: {best.policy} and {reference.policy} did the same on {prompts}."
    if comparison.differs_by_prompts and comparison.is_within_price_noise:
        return f"No winner between {best.policy} and {_the(reference)}: {within_price_noise(comparison)}."
    if not comparison.differs:
        limit = (
            f"; minimum detectable difference {100 * (comparison.detectable - 1):.1f} %"
            if comparison.detectable > 1
            else ""
        )
        both = f"between {best.policy} and {_the(reference)}"
        seen = f"{100 * (comparison.ratio - 1):+.1f} %"
        return f"No winner {both}: not significant{limit} (n = {prompts}); observed {seen}."
    what = "" if results.has_speeds else "acceptance length "
    ratio = ratio_text(comparison.ratio, comparison.ratio_interval, comparison.price_interval)
    ending = _measured(results, best, reference)
    bracket = ratio.partition(" ×")
    return f"{best.policy}: {what}{bracket[0]} × {_the(reference)}{bracket[2]} on {prompts}{ending}."


def _the(reference: Summary) -> str:
    return "the chain" if reference.policy == reference.name else reference.policy


def _prompts(number: int, choice: VerdictChoice) -> str:
    kind = "held-out " if choice.is_held_out else ""
    return f"{number} {kind}prompt" + ("" if number == 1 else "s")


def _measured(results: ReportResults, best: Summary, reference: Summary | None) -> str:
    """What was measured, and how far the prediction for the same texts is from it."""
    measured = _ratio(results.measured, best, reference)
    if math.isnan(measured):
        return "; predicted, not measured" if results.predicted.height and results.has_speeds else ""
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
    found = {one.policy_id: one for one in summarise(rows)}
    plain = next((one for one in found.values() if one.name == BASELINE), None)
    other = plain if reference is None else found.get(reference.policy_id)
    own = found.get(best.policy_id)
    if own is None or other is None:
        return math.nan
    return own.speed.tokens_per_s / other.speed.tokens_per_s


def _of_rivals(comparisons: list[Comparison]) -> list[str]:
    """Where the best stands among the best of the other families."""
    known = [one for one in comparisons if one.is_known]
    if len(comparisons) < 2 or not known:
        return []
    text = standing_sentence(comparisons)
    return [f"{text[0].upper()}{text[1:]}." if text.startswith("no ") else f"{text}."]
