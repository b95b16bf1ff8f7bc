"""A policy of policies: each round is served by one of its routes, chosen before anything is drafted.

WhiFlash (2026, arXiv 2606.07710) chooses between two drafters so, token by token. Here a route is any policy that
remembers nothing: another drafter, a smaller tree, or no draft at all. A round pays for the route that it takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from simlab.arrays import Ints
from simlab.channels import BRANCHES
from simlab.draft import Draft, Prompt
from simlab.policies.composition import shared_composition
from simlab.policies.routing.cut_rule import NO_ROUND
from simlab.policy import AnyPolicy, Asked, Needs, Outcome, branches_asked, is_plain_decoding, needs_together, routes_of
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import as_declared
from simlab.tree import DraftTree


class RouteRule(Protocol):
    """What chooses a route: by a number and its cuts, or by what a network foresees."""

    @property
    def needs(self) -> Needs:
        """What it reads; nothing that is made in or behind a draft."""
        ...

    def check(self, num_routes: int) -> None:
        """Refuse so many routes with a ValueError where it chooses among others."""

    def route(self, draft: Draft, accepted: int) -> int:
        """The route of one round.

        Args:
            draft: of the round; no candidate is read.
            accepted: drafted tokens that the round before accepted, or `NO_ROUND`.

        Raises:
            ValueError: the draft does not hold what it reads.
        """
        ...

    def routes_of(self, texts: RecordedTexts, most_accepted: int) -> Ints:
        """The routes at all roots of some texts.

        Returns:
            int32 ``[R, A]``, by what the round before accepted, from `NO_ROUND` on: A is 1 where that is not read, else
            ``most_accepted + 2``. ``[1, A]`` where all roots are alike.

        Raises:
            MissingChannelError: the texts do not hold what it reads.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RoutedPolicy:
    """The policy of some routes and a rule; `simlab.policies.routing.recipe` is what people name and set.

    Attributes:
        routes: at least one.
        rule: which of them serves a round.
        artefacts: content ids of its routes, by a name that their place makes, and of what its rule was measured with.
        label: what stands in messages.
        needs: what the rule and any of the routes read.
    """

    routes: tuple[AnyPolicy, ...]
    rule: RouteRule
    artefacts: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    needs: Needs = field(init=False)

    def __post_init__(self) -> None:
        self.rule.check(len(self.routes))
        for route in self.routes:
            _check_route(route)
        needs = needs_together([self.rule.needs, *map(_bounded_needs, self.routes)])
        object.__setattr__(self, "needs", needs)

    def __repr__(self) -> str:
        return self.label or f"RoutedPolicy({self.routes!r}, {self.rule!r})"

    @property
    def budget(self) -> int:
        """The most tokens that a route drafts."""
        return max(route.budget for route in self.routes)

    @property
    def route_labels(self) -> tuple[str, ...]:
        """The routes as messages and tables name them; one that is there twice has its place behind its name."""
        named = ["ar" if is_plain_decoding(route) else repr(route) for route in self.routes]
        return tuple(one if named.count(one) == 1 else f"{one} ({place})" for place, one in enumerate(named))

    @property
    def described_routes(self) -> str:
        """The routes with | between them."""
        return "|".join(self.route_labels)

    @property
    def route_ids(self) -> Mapping[str, str]:
        """The content ids of its routes alone."""
        names = [f"route {place}" for place in range(len(self.routes))]
        return {name: self.artefacts[name] for name in names if name in self.artefacts}

    def start(self, prompt: Prompt) -> int:
        """What the round before accepted: there was none."""
        return NO_ROUND

    def route(self, draft: Draft, state: int | None = None) -> int:
        """The route of a round, from what is known before anything is drafted."""
        return self.rule.route(draft, NO_ROUND if state is None else state)

    def ask(self, draft: Draft, state: int | None = None) -> Asked:
        """The branches that the route wants; none of the other routes' channels."""
        route = self.routes[self.route(draft, state)]
        nothing: dict[str, tuple[int, ...]] = {need.name: () for need in self.needs.channels if need.kind == BRANCHES}
        own = {need.name for need in route.needs.channels}
        first = as_declared(draft, replace(route.needs, channels=()))
        asked = branches_asked(route, replace(first, channels=draft.channels), None)
        return {name: none for name, none in nothing.items() if name not in own} | dict(asked)

    def select(self, draft: Draft, state: int | None = None) -> DraftTree:
        """The tree of the route, which sees what it declares and nothing else."""
        route = self.routes[self.route(draft, state)]
        return route.select(as_declared(draft, route.needs), None)

    def update(self, state: int, outcome: Outcome) -> int:
        """What the round accepted."""
        return outcome.num_accepted


def _bounded_needs(route: AnyPolicy) -> Needs:
    """What a route reads; a best-first tree of n nodes, which says no top_k, reads no candidate past rank n."""
    needs = route.needs
    return replace(needs, top_k=route.budget) if needs.draft and needs.top_k is None else needs


def _check_route(route: AnyPolicy) -> None:
    if routes_of(route):
        raise ValueError(f"{route!r} is a router; its routes may be routes of this one")
    if shared_composition(route) is not None:
        raise ValueError(f"{route!r} shares its budget over a batch, and a route serves one text")
    nothing = Prompt("", "", 0, 0, np.zeros(1, np.int32))
    if route.start(nothing) is not None:
        raise ValueError(f"{route!r} remembers earlier rounds, and a route may not; give price a rate")
