"""A router among any policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.routing.cut_rule import ENTROPY, CutRule, parse_cuts
from simlab.policies.routing.recipe import RoutedRecipe
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import AnyPolicy


@dataclass(frozen=True)
class Router(RoutedRecipe):
    """Each round one of several policies, chosen before anything is drafted by one number and where it is cut.

    ``routes`` are policies as they are typed, with | between them; ``ar`` is a round without a draft. ``by`` is the
    number: ``entropy`` of the target's law that the root was chosen from, in nats; drafted tokens that the round before
    ``accepted``; or tokens of the ``context``. A number above none of the ``cuts`` takes the first route, one above the
    first cut alone the second. A round pays for its own route. Routes remember nothing.
    """

    routes: str
    by: str = ENTROPY
    cuts: str = ""

    source: ClassVar[str] = "simlab, after WhiFlash 2026, arXiv 2606.07710"
    exactness: ClassVar[str] = "exact (by definition)"
    reads: ClassVar[str] = "what its routes read; by entropy the target's rows"
    variants: ClassVar[tuple[str, ...]] = (
        'routes="ddtree:budget=16|ar",by=entropy,cuts=1.5',
        'routes="ar|chain|ddtree:budget=16",by=accepted,cuts="0|3"',
        'routes="ddtree:budget=16|chain:length=3",by=context,cuts=64',
    )

    def __post_init__(self) -> None:
        CutRule(self.by, parse_cuts(self.cuts))

    @property
    def typed_routes(self) -> tuple[str, ...]:
        """What stands between the bars."""
        return tuple(self.routes.split("|"))

    def among(self, routes: Sequence[AnyPolicy], route_ids: Mapping[str, str]) -> RoutedPolicy:
        """The rule of these cuts."""
        return RoutedPolicy(tuple(routes), CutRule(self.by, parse_cuts(self.cuts)), route_ids)
