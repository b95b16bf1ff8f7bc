"""Best-first trees of the size with the best ratio of expected tokens to seconds."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.costs.curves import ALL_STAGES, MODEL_STAGES
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FULL_SCAN, BestRatio


@dataclass(frozen=True)
class CaDDTree(Composed):
    """Best-first, each round grown until its own expected tokens per second rise no more.

    The first size that brings no more ends it, as published; ``look_ahead`` sizes in a row may bring no more, 0 tries
    all. With ``tile`` the sizes tried are those at which the pass, root included, fills whole tiles. The published
    cost is that of the two models; ``overhead`` adds selecting and committing. The release stops at 1,024 tokens at
    the latest; ``budget`` is 512, as far as traces are exact unless they were recorded for more. Path probabilities
    below 2**-41 count as 0, so where further tokens cost nothing it stops a little earlier than the release.
    """

    budget: int = 512
    look_ahead: int = 1
    tile: int = 1
    overhead: bool = False
    cost: str = AUTO

    source: ClassVar[str] = "CaDDTree 2026, arXiv 2606.01813"
    exactness: ClassVar[str] = (
        "exact (from released code), with measured latencies in place of its convex fit; cost=auto:convex fits them"
    )
    reads: ClassVar[str] = "every kept candidate, up to the exact budget of the trace; a latency profile"
    variants: ClassVar[tuple[str, ...]] = ("", "look_ahead=0,overhead=true", "look_ahead=3", "tile=8")

    def __post_init__(self) -> None:
        check_sizes(budget=self.budget, look_ahead=self.look_ahead, tile=self.tile)

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget={budget},look_ahead=0/1/4,overhead=true/false",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(
            budget=self.budget,
            rule="ratio",
            look_ahead=self.look_ahead,
            tile=self.tile,
            overhead=self.overhead,
            cost=self.cost,
        )

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, the ratio rule."""
        table, cost_id = artefacts.cost(self.cost)
        stages = ALL_STAGES if self.overhead else MODEL_STAGES
        rule = BestRatio(self.budget, table, stages, look_ahead=self.look_ahead or FULL_SCAN, tile=self.tile)
        return Composition(BestFirst(Marginal()), rule, {"cost": cost_id})


def check_sizes(*, budget: int, look_ahead: int, tile: int = 1) -> None:
    """Refuse settings without sense."""
    if budget < 1:
        raise ValueError(f"budget must be at least 1; got {budget}")
    if look_ahead < 0:
        raise ValueError(f"look_ahead must be at least 1, or 0 for all sizes; got {look_ahead}")
    if tile < 1:
        raise ValueError(f"tile must be at least 1; got {tile}")
