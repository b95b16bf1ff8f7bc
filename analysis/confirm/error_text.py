"""The errors of a prediction as a person reads them: a sentence on how good it was, and a table by stage."""

import math
from collections.abc import Sequence

from simlab.analysis.confirm.errors import PARTS, TOLERANCE, PredictionErrors, RelativeError
from simlab.analysis.table.text import aligned

_HEADINGS = (
    ("prediction error", ""),
    ("speedup", "[95 %]"),
    *((f"{'of it ' if place == 0 else ''}{name}", "") for place, name in enumerate(PARTS)),
    ("tokens/s", "[95 %]"),
    ("acceptance length", "[95 %]"),
)
_LEFT = {"prediction error", "speedup", "tokens/s", "acceptance length"}


def prediction_verdict(found: Sequence[PredictionErrors], first: str | None = None) -> str:
    """How good the prediction was, in sentences; empty where nothing was predicted.

    ``Prediction of the speedup of B: 1.6 % high [0.4, 2.8]; all 3 policies within 5 %.`` and how far tokens/s were
    off.

    Args:
        found: of all policies.
        first: the policy to name; None: the one with the largest error.
    """
    known = [one for one in found if not one.is_plain and not math.isnan(one.errors["speedup"].value)]
    if not known:
        return ""
    worst = max(known, key=lambda one: abs(one.errors["speedup"].value))
    named = next((one for one in known if one.policy == first), worst)
    outside = [one for one in known if not one.errors["speedup"].is_within]
    limit = f"{100 * TOLERANCE:.0f} %"
    policies = "the one policy" if len(known) == 1 else f"all {len(known)} policies"
    if outside:
        listed = ", ".join(f"{one.policy} ({_high_or_low(one.errors['speedup'])})" for one in outside)
        rest = f"not within {limit}: {listed}"
    elif all(one.errors["speedup"].is_surely_within for one in known):
        rest = f"{policies} within {limit}, intervals too"
    else:
        rest = f"{policies} within {limit}, though not with {'its interval' if len(known) == 1 else 'every interval'}"
    error = _high_or_low(named.errors["speedup"])
    return f"Prediction of the speedup of {named.policy}: {error}; {rest}.{_machine(found)}"


def error_table(found: Sequence[PredictionErrors]) -> str:
    """A row per policy, in per cent; empty where nothing was predicted."""
    known = [one for one in found if not math.isnan(one.errors["tokens_per_s"].value)]
    if not known:
        return ""
    cells = [list(heading) for heading in zip(*_HEADINGS, strict=True)] + [_cells(one) for one in known]
    return aligned(cells, [first in _LEFT for first, _ in _HEADINGS])


ERROR_NOTES = (
    "Prediction error: predicted over measured, less 1, in %; above 0 the prediction was too high. Of it: rounds\n"
    "(another acceptance length) and the seconds of each stage, beyond what slowed plain decoding as well; as\n"
    "logarithms the parts add up to the error of the speedup."
)


def _machine(found: Sequence[PredictionErrors]) -> str:
    plain = next((one for one in found if one.is_plain), None)
    if plain is None or math.isnan(plain.machine):
        return ""
    return f" Tokens/s of plain decoding: predicted {_high_or_low(plain.errors['tokens_per_s'])}."


def _high_or_low(error: RelativeError) -> str:
    """``1.6 % high [0.4, 2.8]``; the interval is turned round where the prediction was too low."""
    sign = 1 if error.value >= 0 else -1
    ends = sorted(100 * sign * end for end in (error.interval.low, error.interval.high))
    interval = "" if math.isnan(error.interval.low) else f" [{_percent(ends[0])}, {_percent(ends[1])}]"
    return f"{_percent(100 * abs(error.value))} % {'high' if sign > 0 else 'low'}{interval}"


def _percent(value: float) -> str:
    return f"{value:.1f}".replace("-0.0", "0.0")


def _cells(one: PredictionErrors) -> list[str]:
    parts = ["-" if math.isnan(part) or one.is_plain else f"{100 * part:+.1f}" for part in one.parts.values()]
    speedup = "-" if one.is_plain else _signed(one.errors["speedup"])
    return [one.policy, speedup, *parts, _signed(one.errors["tokens_per_s"]), _signed(one.errors["acceptance_length"])]


def _signed(error: RelativeError) -> str:
    if math.isnan(error.value):
        return "-"
    low, high = error.interval.low, error.interval.high
    interval = "" if math.isnan(low) or low == high else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{100 * error.value:+.1f}{interval}"
