"""Whether fixed shapes are enough on this machine: is a row the same wherever and beside whatever it stands?"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.errors import ModelError
from simlab.real_runner.attention.batch_invariant import FixedShape, fixed_shape
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target
from simlab.tree import DraftTree

MOST_SHAPES = 4
"""As many shapes of passes are tried before a run."""


def check_shapes_agree(models: Models, prompts: Sequence[Ints], max_new_tokens: int) -> None:
    """`check_rows_agree` on a prompt of each shape that passes will have; of many on four, from short to long texts.

    Args:
        models: with fixed rows.
        prompts: int32 token ids of each.
        max_new_tokens: that may follow each of them.
    """
    of_shape = {fixed_shape(models.fixed_rows, len(ids), max_new_tokens).num_tokens: ids for ids in prompts}
    shapes = sorted(of_shape)
    for place in np.linspace(0, len(shapes) - 1, min(len(shapes), MOST_SHAPES)).round().astype(int).tolist():
        check_rows_agree(models, of_shape[shapes[place]], max_new_tokens)


def check_rows_agree(models: Models, token_ids: Ints, max_new_tokens: int) -> None:
    """Hold a tree of one depth, read in one pass, against its tokens read one by one, and against itself backwards.

    It is a test on one text, not a proof: kernels are chosen by shape, and those of this text are the ones tested.

    Args:
        models: with fixed rows.
        token_ids: int32, of a prompt.
        max_new_tokens: that may follow it.
    """
    num_rows = models.fixed_rows
    worst = _worst_difference(models.target, fixed_shape(num_rows, len(token_ids), max_new_tokens), token_ids)
    if worst != 0:
        kind = str(models.target.dtype).removeprefix("torch.")
        raise ModelError(
            f"in {kind}, with {torch.get_num_threads()} threads on {models.target.device}, logits depend on the "
            f"row of a token among {num_rows} (by {worst:.2g}), so a fixed shape makes no texts identical here; try "
            "another --dtype, other --threads or another budget"
        )


@torch.inference_mode()
def _worst_difference(target: Target, shape: FixedShape, token_ids: Ints) -> float:
    """The largest between logits that must be equal; NaN where one is no number."""
    cache, position = BufferCache(target, shape.num_tokens + shape.num_rows), len(token_ids) - 1
    ids = torch.from_numpy(token_ids.astype(np.int64))[None]
    target.states(ids, cache)
    num = min(shape.num_rows - 1, target.vocab_size)
    tokens = ((np.arange(num) + int(token_ids[0])) % target.vocab_size).astype(np.int32)
    root = int(token_ids[-1])
    forwards = _logits(target, shape, cache, _star(root, tokens), position)
    backwards = _logits(target, shape, cache, _star(root, tokens[::-1]), position)
    apart = [(forwards[0] - backwards[0]).abs().max(), (forwards[1:] - backwards[1:].flip(0)).abs().max()]
    alone = _logits(target, shape, cache, DraftTree.root_only(root), position, kept=1)
    apart.append((alone[0] - forwards[0]).abs().max())
    for place in {0, num // 2, num - 1}:
        read = _logits(target, shape, cache, DraftTree.root_only(int(tokens[place])), position + 1)
        apart.append((read[0] - forwards[1 + place]).abs().max())
    return float(torch.stack(apart).max())


def _star(root: int, tokens: Ints) -> DraftTree:
    """Every token a child of the root."""
    parents = np.zeros(len(tokens) + 1, np.int32)
    parents[0] = -1
    return DraftTree(np.concatenate([[root], tokens]).astype(np.int32), parents)


def _logits(
    target: Target, shape: FixedShape, cache: BufferCache, tree: DraftTree, position: int, kept: int = 0
) -> Tensor:
    """float32 ``[N + 1, V]``; the cache keeps that many tokens of the pass."""
    cache.shorten(position)
    ids, positions, fixed = shape.tree_pass(tree, position, target.heads_per_group, target.dtype, target.device)
    states = target.states(ids, cache, None, positions, fixed=fixed)[0]
    cache.shorten(position + kept)
    return target.logits(states)[: tree.num_nodes]
