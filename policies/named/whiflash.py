"""WhiFlash: an EAGLE-3 head where the target hesitates, a block drafter where it is sure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.named.router import seconds_of_largest
from simlab.policies.routing.cut_rule import ENTROPY, CutRule, NetworkRule, check_weights
from simlab.policies.routing.routed_policy import RoutedPolicy, RoutedRecipe
from simlab.policy import AnyPolicy


@dataclass(frozen=True)
class WhiFlash(RoutedRecipe):
    """The block drafter where the root's entropy is at most ``entropy`` nats, an EAGLE-3 head where it is above.

    Entropy is that of the target's law that the root was chosen from. ``sure`` and ``unsure`` are the two policies as
    they are typed: by default DFlash's chain and EAGLE-3's tree. The drafter that does not run catches up when it next
    does. Without ``entropy`` the channel ``network`` decides, of a router's network for these two: it takes the one of
    the larger A / T^``beta``, A the tokens that the network expects of it and T its seconds by the latency profile;
    with a ``rate`` in tokens per second that of the larger A - rate T, which is simlab's. Formulas, thresholds and
    network were not published; choose all of these on prompts that you do not report.
    """

    entropy: float | None = None
    network: str = "router"
    sure: str = "chain"
    unsure: str = "eagle3:budget=59"
    beta: float = 1.0
    rate: float | None = None
    cost: str = AUTO

    source = "WhiFlash 2026, arXiv 2606.07710"
    exactness = "reconstruction (from the abstract; its entropy policy and its network)"
    reads = "the target's rows or a network's channel and a latency profile, and what its two policies read"
    variants = (
        'entropy=1.0,sure="ddtree:budget=16",unsure="eagle3:budget=16,steps=3"',
        'entropy=0.5,unsure="eagle3:budget=24"',
        'network=router,beta=0.5,sure="ddtree:budget=16",unsure="ddtree:budget=4"',
        'network=router-chain,rate=40,unsure="ddtree:budget=8"',
    )

    def __post_init__(self) -> None:
        check_weights(self.beta, self.rate)

    @property
    def typed_routes(self) -> tuple[str, ...]:
        """The policy of low entropy, then that of high."""
        return self.sure, self.unsure

    def among(self, routes: Sequence[AnyPolicy], route_ids: Mapping[str, str], artefacts: Artefacts) -> RoutedPolicy:
        """The rule of one cut, or of a network."""
        if self.entropy is not None:
            return RoutedPolicy(tuple(routes), CutRule(ENTROPY, (self.entropy,)), route_ids)
        cost, cost_id = artefacts.cost(self.cost)
        rule = NetworkRule(self.network, self.typed_routes, seconds_of_largest(cost, routes), self.beta, self.rate)
        return RoutedPolicy(tuple(routes), rule, {**route_ids, "cost": cost_id})
