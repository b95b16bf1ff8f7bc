"""Attention of a tree's nodes to a text and to their ancestors, where a GPU is kept busy by few rows.

The text before the root and the nodes themselves lie in one row of slots, the nodes from the root's slot on. The keys
are divided among the programs of a kernel and their parts are joined by a second one (Dao, Haziza, Massa and Sizov,
"Flash-Decoding for long-context inference", 2023): a tree has too few rows for a program each. The mask is made of the
root's position and of the ancestors inside the kernel, so slots behind the tree are not even read.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

try:
    from simlab.real_runner.attention import split_kernels
except ImportError:
    # torch for CPUs comes without Triton.
    HAS_KERNELS = False
else:
    HAS_KERNELS = True

_MOST_SPLITS = 64
_LEAST_KEYS = 64


def tree_attention(
    query: Tensor, keys: Tensor, values: Tensor, root: Tensor, ancestors: Tensor, num_seen: int, scaling: float
) -> Tensor:
    """Each node's mix of the values that it sees: all before the root, and its ancestors.

    Args:
        query: ``[R, A, F]``, of R nodes.
        keys: ``[E, room, F]``; node i has slot ``root + i``. ``A`` is a multiple of ``E``.
        values: the same.
        root: int64 ``[1]``, the slot of the root.
        ancestors: bool ``[R, R]``, a node itself counted.
        num_seen: slots that are looked at, at least ``root + R``.
        scaling: of the scores.

    Returns:
        ``[R, A x F]``.
    """
    if not HAS_KERNELS or query.device.type != "cuda":
        return plain_tree_attention(query, keys, values, root, ancestors, num_seen, scaling)
    return split_tree_attention(query, keys, values, root, ancestors, num_seen, scaling)


def plain_tree_attention(
    query: Tensor, keys: Tensor, values: Tensor, root: Tensor, ancestors: Tensor, num_seen: int, scaling: float
) -> Tensor:
    """`tree_attention` by torch's own attention, on any device; arguments and result as there."""
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
    """`tree_attention` by two kernels of Triton, on a GPU; arguments and result as there."""
    num_rows, num_heads, size = query.shape
    groups = keys.shape[0]
    heads = num_heads // groups
    block_rows = 16 if heads * num_rows <= 64 else 32
    tiles = -(-heads * num_rows // block_rows)
    splits = min(-(-num_seen // _LEAST_KEYS), _MOST_SPLITS, max(1, 512 // (tiles * groups)))
    per_split = -(-num_seen // (splits * _LEAST_KEYS)) * _LEAST_KEYS
    parts = query.new_empty(splits, num_rows, num_heads, size, dtype=torch.float32)
    sums = query.new_empty(2, splits, num_rows, num_heads, dtype=torch.float32)
    mixed = torch.empty_like(query)
    block_size = max(16, _power_of_two(size))
    # Triton launches on the current device; its interpreter, in tests, knows none.
    with torch.cuda.device(query.device) if query.device.type == "cuda" else nullcontext():
        split_kernels.mix_parts[(tiles, groups, splits)](
            query, keys, values, root, ancestors, parts, sums,
            query.stride(0), query.stride(1), keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
            num_rows, per_split, splits, scaling,
            heads=heads, groups=groups, size=size, block_size=block_size, block_rows=block_rows,
            block_keys=_LEAST_KEYS, exact=query.dtype == torch.float32, num_warps=4, num_stages=2,
        )  # fmt: skip
        split_kernels.join_parts[(num_rows * num_heads,)](
            parts, sums, mixed, num_rows * num_heads, splits,
            block_splits=_power_of_two(splits), size=size, block_size=block_size, num_warps=1,
        )  # fmt: skip
    return mixed.view(num_rows, num_heads * size)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
