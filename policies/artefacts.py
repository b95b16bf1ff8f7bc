"""Where policies find what they were fitted or measured with: prices, counts, tables; and what trace is at hand."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.policies.edges.ngram import NGramCounts

Value = TypeVar("Value")

AUTO = "auto"
"""As the name of an artefact: the one that comes with simlab for the models at hand."""

LEAST_WIDTH = 64
"""Candidates that every trace holds at each depth, where its drafter has as many."""


class Artefacts(Protocol):
    """Artefacts by the name that a setting gives: a file, the name of a shipped one, or `AUTO`.

    Each comes with its content id, which is part of the policy's identity.
    """

    def cost(self, name: str) -> tuple[CostTable, str]:
        """Measured seconds; `AUTO`: those that speeds are predicted with."""
        ...

    def ngram(self, name: str) -> tuple[NGramCounts, str]:
        """Counts of a fixed text."""
        ...

    def table(self, kind: str, name: str) -> tuple[Mapping[str, object], str]:
        """A fitted table of a kind: ``calibration`` or ``ranks``."""
        ...

    def target_config(self, name: str) -> Mapping[str, object]:
        """The target's sizes, by the names of ``config.json``."""
        ...

    def min_width(self) -> int:
        """Candidates that the trace at hand holds at each depth, at least; without one `LEAST_WIDTH`."""
        ...

    def within_prices(self, budget: int) -> int:
        """A budget that nobody asked for, no larger than the prices at hand reach."""
        ...


class NoArtefacts:
    """Artefacts of which there is none: for policies that need nothing."""

    def cost(self, name: str) -> tuple[CostTable, str]:
        """Refused, as there are no prices."""
        raise PolicyError("this policy weighs tokens against latency and needs a latency profile: give it a cost file")

    def ngram(self, name: str) -> tuple[NGramCounts, str]:
        """Refused, as there are no counts."""
        raise PolicyError("this policy needs the counts of a 3-gram: make them with `simlab train ngram`")

    def table(self, kind: str, name: str) -> tuple[Mapping[str, object], str]:
        """Refused, as there is no fitted table."""
        raise PolicyError(f"this policy needs a fitted table of {kind}: make one with `simlab train {kind}`")

    def target_config(self, name: str) -> Mapping[str, object]:
        """Refused, as no target is at hand."""
        raise PolicyError("this policy needs the sizes of the target's layers: give it the target's config.json")

    def min_width(self) -> int:
        """What every trace holds."""
        return LEAST_WIDTH

    def within_prices(self, budget: int) -> int:
        """As it is, since there are no prices."""
        return budget
