"""A policy of policies: each round is served by one of its routes, chosen before anything is drafted.

WhiFlash (2026, arXiv 2606.07710) chooses between two drafters so, token by token. Here a route is any policy that
remembers nothing: another drafter, a smaller tree, or no draft at all. A round pays for the route that it takes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from simlab.arrays import Bools, Ints, Longs, Shorts
from simlab.channels import BRANCHES
from simlab.columns import TextRounds
from simlab.draft import Draft, Prompt
from simlab.jit import kernel
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Described, shared_composition
from simlab.policies.orders.node_order import NEVER, num_accepted
from simlab.policies.routing.cut_rule import ACCEPTED, NO_ROUND, CutRule
from simlab.policy import AnyPolicy, Asked, Needs, Outcome, branches_asked, is_plain_decoding, needs_together, routes_of
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import as_declared
from simlab.tree import DraftTree


class RouteRule(Protocol):
    """What chooses a route: by a number and its cuts, or by what a network predicts."""

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
    """The policy of some routes and a rule; `simlab.policies.routing.routed_policy` is what people name and set.

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
        _check_leaves_plain_decoding(self.routes, self.rule)
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
        return tuple(label if named.count(label) == 1 else f"{label} ({index})" for index, label in enumerate(named))

    @property
    def described_routes(self) -> str:
        """The routes with | between them."""
        return "|".join(self.route_labels)

    @property
    def route_ids(self) -> Mapping[str, str]:
        """The content ids of its routes alone."""
        names = [f"route {index}" for index in range(len(self.routes))]
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


def _check_leaves_plain_decoding(routes: Sequence[AnyPolicy], rule: RouteRule) -> None:
    """Refuse cuts by accepted tokens that send a round behind plain decoding, which accepts none, to it again."""
    if not isinstance(rule, CutRule) or rule.by != ACCEPTED:
        return
    behind_none = rule.route_at(0)
    if is_plain_decoding(routes[behind_none]):
        raise ValueError(
            f"by={ACCEPTED} never leaves ar once a round accepted nothing, since a round of ar accepts 0 tokens, and "
            f"the cuts {'|'.join(f'{cut:g}' for cut in rule.cuts)} take that for ar again; let another policy serve "
            "it, as a first cut of -1 does, or choose by=entropy"
        )


def _check_route(route: AnyPolicy) -> None:
    if routes_of(route):
        raise ValueError(f"{route!r} is a router; its routes may be routes of this one")
    if shared_composition(route) is not None:
        raise ValueError(f"{route!r} shares its budget over a batch, and a route serves one text")
    nothing = Prompt("", "", 0, 0, np.zeros(1, np.int32))
    if route.start(nothing) is not None:
        raise ValueError(f"{route!r} remembers earlier rounds, and a route may not; give price a rate")


# What people name and set of a router; the routes are policies as they are typed.


class RoutedRecipe(Described, ABC):
    """A named router: its settings, and the policies that it routes among.

    Subclasses are frozen dataclasses whose fields are the settings.
    """

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


# The rounds of a router on whole texts at once, from the layers of its routes.


class RouteTrees(NamedTuple):
    """What the trees of one route hold at each root.

    Attributes:
        insertions: uint16 ``[R, D]``, the place of each node of the true path, as in an `OrderLayer`.
        num_drafted: int32 ``[R]``, the size of its tree.
        num_requested: int32 ``[R]``, branches that its round pays for; None: it pays for what is declared.
    """

    insertions: Shorts
    num_drafted: Ints
    num_requested: Ints | None = None


def no_trees(num_roots: int) -> RouteTrees:
    """Those of a route that drafts nothing."""
    return RouteTrees(np.empty((num_roots, 0), np.uint16), np.zeros(num_roots, np.int32))


def deepest_of(trees: Sequence[RouteTrees]) -> int:
    """The most tokens that a round of any of these can accept."""
    return max(int(tree.insertions.shape[1]) for tree in trees)


def accepted_by(trees: Sequence[RouteTrees]) -> Longs:
    """How many tokens a round by each route accepts at each root, int64 ``[routes, R]``."""
    return np.stack([(tree.insertions <= tree.num_drafted[:, None]).sum(axis=1) for tree in trees]).astype(np.int64)


def walk_routes(trees: Sequence[RouteTrees], routes: Ints, firsts: Longs) -> TextRounds:
    """The rounds of a router.

    Args:
        trees: of each route, of the same roots.
        routes: int32 ``[R, A]``, as `simlab.policies.routing.routed_policy.RouteRule.routes_of` gives them.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
    """
    insertions = np.full((len(trees), int(firsts[-1]), deepest_of(trees)), NEVER, np.uint16)
    for index, tree in enumerate(trees):
        insertions[index, :, : tree.insertions.shape[1]] = tree.insertions
    drafted = np.stack([tree.num_drafted for tree in trees]).astype(np.int32)
    visited, ends = _walk(insertions, drafted, np.ascontiguousarray(routes), firsts)
    roots, accepted, chosen = visited
    asked = None
    if any(tree.num_requested is not None for tree in trees):
        # A route that asks for nothing pays what it declares, and its entry is not read.
        by_route = [
            np.zeros(len(tree.num_drafted), np.int32) if tree.num_requested is None else tree.num_requested
            for tree in trees
        ]
        asked = np.stack(by_route)[chosen, roots].astype(np.int64)
    return TextRounds(roots, drafted[chosen, roots].astype(np.int64), accepted, ends, asked, chosen)


@kernel
def _walk(insertions: Shorts, num_drafted: Ints, routes: Ints, firsts: Longs) -> tuple[Longs, Longs]:
    """int64 ``[3, N]``, root, accepted tokens and route of each round; int64 ``[S]``, where those of a text end."""
    visited, ends = np.empty((3, insertions.shape[1]), np.int64), np.empty(firsts.size - 1, np.int64)
    number = 0
    for text in range(firsts.size - 1):
        root, before = firsts[text], NO_ROUND
        while root < firsts[text + 1]:
            row, column = min(root, routes.shape[0] - 1), min(before - NO_ROUND, routes.shape[1] - 1)
            chosen = routes[row, column]
            accepted = num_accepted(insertions[chosen], root, int(num_drafted[chosen, root]))
            visited[0, number], visited[1, number], visited[2, number] = root, accepted, chosen
            number += 1
            before = accepted
            root += accepted + 1
        ends[text] = number
    return visited[:, :number].copy(), ends


@kernel
def missed_tokens(is_used: Bools, committed: Longs, ends: Longs) -> Longs:
    """What a drafter has missed of the text when it runs again: it catches up, which takes time.

    Tokens of the round before are not among them: every drafter reads those. Neither is the prompt.

    Args:
        is_used: bool ``[N]``, rounds in which it runs.
        committed: int64 ``[N]``, tokens that each round added.
        ends: int64 ``[S]``, where the rounds of each text end.

    Returns:
        int64 ``[N]``, 0 where it does not run.
    """
    missed, start = np.zeros(is_used.size, np.int64), 0
    for text in range(ends.size):
        unread = np.int64(0)
        for index in range(start, ends[text]):
            if is_used[index]:
                missed[index] = unread - committed[index - 1] if index > start else 0
                unread = np.int64(0)
            unread += committed[index]
        start = ends[text]
    return missed
