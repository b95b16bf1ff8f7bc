"""Where policies find what they were fitted or measured with: prices, counts, tables."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.policies.ngram import Counts

Value = TypeVar("Value")

AUTO = "auto"
"""As the name of an artefact: the one that comes with simlab for the models at hand."""


class Shelf(Protocol):
    """Artefacts by the name that a setting gives: a file, the name of a shipped one, or `AUTO`.

    Each comes with its content id, which is part of the policy's identity.

    Raises:
        SimlabError: there is none of that name, or it is not of the models at hand.
    """

    def cost(self, name: str) -> tuple[CostTable, str]:
        """Measured seconds; `AUTO`: those that speeds are predicted with."""
        ...

    def ngram(self, name: str) -> tuple[Counts, str]:
        """Counts of a fixed text."""
        ...

    def table(self, kind: str, name: str) -> tuple[Mapping[str, object], str]:
        """A fitted table of a kind: ``calibration`` or ``ranks``."""
        ...


class EmptyShelf:
    """Nothing is at hand: for policies that need nothing."""

    def cost(self, name: str) -> tuple[CostTable, str]:
        """None."""
        raise PolicyError("this policy weighs tokens against seconds and needs prices: give it a cost file")

    def ngram(self, name: str) -> tuple[Counts, str]:
        """None."""
        raise PolicyError("this policy needs the counts of a 3-gram: make them with `simlab train ngram`")

    def table(self, kind: str, name: str) -> tuple[Mapping[str, object], str]:
        """None."""
        raise PolicyError(f"this policy needs a fitted table of {kind}: make one with `simlab train {kind}`")
