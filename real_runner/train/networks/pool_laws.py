"""The target's probabilities at all nodes of some pools: the labels that TAPS's release learns from.

After TAPS (2026, arXiv 2606.00487). Of each text a few roots are drawn. The drafter's pool is made there as in a round,
and the target reads root and pool in one pass, each node seeing the text before the root, its ancestors and itself.
What is kept lies in a folder, in files of some texts that are written whole: a killed reading continues where it
stopped.

Letters: S texts, G roots of each, n nodes of a pool, P of them that have children or may have, the root counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from simlab.arrays import Floats, Ints, Longs
from simlab.errors import ModelError
from simlab.grid import LOWEST
from simlab.real_runner.checkpoints.files import write_tensors
from simlab.real_runner.decoding.tree_pass import TreeMask, pass_of
from simlab.real_runner.drafters.dense import block_states
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.networks.taps.pool import BeamNodes, beam_nodes, first_base
from simlab.real_runner.networks.taps.scorer import path_sums
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.text import FeatureStore
from simlab.tree import DraftTree

TEXTS_PER_FILE = 64
LEAST_MISS = 1e-7
"""A path is never sure, so that the loss of one that was not taken is finite."""


@dataclass(frozen=True, slots=True, eq=False)
class LawTexts:
    """The texts with such labels.

    Attributes:
        roots: int64 ``[S, G]``, absolute positions, of each usable text of a store, in its order.
        parents: int32 ``[S, G, n]``, and so on as `BeamNodes` has them.
        ranks: the same.
        tokens: the same.
        marginals: float32 ``[S, G, n]``.
        log_probs: float32 ``[S, G, n]``, the target's.
    """

    roots: Tensor
    parents: Ints
    ranks: Ints
    tokens: Ints
    marginals: Floats
    log_probs: Tensor

    def at(self, texts: Longs, reach: PoolReach, depth: int) -> tuple[BeamNodes, Tensor]:
        """The pools of some texts, by their places, root after root; and the target's, float32 ``[N, n]``."""
        num = self.parents.shape[-1]
        parents, ranks, tokens = (array[texts].reshape(-1, num) for array in (self.parents, self.ranks, self.tokens))
        marginals = self.marginals[texts].reshape(-1, num)
        nodes = BeamNodes(tuple(reach.sizes(depth)), parents, ranks, tokens, marginals)
        return nodes, self.log_probs[torch.from_numpy(texts)].view(-1, num)


def read_laws(
    store: FeatureStore, drafter: DFlashDrafter, target: Target, reach: PoolReach, folder: Path, num: int, seed: int
) -> LawTexts:
    """The labels of some roots of every usable text, read or taken from the folder.

    Args:
        store: of the texts and the states that the drafter reads.
        drafter: whose pools these are, in the target's dtype.
        target: that is asked.
        reach: of the pools; no more than the drafter has.
        folder: that keeps them.
        num: roots of a text.
        seed: of the drawing of roots.

    Raises:
        ModelError: a file in the folder is damaged, or the logits are no law.
    """
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(store.usable), TEXTS_PER_FILE)
    parts = []
    with tqdm(total=len(store.usable), desc="asking the target at pools", unit="text", disable=None) as bar:
        for number, start in enumerate(starts):
            part, path = store.usable[start : start + TEXTS_PER_FILE], folder / f"laws-{number:05d}.safetensors"
            if not path.is_file():
                rows = []
                for text in part:
                    rows.append(_of_text(store, text, drafter, target, reach, drawn_roots(store, text, num, seed)))
                    bar.update()
                names = rows[0]
                write_tensors(path, {name: torch.stack([row[name] for row in rows]) for name in names})
            else:
                bar.update(len(part))
            parts.append(_read_back(path))
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    parents, ranks, tokens, marginals = (whole[name].numpy() for name in ("parents", "ranks", "tokens", "marginals"))
    return LawTexts(whole["roots"], parents, ranks, tokens, marginals, whole["log_probs"])


def drawn_roots(store: FeatureStore, text: int, num: int, seed: int) -> Tensor:
    """int64 ``[G]``, rising: roots of a text, a function of text and seed alone; a short text has some twice."""
    first, last = store.roots_of(text)
    chance = np.random.default_rng([seed, text, 4])
    return torch.from_numpy(np.sort(chance.choice(last - first, num, replace=last - first < num)) + first)


def _of_text(
    store: FeatureStore, text: int, drafter: DFlashDrafter, target: Target, reach: PoolReach, roots: Tensor
) -> dict[str, Tensor]:
    batch = store.at([text], roots[None], drafter.config.block_size)
    tokens = batch.tokens[0].to(target.device)
    with torch.inference_mode():
        context = drafter.context(batch.features.to(target.device, target.dtype))
        at = roots.to(target.device)
        states = block_states(drafter, target, tokens[at], at, context)
        nodes = beam_nodes(first_base(drafter, target, states, reach.width), reach)
        laws = pool_laws(target, tokens, roots.tolist(), nodes)
    arrays = (nodes.parents, nodes.ranks.astype(np.int32), nodes.tokens, nodes.log_probs, laws)
    named = zip(("parents", "ranks", "tokens", "marginals", "log_probs"), arrays, strict=True)
    return {"roots": roots, **{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in named}}


@torch.inference_mode()
def pool_laws(target: Target, tokens: Tensor, roots: Sequence[int], nodes: BeamNodes) -> Floats:
    """The target's log-probability of each node's token at its parent, at temperature 1.

    The text is read once, up to the last root; behind each root its pool is read and forgotten again.

    Args:
        target: that is asked.
        tokens: int64 ``[L]``, prompt and text.
        roots: absolute positions, rising, as many as ``nodes`` has pools.
        nodes: of the pools.

    Returns:
        float32 ``[N, n]``, from -255 to 0.
    """
    num_requested = int((nodes.depths < len(nodes.sizes)).sum())
    cache, mask = BufferCache(target, int(roots[-1]) + 1 + num_requested), TreeMask(target)
    laws = np.empty(nodes.tokens.shape, np.float32)
    for number, root in enumerate(roots):
        if root > cache.length:
            target.states(tokens[None, cache.length : root], cache)
        parents = np.concatenate([[-1], nodes.parents[number, :num_requested]]).astype(np.int32)
        ids = np.concatenate([[int(tokens[root])], nodes.tokens[number, :num_requested]]).astype(np.int32)
        read, visible, positions = pass_of(DraftTree(ids, parents), root, mask)
        states = target.states(read, cache, visible, positions)
        cache.shorten(root)
        log_probs = target.logits(states[0]).log_softmax(-1)
        if not bool(torch.isfinite(log_probs.amax(-1)).all()):
            raise target.no_law()
        indices = (torch.from_numpy(array[number].astype(np.int64)) for array in (nodes.parents, nodes.tokens))
        laws[number] = log_probs.cpu()[tuple(indices)].clamp(min=LOWEST).numpy()
    return laws


def law_loss(nodes: BeamNodes, conditional: Tensor, rest: Tensor, laws: Tensor, reach_weight: float) -> Tensor:
    """The loss on the target's probabilities at all nodes of some pools, a scalar.

    The mean, over parents with children, of the Kullback-Leibler divergence of what a scorer says of the children and
    of any other outcome from what the target does; and ``reach_weight`` times the cross-entropy of reaching each node,
    summed over the nodes of a depth.

    Args:
        nodes: of the pools.
        conditional: float64 ``[N, n]``, a scorer's log-probability of each node given its parent.
        rest: float64 ``[N, P]``, that of any other outcome below each parent.
        laws: float32 ``[N, n]``, the target's log-probabilities.
        reach_weight: see above.
    """
    device = conditional.device
    parents = torch.from_numpy(nodes.parents.astype(np.int64)).to(device)
    theirs, nothing = laws.to(device).double(), torch.zeros_like(rest)
    others = (1.0 - nothing.scatter_add(1, parents, theirs.exp())).clamp(min=0.0)
    below = nothing.scatter_add(1, parents, theirs.exp() * (theirs - conditional))
    below = below + torch.special.xlogy(others, others) - others * rest
    is_parent = nothing.scatter_add(1, parents, torch.ones_like(theirs)) > 0
    divergence = (below * is_parent).sum() / is_parent.sum()
    true, predicted = (path_sums(parents, nodes.sizes, edges)[:, 1:] for edges in (theirs, conditional))
    missed = torch.log1p(-predicted.exp().clamp(max=1 - LEAST_MISS))
    crossed = -(true.exp() * predicted + (1.0 - true.exp()) * missed)
    loss: Tensor = divergence + reach_weight * crossed.sum() / (len(parents) * len(nodes.sizes))
    return loss.float()


def _read_back(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ModelError(f"the labels in {path} are damaged ({error}); delete that file, and resume") from error
