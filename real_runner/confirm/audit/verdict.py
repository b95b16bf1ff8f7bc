"""The verdict on a text: the target's own, but for ties, or not."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simlab.arrays import Doubles, Ints
from simlab.real_runner.confirm.audit.float32_audit import TextLosses
from simlab.real_runner.decoding.decoded import parting_of

Kind = Literal["exact", "ties", "FAILED"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a text, or the texts of a policy, are the target's own. Verdicts of texts add up.

    Attributes:
        kind: ``exact``: every token is the float32 choice, and the text is plain decoding's; ``ties``:
            some are not, all within the bound; ``FAILED``: one is beyond it, or the text does not end
            where it must.
        num_ties: tokens that are not the float32 choice, and texts that part from plain decoding's at
            a token that is.
        worst_gap: the largest loss, in units of a logit.
        bound: what a loss may be.
        fault: of a failure, what was found first.

    >>> str(Verdict("exact") + Verdict("ties", num_ties=2, worst_gap=0.01, bound=0.1))
    'ties(2)'
    """

    kind: Kind
    num_ties: int = 0
    worst_gap: float = 0.0
    bound: float = 0.0
    fault: str = ""

    def __post_init__(self) -> None:
        fits = {"exact": self.num_ties == 0, "ties": self.num_ties > 0, "FAILED": True}
        if not fits[self.kind] or bool(self.fault) != (self.kind == "FAILED"):
            raise ValueError(f"ties come with the kind 'ties', a fault with 'FAILED'; got {self!r}")

    def __add__(self, other: "Verdict") -> "Verdict":
        num_ties = self.num_ties + other.num_ties
        return _verdict(
            num_ties,
            max(self.worst_gap, other.worst_gap),
            max(self.bound, other.bound),
            self.fault or other.fault,
        )

    def __str__(self) -> str:
        return f"ties({self.num_ties})" if self.kind == "ties" else self.kind


def _verdict(num_ties: int, worst_gap: float, bound: float, fault: str) -> Verdict:
    kind: Kind = "FAILED" if fault else "ties" if num_ties else "exact"
    return Verdict(kind, num_ties, worst_gap, bound, fault)


def verdict_of(
    text: Ints,
    plain_text: Ints,
    audited: TextLosses,
    bound: float,
    stop_token_ids: Collection[int],
    max_new_tokens: int,
) -> Verdict:
    """The verdict on one text.

    Args:
        text: int32 ``[T]``.
        plain_text: int32, of plain decoding of the same prompt in the same dtype; for plain decoding
            itself its own.
        audited: of ``text``.
        bound: from `measured_bound`, the largest of some texts.
        stop_token_ids: of the target.
        max_new_tokens: the limit under which the text was made.
    """
    if not bound >= 0:
        raise ValueError(f"a bound is a number of at least 0; got {bound}")
    parting = parting_of(text, plain_text)
    num_ties = int((audited.tokens != text).sum())
    # Up to where they part the two texts meet the same law, so a text that keeps to the choice of
    # float32 there has been left by plain decoding.
    if parting is not None and (parting == len(text) or audited.tokens[parting] == text[parting]):
        num_ties += 1
    fault = _loss_fault(audited.losses, bound) or _end_fault(text, stop_token_ids, max_new_tokens)
    return _verdict(num_ties, float(audited.losses.max(initial=0.0)), bound, fault)


def _loss_fault(losses: Doubles, bound: float) -> str:
    beyond = np.flatnonzero(losses > bound)
    if not len(beyond):
        return ""
    place = int(beyond[0])
    return f"token {place} of the text loses by {losses[place]:.3g} against float32, and the bound is {bound:.3g}"


def _end_fault(text: Ints, stop_token_ids: Collection[int], max_new_tokens: int) -> str:
    if len(text) > max_new_tokens:
        return f"the text has {len(text)} tokens, and the limit is {max_new_tokens}"
    stops = np.flatnonzero(np.isin(text, list(stop_token_ids)))
    if len(stops) and stops[0] < len(text) - 1:
        return f"the text runs past its stop token, which is token {stops[0]} of {len(text)}"
    if not len(stops) and len(text) < max_new_tokens:
        return f"the text ends after {len(text)} tokens without a stop token; the limit is {max_new_tokens}"
    return ""
