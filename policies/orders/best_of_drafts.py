"""One tree over the candidates of several drafters: a path counts as much as the drafter says that likes it best.

After MFD (2026, arXiv 2611.13017), whose card says that a prefix scores as its best mode says. The score of a path
under one drafter never rises along it, and so neither does the largest: the n best paths are among the n best of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs, Shorts, read_only
from simlab.channels import BRANCHES, Branches, BranchRows
from simlab.draft import Draft
from simlab.errors import MissingChannelError
from simlab.jit import kernel
from simlab.policies.edges.children import empty_children, fill_marginal
from simlab.policies.edges.correction import Correction, no_correction
from simlab.policies.kernels.take_in_order import keep_path_scores, take_in_order
from simlab.policies.kernels.take_lattice import insert_true_by_token
from simlab.policies.kernels.true_places import LISTS, PARENTS, TOKENS
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policy import Asked, ChannelNeed, Needs
from simlab.recorded import RecordedTexts, Roots


@dataclass(frozen=True, slots=True)
class BestOfDrafts:
    """The paths of the largest score under any drafter; of equal ones the earlier drafter's are first.

    Attributes:
        channels: of further drafters, whose branch behind no token of the chain is what each says below the root.
        top_k: candidates of a depth that are read of each drafter.
    """

    channels: tuple[str, ...]
    top_k: int
    has_probabilities: bool = field(default=False, init=False)
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """The channels and the number of candidates."""
        return f"best-of-drafts:{'|'.join(self.channels)}:{self.top_k}"

    @property
    def needs(self) -> Needs:
        """The first ranks of the draft set, and of each channel's rows."""
        least = (("branches", 1), ("top_k", self.top_k))
        return Needs(top_k=self.top_k, channels=tuple(ChannelNeed(name, BRANCHES, least) for name in self.channels))

    def asked(self, draft: Draft) -> Asked:
        """The branch behind no token, of each channel."""
        return dict.fromkeys(self.channels, (0,))

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        drafts = [_Rows(marginals.ids, marginals.log_probs, marginals.counts[None], np.zeros(1, np.int64))]
        for name in self.channels:
            branches = draft.channels.get(name)
            if not isinstance(branches, Branches):
                raise _lacking(name)
            only = branches.only((0,))
            drafts.append(_first_branches(BranchRows(only.lengths[None], only.depth, only.ids, only.log_probs)))
        tree, scores = _tree(*_together(drafts), no_correction(), 0, self.top_k, draft.root_token, most)
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        drafts = [_Rows(roots.ids, roots.log_probs, roots.counts, roots.starts[: len(roots.counts)])]
        for name in self.channels:
            rows = texts.channels.get(name)
            if not isinstance(rows, BranchRows):
                raise _lacking(name)
            drafts.append(_first_branches(rows))
        together = _together(drafts)
        layer = empty_layer(roots, most, with_scores, together.counts.shape[2])
        _fill_layer(
            roots, *together, no_correction(), self.top_k, most, layer.insertions, layer.num_available, layer.score_rows
        )
        return layer


class _Rows(NamedTuple):
    """What one drafter says at some roots, a row for each depth.

    Attributes:
        ids: int32 ``[E]``.
        log_probs: float32 ``[E]``.
        counts: int32 ``[R, D]``, candidates of each row.
        starts: int64 ``[R]``, where the first row of each root begins; the others follow. With several drafters one
            axis more stands before each of these two.
    """

    ids: Ints
    log_probs: Floats
    counts: Ints
    starts: Longs


def _first_branches(rows: BranchRows) -> _Rows:
    """Those behind no token of the chain, which come first at each root; roots that no round began at may have none."""
    width = rows.ids.shape[1]
    counts = np.where(rows.lengths[:, :1] == 0, np.full((1, rows.depth), width, np.int32), 0)
    return _Rows(rows.ids.ravel(), rows.log_probs.ravel(), counts, rows.starts()[: len(rows)] * width)


def _together(drafts: Sequence[_Rows]) -> _Rows:
    """The rows of several drafters one behind the other, each as deep as the deepest; of what is added nothing."""
    sizes = np.cumsum([0, *(len(rows.ids) for rows in drafts)])
    deepest = max(rows.counts.shape[1] for rows in drafts)
    counts = [np.pad(rows.counts, ((0, 0), (0, deepest - rows.counts.shape[1]))) for rows in drafts]
    return _Rows(
        read_only(np.concatenate([rows.ids for rows in drafts])),
        read_only(np.concatenate([rows.log_probs for rows in drafts])),
        read_only(np.stack(counts).astype(np.int32)),
        read_only(np.stack([rows.starts + size for rows, size in zip(drafts, sizes[:-1], strict=True)])),
    )


def _lacking(name: str) -> MissingChannelError:
    return MissingChannelError(
        f"the policy reads branches of a further drafter in the channel {name}, and there are none here; read it with "
        "the texts, or declare it in the policy's needs"
    )


@kernel
def _fill_layer(
    roots: Roots,
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    starts: Longs,
    correction: Correction,
    top_k: int,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root."""
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            tree, path_scores = _tree(ids, log_probs, counts, starts, correction, root, top_k, 0, most)
            behind = roots.tokens[roots.token_indices[root] + 1 : roots.begins[text + 1]]
            insert_true_by_token(tree, tree.shape[1] - 1, behind, insertions[root])
            keep_path_scores(path_scores, available, scores, root)


@kernel
def _tree(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    starts: Longs,
    correction: Correction,
    root: int,
    top_k: int,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    """The drafters' own first nodes merged, the best of what is left next; one that is there already is passed over."""
    num_drafts, _, num_depths = counts.shape
    own = np.empty((num_drafts, LISTS, most + 1), np.int32)
    own_scores, sizes = np.empty((num_drafts, most + 1), np.float64), np.empty(num_drafts, np.int64)
    for number in range(num_drafts):
        children = empty_children(num_depths, top_k)
        fill_marginal(children, ids, log_probs, counts[number, root], starts[number, root], top_k)
        nodes, path_scores = take_in_order(children, correction, -1, root_token, most)
        sizes[number] = nodes.shape[1]
        for node in range(sizes[number]):
            _copy_node(nodes, node, own[number], node)
            own_scores[number, node] = path_scores[node]
    tree, scores = np.zeros((LISTS, most + 1), np.int32), np.zeros(most + 1, np.float64)
    _copy_node(own[0], 0, tree, 0)
    # Where each drafter's own nodes are in the tree.
    merged, following, size = np.zeros((num_drafts, most + 1), np.int32), np.ones(num_drafts, np.int64), 1
    while True:
        best = -1
        for number in range(num_drafts):
            node = following[number]
            if node < sizes[number] and (best < 0 or own_scores[number, node] > own_scores[best, following[best]]):
                best = number
        if best < 0:
            break
        node = following[best]
        following[best] += 1
        parent, token = merged[best, own[best, PARENTS, node]], own[best, TOKENS, node]
        child = parent + 1
        while child < size and not (tree[PARENTS, child] == parent and tree[TOKENS, child] == token):
            child += 1
        if child == size:
            if size == most + 1:
                break
            _copy_node(own[best], node, tree, size)
            tree[PARENTS, size], scores[size] = parent, own_scores[best, node]
            size += 1
        merged[best, node] = child
    return tree[:, :size].copy(), scores[:size].copy()


@kernel
def _copy_node(nodes: Ints, node: int, tree: Ints, index: int) -> None:
    for row in range(LISTS):
        tree[row, index] = nodes[row, node]
