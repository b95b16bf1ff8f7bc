"""Attention of a tree's nodes to a text and to their ancestors, where a GPU is kept busy by few rows.

The text before the root and the nodes themselves lie in one row of slots, the nodes from the root's slot on. The keys
are divided among the programs of a kernel and their parts are joined by a second one (Dao, Haziza, Massa and Sizov,
"Flash-Decoding for long-context inference", 2023): a tree has too few rows for a program each. The mask is made of the
root's position and of the ancestors inside the kernel, so slots behind the tree are not even read.
"""

import torch
from torch import Tensor, nn

try:
    import triton
    import triton.language as tl
except ImportError:
    # torch for CPUs comes without it.
    triton = None

MOST_SPLITS = 64
_LEAST_KEYS = 64


def tree_attention(
    query: Tensor, keys: Tensor, values: Tensor, root: Tensor, ancestors: Tensor, num_seen: int, scaling: float
) -> Tensor:
    """Each node's mix of the values that it sees: all before the root, and its ancestors.

    Args:
        query: ``[R, A, F]``, of R nodes.
        keys: ``[E, room, F]``; node i has slot ``root + i``. ``A`` is a multiple of ``E``.
        values: likewise.
        root: int64 ``[1]``, the slot of the root.
        ancestors: bool ``[R, R]``, a node itself counted.
        num_seen: slots that are looked at, at least ``root + R``.
        scaling: of the scores.

    Returns:
        ``[R, A x F]``.
    """
    if triton is None or query.device.type != "cuda":
        return plain_tree_attention(query, keys, values, root, ancestors, num_seen, scaling)
    return split_tree_attention(query, keys, values, root, ancestors, num_seen, scaling)


def plain_tree_attention(
    query: Tensor, keys: Tensor, values: Tensor, root: Tensor, ancestors: Tensor, num_seen: int, scaling: float
) -> Tensor:
    """`tree_attention` by torch's own attention, on any device."""
    num_rows, num_heads, size = query.shape
    groups = keys.shape[0]
    visible = (torch.arange(num_seen, device=root.device) < root).repeat(num_rows, 1)
    visible.index_copy_(1, root + torch.arange(num_rows, device=root.device), ancestors)
    # The heads that read the same keys are further rows of one product.
    side_by_side = query.transpose(0, 1).reshape(1, groups, num_heads // groups * num_rows, size)
    mixed = nn.functional.scaled_dot_product_attention(
        side_by_side,
        keys[None, :, :num_seen],
        values[None, :, :num_seen],
        attn_mask=visible.repeat(num_heads // groups, 1)[None, None],
        scale=scaling,
    )
    return mixed.reshape(num_heads, num_rows, size).transpose(0, 1).reshape(num_rows, num_heads * size)


def split_tree_attention(
    query: Tensor, keys: Tensor, values: Tensor, root: Tensor, ancestors: Tensor, num_seen: int, scaling: float
) -> Tensor:
    """`tree_attention` by two kernels."""
    num_rows, num_heads, size = query.shape
    groups = keys.shape[0]
    heads = num_heads // groups
    block_rows = 16 if heads * num_rows <= 64 else 32
    tiles = -(-heads * num_rows // block_rows)
    splits = min(-(-num_seen // _LEAST_KEYS), MOST_SPLITS, max(1, 512 // (tiles * groups)))
    per_split = -(-num_seen // (splits * _LEAST_KEYS)) * _LEAST_KEYS
    parts = query.new_empty(splits, num_rows, num_heads, size, dtype=torch.float32)
    sums = query.new_empty(2, splits, num_rows, num_heads, dtype=torch.float32)
    mixed = torch.empty_like(query)
    block_size = max(16, triton.next_power_of_2(size))
    with torch.cuda.device(query.device) if query.device.type == "cuda" else torch.no_grad():
        _mix_parts[(tiles, groups, splits)](
            query, keys, values, root, ancestors, parts, sums,
            query.stride(0), query.stride(1), keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
            num_rows, per_split, scaling,
            HEADS=heads, GROUPS=groups, SPLITS=splits, SIZE=size, BLOCK_SIZE=block_size, BLOCK_ROWS=block_rows,
            BLOCK_KEYS=_LEAST_KEYS, EXACT=query.dtype == torch.float32, num_warps=4, num_stages=2,
        )  # fmt: skip
        _join_parts[(num_rows * num_heads,)](
            parts, sums, mixed, num_rows * num_heads,
            SPLITS=splits, BLOCK_SPLITS=triton.next_power_of_2(splits), SIZE=size, BLOCK_SIZE=block_size, num_warps=1,
        )  # fmt: skip
    return mixed.view(num_rows, num_heads * size)


if triton is not None:

    @triton.jit
    def _mix_parts(
        query, keys, values, root_at, ancestors, parts, sums,
        query_row, query_head, key_group, key_row, value_group, value_row, num_rows, per_split, scaling,
        HEADS: tl.constexpr, GROUPS: tl.constexpr, SPLITS: tl.constexpr, SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
        BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, EXACT: tl.constexpr,
    ):  # fmt: skip
        """The sums of one tile of rows over one part of the keys, not yet divided by their weights."""
        tile, group, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        row = tile * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        head, node, is_row = group * HEADS + row // num_rows, row % num_rows, row < HEADS * num_rows
        place, is_place = tl.arange(0, BLOCK_SIZE), tl.arange(0, BLOCK_SIZE) < SIZE
        asked = tl.load(
            query + (node * query_row + head * query_head)[:, None] + place[None, :],
            mask=is_row[:, None] & is_place[None, :],
            other=0.0,
        )
        root = tl.load(root_at).to(tl.int32)
        most = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
        weight = tl.zeros([BLOCK_ROWS], tl.float32)
        mixed = tl.zeros([BLOCK_ROWS, BLOCK_SIZE], tl.float32)
        end = tl.minimum((split + 1) * per_split, root + num_rows)
        for first in range(split * per_split, end, BLOCK_KEYS):
            slot = first + tl.arange(0, BLOCK_KEYS)
            held = (slot < end)[:, None] & is_place[None, :]
            key = tl.load(keys + group * key_group + slot[:, None] * key_row + place[None, :], mask=held, other=0.0)
            if EXACT:
                score = tl.dot(asked, tl.trans(key), input_precision="ieee") * scaling
            else:
                score = tl.dot(asked, tl.trans(key)) * scaling
            other = slot - root
            is_node = (other >= 0) & (slot < end)
            is_ancestor = tl.load(
                ancestors + node[:, None] * num_rows + other[None, :],
                mask=is_row[:, None] & is_node[None, :],
                other=0,
            )
            score = tl.where((other < 0)[None, :] & (slot < end)[None, :] | (is_ancestor != 0), score, float("-inf"))
            highest = tl.maximum(most, tl.max(score, 1))
            level = tl.where(highest == float("-inf"), 0.0, highest)
            share = tl.exp(score - level[:, None])
            faded = tl.exp(most - level)
            weight = weight * faded + tl.sum(share, 1)
            value = tl.load(
                values + group * value_group + slot[:, None] * value_row + place[None, :], mask=held, other=0.0
            )
            if EXACT:
                mixed = mixed * faded[:, None] + tl.dot(share, value, input_precision="ieee")
            else:
                mixed = mixed * faded[:, None] + tl.dot(share.to(value.dtype), value)
            most = highest
        at = split * num_rows * HEADS * GROUPS + node * HEADS * GROUPS + head
        tl.store(
            parts + at[:, None] * SIZE + place[None, :], mixed, mask=is_row[:, None] & is_place[None, :]
        )
        tl.store(sums + at, most, mask=is_row)
        tl.store(sums + SPLITS * num_rows * HEADS * GROUPS + at, weight, mask=is_row)

    @triton.jit
    def _join_parts(
        parts, sums, mixed, num,
        SPLITS: tl.constexpr, BLOCK_SPLITS: tl.constexpr, SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    ):  # fmt: skip
        """One row of one head, of the sums over all parts of the keys."""
        row = tl.program_id(0)
        split, place = tl.arange(0, BLOCK_SPLITS), tl.arange(0, BLOCK_SIZE)
        is_split, is_place = split < SPLITS, place < SIZE
        most = tl.load(sums + split * num + row, mask=is_split, other=float("-inf"))
        weight = tl.load(sums + (SPLITS + split) * num + row, mask=is_split, other=0.0)
        faded = tl.exp(most - tl.max(most, 0))
        part = tl.load(
            parts + (split * num + row)[:, None] * SIZE + place[None, :],
            mask=is_split[:, None] & is_place[None, :],
            other=0.0,
        )
        whole = tl.sum(part * faded[:, None], 0) / tl.sum(weight * faded, 0)
        tl.store(mixed + row * SIZE + place, whole, mask=is_place)
