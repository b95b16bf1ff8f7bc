"""Which route serves a round: one number that is known before anything is drafted, and where it is cut."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs, read_only
from simlab.channels import FEATURES, TARGET, FeatureRows, Features, TargetLaw, TargetLawRows
from simlab.cost import STAGES, CostTable
from simlab.draft import Draft
from simlab.errors import MissingChannelError
from simlab.policy import TARGET_LAW, AnyPolicy, ChannelNeed, Needs
from simlab.recorded import RecordedTexts

# Which route serves a round: the one of which a network expects most tokens, for the seconds that it takes.


NETWORK = "network"
"""What a route is chosen by where a network says how many tokens each would bring."""


@dataclass(frozen=True, slots=True, eq=False)
class RouteSeconds:
    """What a round by each route takes at its usual size, by context.

    Attributes:
        contexts: int64 ``[C]``, ascending.
        seconds: float64 ``[C, K]``, a column for each route.
    """

    contexts: Longs
    seconds: Doubles

    def at(self, contexts: Longs) -> Doubles:
        """Seconds at some contexts, float64 ``[R, K]``; linear between those measured, constant outside."""
        return np.stack([np.interp(contexts, self.contexts, column) for column in self.seconds.T], axis=-1)


def route_seconds(cost: CostTable, routes: Sequence[AnyPolicy], sizes: Sequence[int]) -> RouteSeconds:
    """What rounds of some routes take with so many drafted tokens; no catching up."""
    columns = []
    for route, size in zip(routes, sizes, strict=True):
        if size > cost.most_drafted:
            raise ValueError(
                f"{route!r} drafts up to {size} tokens, and {cost.label} ends at {cost.most_drafted}; "
                f"lower its budget, or {cost.how_to_reach()}"
            )
        charged, paid = cost.charged(route), STAGES if route.needs.draft else STAGES[1:]
        columns.append(sum(charged.seconds[stage][:, size] for stage in paid))
    return RouteSeconds(cost.contexts, read_only(np.stack(columns, axis=-1).astype(np.float64)))


@dataclass(frozen=True, slots=True, eq=False)
class NetworkRule:
    """The route of the largest A / T^beta, or, where a rate is given, of the largest A - rate x T.

    A is how many tokens a round by the route is expected to add, by the network; T are its seconds. Of equal routes it
    is the first. The first form is WhiFlash's (2026, arXiv 2606.07710) as far as it is known; the second is simlab's:
    tokens less what seconds are worth at a rate, see `simlab.policies.named.price`.

    Attributes:
        channel: that says A, one number for each route.
        routes: as they are typed; the network must have been trained for these.
        seconds: T, of each route.
        beta: from 0, seconds do not count, to 1, tokens per second.
        rate: tokens per second; None: beta decides.
    """

    channel: str
    routes: tuple[str, ...]
    seconds: RouteSeconds
    beta: float = 1.0
    rate: float | None = None

    def __post_init__(self) -> None:
        check_weights(self.beta, self.rate)

    @property
    def needs(self) -> Needs:
        """The network's numbers; no drafter."""
        return Needs(draft=False, channels=(ChannelNeed(self.channel, FEATURES, trained_for="|".join(self.routes)),))

    def check(self, num_routes: int) -> None:
        """Refuse another number of routes than there are numbers of seconds."""
        if {num_routes} != {len(self.routes), self.seconds.seconds.shape[1]}:
            raise ValueError(f"{num_routes} routes want as many names and seconds; got {len(self.routes)} names")

    def route(self, draft: Draft, accepted: int) -> int:
        """The route of one round; ``accepted`` is not read."""
        features = draft.channel(self.channel)
        assert isinstance(features, Features)
        return int(self._routes(features.values[None], np.array([draft.context_length]))[0])

    def routes_of(self, texts: RecordedTexts, most_accepted: int) -> Ints:
        """The routes at all roots of some texts, int32 ``[R, 1]``; ``most_accepted`` is not read."""
        features = texts.channels.get(self.channel)
        if not isinstance(features, FeatureRows):
            raise MissingChannelError(
                f"the router reads the features {self.channel}, and these texts were read without them; read them with "
                f"the texts, recorded_texts(..., channels=[{self.channel!r}])"
            )
        return self._routes(features.values, texts.contexts)[:, None]

    def _routes(self, values: Floats, contexts: Longs) -> Ints:
        if values.shape[1] != len(self.routes):
            raise ValueError(f"{len(self.routes)} routes want as many features {self.channel}; got {values.shape[1]}")
        tokens, seconds = values.astype(np.float64), self.seconds.at(contexts)
        worth = tokens / seconds**self.beta if self.rate is None else tokens - self.rate * seconds
        return np.asarray(worth.argmax(axis=1), np.int32)


def check_weights(beta: float, rate: float | None) -> None:
    """Refuse how seconds cannot count."""
    if not 0 <= beta <= 1:
        raise ValueError(f"beta is from 0, seconds do not count, to 1, tokens per second; got {beta:g}")
    if rate is not None and not 0 <= rate < float("inf"):
        raise ValueError(f"rate must be tokens per second, at least 0; got {rate:g}")


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
        return self.route_at(number)

    def route_at(self, number: float) -> int:
        """The route at one number of the kind that ``by`` names."""
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
        return tuple(float(cut) for cut in text.split("|")) if text else ()
    except ValueError as error:
        raise ValueError(f"cuts are numbers with | between them, such as 0.5|2; got {text}") from error
