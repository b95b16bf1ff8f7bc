"""Draft trees: what the target verifies in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simlab.arrays import Bools, Ints, read_only
from simlab.jit import kernel


@dataclass(frozen=True, slots=True, eq=False)
class DraftTree:
    """Drafted tokens below a root; every parent stands before its children.

    Attributes:
        tokens: int32 ``[N + 1]``; node 0 is the root, the last committed token.
        parents: int32 ``[N + 1]``; the root's parent is -1.

    >>> tree = DraftTree(np.array([7, 8, 9, 5]), np.array([-1, 0, 0, 2]))
    >>> tree.depths().tolist(), tree.accepted_path(np.array([9, 5, 4]))
    ([0, 1, 1, 2], (2, 3))
    """

    tokens: Ints
    parents: Ints

    def __post_init__(self) -> None:
        tokens, parents = _whole("tokens", self.tokens), _whole("parents", self.parents)
        if tokens.shape != parents.shape or tokens.ndim != 1 or len(tokens) == 0:
            raise ValueError(f"tokens {tokens.shape} and parents {parents.shape} must be flat and equally long")
        if not _parents_first(parents):
            raise ValueError("node 0 must be the root (parent -1) and every other parent must stand before its child")
        edges = np.sort(parents[1:].astype(np.int64) << 32 | tokens[1:].astype(np.int64) & 0xFFFFFFFF)
        if (edges[1:] == edges[:-1]).any():
            raise ValueError("siblings must be distinct tokens")
        object.__setattr__(self, "tokens", read_only(tokens))
        object.__setattr__(self, "parents", read_only(parents))

    @staticmethod
    def root_only(root_token: int) -> "DraftTree":
        """The tree of autoregressive decoding: nothing is drafted."""
        return DraftTree(np.array([root_token], np.int32), np.array([-1], np.int32))

    @staticmethod
    def chain(root_token: int, tokens: Sequence[int] | Ints) -> "DraftTree":
        """A single path below the root."""
        nodes = np.empty(len(tokens) + 1, np.int32)
        nodes[0], nodes[1:] = root_token, tokens
        return DraftTree(nodes, np.arange(-1, len(tokens), dtype=np.int32))

    @property
    def num_drafted(self) -> int:
        """N, the root not counted."""
        return len(self.tokens) - 1

    @property
    def num_nodes(self) -> int:
        """N + 1, tokens in the verification pass."""
        return len(self.tokens)

    def depths(self) -> Ints:
        """int32 ``[N + 1]``, edges from the root."""
        return _depths(self.parents)

    def _repr_html_(self) -> str:
        # Nodes in the order in which they entered; indented by depth, which tells a child only from its own parent.
        lines = [
            f"{node:>4}  {'&nbsp;&nbsp;' * depth}{token} (below node {parent})"
            if depth
            else f"{node:>4}  {token} (root)"
            for node, (token, parent, depth) in enumerate(
                zip(self.tokens.tolist(), self.parents.tolist(), self.depths().tolist(), strict=True)
            )
        ]
        return "<pre>node  token id\n" + "\n".join(lines) + "</pre>"

    def ancestor_mask(self) -> Bools:
        """bool ``[N + 1, N + 1]``, True where the row's node may attend: its ancestors and itself."""
        return _ancestor_mask(self.parents)

    def accepted_path(self, text: Sequence[int] | Ints) -> tuple[int, ...]:
        """Nodes whose tokens are what the target says, from the root down, the root left out.

        Args:
            text: int32, the true tokens after the root; the walk ends with them.
        """
        path = _accepted_path(self.tokens, self.parents, np.asarray(text, np.int32))
        return tuple(path.tolist())


@kernel
def _parents_first(parents: Ints) -> bool:
    if parents[0] != -1:
        return False
    for node in range(1, parents.size):  # noqa: SIM110 - compiled
        if not 0 <= parents[node] < node:
            return False
    return True


@kernel
def _depths(parents: Ints) -> Ints:
    depths = np.zeros(parents.size, np.int32)
    for node in range(1, parents.size):
        depths[node] = depths[parents[node]] + 1
    return depths


@kernel
def _ancestor_mask(parents: Ints) -> Bools:
    mask = np.zeros((parents.size, parents.size), np.bool_)
    mask[0, 0] = True
    for node in range(1, parents.size):
        for above in range(node):
            mask[node, above] = mask[parents[node], above]
        mask[node, node] = True
    return mask


@kernel
def _accepted_path(tokens: Ints, parents: Ints, text: Ints) -> Ints:
    """One pass over the nodes: a child stands behind its parent, so the walk never turns back."""
    path = np.empty(min(text.size, tokens.size - 1), np.int32)
    length, here = 0, 0
    for node in range(1, tokens.size):
        if length == text.size:
            break
        if parents[node] == here and tokens[node] == text[length]:
            path[length] = node
            length += 1
            here = node
    return path[:length]


def _whole(name: str, values: npt.ArrayLike) -> Ints:
    """Values as int32; numpy alone would cut fractions off and let large numbers wrap around."""
    given = np.asarray(values)
    if given.dtype == np.int32:
        return np.ascontiguousarray(given)
    limits = np.iinfo(np.int32)
    if given.size and (given.dtype.kind not in "iu" or given.min() < limits.min or given.max() > limits.max):
        raise ValueError(f"{name} must be whole numbers of 32 bits; got {given.ravel()[:5].tolist()}")
    return np.ascontiguousarray(given, dtype=np.int32)
