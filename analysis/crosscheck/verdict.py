"""The verdict of a crosscheck, from the finest level that the engine tells."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simlab.analysis.crosscheck.rounds import ComparedLengths, ComparedText, percent_off
from simlab.analysis.engines.answers import ServerCounters

CONFIRMED, TIES = "confirmed", "confirmed up to ties"
LENGTHS_AGREE, LENGTHS_DIFFER = "lengths agree", "lengths differ"
ROUNDS_DIFFER, TEXTS_DIFFER = "rounds differ", "texts differ"
GOOD = (CONFIRMED, TIES, LENGTHS_AGREE)
"""What leaves with exit code 0."""

ROUNDS, REQUESTS, COUNTERS = "rounds", "requests", "counters"
LEVELS = {
    ROUNDS: "every round of every request",
    REQUESTS: "the number of rounds of every request; a difference of few rounds stays unseen",
    COUNTERS: "counts over all requests; a difference of few rounds stays unseen",
}
"""What each level sees, the finest first."""

_FEWEST_SHARE = 0.01
"""Lengths of counts, which have no interval, agree within this share."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a crosscheck came to.

    Attributes:
        name: one of the names above.
        level: the finest that the engine told.
        reason: in a sentence without a full stop.
    """

    name: str
    level: str
    reason: str

    @property
    def is_good(self) -> bool:
        """Whether the engine did what was predicted."""
        return self.name in GOOD


def level_of(texts: Sequence[ComparedText]) -> str:
    """The finest level at which every text can be compared."""
    if texts and all(text.num_compared or text.num_predicted == 0 or text.parting == 0 for text in texts):
        return ROUNDS
    return REQUESTS if texts and all(text.num_rounds is not None for text in texts) else COUNTERS


def verdict_of(
    texts: Sequence[ComparedText],
    lengths: ComparedLengths | None,
    counters: ServerCounters | None,
    predicted: ServerCounters,
) -> Verdict:
    """The verdict on an engine, from all that it told.

    Args:
        texts: answers beside their texts.
        lengths: of these; None where the engine told no rounds of single requests.
        counters: the server's, of these requests alone; None where they are not known.
        predicted: of these requests.
    """
    level = level_of(texts)
    parted = [text for text in texts if text.parting is not None]
    foreign = [text for text in parted if not text.is_tie]
    if foreign:
        first = foreign[0]
        return Verdict(TEXTS_DIFFER, level, _parted(first, len(foreign), len(texts)))
    if level == ROUNDS:
        return _by_rounds(texts, parted, lengths)
    if level == REQUESTS and lengths is not None:
        return _by_lengths(level, lengths, parted)
    return _by_counters(counters, predicted, parted)


def _by_rounds(
    texts: Sequence[ComparedText], parted: Sequence[ComparedText], lengths: ComparedLengths | None
) -> Verdict:
    differences = [(text, difference) for text in texts for difference in text.differences]
    num = sum(text.num_compared for text in texts)
    wrong = [(text, difference) for text, difference in differences if not difference.is_tie]
    if wrong:
        text, difference = wrong[0]
        return Verdict(
            ROUNDS_DIFFER,
            ROUNDS,
            f"{len(differences):,} of {num:,} rounds ended otherwise than the trace predicts at the same root, "
            f"{len(wrong):,} of them by no tie; the first in {text.recorded.name} at token {difference.root}: the "
            f"engine kept {difference.accepted} drafted tokens, predicted were {difference.predicted}",
        )
    if not differences and not parted:
        return Verdict(CONFIRMED, ROUNDS, f"all {len(texts):,} texts and all {num:,} rounds are as predicted")
    if lengths is not None and not lengths.agrees and not math.isnan(lengths.error.interval.low):
        return Verdict(
            LENGTHS_DIFFER,
            ROUNDS,
            f"single rounds part at close calls alone, but {_off(lengths)}",
        )
    return Verdict(
        TIES,
        ROUNDS,
        f"{len(parted):,} of {len(texts):,} texts and {len(differences):,} of {num:,} rounds before that part, all at "
        "close calls",
    )


def _by_lengths(level: str, lengths: ComparedLengths, parted: Sequence[ComparedText]) -> Verdict:
    if lengths.all_equal and not parted:
        return Verdict(CONFIRMED, level, "every text has as many rounds as predicted")
    if lengths.agrees:
        return Verdict(
            LENGTHS_AGREE, level, f"the acceptance length is {percent_off(lengths.error, ' %')} from the predicted one"
        )
    if math.isnan(lengths.error.interval.low):
        return Verdict(LENGTHS_DIFFER, level, "one prompt allows no interval, and its number of rounds is another one")
    return Verdict(
        LENGTHS_DIFFER, level, f"the acceptance length is {percent_off(lengths.error, ' %')} from the predicted one"
    )


def _by_counters(counters: ServerCounters | None, predicted: ServerCounters, parted: Sequence[ComparedText]) -> Verdict:
    length, expected = None if counters is None else counters.acceptance_length, predicted.acceptance_length
    if counters is None or length is None or expected is None:
        return Verdict(LENGTHS_DIFFER, COUNTERS, "the engine reported nothing of its rounds that could be compared")
    if not parted and counts_equal(counters, predicted):
        return Verdict(CONFIRMED, COUNTERS, "every count is as predicted")
    off = expected / length - 1
    name = LENGTHS_AGREE if abs(off) <= _FEWEST_SHARE else LENGTHS_DIFFER
    return Verdict(
        name,
        COUNTERS,
        f"the engine's acceptance length is {length:.4f}, the predicted one {expected:.4f} "
        f"({100 * off:+.2f} %; counts allow no interval)",
    )


def counts_equal(counters: ServerCounters, predicted: ServerCounters) -> bool:
    """Whether every count that is reported is the predicted one; accepted tokens only where these are exact."""
    names = ["num_rounds", "num_drafted", "num_tokens", "num_requests"]
    names += ["num_accepted", "accepted_at"] if predicted.num_open == 0 else []
    known = [name for name in names if getattr(counters, name) is not None]
    return "num_rounds" in known and all(getattr(counters, name) == getattr(predicted, name) for name in known)


def _parted(text: ComparedText, num: int, num_texts: int) -> str:
    assert text.parting is not None
    first = f"{text.recorded.name}, at token {text.parting}"
    begin = f"{num:,} of {num_texts:,} texts part by no close call; the first, {first}"
    if math.isnan(text.gap):
        return f"{begin}, where the recorded text ends"
    if text.parting >= text.num_tokens:
        return f"{begin}, where the engine's text ends"
    return f"{begin}, where the target's two best tokens are {text.gap:.3g} logits apart"


def _off(lengths: ComparedLengths) -> str:
    return f"the acceptance length is {percent_off(lengths.error, ' %')} from the predicted one"
