"""An engine's rounds and acceptance lengths beside the trace's.

Rounds are compared up to where the texts part: behind that they answer different questions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.crosscheck.predicted import PredictedText
from simlab.analysis.engines.answers import EngineAnswer, EngineError
from simlab.analysis.statistics.intervals import UNKNOWN, ratio_interval, speedup_interval
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import is_known


@dataclass(frozen=True, slots=True)
class RoundDifference:
    """A round that ended differently.

    Attributes:
        root: its place in the text.
        accepted: by the engine.
        predicted: by the trace.
        margin: nats by which the drafter preferred its recorded token where the two drafts part.
        is_tie: whether that is a close call.
    """

    root: int
    accepted: int
    predicted: int
    margin: float
    is_tie: bool


@dataclass(frozen=True, slots=True)
class ComparedText:
    """One answer beside its recorded text.

    Attributes:
        recorded: the text as it was recorded, and what is predicted of it.
        num_tokens: that the engine wrote.
        parting: the first place where the texts differ, or where one ends; None: nowhere, as far as tokens are known.
        gap: logits between the target's two best tokens there; nan where the recorded text has ended.
        is_tie: whether the parting is a close call.
        ended: root, tokens that the engine kept, tokens that the trace predicts, and how many could be kept, of each
            round that was held against the trace.
        differences: those that ended differently.
        num_short: rounds that drafted fewer than k.
        num_rounds: of the engine; None where it did not tell.
        num_predicted: rounds on the recorded text, or on as much of it as was asked for.
        num_predicted_tokens: of that.
    """

    recorded: PredictedText
    num_tokens: int
    parting: int | None
    gap: float
    is_tie: bool
    ended: tuple[tuple[int, int, int, int], ...]
    differences: tuple[RoundDifference, ...]
    num_short: int
    num_rounds: int | None
    num_predicted: int
    num_predicted_tokens: int

    @property
    def num_compared(self) -> int:
        """Rounds that were held against the trace."""
        return len(self.ended)

    @property
    def num_equal(self) -> int:
        """Rounds that ended as predicted."""
        return self.num_compared - len(self.differences)


def compared_text(text: PredictedText, answer: EngineAnswer, asked: int, ties: float) -> ComparedText:
    """Hold one answer against its text.

    Args:
        text: what was recorded.
        answer: the engine's.
        asked: new tokens that the request allowed.
        ties: how close a choice is that another arithmetic may make differently: logits between the target's two best
            tokens, or nats between the drafter's.

    Raises:
        EngineError: the engine's rounds do not make up its text.
    """
    written = min(len(text), asked)
    parting = _parting(text, answer, written)
    gap = float(text.gaps[parting]) if parting is not None and parting < len(text) else float("nan")
    ended, num_short = _rounds(text, answer, parting)
    return ComparedText(
        recorded=text,
        num_tokens=answer.num_tokens,
        parting=parting,
        gap=gap,
        is_tie=parting is not None and gap <= ties,
        ended=ended,
        differences=tuple(_difference(text, *entry[:3], ties) for entry in ended if entry[1] != entry[2]),
        num_short=num_short,
        num_rounds=len(answer.accepted) if answer.accepted is not None else answer.num_rounds,
        num_predicted=len(text.rounds(written)),
        num_predicted_tokens=written,
    )


def _parting(text: PredictedText, answer: EngineAnswer, written: int) -> int | None:
    if answer.token_ids is None:
        return None if answer.num_tokens == written else min(answer.num_tokens, written)
    ids = np.array(answer.token_ids, np.int64)
    shared = min(len(ids), written)
    differs = np.flatnonzero(ids[:shared] != text.text[:shared])
    if len(differs):
        return int(differs[0])
    return None if len(ids) == written else shared


def _rounds(
    text: PredictedText, answer: EngineAnswer, parting: int | None
) -> tuple[tuple[tuple[int, int, int, int], ...], int]:
    if answer.accepted is None or answer.token_ids is None:
        return (), 0
    drafted = answer.drafted or (text.k,) * len(answer.accepted)
    if len(drafted) != len(answer.accepted):
        raise EngineError(
            f"the answer to {text.name} tells {len(answer.accepted)} rounds by accepted and {len(drafted)} by drafted "
            "tokens; expected as many"
        )
    known = len(text) if parting is None else min(parting, len(text))
    root, num_short, ended = 0, 0, list[tuple[int, int, int, int]]()
    for kept, asked in zip(answer.accepted, drafted, strict=True):
        if kept > asked or asked > text.k:
            raise EngineError(
                f"the answer to {text.name} tells a round of {asked} drafted tokens of which {kept} were kept; the "
                f"trace drafts {text.k}"
            )
        if root < known - 1:
            num_short += asked < text.k
            reach = min(known - 1 - root, asked)
            ended.append((root, min(kept, reach), min(int(text.accepted[root]), reach), reach))
        root += kept + 1
    if root < answer.num_tokens - 1:
        raise EngineError(
            f"the rounds of the answer to {text.name} make up {root + 1} of its {answer.num_tokens} tokens: some "
            "passes had no draft, or the answer is of several parts; serve with speculation on for every request"
        )
    return tuple(ended), num_short


def _difference(text: PredictedText, root: int, kept: int, predicted: int, ties: float) -> RoundDifference:
    depth = min(kept, predicted) + 1
    # Fewer were kept than predicted: the engine's token there is some other one. More: it is the text's own.
    token = None if kept < predicted else int(text.text[root + depth])
    margin = text.margin(root, depth, token)
    return RoundDifference(root, kept, predicted, margin, margin <= ties)


# Acceptance lengths of an engine beside those that a trace predicts, paired by prompt.


@dataclass(frozen=True, slots=True)
class ComparedLengths:
    """Pooled acceptance lengths of engine and trace.

    Attributes:
        num_prompts: that the intervals are over.
        measured: the engine's, tokens a round without the prefills' tokens.
        predicted: of the recorded texts.
        error: predicted over measured, paired by prompt; above 1 the trace predicted more.
        all_equal: whether every text has as many rounds and tokens as predicted.
    """

    num_prompts: int
    measured: Estimate
    predicted: Estimate
    error: Estimate
    all_equal: bool

    @property
    def agrees(self) -> bool:
        """Whether they are equal, or their interval holds 1."""
        return self.all_equal or self.error.interval.low <= 1 <= self.error.interval.high

    def to_json(self) -> dict[str, object]:
        """All of it; null: not known."""
        return {
            "prompts": self.num_prompts,
            **self.measured.row("engine", digits=None),
            **self.predicted.row("trace", digits=None),
            **self.error.row("trace_over_engine", digits=None),
        }


def percent_off(ratio: Estimate, unit: str = "") -> str:
    """How far a ratio is from 1, in per cent, with its interval where that is known; empty where the ratio is not."""
    low, high = ratio.interval.low, ratio.interval.high
    ends = f" [{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}]" if is_known(ratio.interval) else ""
    return "" if math.isnan(ratio.value) else f"{100 * (ratio.value - 1):+.2f}{unit}{ends}"


def compared_lengths(texts: Sequence[ComparedText]) -> ComparedLengths | None:
    """Both lengths over texts of which the engine told its rounds; None: it told those of none."""
    known = [
        text for text in texts if text.num_rounds is not None and text.num_tokens > 1 and text.num_predicted_tokens > 1
    ]
    if not known:
        return None
    names = sorted({text.recorded.prompt for text in known})
    sums = np.zeros((len(names), 4))
    for text in known:
        assert text.num_rounds is not None
        sums[names.index(text.recorded.prompt)] += (
            text.num_tokens - 1,
            text.num_rounds,
            text.num_predicted_tokens - 1,
            text.num_predicted,
        )
    tokens, rounds, predicted_tokens, predicted_rounds = sums.T
    measured, predicted = tokens.sum() / rounds.sum(), predicted_tokens.sum() / predicted_rounds.sum()
    equal = all((text.num_tokens, text.num_rounds) == (text.num_predicted_tokens, text.num_predicted) for text in known)
    error = speedup_interval(predicted_tokens, predicted_rounds, tokens, rounds)
    return ComparedLengths(
        num_prompts=len(names),
        measured=Estimate(float(measured), ratio_interval(tokens, rounds)),
        predicted=Estimate(float(predicted), ratio_interval(predicted_tokens, predicted_rounds)),
        error=Estimate(float(predicted / measured), UNKNOWN if equal else error),
        all_equal=equal,
    )
