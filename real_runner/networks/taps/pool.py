"""The pools of a TAPS scorer: a beam over a drafter's marginals, depth by depth, each node scored given its path.

The nodes are chosen by marginals alone, in grid steps, so that every machine chooses the same ones; the scores that the
scorer then gives only order siblings. One arithmetic serves training, the dense record, with many roots, and a round,
with one.

Letters: N roots, D depths, n nodes of a pool, P of them that may have children, the root counted, H hidden size.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.channels import Channel, PoolRows
from simlab.errors import ModelError
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.jit import kernel
from simlab.real_runner.drafters.candidate_keys import NO_LAWS, sent
from simlab.real_runner.drafters.dense import BlockStates, draft_states, embedded_tokens, logits_of
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import blocks_per_pass, first_candidates
from simlab.real_runner.execution.fixed_drafter import run
from simlab.real_runner.networks.candidates import BaseCandidates, base_of
from simlab.real_runner.networks.network import Reach
from simlab.real_runner.networks.pools import joined_pools
from simlab.real_runner.networks.producer import ChannelAsked, Drafted, OnDrafter, WithModels, block_stage
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.networks.taps.scorer import ScorerInputs, TapsScorer, load_scorer
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import PoolColumns

_NUMBERS_PER_PASS = 2**26
"""A pass holds a few copies of so many numbers of embeddings."""


@dataclass(frozen=True, slots=True, eq=False)
class BeamNodes:
    """The nodes of the pools at some roots: n at each, depth by depth, in a depth from the most to the least probable.

    Attributes:
        sizes: nodes of each depth.
        parents: int32 ``[N, n]``, 0 the root, else the parent's place, from 1.
        ranks: int32 ``[N, n]``, the drafter's of the node's token at its depth.
        tokens: int32 ``[N, n]``.
        log_probs: float32 ``[N, n]``, of the token at its depth by the marginals, on the grid.
    """

    sizes: tuple[int, ...]
    parents: Ints
    ranks: Ints
    tokens: Ints
    log_probs: Floats

    @property
    def depths(self) -> Longs:
        """int64 ``[n]``, from 1."""
        return np.repeat(np.arange(1, len(self.sizes) + 1), self.sizes)


def beam_nodes(base: BaseCandidates, reach: PoolReach) -> BeamNodes:
    """The nodes of each depth with the largest path probabilities by marginals, below those of the depth above.

    Of equal ones those of the earlier parent are first, of one parent those of the smaller rank.

    Args:
        base: at least as many candidates as ``reach`` extends by.
        reach: of the pools; no more than the drafter has.
    """
    sizes = reach.sizes(base.depth)
    parents, ranks = _beam(base.log_probs[:, :, : reach.extensions], np.array(sizes))
    depths = np.repeat(np.arange(base.depth), sizes)
    roots = np.arange(len(base))[:, None]
    chosen = roots, depths[None], ranks
    return BeamNodes(tuple(sizes), parents, ranks, base.ids[chosen], base.log_probs[chosen])


def pools_of(nodes: BeamNodes, log_probs: Floats) -> PoolRows:
    """The nodes as a channel has them: by parent, the most probable first, of equal ones the smaller id.

    Args:
        nodes: of the pools.
        log_probs: float32 ``[N, n]``, of each token given its path, on the grid.
    """
    num_roots, num = nodes.parents.shape
    rows, first = np.arange(num_roots)[:, None], 0
    numbers = np.zeros((num_roots, num + 1), np.int32)
    orders = []
    for size in nodes.sizes:
        level = slice(first, first + size)
        above = np.take_along_axis(numbers, nodes.parents[:, level], 1)
        order = first + np.lexsort((nodes.tokens[:, level], -log_probs[:, level], above), axis=-1)
        numbers[rows, order + 1] = np.arange(first + 1, first + size + 1)
        orders.append(order)
        first += size
    order = np.concatenate([np.empty((num_roots, 0), np.int64), *orders], axis=1)
    parents = np.take_along_axis(numbers, np.take_along_axis(nodes.parents, order, 1), 1)
    expanded = np.zeros((num_roots, num + 1), np.bool_)
    np.put_along_axis(expanded, parents, values=True, axis=1)
    return PoolRows(
        np.full(num_roots, num, np.int64),
        np.take_along_axis(nodes.tokens, order, 1).ravel(),
        parents.ravel(),
        np.take_along_axis(log_probs, order, 1).ravel(),
        np.ascontiguousarray(expanded[:, 1:]).ravel(),
    )


@kernel
def _beam(log_probs: Floats, sizes: Longs) -> tuple[Ints, Ints]:
    """Parents and ranks, int32 ``[N, n]`` each, of log-probabilities ``[N, D, W]``."""
    num_roots, num_depths, width = log_probs.shape
    num, widest = 0, 1
    for size in sizes:
        num, widest = num + size, max(widest, size)
    parents, ranks = np.empty((num_roots, num), np.int32), np.empty((num_roots, num), np.int32)
    above, costs = np.zeros(widest, np.int64), np.zeros(widest, np.int64)
    num_taken = np.zeros(widest, np.int32)
    for root in range(num_roots):
        above[0], num_above, first_above, first = 0, 1, -1, 0
        for depth in range(num_depths):
            row = log_probs[root, depth]
            num_taken[:num_above] = 0
            for index in range(sizes[depth]):
                best, lowest = -1, np.int64(0)
                for parent in range(num_above):
                    if num_taken[parent] < width:
                        cost = above[parent] + np.int64(-row[num_taken[parent]] * STEPS_PER_NAT)
                        if best < 0 or cost < lowest:
                            best, lowest = parent, cost
                parents[root, first + index] = 0 if depth == 0 else first_above + best + 1
                ranks[root, first + index] = num_taken[best]
                costs[index] = lowest
                num_taken[best] += 1
            for index in range(sizes[depth]):
                above[index] = costs[index]
            num_above, first_above = sizes[depth], first
            first += sizes[depth]
    return parents, ranks


def scorer_inputs(
    drafter: DFlashDrafter,
    target: Target,
    states: BlockStates,
    root_tokens: Ints,
    base: BaseCandidates,
    nodes: BeamNodes,
) -> ScorerInputs:
    """What a scorer reads of the pools at some roots.

    Args:
        drafter: whose states the pool goes on from.
        target: lends it the embedding.
        states: of the drafter's pass, of N roots.
        root_tokens: int32 ``[N]``.
        base: the candidates that the nodes were chosen from.
        nodes: of the pools.
    """
    device = states.after.device
    tokens = np.concatenate([root_tokens[:, None], nodes.tokens], axis=1).astype(np.int64)
    return ScorerInputs(
        parents=sent(torch.from_numpy(nodes.parents.astype(np.int64)), device),
        depths=sent(torch.from_numpy(nodes.depths), device),
        sizes=nodes.sizes,
        log_probs=sent(torch.from_numpy(nodes.log_probs), device),
        spread=sent(torch.from_numpy(_spread(base).astype(np.float32)), device),
        states=states.after.float(),
        embedded=embedded_tokens(drafter, target, sent(torch.from_numpy(tokens), device)).float(),
    )


def first_base(drafter: DFlashDrafter, target: Target, states: BlockStates, width: int) -> BaseCandidates:
    """The drafter's first candidates at every depth of some states."""
    log_probs = logits_of(drafter, target, states.after).log_softmax(-1).flatten(0, 1)
    ids, kept = first_candidates(log_probs, width)
    whole = ids if drafter.vocabulary is None else drafter.vocabulary.to_target(ids)
    shape = *states.after.shape[:2], width
    return BaseCandidates(whole.astype(np.int32).reshape(shape), kept.reshape(shape))


def _spread(base: BaseCandidates) -> Doubles:
    """float64 ``[N, D, 3]``: entropy and top gap of the candidates that are read, in nats, and their mass."""
    log_probs = base.log_probs.astype(np.float64)
    probs = np.exp(log_probs)
    gap = log_probs[..., 0] - log_probs[..., min(1, base.width - 1)]
    return np.stack([-(probs * log_probs).sum(-1), gap, probs.sum(-1)], axis=-1)


# The channel of a TAPS scorer.


@dataclass(frozen=True, slots=True, eq=False)
class TapsProducer(OnDrafter[DFlashDrafter, PoolReach]):
    """A scorer on its drafter; a smaller beam has other children, so nothing of a pool is left out.

    Attributes:
        scorer: which borrows the embedding of drafter and target.
    """

    scorer: TapsScorer

    def at_root(self, drafted: Drafted) -> Channel:
        return self.pools(drafted.states, drafted.root, base_of(drafted.marginals, self.width)).row(0, 0)

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> PoolColumns:
        config, last = self.drafter.config, len(tokens) - 1
        roots = torch.arange(last - len(rows.counts), last, device=tokens.device)
        per_pass = min(
            blocks_per_pass(config.num_attention_heads, config.block_size, len(tokens)),
            max(1, _NUMBERS_PER_PASS // (self.own.num_scores(config.depth) * config.hidden_size)),
        )
        passes = draft_states(self.drafter, self.target, features, tokens, roots, per_pass)
        return PoolColumns.unlabelled(joined_pools([self.pools(*part) for part in self.along(passes, tokens, rows)]))

    @torch.inference_mode()
    def pools(self, states: BlockStates, root_tokens: Ints, base: BaseCandidates) -> PoolRows:
        """The pools below some roots.

        Args:
            states: of the drafter's pass, of N roots.
            root_tokens: int32 ``[N]``.
            base: the drafter's first candidates below these roots, `width` of each depth.
        """
        nodes = beam_nodes(base, self.own)
        inputs = scorer_inputs(self.drafter, self.target, states, root_tokens, base, nodes)

        def work(parents: Tensor, depths: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
            scores, rest = self.scorer(ScorerInputs(parents, depths, inputs.sizes, *others))
            return scores, rest

        beside = (inputs.log_probs, inputs.spread, inputs.states, inputs.embedded)
        scores, _ = run(self.graphs, ("taps", self.scorer, inputs.sizes), work, inputs.parents, inputs.depths, *beside)
        log_probs = scores.cpu().numpy()
        if not np.isfinite(log_probs).all():
            raise ModelError(NO_LAWS)
        # Marginals are rounded to the grid, so that all children of a node may have a hair more than 1.
        return pools_of(nodes, to_grid(np.minimum(log_probs, 0.0)))


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The scorer of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    assert isinstance(reach, PoolReach)
    scorer = load_scorer(asked.location, block_stage(asked.stage), asked.digest)[0]
    return lambda its, target: TapsProducer(block_stage(its), target, reach, scorer.to(target.device))
