"""A router among any policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simlab.cost import CostTable
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.named.chain import most_drafted
from simlab.policies.routing.cut_rule import (
    ENTROPY,
    NETWORK,
    CutRule,
    NetworkRule,
    RouteSeconds,
    check_weights,
    parse_cuts,
    route_seconds,
)
from simlab.policies.routing.routed_policy import RoutedPolicy, RoutedRecipe
from simlab.policy import AnyPolicy


@dataclass(frozen=True)
class Router(RoutedRecipe):
    """Each round one of several policies, chosen before anything is drafted by one number and where it is cut.

    ``routes`` are policies as they are typed, with | between them; ``ar`` is a round without a draft. ``by`` is the
    number: ``entropy`` of the target's law that the root was chosen from, in nats; drafted tokens that the round before
    ``accepted``; or tokens of the ``context``. A number above none of the ``cuts`` takes the first route, one above the
    first cut alone the second. ``by=network`` is no number: the ``channel`` of a network says how many tokens A each
    route would bring, and the route of the largest A / T^``beta`` is taken, T its seconds by the latency profile, or
    with a ``rate`` in tokens per second that of the largest A - rate T. A round pays for its own route. Routes remember
    nothing. By ``accepted``, ``ar`` may not serve the rounds behind one that accepted 0: it would serve all the rest.
    """

    routes: str
    by: str = ENTROPY
    cuts: str = ""
    channel: str = "router"
    beta: float = 1.0
    rate: float | None = None
    cost: str = AUTO

    source = "simlab, after WhiFlash 2026, arXiv 2606.07710"
    exactness = "exact (by definition)"
    reads = "what its routes read; by entropy the target's rows; by network its channel and a latency profile"
    variants = (
        'routes="ddtree:budget=16|ar",by=entropy,cuts=1.5',
        'routes="ar|chain|ddtree:budget=16",by=accepted,cuts="-1|3"',
        'routes="ddtree:budget=16|chain:length=3",by=context,cuts=64',
        'routes="ddtree:budget=16|chain:length=3|ar",by=network,channel=router-three,beta=0.5',
    )

    def __post_init__(self) -> None:
        if self.by != NETWORK:
            CutRule(self.by, parse_cuts(self.cuts))
        elif self.cuts:
            raise ValueError(f"by={NETWORK} has no cuts; leave cuts out")
        check_weights(self.beta, self.rate)

    @property
    def typed_routes(self) -> tuple[str, ...]:
        """What stands between the bars."""
        return tuple(route.strip() for route in self.routes.split("|"))

    def among(self, routes: Sequence[AnyPolicy], route_ids: Mapping[str, str], artefacts: Artefacts) -> RoutedPolicy:
        """The rule of these cuts, or of a network."""
        if self.by != NETWORK:
            return RoutedPolicy(tuple(routes), CutRule(self.by, parse_cuts(self.cuts)), route_ids)
        cost, cost_id = artefacts.cost(self.cost)
        seconds = seconds_of_largest(cost, routes)
        rule = NetworkRule(self.channel, self.typed_routes, seconds, self.beta, self.rate)
        return RoutedPolicy(tuple(routes), rule, {**route_ids, "cost": cost_id})


def seconds_of_largest(cost: CostTable, routes: Sequence[AnyPolicy]) -> RouteSeconds:
    """What rounds of some routes take with trees as large as each may draft, a chain as deep as the timed block."""
    return route_seconds(cost, routes, [most_drafted(route.budget, cost.block_size - 1) for route in routes])
