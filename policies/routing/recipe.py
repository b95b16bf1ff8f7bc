"""What people name and set of a router; the routes are policies as they are typed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from simlab.policies.artefacts import Artefacts
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import AnyPolicy


class RoutedRecipe(ABC):
    """A named router: its settings, and the policies that it routes among.

    Subclasses are frozen dataclasses whose fields are the settings; ``variants``, ``source``, ``exactness``, ``reads``
    and ``revision`` are those of `simlab.policies.composition.Composed`.
    """

    revision: ClassVar[int] = 1

    @property
    @abstractmethod
    def typed_routes(self) -> tuple[str, ...]:
        """The routes as they are typed, each one policy."""

    @abstractmethod
    def among(self, routes: Sequence[AnyPolicy], route_ids: Mapping[str, str], artefacts: Artefacts) -> RoutedPolicy:
        """The router among its routes.

        Args:
            routes: those of ``typed_routes``, in their order.
            route_ids: the content id of each, by a name that its place makes.
            artefacts: where it finds what it was measured with.

        Raises:
            SimlabError: it wants prices, and there are none.
            ValueError: they cannot be routes of it.
        """


PolicyClass: TypeAlias = Callable[..., AnyPolicy | RoutedRecipe]
"""What makes a policy of its settings, or a router of settings that name other policies."""
