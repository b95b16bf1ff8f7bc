"""WhiFlash: an EAGLE-3 head where the target hesitates, a block drafter where it is sure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.routing.cut_rule import ENTROPY, CutRule
from simlab.policies.routing.recipe import RoutedRecipe
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import AnyPolicy


@dataclass(frozen=True)
class WhiFlash(RoutedRecipe):
    """The block drafter where the root's entropy is at most ``entropy`` nats, an EAGLE-3 head where it is above.

    Entropy is that of the target's law that the root was chosen from. ``sure`` and ``unsure`` are the two policies as
    they are typed: by default DFlash's chain and EAGLE-3's tree. The drafter that does not run catches up when it next
    does. Formulas and thresholds were not published; choose ``entropy`` on prompts that you do not report.
    """

    entropy: float
    sure: str = "chain"
    unsure: str = "eagle3:budget=59"

    source: ClassVar[str] = "WhiFlash 2026, arXiv 2606.07710"
    exactness: ClassVar[str] = "reconstruction (from the abstract; its entropy policy)"
    reads: ClassVar[str] = "the target's rows, and what its two policies read"
    variants: ClassVar[tuple[str, ...]] = (
        'entropy=1.0,sure="ddtree:budget=16",unsure="eagle3:budget=16,steps=3"',
        'entropy=0.5,unsure="eagle3:budget=24"',
    )

    @property
    def typed_routes(self) -> tuple[str, ...]:
        """The policy of low entropy, then that of high."""
        return self.sure, self.unsure

    def among(self, routes: Sequence[AnyPolicy], route_ids: Mapping[str, str]) -> RoutedPolicy:
        """The rule of one cut."""
        return RoutedPolicy(tuple(routes), CutRule(ENTROPY, (self.entropy,)), route_ids)
