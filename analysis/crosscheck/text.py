"""A crosscheck and a reading of metrics as people read them."""

import math
from collections.abc import Sequence

from simlab.analysis.crosscheck.drift import ALL_KEPT, FIRST, LENGTH, NONE_KEPT, DriftFigure, suspicion
from simlab.analysis.crosscheck.rounds import ComparedLengths, ComparedText, percent_off
from simlab.analysis.crosscheck.verdict import LEVELS, ROUNDS, Verdict
from simlab.analysis.engines.answers import COUNTS, ServerCounters
from simlab.analysis.statistics.intervals import Interval, rough_intervals
from simlab.analysis.table.text import aligned, number

MOST_SHOWN = 20
"""Texts that are listed where rounds or texts part; all are in the JSON."""


def verdict_text(verdict: Verdict) -> str:
    """The verdict and its reason, and what its level sees."""
    return f"{verdict.name.upper()}: {verdict.reason}.\nCompared: {verdict.level} ({LEVELS[verdict.level]})."


def lengths_text(lengths: ComparedLengths | None) -> str:
    """Acceptance lengths with their intervals; empty where the engine told no rounds."""
    if lengths is None:
        return ""
    heads = ["acceptance length", "engine", "[95 %]", "trace", "[95 %]", "trace over engine, %"]
    shown = "exact" if lengths.all_equal else percent_off(lengths.error)
    row = [
        f"{lengths.num_prompts:,} prompts",
        f"{lengths.measured:v4}",
        f"{lengths.measured:i4}",
        f"{lengths.predicted:v4}",
        f"{lengths.predicted:i4}",
        shown,
    ]
    lengths_text = aligned([heads, row], [True, False, True, False, True, True])
    return "\n".join([lengths_text, *rough_intervals(lengths.num_prompts)])


def counters_text(counters: ServerCounters | None, predicted: ServerCounters, no_latency_reason: str) -> str:
    """The server's counts beside those that are predicted; or why there are none."""
    if counters is None:
        return f"Counters: {no_latency_reason}" if no_latency_reason else ""
    rows = [["counters of the server", "engine", "trace"]]
    for name in ("num_requests", "num_tokens", "num_rounds", "num_drafted", "num_accepted"):
        counted, own = getattr(counters, name), getattr(predicted, name)
        rows.append([COUNTS[name][1], "-" if counted is None else f"{counted:,}", f"{own:,}"])
    predicted_at = dict(enumerate(predicted.accepted_at or ()))
    for position, times in enumerate(counters.accepted_at or ()):
        rows.append([f"  at position {position + 1}", f"{times:,}", f"{predicted_at.get(position, 0):,}"])
    table = aligned(rows, [True, False, False])
    if predicted.num_open:
        table += (
            f"\nThe recorded texts end within {predicted.num_open:,} of these rounds, and an engine counts accepted "
            "tokens behind the end too:\nit may have more. With --exact-counters every count is predicted."
        )
    return table


def differences_text(texts: Sequence[ComparedText]) -> str:
    """Where texts part, and the first round of each text that ended differently; empty where none does."""
    rows = [
        ["text", "parts at token", "logits apart", "first other round", "kept", "predicted", "nats apart", "rounds"]
    ]
    differing = [text for text in texts if text.parting is not None or text.differences]
    for text in differing[:MOST_SHOWN]:
        cells = ["-"] * 4
        if text.differences:
            first = text.differences[0]
            where = f"{first.root}{' (tie)' if first.is_tie else ''}"
            cells = [where, str(first.accepted), str(first.predicted), f"{first.margin:.3g}"]
        parting = "-" if text.parting is None else f"{text.parting}{' (tie)' if text.is_tie else ''}"
        rows.append(
            [text.recorded.name, parting, number(text.gap, 3), *cells, f"{text.num_equal} of {text.num_compared}"]
        )
    if not differing:
        return ""
    more = f"\nand {len(differing) - MOST_SHOWN:,} more texts, which --json has" if len(differing) > MOST_SHOWN else ""
    return aligned(rows, [True, *[False] * 7]) + more


def crosscheck_notes(level: str, per_round: str, texts: Sequence[ComparedText]) -> list[str]:
    """What to know beside the tables, a sentence each."""
    notes = [
        "Acceptance length: tokens a round, bonus token included, without the prefill's token; [95 %] over prompts."
    ]
    short = sum(text.num_short for text in texts)
    if short:
        notes.append(
            f"{short:,} rounds drafted fewer tokens than the others and are compared with as many: the server cuts "
            "drafts, at the longest text that it allows or by a schedule of its own."
        )
    if level != ROUNDS and per_round:
        notes.append(f"The engine reports every round if it is started with `{per_round}`.")
    return notes


def drift_text(figures: Sequence[DriftFigure]) -> str:
    """The figures of a server beside the trace's."""
    heads = ["figure", "server", "trace", "server over trace, % [95 %]", "p (Holm)", ""]
    rows = [
        [
            figure.name,
            number(figure.measured, 4 if figure.name == LENGTH else 3),
            number(figure.predicted, 4 if figure.name == LENGTH else 3),
            f"{100 * (figure.ratio - 1):+.1f}{_percent(figure.interval)}",
            "-" if math.isnan(figure.p_value) else f"{figure.p_value:.2g}",
            "differs" if figure.differs else "",
        ]
        for figure in figures
    ]
    return aligned([heads, *rows], [True, False, False, True, False, True])


def drift_sentence(figures: Sequence[DriftFigure], k: int) -> str:
    """Whether the traffic is the trace's, in a sentence.

    Args:
        figures: of the server, the acceptance length first.
        k: drafted tokens of a round.
    """
    if not figures:
        return "The counts have no acceptance length, so nothing is compared."
    differing = [figure for figure in figures if figure.differs]
    length = figures[0]
    doubt = suspicion(figures, k)
    if doubt == NONE_KEPT:
        first = next((figure for figure in figures if figure.name == FIRST), None)
        kept = (
            f"{length.measured - 1:.2g} drafted tokens are kept a round where the trace keeps "
            f"{length.predicted - 1:.2f}"
            if first is None
            else f"of first drafted tokens {100 * first.measured:.2g} % are kept where the trace keeps "
            f"{100 * first.predicted:.1f} %"
        )
        return (
            f"NO ACCEPTANCE: {kept}. No traffic does that; a drafter that was not loaded, or is wired wrongly, does. "
            "Look at the drafter's head (loaded, or at its start values), the target's layers that it reads "
            "(taps), its vocabulary, and the format of a quantised one; `simlab crosscheck` shows where rounds part."
        )
    if doubt == ALL_KEPT:
        return (
            f"NEARLY ALL KEPT: {length.measured - 1:.2f} of {k} drafted tokens are kept a round where the trace keeps "
            f"{length.predicted - 1:.2f}. Texts that repeat themselves (loops) do that; read some of the server's "
            "answers before you believe the figure."
        )
    if differing:
        names, verb = ", ".join(figure.name for figure in differing), "differ" if len(differing) > 1 else "differs"
        return (
            f"DRIFT: this traffic is not the trace's: {names} {verb} beyond what so many prompts and requests explain; "
            "record a trace of prompts like the server's."
        )
    if math.isnan(length.p_value):
        return "No verdict: one prompt allows no interval."
    ends = (
        "" if math.isnan(length.interval.low) else f" [{_change(length.interval.low)}, {_change(length.interval.high)}]"
    )
    return (
        f"No drift detected (acceptance length {100 * (length.ratio - 1):+.1f} %{ends}; minimum detectable difference "
        f"{_change(length.detectable)} %)."
    )


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):.1f}"


def _percent(interval: Interval) -> str:
    if math.isnan(interval.low):
        return ""
    return f" [{100 * (interval.low - 1):+.2f}, {100 * (interval.high - 1):+.2f}]"
