"""Which route serves a round: one number that is known before anything is drafted, and where it is cut."""

import math
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles, Ints
from simlab.channels import TARGET, TargetLaw, TargetLawRows
from simlab.draft import Draft
from simlab.errors import MissingChannelError
from simlab.policy import TARGET_LAW, Needs
from simlab.recorded import RecordedTexts

ENTROPY, ACCEPTED, CONTEXT = NUMBERS = ("entropy", "accepted", "context")
"""What a route may be chosen by: the entropy of the target's law that the root was chosen from, in nats; how many
drafted tokens the round before accepted; tokens before the root."""

NO_ROUND = -1
"""Accepted tokens before the first round: below every cut that means something."""


@dataclass(frozen=True, slots=True)
class CutRule:
    """As many cuts as a number is above, so many routes are passed over.

    Attributes:
        by: one of `NUMBERS`.
        cuts: rising; one fewer than there are routes.
    """

    by: str
    cuts: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.by not in NUMBERS:
            raise ValueError(f"routes are chosen by {', '.join(NUMBERS[:-1])} or {NUMBERS[-1]}; got by={self.by}")
        if any(math.isnan(cut) for cut in self.cuts) or any(np.diff(self.cuts) <= 0):
            raise ValueError(f"cuts must be numbers that rise; got {'|'.join(f'{cut:g}' for cut in self.cuts)}")

    @property
    def needs(self) -> Needs:
        """The target's law where its entropy is read; no drafter."""
        return Needs(draft=False, channels=(TARGET_LAW,) if self.by == ENTROPY else ())

    def route(self, draft: Draft, accepted: int) -> int:
        """The route of one round.

        Args:
            draft: of the round; no candidate is read.
            accepted: drafted tokens that the round before accepted, or `NO_ROUND`.
        """
        number: float = accepted if self.by == ACCEPTED else draft.context_length
        if self.by == ENTROPY:
            law = draft.channel(TARGET)
            assert isinstance(law, TargetLaw)
            number = law.entropy
        return int(self._routes(np.array([number], np.float64))[0])

    def check(self, num_routes: int) -> None:
        """Refuse another number of routes than these cuts tell apart."""
        if len(self.cuts) != num_routes - 1:
            raise ValueError(f"{num_routes} routes are told apart by {num_routes - 1} cuts; got {len(self.cuts)}")

    def routes_of(self, texts: RecordedTexts, most_accepted: int) -> Ints:
        """The routes at all roots of some texts, as `simlab.policies.routing.routed_policy.RouteRule.routes_of`."""
        if self.by == ACCEPTED:
            return self._routes(np.arange(NO_ROUND, most_accepted + 1, dtype=np.float64))[None]
        if self.by == CONTEXT:
            return self._routes(texts.contexts.astype(np.float64))[:, None]
        law = texts.channels.get(TARGET)
        if not isinstance(law, TargetLawRows):
            raise MissingChannelError(
                "the router reads the target's entropy, and these texts were read without it; read it with them, "
                f"recorded_texts(..., channels=[{TARGET!r}])"
            )
        return self._routes(law.entropies.astype(np.float64))[:, None]

    def _routes(self, numbers: Doubles) -> Ints:
        return np.searchsorted(np.array(self.cuts, np.float64), numbers, side="left").astype(np.int32)


def some_rule(num_routes: int) -> CutRule:
    """A rule among so many routes, for routers of which the routes alone matter."""
    return CutRule(CONTEXT, tuple(map(float, range(1, num_routes))))


def parse_cuts(text: str) -> tuple[float, ...]:
    """Cuts as they are typed, ``0.5|2``; ``inf`` and ``-inf`` are numbers here.

    Raises:
        ValueError: one is no number.
    """
    try:
        return tuple(float(one) for one in text.split("|")) if text else ()
    except ValueError as error:
        raise ValueError(f"cuts are numbers with | between them, such as 0.5|2; got {text}") from error
