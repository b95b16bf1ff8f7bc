"""Best-first trees grown while a token is worth its time at one price."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.edges.models import Marginal
from simlab.policies.named.caddtree import check_sizes
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FULL_SCAN, FixedPrice
from simlab.policies.rules.online_price import OnlinePrice


@dataclass(frozen=True)
class Price(Composed):
    """Best-first, each round of the size at which expected tokens, less ``rate`` tokens for each second, are the most.

    A policy's tokens per second in the long run are E[tokens] / E[seconds], not the mean of their ratio; so the price
    of a second is the policy's own rate, the same in every round (Dinkelbach 1967). Without ``rate`` it is learnt:
    the ratio of running means that keep ``memory`` of themselves. Every size is tried, or with ``look_ahead`` until
    so many in a row bring nothing.
    """

    budget: int = 512
    rate: float | None = None
    memory: float = 0.95
    look_ahead: int = 0
    cost: str = AUTO

    source: ClassVar[str] = "simlab; renewal-reward and Dinkelbach 1967, Management Science 13(7)"
    exactness: ClassVar[str] = "exact (by definition)"
    reads: ClassVar[str] = "every kept candidate, up to the exact budget of the trace; a latency profile"
    variants: ClassVar[tuple[str, ...]] = ("", "rate=60", "look_ahead=2,memory=0.5")

    def __post_init__(self) -> None:
        check_sizes(budget=self.budget, look_ahead=self.look_ahead)
        if self.rate is not None and not 0 <= self.rate < float("inf"):
            raise ValueError(f"rate must be tokens per second, at least 0; got {self.rate}")
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory must be from 0 to below 1; got {self.memory}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget={budget}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        settings = {"rate": self.rate} if self.rate is not None else {"memory": self.memory}
        return typed_tree(budget=self.budget, rule="price", **settings, look_ahead=self.look_ahead, cost=self.cost)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, a price that is given or learnt."""
        table, cost_id = artefacts.cost(self.cost)
        look_ahead = self.look_ahead or FULL_SCAN
        if self.rate is None:
            rule: FixedPrice | OnlinePrice = OnlinePrice(self.budget, table, self.memory, look_ahead=look_ahead)
        else:
            rule = FixedPrice(self.budget, table, self.rate, look_ahead=look_ahead)
        return Composition(BestFirst(Marginal()), rule, {"cost": cost_id})
