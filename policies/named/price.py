"""Best-first trees grown while a token is worth its time at one price."""

from dataclasses import dataclass

from simlab.policies.artefacts import AUTO
from simlab.policies.named.tree import PRICE, STOPS, Preset, TreeSettings
from simlab.policies.settings import ALL_SIZES, at_least, below_one


@dataclass(frozen=True)
class Price(Preset):
    """Best-first, each round of the size at which expected tokens, less ``rate`` tokens for each second, are the most.

    A policy's tokens per second in the long run are E[tokens] / E[seconds], not the mean of their ratio; so the price
    of a second is the policy's own rate, the same in every round (Dinkelbach 1967). Without ``rate`` it is learnt:
    the ratio of running means that keep ``memory`` of themselves. Every size is tried, or with ``look_ahead`` until
    so many in a row bring nothing.
    """

    budget: int = at_least(1, 512)
    rate: float | None = at_least(0, None, "must be tokens per second, at least 0")
    memory: float = below_one(0.95)
    look_ahead: int = at_least(0, 0, ALL_SIZES)
    cost: str = AUTO

    source = "simlab; renewal-reward and Dinkelbach 1967, Management Science 13(7)"
    exactness = "exact (by definition)"
    reads = "every kept candidate, up to the exact budget of the trace; a latency profile"
    variants = ("", "rate=60", "look_ahead=2,memory=0.5")
    tries = ("budget={budget}",)

    def tree_settings(self) -> TreeSettings:
        """Best-first on the marginals, a price that is given or learnt."""
        return {"budget": self.budget, "rule": PRICE, **self.own_settings(*STOPS[PRICE])}
