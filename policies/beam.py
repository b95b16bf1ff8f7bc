"""Beams: at each depth only the best nodes have children, and the best nodes of all depths make the tree.

EAGLE-2 (Li and others 2024, arXiv 2406.16858) draws a beam of 10 and reranks all that the beam ever looked at; PRESTO
(2026, arXiv 2607.22634) calls the same "beam search with global retention". Path scores never rise with the depth, so
one heap takes the nodes in their order: the first ones of a depth that come out of it are that depth's beam.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.draft import Draft
from simlab.jit import kernel
from simlab.policies.best_first import fill_children
from simlab.policies.budget_rules import Fixed
from simlab.policies.children import room_for_children
from simlab.policies.composition import Composed, Composition
from simlab.policies.correction import Correction
from simlab.policies.edge_models import EdgeModel, Marginal, counted
from simlab.policies.ngram import add_token
from simlab.policies.node_order import NEVER, Layer, Nodes
from simlab.policies.shelf import Shelf
from simlab.policies.take_in_order import DEPTHS, PARENTS, RANKS, TOKENS, insert_path, take_in_order
from simlab.policy import Needs
from simlab.recorded import RecordedSequence

EVERY_RANK = 1 << 30
EVERY_DEPTH = 1 << 30


@dataclass(frozen=True, slots=True)
class Beam:
    """Nodes in the order of their path scores, of those that a beam looks at.

    The beam of a depth is the ``width`` best children of the beam above; all its children are looked at, and equal
    scores go by the smaller ranks. With ``width`` at least the budget that is every node a best-first tree could
    hold.

    Attributes:
        edge: what scores an edge; its ``top_k`` is how many children a node has.
        width: nodes of a depth that have children.
        deepest: no node lies deeper.
    """

    edge: EdgeModel
    width: int
    deepest: int = EVERY_DEPTH
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """Shape and edge model."""
        return f"beam:{self.width}:{self.deepest}:{self.edge.key}"

    @property
    def needs(self) -> Needs:
        """The ranks that the edge model reads."""
        return Needs(top_k=self.edge.top_k)

    @property
    def has_probabilities(self) -> bool:
        """As the edge model says."""
        return self.edge.has_probabilities

    def nodes(self, draft: Draft, most: int) -> Nodes:
        """The first nodes at one root."""
        marginals, committed = draft.drafted(), draft.committed
        counts = np.diff(marginals.offsets)[: self.deepest]
        correction = counted(self.edge.correction(len(counts), len(committed)), committed)
        before = int(committed[-2]) if len(committed) > 1 else -1
        tree, scores = _beam_tree(
            marginals.ids,
            marginals.log_probs,
            counts,
            0,
            self._top_k,
            self.edge.edge_map,
            correction,
            before,
            draft.root_token,
            most,
            self.width,
        )
        return Nodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)

    def layer(self, recorded: RecordedSequence, most: int, with_scores: bool) -> Layer:
        """The same for all roots of a text."""
        rows, prompt = recorded.rows, recorded.prompt.token_ids
        if rows is None:
            raise ValueError("a beam needs a drafter's rows, and none were read")
        num_roots, num_depths = rows.counts.shape
        deepest = min(self.deepest, num_depths)
        insertions = np.full((num_roots, num_depths), NEVER, np.uint16)
        available = np.zeros(num_roots, np.int32)
        scores = np.full((num_roots, most + 1 if with_scores else 0), -np.inf)
        tokens = np.concatenate([prompt, recorded.text]).astype(np.int32)
        _fill_layer(
            rows.ids,
            rows.log_probs,
            rows.counts,
            tokens,
            len(prompt),
            deepest,
            self._top_k,
            self.edge.edge_map,
            self.edge.correction(deepest, len(tokens)),
            most,
            self.width,
            insertions,
            available,
            scores,
        )
        return Layer(insertions, available, scores if with_scores else None)

    @property
    def _top_k(self) -> int:
        return EVERY_RANK if self.edge.top_k is None else self.edge.top_k


@dataclass(frozen=True)
class Eagle2Beam(Composed):
    """EAGLE-2's beam on marginals: ``beam`` children of each of the ``beam`` best of a depth, then the best of all.

    After the root's children the beam goes ``depth`` steps down, so the deepest node lies one deeper, or at the end
    of the block. The release's 60 tokens count the root; ``budget`` does not. Its class defaults are these for
    EAGLE-2, and 7 steps for EAGLE-3. Equal scores go to ancestors and smaller ranks; in half precision the release
    may keep a child without its parent.
    """

    budget: int = 59
    beam: int = 10
    depth: int = 5

    source: ClassVar[str] = "EAGLE-2 2024, arXiv 2406.16858; its shape on another drafter's marginals"
    exactness: ClassVar[str] = "exact (from released code), but for tie order"
    reads: ClassVar[str] = "the first `beam` candidates at each depth"

    def __post_init__(self) -> None:
        for name in ("budget", "beam"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.depth < 0:
            raise ValueError(f"depth must not be negative; got {self.depth}")

    def compose(self, shelf: Shelf) -> Composition:
        """A beam on the marginals, a fixed budget."""
        return Composition(Beam(Marginal(self.beam), self.beam, self.depth + 1), Fixed(self.budget))


@kernel
def _beam_tree(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    start: int,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    before_root: int,
    root_token: int,
    most: int,
    width: int,
) -> tuple[Ints, Doubles]:
    children = room_for_children(counts.size, min(counts.max(), top_k) if counts.size else 0)
    fill_children(children, ids, log_probs, counts, start, top_k, edge_map)
    return take_in_order(children, correction, before_root, root_token, most, width)


@kernel
def _fill_layer(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    tokens: Ints,
    prompt_length: int,
    num_depths: int,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    most: int,
    width: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root; counts of the text grow from root to root."""
    counting = correction.weights.size > 0 and correction.text_share > 0
    if counting:
        for place in range(prompt_length):
            add_token(correction.text, tokens, place)
    start = 0
    for root in range(counts.shape[0]):
        place = prompt_length + root
        if counting:
            add_token(correction.text, tokens, place)
        tree, found = _beam_tree(
            ids,
            log_probs,
            counts[root, :num_depths],
            start,
            top_k,
            edge_map,
            correction,
            tokens[place - 1] if place > 0 else -1,
            tokens[place],
            most,
            width,
        )
        start += counts[root].sum()
        insert_path(tree, tokens[place + 1 :], insertions[root])
        available[root] = found.size - 1
        if scores.shape[1] > 0:
            scores[root, : found.size] = found
