"""The two kernels of `simlab.real_runner.attention.tree_attention`, in Triton. Letters as there."""

import triton
import triton.language as tl


# Sizes that change from tree to tree; code of its own for each would be compiled in the middle of a run.
@triton.jit(do_not_specialize=["num_rows", "per_split", "splits"])
def mix_parts(
    query, keys, values, root_at, ancestors, parts, sums,
    query_row, query_head, key_group, key_row, value_group, value_row, num_rows, per_split, splits, scaling,
    heads: tl.constexpr, groups: tl.constexpr, size: tl.constexpr, block_size: tl.constexpr,
    block_rows: tl.constexpr, block_keys: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    """The sums of one tile of rows over one part of the keys, not yet divided by their weights."""
    tile, group, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tile * block_rows + tl.arange(0, block_rows)
    head, node, is_row = group * heads + row // num_rows, row % num_rows, row < heads * num_rows
    column, is_column = tl.arange(0, block_size), tl.arange(0, block_size) < size
    asked = tl.load(
        query + (node * query_row + head * query_head)[:, None] + column[None, :],
        mask=is_row[:, None] & is_column[None, :],
        other=0.0,
    )
    root = tl.load(root_at).to(tl.int32)
    most = tl.full([block_rows], float("-inf"), tl.float32)
    weight = tl.zeros([block_rows], tl.float32)
    mixed = tl.zeros([block_rows, block_size], tl.float32)
    end = tl.minimum((split + 1) * per_split, root + num_rows)
    for first in range(split * per_split, end, block_keys):
        slot = first + tl.arange(0, block_keys)
        held = (slot < end)[:, None] & is_column[None, :]
        key = tl.load(keys + group * key_group + slot[:, None] * key_row + column[None, :], mask=held, other=0.0)
        if exact:
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
            values + group * value_group + slot[:, None] * value_row + column[None, :], mask=held, other=0.0
        )
        if exact:
            mixed = mixed * faded[:, None] + tl.dot(share, value, input_precision="ieee")
        else:
            mixed = mixed * faded[:, None] + tl.dot(share.to(value.dtype), value)
        most = highest
    at = split * num_rows * heads * groups + node * heads * groups + head
    tl.store(parts + at[:, None] * size + column[None, :], mixed, mask=is_row[:, None] & is_column[None, :])
    tl.store(sums + at, most, mask=is_row)
    tl.store(sums + splits * num_rows * heads * groups + at, weight, mask=is_row)


@triton.jit(do_not_specialize=["num", "splits"])
def join_parts(
    parts, sums, mixed, num, splits,
    block_splits: tl.constexpr, size: tl.constexpr, block_size: tl.constexpr,
):  # fmt: skip
    """One row of one head, of the sums over all parts of the keys."""
    row = tl.program_id(0)
    split, column = tl.arange(0, block_splits), tl.arange(0, block_size)
    is_split, is_column = split < splits, column < size
    most = tl.load(sums + split * num + row, mask=is_split, other=float("-inf"))
    weight = tl.load(sums + (splits + split) * num + row, mask=is_split, other=0.0)
    faded = tl.exp(most - tl.max(most, 0))
    part = tl.load(
        parts + (split * num + row)[:, None] * size + column[None, :],
        mask=is_split[:, None] & is_column[None, :],
        other=0.0,
    )
    whole = tl.sum(part * faded[:, None], 0) / tl.sum(weight * faded, 0)
    tl.store(mixed + row * size + column, whole, mask=is_column)
