"""A policy is an order of nodes and a rule for how many of them enter."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.columns import TextRounds
from simlab.draft import Draft, Prompt
from simlab.errors import PolicyError
from simlab.policies.artefacts import Artefacts, NoArtefacts
from simlab.policies.orders.node_order import NEVER, NodeOrder, OrderedNodes, OrderLayer, StagedOrder, walk_layer
from simlab.policies.rules.budgets import BudgetRule, SharedRule
from simlab.policies.rules.online_price import OnlinePrice, RateMemory
from simlab.policies.rules.serving import ServingRule
from simlab.policies.settings import check_settings
from simlab.policy import AnyPolicy, Asked, Needs, Outcome, routes_of
from simlab.recorded import RecordedTexts
from simlab.tree import DraftTree

Memory: TypeAlias = RateMemory | bool | None
"""What a composition remembers: what its rule does, or whether the next root has a draft of the target's own masks."""

NO_DRAFT = False

NOT_EVEN_THE_PROMPT = -2
MASKED = "is the number of a node, -1 for none, or -2 for none, nor behind the prompt"


@dataclass(frozen=True, slots=True, eq=False)
class Composition:
    """The policy that an order and a rule make; `Composed` is what people name and set.

    Attributes:
        order: which nodes enter, one after the other.
        rule: how many.
        artefacts: content ids of what it was fitted or measured with, by name.
        label: what stands in messages.
        masked: of a target that drafts for itself, the number of the last node that carries masks; -1: not even the
            root does; -2: nor does the prompt, so that a text begins with a round that drafts nothing. None: all nodes
            carry some, where there are masks. See `simlab.policies.orders.node_order`.
    """

    order: NodeOrder
    rule: BudgetRule | OnlinePrice
    artefacts: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    masked: int | None = None

    def __post_init__(self) -> None:
        if self.rule.most >= NEVER:
            raise ValueError(f"it drafts up to {self.rule.most:,} tokens a round, and a tree has at most {NEVER - 1:,}")
        if self.rule.needs_probabilities and not self.order.has_probabilities:
            raise ValueError("its budget rule sums path probabilities, and its scores are none; normalise them")
        if self.rule.needs_falling and not self.order.scores_fall:
            raise ValueError("its budget rule stops at a path probability, and its nodes do not enter in that order")
        if self.masked is None:
            return
        if self.masked < NOT_EVEN_THE_PROMPT:
            raise ValueError(f"masked {MASKED}; got {self.masked}")
        if isinstance(self.rule, OnlinePrice | SharedRule) or self.order.needs.billed_by_use is not None:
            raise ValueError(
                "a rule that remembers rounds, or a second pass on request, knows no masks; leave masked out"
            )

    def __repr__(self) -> str:
        return self.label or f"Composition({self.order!r}, {self.rule!r})"

    @property
    def needs(self) -> Needs:
        """What its order reads."""
        return self.order.needs if self.masked is None else replace(self.order.needs, masked=self._last_masked)

    @property
    def budget(self) -> int:
        """The most tokens that its rule lets in."""
        return self.rule.most

    def start(self, prompt: Prompt) -> Memory:
        """The memory of its rule, or whether there is a draft, made behind the prompt; else None."""
        if self.masked is not None:
            return self.masked > NOT_EVEN_THE_PROMPT
        return self.rule.start() if isinstance(self.rule, OnlinePrice) else None

    def ask(self, draft: Draft, state: Memory = None) -> Asked:
        """Which branches its order reads."""
        return self.order.asked(draft) if isinstance(self.order, StagedOrder) else {}

    def select(self, draft: Draft, state: Memory = None) -> DraftTree:
        """The first nodes of its order, as many as its rule says; the root alone where there is no draft."""
        if state is NO_DRAFT:
            return DraftTree.root_only(draft.root_token)
        nodes = self.order.nodes(draft, self.rule.most)
        size = self._size(nodes, draft.context_length, state)
        return DraftTree(nodes.tokens[: size + 1], nodes.parents[: size + 1])

    def update(self, state: Memory, outcome: Outcome) -> Memory:
        """The memory after a round."""
        if self.masked is not None:
            last = outcome.path[-1] if outcome.path else 0
            return last < self.num_masked(state)
        if isinstance(self.rule, OnlinePrice) and isinstance(state, tuple):
            return self.rule.update(state, outcome)
        return None

    def num_masked(self, state: Memory = None) -> int:
        """As `simlab.policy.num_masked` has it: a root without a draft always carries masks."""
        if self.masked is None:
            return self.budget + 1
        return 1 if state is NO_DRAFT else self._last_masked + 1

    def modelled_s(self, context_length: int, num_drafted: int) -> float:
        """Seconds of a round under the prices of a rule that learns from them; 0.0 for any other."""
        if not isinstance(self.rule, OnlinePrice):
            return 0.0
        return self.rule.seconds(context_length, num_drafted)

    def walk(self, layer: OrderLayer, texts: RecordedTexts) -> TextRounds:
        """The rounds of this policy on whole texts, from the layer of its order."""
        firsts, contexts = texts.roots.firsts, texts.contexts
        if isinstance(self.rule, OnlinePrice):
            return _with_asked(self.rule.walk(layer, contexts, firsts), layer)
        if self.masked is not None:
            sizes = self.rule.sizes(layer, contexts)
            return walk_layer(layer.insertions, sizes, firsts, self._last_masked, self.masked > NOT_EVEN_THE_PROMPT)
        return _with_asked(walk_layer(layer.insertions, self.rule.sizes(layer, contexts), firsts), layer)

    @property
    def _last_masked(self) -> int:
        """The number of the last node that carries masks; -1: none does."""
        assert self.masked is not None
        return max(self.masked, -1)

    def _size(self, nodes: OrderedNodes, context_length: int, state: Memory) -> int:
        layer = OrderLayer(np.zeros((1, 0), np.uint16), np.array([len(nodes.tokens) - 1], np.int32), nodes.scores[None])
        if isinstance(self.rule, OnlinePrice):
            remembered = state if isinstance(state, tuple) else self.rule.start()
            return self.rule.size(layer, context_length, remembered)
        return int(self.rule.sizes(layer, np.array([context_length], np.int64))[0])


def _with_asked(played: TextRounds, layer: OrderLayer) -> TextRounds:
    """The rounds with what each asks for, where they pay for that."""
    if layer.num_requested is None:
        return played
    return replace(played, num_requested=layer.num_requested[played.roots].astype(np.int64))


class Described:
    """What a named policy says of itself.

    Attributes:
        source: where it was published; this and the next two are what `simlab policies` prints.
        exactness: how near it comes.
        reads: what of a trace, and what else.
        variants: settings as they are typed, one text for each way of its own through the code: tests replay all of
            them and hold them against the real runner.
        tries: what `simlab optimize` tries where nothing is named: settings with {budget} and {depth} in them.
        revision: raised when equal settings come to other trees, so that the policy's id changes and its results are
            not joined with older ones.
    """

    source: ClassVar[str] = ""
    exactness: ClassVar[str] = ""
    reads: ClassVar[str] = ""
    variants: ClassVar[tuple[str, ...]] = ()
    tries: ClassVar[tuple[str, ...]] = ()
    revision: ClassVar[int] = 1

    @classmethod
    def searched(cls, budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it, see `simlab.studies.optimize.space`.

        Args:
            budget: drafted tokens, at most.
            depth: of the draft set.

        Returns:
            Settings as they are typed, ranges and lists among them, an entry each.
        """
        return tuple(text.format(budget=budget, depth=depth) for text in cls.tries)


class Composed(Described, ABC):
    """A named policy: its settings, and what they compose to.

    Subclasses are frozen dataclasses whose fields are the settings; one of them, or a property, is ``budget``.
    Without artefacts an instance is a policy itself; with them `compose` is given those that are at hand.

    A field made by `simlab.policies.settings` says which values have sense; a `__post_init__` of one's own checks what
    goes together, and calls this one.
    """

    def __post_init__(self) -> None:
        check_settings(self)

    def fitted(self, artefacts: Artefacts) -> "Composed":
        """With the settings filled in that the trace decides where they are left out; its label and id name them."""
        return self

    @abstractmethod
    def compose(self, artefacts: Artefacts) -> Composition:
        """The order and the rule that these settings mean, made of what is at hand."""

    @cached_property
    def own(self) -> Composition:
        """The policy without any artefact."""
        return self.compose(NoArtefacts())

    @property
    def needs(self) -> Needs:
        """What this policy reads of a draft."""
        return self.own.needs

    def start(self, prompt: Prompt) -> Memory:
        """The memory with which a sequence begins."""
        return self.own.start(prompt)

    def ask(self, draft: Draft, state: Memory = None) -> Asked:
        """Which branches a round wants."""
        return self.own.ask(draft, state)

    def select(self, draft: Draft, state: Memory = None) -> DraftTree:
        """The tree to verify."""
        return self.own.select(draft, state)

    def update(self, state: Memory, outcome: Outcome) -> Memory:
        """The memory after a round."""
        return self.own.update(state, outcome)

    def num_masked(self, state: Memory = None) -> int:
        """How many of the first nodes of a round's tree carry masks, where the target drafts for itself."""
        return self.own.num_masked(state)


def composition_of(policy: AnyPolicy) -> Composition | None:
    """The order and the rule of a policy; None for a policy that is made otherwise."""
    if isinstance(policy, Composition):
        return policy
    return policy.own if isinstance(policy, Composed) else None


def order_of(policy: AnyPolicy) -> NodeOrder | None:
    """The order of nodes of a policy; None and errors as `composition_of` has them."""
    composition = composition_of(policy)
    return None if composition is None else composition.order


def rule_of(policy: AnyPolicy) -> BudgetRule | OnlinePrice | None:
    """The budget rule of a policy; None and errors as `composition_of` has them."""
    composition = composition_of(policy)
    return None if composition is None else composition.rule


def order_key(policy: AnyPolicy) -> str:
    """Equal for policies of one order of nodes, which share their work; empty for a policy made otherwise."""
    order = order_of(policy)
    return "" if order is None else order.key


def shared_composition(policy: AnyPolicy) -> Composition | None:
    """What a policy of the batch is composed of; None for a policy of single texts."""
    composition = composition_of(policy)
    return None if composition is None or not isinstance(composition.rule, SharedRule) else composition


def shared_tree_sizes(shared: Composition, scores: Doubles, contexts: Longs) -> Ints:
    """How many nodes of each text enter; see `SharedRule.shares`."""
    assert isinstance(shared.rule, SharedRule)
    return shared.rule.shares(scores, contexts)


def check_batch(policy: AnyPolicy, batch: int) -> None:
    """Refuse a policy of the batch that has no prices for so many texts at a time, and a router; others pass."""
    if batch > 1 and routes_of(policy):
        raise PolicyError(
            f"{policy!r} is a router, whose rounds take routes of their own; replay and run it on one text at a time"
        )
    shared = shared_composition(policy)
    if shared is not None and isinstance(shared.rule, SharedRule):
        shared.rule.check_batch(batch)


def check_runs_together(policy: AnyPolicy, batch: int) -> None:
    """Refuse to run a rule with a memory on several texts at a time: a replay knows it, no runner keeps it."""
    if batch > 1 and isinstance(rule_of(policy), ServingRule):
        raise PolicyError(
            f"{policy!r} remembers rounds of all texts, which simlab replays but does not run on models; "
            "run it on one text at a time, or confirm joint-throughput"
        )


def select_together(shared: Composition, drafts: Sequence[Draft]) -> list[DraftTree]:
    """The trees of all texts of a batch.

    Args:
        shared: see `shared_composition`.
        drafts: in the order in which the texts came.
    """
    node_lists = [shared.order.nodes(draft, shared.budget) for draft in drafts]
    scores = np.full((len(node_lists), shared.budget + 1), -np.inf)
    for row, nodes in zip(scores, node_lists, strict=True):
        row[: len(nodes.scores)] = nodes.scores
    contexts = np.array([draft.context_length for draft in drafts], np.int64)
    ends = (shared_tree_sizes(shared, scores, contexts) + 1).tolist()
    return [DraftTree(nodes.tokens[:end], nodes.parents[:end]) for nodes, end in zip(node_lists, ends, strict=True)]
