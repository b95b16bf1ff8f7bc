"""The contract of a policy: what it needs, what it remembers, which tree it chooses."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

from simlab.channels import BRANCHES, FEATURES, POOL, TARGET, TRANSITIONS, Features, TargetLaw
from simlab.channels.rows import EXACT_NODES, WHOLE_CHAIN
from simlab.draft import Draft, Prompt
from simlab.errors import PolicyError
from simlab.tree import DraftTree

State = TypeVar("State")

Settings: TypeAlias = tuple[tuple[str, int], ...]
"""Some settings of a channel, by name."""

CUT = {
    TRANSITIONS: ("previous", "top_k"),
    POOL: ("depth", "steps", EXACT_NODES),
    BRANCHES: ("branches", "top_k"),
    FEATURES: (),
}
"""Settings of which a recording with more holds all that one with fewer does, by the kind of the channel."""


MADE_WITH = {
    TRANSITIONS: ("previous", "top_k", "candidates"),
    POOL: ("beam", "extensions", "top_k", "steps"),
    BRANCHES: ("branches", "top_k", "block", WHOLE_CHAIN),
    FEATURES: (),
}
"""The settings that bound how much is made of a channel, by its kind: as typed behind the checkpoint of its network."""

UNITS = {TRANSITIONS: "previous", POOL: "steps", BRANCHES: "branches"}
"""The setting that the price of a channel goes by, by its kind; a channel without that setting has one price."""


def counted_setting(kind: str, settings: Container[str]) -> str | None:
    """The setting that the price of a channel goes by; None: it has one price.

    Args:
        kind: of the channel.
        settings: the names of those that it has.
    """
    key = UNITS.get(kind)
    return key if key is not None and key in settings else None


@dataclass(frozen=True, slots=True)
class ChannelNeed:
    """A channel that a policy reads, and how it must have been made.

    What is recorded with more is cut to what is declared: of transitions the tokens of each depth that rows stand below
    (``previous``) and the candidates of a row (``top_k``), of branches how many a round asks for (``branches``) and
    their ``top_k``, of a pool its ``depth``, or, where it was made step by step below the root's children, its
    ``steps``, which are one fewer. A pool's ``exact_nodes`` is the largest budget at
    which its most probable nodes are those of the whole tree. Whatever else bounded a channel must be equal: the
    children of a narrower beam are no part of a wider one's.

    Attributes:
        name: of the channel in the trace.
        kind: ``transitions``, ``pool``, ``branches`` or ``features``; or ``target``, the target's own law, see
            `TARGET_LAW`.
        least: settings that the recording has at least.
        equal: settings that it has exactly.
        as_asked: whether a round pays for the branches that it asks for, which may be none; otherwise every round pays
            for as many as are declared.
        trained_for: of features, the routes that their network says something of, as they are typed, with | between
            them; empty: whatever it was trained for.
    """

    name: str
    kind: str
    least: Settings = ()
    equal: Settings = ()
    as_asked: bool = False
    trained_for: str = ""

    def __post_init__(self) -> None:
        names = [key for key, _ in (*self.least, *self.equal)]
        if len(set(names)) < len(names):
            raise ValueError(f"each setting of the channel {self.name} stands there once; got {', '.join(names)}")
        if self.as_asked and self.kind != BRANCHES:
            raise ValueError(f"a round asks for {BRANCHES} alone; got {self.kind} that are paid as they are asked for")
        may = CUT.get(self.kind)
        for key, _ in self.least:
            if may is not None and key not in may:
                raise ValueError(
                    f"{self.kind} that were recorded with more {key} do not hold those with less; declare it as equal "
                    f"(at least: {', '.join(may)})"
                )

    @property
    def units(self) -> int:
        """How much is made of it, as its price goes by: one of the settings of `UNITS`, else 1."""
        settings = dict((*self.least, *self.equal))
        key = counted_setting(self.kind, settings)
        return 1 if key is None else settings[key]

    @property
    def units_of(self) -> str:
        """What is counted by ``units``, as it stands behind their number."""
        return counted_setting(self.kind, dict((*self.least, *self.equal))) or "units"

    @property
    def deepest(self) -> int | None:
        """The depth of the deepest nodes that are read of a pool; None: of all that it has."""
        least = dict(self.least)
        return least["steps"] + 1 if "steps" in least else least.get("depth")


TARGET_LAW = ChannelNeed(TARGET, TARGET)
"""What a policy declares that reads how sure the target was of the root, `simlab.channels.TargetLaw`. Every trace has
it, and it costs nothing."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a policy reads. A trace or a runner that cannot give it refuses the policy.

    Attributes:
        draft: whether a drafter pass is run at all.
        top_k: the first ranks read at each depth; the default is what every trace keeps unless it
            was recorded otherwise. None is for uncapped best-first on raw marginals alone, which is
            exact up to the trace's ``exact_budget``.
        entropies: whether the entropy of the drafter's law at each depth is read, over its whole vocabulary.
        channels: what it reads beside the draft set; it sees no other channel, and of these no more than it declares.
        masked: the number of the last node of a tree that carries masks, -1: not even the root does; so that the target
            must draft for itself, see `num_masked`. None: it does not say.
    """

    draft: bool = True
    top_k: int | None = 64
    entropies: bool = False
    channels: tuple[ChannelNeed, ...] = ()
    masked: int | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(channel, ChannelNeed) for channel in self.channels):
            raise ValueError(f"channels are declared as ChannelNeed(name, kind, ...); got {self.channels!r}")
        names = [channel.name for channel in self.channels]
        if len(set(names)) < len(names):
            raise ValueError(f"each channel is declared once; got {', '.join(names)}")
        if sum(channel.as_asked for channel in self.channels) > 1:
            raise ValueError(f"one channel may be paid as it is asked for; got {', '.join(names)}")

    @property
    def billed_by_use(self) -> ChannelNeed | None:
        """The channel of which a round pays for what it asks for."""
        return next((channel for channel in self.channels if channel.as_asked), None)

    @property
    def made(self) -> tuple[ChannelNeed, ...]:
        """The channels that some network makes: all but the target's own law."""
        return tuple(channel for channel in self.channels if channel.kind != TARGET)

    @property
    def scored(self) -> tuple[ChannelNeed, ...]:
        """Those of ``made`` that score tokens, and are made in or behind a round's draft."""
        return tuple(need for need in self.made if need.kind != FEATURES)

    @property
    def predicted(self) -> tuple[ChannelNeed, ...]:
        """Those of ``made`` that are known before anything is drafted."""
        return tuple(need for need in self.made if need.kind == FEATURES)


def needs_together(several: Iterable[Needs]) -> Needs:
    """What is read where some of several needs are met in each round."""
    listed, channels = list(several), dict[str, ChannelNeed]()
    for need in (need for needs in listed for need in needs.channels):
        other = channels.setdefault(need.name, need)
        if need != other:
            raise ValueError(
                f"the channel {need.name} is read as {_described(other)} and as {_described(need)}; read it in one "
                "way, or record it under two names"
            )
    tops = [needs.top_k for needs in listed if needs.draft]
    return Needs(
        draft=any(needs.draft for needs in listed),
        top_k=None if None in tops else max((top for top in tops if top is not None), default=0),
        entropies=any(needs.entropies for needs in listed),
        channels=tuple(channels.values()),
    )


def _described(need: ChannelNeed) -> str:
    return ", ".join([need.kind, *(f"{key}={value}" for key, value in (*need.least, *need.equal))])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round brought.

    Attributes:
        path: accepted nodes of the tree, from the root down, the root left out.
        committed: the tokens that the round added to the text.
        ended: whether the text ended inside the round.
        modelled_s: seconds of the round under the policy's own cost table; 0.0 without one.
    """

    path: tuple[int, ...]
    committed: tuple[int, ...]
    ended: bool
    modelled_s: float

    @property
    def num_accepted(self) -> int:
        """Drafted tokens the target agreed with."""
        return len(self.path)

    @property
    def num_committed(self) -> int:
        """Tokens added: ``num_accepted + 1``, one fewer when the text ends at an accepted token."""
        return len(self.committed)


class Policy(Protocol[State]):
    """A frozen value that chooses draft trees. Everything it knows comes through ``Draft``.

    ``needs`` says what it reads; ``budget`` bounds the drafted tokens of its trees.
    """

    @property
    def needs(self) -> Needs:
        """What the policy reads of a draft."""
        ...

    @property
    def budget(self) -> int:
        """The most tokens it ever drafts in a round, the root not counted."""
        ...

    def start(self, prompt: Prompt) -> State:
        """The memory with which a sequence begins."""
        ...

    def select(self, draft: Draft, state: State) -> DraftTree:
        """The tree to verify."""
        ...

    def update(self, state: State, outcome: Outcome) -> State:
        """The memory after a round."""
        ...


AnyPolicy: TypeAlias = Policy[Any]
"""A policy, whatever it remembers: what it returned as memory is handed back to it, unread."""

GivenPolicy: TypeAlias = str | AnyPolicy | type[AnyPolicy]
"""A policy as it is given: typed, ``ddtree:budget=16``; an object; or its class, for one with its defaults."""

GivenPolicies: TypeAlias = GivenPolicy | Sequence[GivenPolicy]
"""One policy, or several."""


def given_policies(given: GivenPolicies) -> tuple[GivenPolicy, ...]:
    """One policy or several, as a tuple."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def is_plain_decoding(policy: AnyPolicy) -> bool:
    """Whether a policy drafts nothing and asks for no drafter: one token of the target after the other.

    A router is none, whatever its routes: its rounds are those of a speculative loop.
    """
    return not policy.needs.draft and policy.budget == 0 and not routes_of(policy)


Asked: TypeAlias = Mapping[str, tuple[int, ...]]
"""Which branches a round wants, by the name of their channel: how many tokens of the chain each stands behind."""


def before_drafting(draft: Draft) -> Draft:
    """A draft with those channels alone that are known before it is made: the target's own law, and features."""
    known = {name: channel for name, channel in draft.channels.items() if isinstance(channel, TargetLaw | Features)}
    return replace(draft, channels=known)


def branches_asked(policy: AnyPolicy, draft: Draft, state: object) -> Asked:
    """Which branches a policy asks for in a round, once it has seen the first drafter's candidates.

    A policy says so by a method ``ask`` with the other two arguments. It sees no channel that scores tokens, and of
    branches its ``select`` is then given those that it asked for, and no others; the runner makes no others. Of a
    policy that has no such method, or does not name a channel, every branch is made.
    """
    own = getattr(policy, "ask", None)
    most = {need.name: dict(need.least).get("branches") for need in policy.needs.channels if need.kind == BRANCHES}
    if own is None or not most:
        return {}
    asked: Asked = own(draft, state)
    for name, lengths in asked.items():
        if name not in most:
            raise PolicyError(
                f"{policy!r} asks for branches of the channel {name}, and does not declare that it reads it"
            )
        limit = most[name]
        if limit is not None and len(set(lengths)) > limit:
            raise PolicyError(f"{policy!r} asks for {len(set(lengths))} branches, and declares that it reads {limit}")
    return asked


def routes_of(policy: object) -> tuple[AnyPolicy, ...]:
    """The policies of which a router chooses one each round; none for any other policy.

    A router says so by an attribute ``routes`` and a method ``route``, see `route_taken`. Its ``select`` is given what
    its route declares, at least, and chooses that route's tree.
    """
    return tuple(getattr(policy, "routes", ()))


def route_taken(policy: AnyPolicy, draft: Draft, state: object) -> int | None:
    """Which of its routes a router takes in a round, decided before anything is drafted; None: it is no router.

    ``route`` sees the text, and of what the router declares the target's law and features; no candidates, no other
    channel.
    """
    own, routes = getattr(policy, "route", None), routes_of(policy)
    if own is None or not routes:
        return None
    route = int(own(replace(before_drafting(draft), marginals=None), state))
    if not 0 <= route < len(routes):
        raise PolicyError(f"{policy!r} takes route {route}; its routes are 0 to {len(routes) - 1}")
    return route


DRAFTER = ""
"""In place of a channel's name: the drafter itself."""


def drafters_of(route: AnyPolicy) -> tuple[str, ...]:
    """What reads the text in a round of a route and may have missed some of it: `DRAFTER`, and channels by name."""
    return (*((DRAFTER,) if route.needs.draft else ()), *(need.name for need in route.needs.made))


def catch_up_name(drafter: str) -> str:
    """Under which name prices say what drafting takes where more tokens than usual wait to be read.

    >>> catch_up_name(DRAFTER), catch_up_name("d2sd")
    ('catch-up', 'catch-up.d2sd')
    """
    return f"catch-up.{drafter}" if drafter else "catch-up"


def caught_up(name: str) -> str | None:
    """What catches up at prices of that name, as `drafters_of` has it; None: they are of something else."""
    first, _, drafter = name.partition(".")
    return drafter if first == catch_up_name(DRAFTER) else None


def num_masked(policy: AnyPolicy, state: object, num_nodes: int) -> int:
    """How many of the first nodes of a round's tree carry masks, where the target drafts for itself.

    A policy says so by a method of this name with the argument ``state``, and declares ``masked``. Of any other
    policy all nodes carry some, so that every root has a draft.

    Args:
        policy: any.
        state: its memory before the round.
        num_nodes: of the tree, the root counted.
    """
    own = getattr(policy, "num_masked", None)
    return num_nodes if own is None else min(int(own(state)), num_nodes)


def modelled_s(policy: AnyPolicy, context_length: int, num_drafted: int) -> float:
    """Seconds of a round under a policy's own cost table; 0.0 for a policy without one.

    A policy that has one says so by a method of this name with the other two arguments.
    """
    own = getattr(policy, "modelled_s", None)
    return 0.0 if own is None else float(own(context_length, num_drafted))


class Stateless:
    """The two methods of a policy that remembers nothing; mix in and write ``select``."""

    __slots__ = ()

    def start(self, prompt: Prompt) -> None:
        """Begin a sequence with nothing to remember."""

    def update(self, state: None, outcome: Outcome) -> None:
        """Remember nothing of a round."""
