"""Passes of one fixed shape, so that a token's logits do not depend on what it is computed beside.

A matrix product adds in another order when its shape is another one, so in bfloat16 a tree and a single token end in
other last bits, and a close call can fall the other way. Here every pass has the same number of rows, live ones first,
and every row attends to the keys of its own text in the order of that text: first what was written, then its ancestors
in the tree, as if these had been written too. Each row is then the same sums in the same order, whatever tree it
stands in. The demand is called batch invariance (He and Thinking Machines Lab 2025, "Defeating Nondeterminism in LLM
Inference"), and is there met by kernels made for it; here the kernels are whatever there is, and their shapes are held
still. Whether that is enough on a machine is seen by `simlab.real_runner.confirm.setup`.

Letters: R rows of a pass, C tokens of a text at most, A query heads, E key-value heads, F head size, P rows of a piece.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from simlab.arrays import Bools, Longs
from simlab.errors import PolicyError
from simlab.policies.named.chain import most_drafted
from simlab.policy import AnyPolicy
from simlab.tree import DraftTree

ROWS_STEP = 8
"""Rows are a multiple of this: float32 kernels compute the last few rows of a product in another way."""

_TOKENS_STEP = 64
_PIECE_ON_CPU, _PIECE = 2, 8
"""P, a divisor of every R: rows that gather keys at once. One live row then costs a small piece where that counts."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedPass:
    """Which tokens each row of a pass attends to.

    Attributes:
        slots: int64 ``[R, C]``, where in the buffer the keys of a row's text lie, by absolute position; 0 past its end.
        hidden: ``[R, 1, heads_per_group, C]``, of the model's dtype: 0 up to the row's own token, -inf past it.
        num_live: rows that hold a token; the others are padding.
    """

    slots: Tensor
    hidden: Tensor
    num_live: int


@dataclass(frozen=True, slots=True)
class FixedShape:
    """The shape of every pass that decides a token of one text.

    Attributes:
        num_rows: R.
        num_tokens: C, a multiple of 64: prompt and new tokens fit.
    """

    num_rows: int
    num_tokens: int

    def tree_pass(
        self, tree: DraftTree, position: int, heads_per_group: int, dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, Tensor, FixedPass]:
        """What the target reads, where, and what it sees.

        Args:
            tree: of ``N + 1`` nodes, at most R; the root alone is a pass of plain decoding.
            position: absolute position of the root; so many tokens lie before it, in the same slots of the buffer.
            heads_per_group: query heads that share a key.
            dtype: of the target.
            device: of the target.

        Returns:
            Token ids and absolute positions, int64 ``[1, R]``; and what each row attends to.
        """
        if tree.num_nodes > self.num_rows:
            raise PolicyError(
                f"a tree of {tree.num_drafted} drafted tokens does not fit into {self.num_rows} rows, the fixed shape "
                "of the passes of this run; set its rows by the largest budget"
            )
        ids, positions = (np.zeros((1, self.num_rows), np.int64) for _ in range(2))
        ids[0, : tree.num_nodes] = tree.tokens
        positions[0, : tree.num_nodes] = position + tree.depths()
        slots, visible = _slots_of(tree, position, self.num_rows, self.num_tokens)
        hidden = torch.zeros(visible.shape, dtype=dtype).masked_fill_(torch.from_numpy(~visible), float("-inf"))
        added = hidden[:, None, None].expand(-1, 1, heads_per_group, -1)
        fixed = FixedPass(torch.from_numpy(slots).to(device), added.to(device), tree.num_nodes)
        return torch.from_numpy(ids).to(device), torch.from_numpy(positions).to(device), fixed


def fixed_shape(num_rows: int, num_prompt: int, max_new_tokens: int) -> FixedShape:
    """The shape for one text, the same under every policy.

    Args:
        num_rows: of a pass, into which the trees of all policies fit; see `rows_for`.
        num_prompt: tokens of its prompt.
        max_new_tokens: that may follow them.
    """
    num_tokens = num_prompt + max_new_tokens
    return FixedShape(num_rows, -(-num_tokens // _TOKENS_STEP) * _TOKENS_STEP)


def rows_for(policies: Iterable[AnyPolicy], depth: int) -> int:
    """Rows into which the trees of all policies fit; a chain of any length is as long as the drafter is deep."""
    most = 1 + max((most_drafted(policy.budget, depth) for policy in policies), default=0)
    return -(-most // ROWS_STEP) * ROWS_STEP


def check_rows(policy: AnyPolicy, num_rows: int, depth: int) -> None:
    """Refuse a policy whose trees may be larger than a pass."""
    most = 1 + most_drafted(policy.budget, depth)
    if most > num_rows:
        raise PolicyError(
            f"{policy!r} may draft {most - 1} tokens, so its passes have {most} rows with the root, and the fixed "
            f"shape of this run has {num_rows}; give it more rows, or the policy a smaller budget"
        )


def _slots_of(tree: DraftTree, position: int, num_rows: int, num_tokens: int) -> tuple[Longs, Bools]:
    """Slots int64 ``[R, C]``, and bool ``[R, C]`` where a row has a token there.

    A node past the C-th token decides nothing of the text, and what it sees is cut off there. A row of padding sees
    the first token alone.
    """
    slots = np.zeros((num_rows, num_tokens + tree.num_nodes), np.int64)
    depths, parents = tree.depths().astype(np.int64), tree.parents.astype(np.int64)
    slots[: tree.num_nodes, :position] = np.arange(position)
    nodes: Longs = np.arange(tree.num_nodes, dtype=np.int64)
    here = nodes
    while len(nodes):
        slots[nodes, position + depths[here]] = position + here
        inner = here > 0
        nodes, here = nodes[inner], parents[here[inner]]
    lengths = np.ones(num_rows, np.int64)
    lengths[: tree.num_nodes] += position + depths
    return slots[:, :num_tokens], np.arange(num_tokens) < lengths[:, None]


def fixed_attention(query: Tensor, keys: Tensor, values: Tensor, fixed: FixedPass, scaling: float | None) -> Tensor:
    """Attention of every live row to its own text, in pieces of a fixed number of rows.

    Args:
        query: ``[1, A, R, F]``.
        keys: ``[1, E, slots, F]``, with those of this pass; what a row does not see may be anything finite.
        values: the same.
        fixed: what each row attends to.
        scaling: of the scores; None: ``F ** -0.5``.

    Returns:
        ``[1, R, A, F]``; 0 in pieces without a live row.
    """
    _, a, num_rows, f = query.shape
    groups = keys.shape[1]
    mixed = query.new_zeros(num_rows, groups, a // groups, f)
    queries = query[0].transpose(0, 1).reshape(num_rows, groups, a // groups, f)
    piece = _PIECE_ON_CPU if query.device.type == "cpu" else _PIECE
    for start in range(0, fixed.num_live, piece):
        rows = slice(start, start + piece)
        slots = fixed.slots[rows]
        mixed[rows] = nn.functional.scaled_dot_product_attention(
            queries[rows], _gathered(keys, slots), _gathered(values, slots), fixed.hidden[rows], scale=scaling
        )
    return mixed.view(1, num_rows, a, f)


def _gathered(held: Tensor, slots: Tensor) -> Tensor:
    """``[P, E, C, F]`` out of ``[1, E, slots, F]``, at int64 ``[P, C]``."""
    rows = held[0].index_select(1, slots.flatten())
    return rows.view(held.shape[1], *slots.shape, held.shape[3]).transpose(0, 1)
