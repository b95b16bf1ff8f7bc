"""A confirmation as a person reads it: verdict, table, stages, differences, and how good the prediction was."""

import math
from collections.abc import Mapping, Sequence

from simlab.analysis.compare.verdicts import standing_sentence, verdict_sentence
from simlab.analysis.confirm.errors import PARTS, TOLERANCE, PredictionErrors
from simlab.analysis.confirm.table import EXACT, FAILED, ConfirmedPolicy, WinnerComparison, stages_per_round
from simlab.analysis.statistics.intervals import Interval, rough_intervals
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.summaries import BASELINE
from simlab.analysis.table.text import aligned, ends, is_known, number, with_interval
from simlab.cost import CHANNEL, STAGES

MOST_DIFFERENCES = 20
"""Differences from the trace that are written out; all are in the JSON and in the log."""

_HEADINGS = (
    ("policy", ""),
    ("acceptance length", "replayed"),
    ("", "measured"),
    ("tokens/s", "measured [95 %]"),
    ("speedup", "predicted [prices]"),
    ("", "measured [95 %]"),
    ("lossless", ""),
    ("worst gap", "(bound)"),
    ("rounds equal", "to replay"),
)
_LEFT = {"policy", "tokens/s", "lossless"}

ERROR_NOTES = (
    "Prediction error: predicted over measured, less 1, in %; above 0 the prediction was too high. Of it: rounds\n"
    "(another acceptance length) and the seconds of each stage, beyond what slowed autoregressive decoding as well;\n"
    "as logarithms the parts add up to the error of the speedup.\n"
    "Within noise: the measured speedup lies within the intervals of prompts and of the profile's noise together."
)

_ERROR_LEFT = {"prediction error", "speedup", "within", "tokens/s", "acceptance length"}


def verdict_text(policies: Sequence[ConfirmedPolicy], won: WinnerComparison | None, unit: str = "prompt") -> str:
    """What came out, a sentence a line: failures first, then where the chosen or fastest policy stands.

    Args:
        policies: the rows of the table.
        won: None where no policy can have won.
        unit: what intervals are over, in the singular.
    """
    lines = [line for policy in policies for line in _failures(policy)]
    if won is None:
        return "\n".join([*lines, "No policy has both a speed and a text that is the target's."])
    if won.comparisons:
        first, *others = won.comparisons
        sentence = standing_sentence(won.comparisons, unit) if others else verdict_sentence(first, unit)
        lines.append(f"No{sentence[2:]}." if sentence.startswith("no ") else f"{sentence}.")
    return "\n".join([*lines, *(_claim(policy, unit) for policy in (won.first, *won.rivals, *won.ahead))])


def _failures(policy: ConfirmedPolicy) -> list[str]:
    if policy.judged is None:
        return []
    lines = []
    if policy.judged.lossless == FAILED:
        lines.append(f"{FAILED}: the text of {policy.policy} is not the target's: {policy.judged.fault}.")
    if not policy.judged.counts_equal_replay:
        num = policy.judged.num_texts - policy.judged.num_equal
        lines.append(
            f"{FAILED}: {num} of {policy.judged.num_texts} texts of {policy.policy} had other rounds than the replay "
            f"of their own rows: {policy.judged.unequal}."
        )
    return lines


def _claim(policy: ConfirmedPolicy, unit: str) -> str:
    assert policy.measured is not None
    assert policy.judged is not None
    speed, predicted = policy.measured.speed, policy.predicted.speed.speedup
    note = "" if math.isnan(predicted) else f" (predicted {_predicted(policy)})"
    interval = f" {ends(speed.interval)}" if is_known(speed.interval) and ends(speed.interval) else ""
    lossless = policy.judged.lossless
    output = "output identical" if lossless == EXACT else f"output within rounding: {lossless}"
    return (
        f"{policy.policy}: {number(speed.speedup, 2)} x autoregressive decoding{interval}{note}"
        f"{_doubt(speed.interval, unit)}; {output}"
    )


def _doubt(interval: Interval, unit: str) -> str:
    """What an interval of a speedup says beside its numbers."""
    if not is_known(interval):
        return f", too few {unit}s for an interval"
    if interval.low > 1:
        return ""
    return ", significantly slower" if interval.high < 1 else f", not significant with this many {unit}s"


def confirm_table(policies: Sequence[ConfirmedPolicy]) -> str:
    """A row per policy."""
    cells = [list(heading) for heading in zip(*_HEADINGS, strict=True)] + [_cells(policy) for policy in policies]
    to_left = [first in _LEFT or second.endswith("]") for first, second in _HEADINGS]
    return aligned(cells, to_left)


def _cells(policy: ConfirmedPolicy) -> list[str]:
    ran, judged, predicted = policy.measured, policy.judged, policy.predicted
    first = [policy.policy, number(predicted.totals.acceptance_length, 2)]
    if ran is None:
        return [*first, "-", "-", _predicted(policy), "-", "-", "-", "-"]
    return [
        *first,
        number(ran.totals.acceptance_length, 2),
        f"{Estimate(ran.speed.tokens_per_s, policy.tokens_per_s_interval):1}",
        _predicted(policy),
        with_interval(ran.speed.speedup, ran.speed.interval),
        "-" if judged is None else judged.lossless,
        "-" if judged is None else f"{judged.worst_gap:.2g} ({judged.bound:.2g})",
        "-" if judged is None else f"{judged.num_equal} of {judged.num_texts}",
    ]


def _predicted(policy: ConfirmedPolicy) -> str:
    """The predicted speedup with its price interval, where that is known."""
    speed = policy.predicted.speed
    known = is_known(speed.price_interval)
    return f"{number(speed.speedup, 2)} {ends(speed.price_interval) if known else ''}".rstrip()


def same_texts_sentence(policies: Sequence[ConfirmedPolicy]) -> str:
    """In how many texts each policy wrote just what autoregressive decoding wrote."""
    others = [
        (policy.policy, policy.judged)
        for policy in policies
        if policy.judged is not None and policy.predicted.name != BASELINE
    ]
    counted = [f"{policy} {judged.num_same_texts} of {judged.num_texts}" for policy, judged in others]
    return f"Texts equal to that of autoregressive decoding, token for token: {', '.join(counted)}." if counted else ""


def confirm_blocks(slices: Sequence[ConfirmedPolicy], whole: Sequence[ConfirmedPolicy], by: str) -> str:
    """A table for each slice, and one of everything at the end; texts are judged as a whole, so slices are not."""
    parts = {f"{by} {policy.predicted.slice}": list[ConfirmedPolicy]() for policy in slices}
    for policy in slices:
        parts[f"{by} {policy.predicted.slice}"].append(policy)
    return "\n\n".join(
        f"{title}: {policies[0].predicted.prompts} prompts, {policies[0].predicted.sequences} "
        f"sequences\n{confirm_table(policies)}"
        for title, policies in (parts | {"all": list(whole)}).items()
    )


def stage_table(policies: Sequence[ConfirmedPolicy]) -> str:
    """Milliseconds of each stage per round, predicted and measured; of channels where a policy reads one."""
    ran = [policy for policy in policies if policy.measured is not None]
    both = [(stages_per_round(policy.predicted), stages_per_round(policy.measured)) for policy in ran]
    with_channels = any(seconds[STAGES.index(CHANNEL)] > 0 for pair in both for seconds in pair)
    shown = [index for index, stage in enumerate(STAGES) if with_channels or stage != CHANNEL]
    rows = [["ms per round, predicted / measured", *(STAGES[index] for index in shown), "all"]]
    for policy, sides in zip(ran, both, strict=True):
        pairs = [*([side[index] for side in sides] for index in shown), list(map(sum, sides))]
        rows.append([policy.policy, *(" / ".join(number(1e3 * seconds, 2) for seconds in pair) for pair in pairs)])
    return aligned(rows, [True, *[False] * (len(shown) + 1)])


def differences_text(differences: Sequence[Mapping[str, object]]) -> str:
    """Where the run and the record part, the most telling first.

    Args:
        differences: flat, each with its ``kind`` (text, round, row or channel), ``policy``, ``prompt_id``,
            ``turn`` and what it ``says``.
    """
    with_channels = any(difference["kind"] == "channel" for difference in differences)
    kinds = ("text", "round", "row", "channel") if with_channels else ("text", "round", "row")
    counts = [sum(difference["kind"] == kind for difference in differences) for kind in kinds]
    if not differences:
        return "Rounds and rows are those of the trace: no difference."
    telling = sorted(differences, key=lambda difference: kinds.index(str(difference["kind"])))
    counted = ", ".join(f"{num} {kind}{'' if num == 1 else 's'}" for num, kind in zip(counts, kinds, strict=True))
    lines = [f"Differences from the trace: {counted}."]
    lines += [
        f"  {difference['prompt_id']}, turn {difference['turn']}, {difference['policy']}: {difference['says']}"
        for difference in telling[:MOST_DIFFERENCES]
    ]
    if len(telling) > MOST_DIFFERENCES:
        lines.append(f"  ... and {len(telling) - MOST_DIFFERENCES:,} more, all with --json and in the log")
    return "\n".join(lines)


def confirm_notes(
    policies: Sequence[ConfirmedPolicy], why_unpriced: str, speedup: str, num_groups: int | None = None
) -> str:
    """What a reader must know beside the numbers, a sentence a line.

    Args:
        policies: the rows of the table.
        why_unpriced: why nothing is predicted, where nothing is; else empty.
        speedup: over what speedups are, in a sentence.
        num_groups: of texts that were served together, where intervals are over these; None: they are over prompts.
    """
    units = "prompts" if num_groups is None else "groups"
    num = min(policy.predicted.prompts for policy in policies) if num_groups is None else num_groups
    lines = [
        f"Speeds exclude prefill and begin after token 0; [95 %] over {units}.",
        speedup,
        "Worst gap: the largest loss of an emitted token against a float32 pass over its text, in units of a logit.",
        "Its bound is twice the largest error of logits on the texts of autoregressive decoding.",
    ]
    lines += [why_unpriced] if why_unpriced else []
    return "\n".join([*lines, *rough_intervals(num, units)])


def prediction_verdict(errors: Sequence[PredictionErrors], first: str | None = None) -> str:
    """How good the prediction was, in sentences; empty where nothing was predicted.

    ``Prediction of the speedup of B: 1.6 % high [0.4, 2.8]; all 3 policies within 5 %.`` and how far tokens/s were
    off.

    Args:
        errors: of all policies.
        first: the policy to name; None: the one with the largest error.
    """
    known = [error for error in errors if not error.is_plain and not math.isnan(error.errors["speedup"].value)]
    if not known:
        return ""
    worst = max(known, key=lambda error: abs(error.errors["speedup"].value))
    named = next((error for error in known if error.policy == first), worst)
    outside = [error for error in known if not error.is_within]
    limit = f"{100 * TOLERANCE:.0f} %"
    policies = "the one policy" if len(known) == 1 else f"all {len(known)} policies"
    if outside:
        listed = ", ".join(f"{error.policy} ({_high_or_low(error.errors['speedup'])})" for error in outside)
        rest = f"not within {limit}: {listed}"
    elif all(error.is_surely_within for error in known):
        rest = f"{policies} within {limit}, intervals too"
    else:
        rest = f"{policies} within {limit}, though not with {'its interval' if len(known) == 1 else 'every interval'}"
    sentences = [f"Prediction of the speedup of {named.policy}: {_high_or_low(named.errors['speedup'])}; {rest}."]
    within = [error.is_within_noise for error in known if error.is_within_noise is not None]
    if within:
        sentences.append(f"Measured within the intervals of prompts and prices: {sum(within)} of {len(within)}.")
    plain = next((error for error in errors if error.is_plain), None)
    if plain is not None and not math.isnan(plain.machine):
        predicted = _high_or_low(plain.errors["tokens_per_s"])
        sentences.append(f"Tokens/s of autoregressive decoding: predicted {predicted}.")
    return " ".join(sentences)


def error_table(errors: Sequence[PredictionErrors]) -> str:
    """A row per policy, in per cent; empty where nothing was predicted."""
    known = [error for error in errors if not math.isnan(error.errors["tokens_per_s"].value)]
    if not known:
        return ""
    # Beside policies that read no channel its part is 0.
    parts = [name for name in PARTS if name != CHANNEL or any(abs(error.parts[name]) > 0 for error in known)]
    headings = (
        ("prediction error", ""),
        ("speedup", "[95 %]"),
        ("within", "noise"),
        *((f"{'of it ' if index == 0 else ''}{name}", "") for index, name in enumerate(parts)),
        ("tokens/s", "[95 %]"),
        ("acceptance length", "[95 %]"),
    )
    cells = [list(heading) for heading in zip(*headings, strict=True)] + [_error_cells(error, parts) for error in known]
    return aligned(cells, [first in _ERROR_LEFT for first, _ in headings])


def _high_or_low(error: Estimate) -> str:
    """``1.6 % high [0.4, 2.8]``; the interval is turned round where the prediction was too low."""
    sign = 1 if error.value >= 0 else -1
    ends = sorted(100 * sign * end for end in (error.interval.low, error.interval.high))
    interval = "" if math.isnan(error.interval.low) else f" [{_percent(ends[0])}, {_percent(ends[1])}]"
    return f"{_percent(100 * abs(error.value))} % {'high' if sign > 0 else 'low'}{interval}"


def _percent(value: float) -> str:
    return f"{value:.1f}".replace("-0.0", "0.0")


def _error_cells(errors: PredictionErrors, names: Sequence[str]) -> list[str]:
    values = [errors.parts[name] for name in names]
    parts = ["-" if math.isnan(part) or errors.is_plain else f"{100 * part:+.1f}" for part in values]
    speedup = "-" if errors.is_plain else _signed(errors.errors["speedup"])
    within = errors.is_within_noise
    return [
        errors.policy,
        speedup,
        "-" if within is None else "yes" if within else "no",
        *parts,
        _signed(errors.errors["tokens_per_s"]),
        _signed(errors.errors["acceptance_length"]),
    ]


def _signed(error: Estimate) -> str:
    if math.isnan(error.value):
        return "-"
    low, high = error.interval.low, error.interval.high
    interval = "" if math.isnan(low) or low == high else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{100 * error.value:+.1f}{interval}"
