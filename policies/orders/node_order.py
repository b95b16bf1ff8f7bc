"""In which order do nodes enter a tree? What an edge model and a shape come to."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from simlab.arrays import Doubles, Ints, Shorts
from simlab.channels import BranchRows
from simlab.draft import Draft
from simlab.limits.memory import check_memory
from simlab.policy import Asked, Needs
from simlab.recorded import RecordedTexts, Roots
from simlab.sequence_replay import draft_source

NEVER = 65535
"""Stands for a node that is not among the first ones; so many are never asked for."""


class OrderedNodes(NamedTuple):
    """Nodes in the order in which they enter, the root first; every beginning of them is a tree.

    Attributes:
        tokens: int32 ``[N + 1]``.
        parents: int32 ``[N + 1]``, -1 for the root.
        depths: int32 ``[N + 1]``, 0 for the root.
        ranks: int32 ``[N + 1]``, the drafter's rank of each token at its depth; 0 for the root.
        scores: float64 ``[N + 1]``, the path's score, exact; 0 for the root.
    """

    tokens: Ints
    parents: Ints
    depths: Ints
    ranks: Ints
    scores: Doubles


@dataclass(frozen=True, slots=True, eq=False)
class OrderLayer:
    """What every budget needs to know of some texts: whole numbers for each root, whatever the budget.

    Attributes:
        insertions: uint16 ``[R, D]``, how large a tree must be to hold the node of the true path at a depth; `NEVER`
            where more than ``most`` tokens, or where the true token is no candidate.
        num_available: int32 ``[R]``, nodes there are, at most ``most``.
        scores: float64 ``[R, most + 1]``, path scores in the order of nodes, the root's 0 first and -inf behind the
            last; narrower where no tree can be as large; None where they were not asked for.
        num_asked: int32 ``[R]``, branches that are asked for at each root, where a round pays for those; else None.
    """

    insertions: Shorts
    num_available: Ints
    scores: Doubles | None
    num_asked: Ints | None = None

    @property
    def score_rows(self) -> Doubles:
        """The scores, for kernels; float64 ``[R, 0]`` where they were not asked for."""
        return np.empty((len(self.insertions), 0), np.float64) if self.scores is None else self.scores


class NodeOrder(Protocol):
    """Which nodes enter, one after the other; how many of them is the budget rule's affair.

    Attributes:
        key: equal keys give equal nodes.
        needs: what is read.
        has_probabilities: whether exp(score) is meant as a probability, so that sums of it are expected tokens.
        scores_fall: whether scores never rise in the order of nodes.
    """

    @property
    def key(self) -> str: ...

    @property
    def needs(self) -> Needs: ...

    @property
    def has_probabilities(self) -> bool: ...

    @property
    def scores_fall(self) -> bool: ...

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root, at most ``most`` and the root."""
        ...

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        ...


@runtime_checkable
class StagedOrder(NodeOrder, Protocol):
    """An order that says, once it sees the drafter's candidates, which branches it reads."""

    def asked(self, draft: Draft) -> Asked:
        """The branches that are read at one root, by channel; what is not named is read whole."""
        ...


def layer_by_roots(order: NodeOrder, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
    """The layer of any order, root by root: what its own faster way must give."""
    depths = [texts.roots.counts.shape[1], *(need.deepest or 0 for need in order.needs.channels)]
    depths += [one.depth for one in texts.channels.values() if isinstance(one, BranchRows)]
    layer, place = empty_layer(texts.roots, most, with_scores, max(depths)), 0
    for recorded in texts.sequences:
        source, text = draft_source(order.needs, recorded), recorded.text
        for t in range(len(text) - 1):
            nodes = order.nodes(source(t), most)
            path = true_path(nodes, text[t + 1 :])
            layer.insertions[place, : len(path)] = path
            layer.num_available[place] = len(nodes.tokens) - 1
            if layer.scores is not None:
                layer.scores[place, : len(nodes.scores)] = nodes.scores
            place += 1
    return layer


def empty_layer(roots: Roots, most: int, with_scores: bool, num_depths: int | None = None) -> OrderLayer:
    """A layer to be filled: no node of the true path, and no node at all; by default as deep as the drafter's rows."""
    if with_scores:
        check_memory(8 * len(roots.counts) * (most + 1), f"scores of trees of up to {most:,} tokens", "take fewer")
    num_roots, deepest = roots.counts.shape
    insertions = np.full((num_roots, deepest if num_depths is None else num_depths), NEVER, np.uint16)
    scores = np.full((len(insertions), most + 1), -np.inf) if with_scores else None
    return OrderLayer(insertions, np.zeros(len(insertions), np.int32), scores)


def true_path(nodes: OrderedNodes, follows: Ints) -> list[int]:
    """The nodes of the true path, from below the root, as far as they are among these."""
    path: list[int] = []
    for node, (token, parent) in enumerate(zip(nodes.tokens.tolist(), nodes.parents.tolist(), strict=True)):
        if node and len(path) < len(follows) and parent == (path[-1] if path else 0) and token == follows[len(path)]:
            path.append(node)
    return path
