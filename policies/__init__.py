"""The named policies. A new one is its own module and one line here."""

from collections.abc import Callable

from simlab.policies.autoregressive import Autoregressive
from simlab.policies.best_first import DDTree
from simlab.policies.chain import Chain
from simlab.policy import AnyPolicy

POLICIES: dict[str, Callable[..., AnyPolicy]] = {
    "ar": Autoregressive,
    "chain": Chain,
    "ddtree": DDTree,
}

__all__ = ["POLICIES"]
