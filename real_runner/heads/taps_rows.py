"""The pools of a TAPS scorer: nodes chosen by marginals, each scored given its path.

One arithmetic serves training, the dense record, with many roots, and a round, with one.

Letters: N roots, D depths, n nodes of a pool, P of them that may have children, the root counted, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Ints
from simlab.channels import Channel, PoolRows
from simlab.errors import ModelError
from simlab.grid import to_grid
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import BlockStates, draft_states, embedded_tokens, logits_of
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.places import NO_LAWS
from simlab.real_runner.drafters.ranked import blocks_per_pass, first_candidates
from simlab.real_runner.heads.base import BaseCandidates, base_candidates, base_of
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.taps import ScorerInputs, TapsScorer
from simlab.real_runner.heads.taps_pool import BeamNodes, PoolReach, beam_nodes, pools_of
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import PoolColumns

_NUMBERS_PER_PASS = 2**26
"""A pass holds a few copies of so many numbers of embeddings."""


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
        drafter: and its target, whose embedding it borrows.
        target: see there.
        states: of the drafter's pass, of N roots.
        root_tokens: int32 ``[N]``.
        base: the candidates that the nodes were chosen from.
        nodes: of the pools.
    """
    device = states.after.device
    tokens = np.concatenate([root_tokens[:, None], nodes.tokens], axis=1).astype(np.int64)
    return ScorerInputs(
        parents=torch.from_numpy(nodes.parents.astype(np.int64)).to(device),
        depths=torch.from_numpy(nodes.depths).to(device),
        log_probs=torch.from_numpy(nodes.log_probs).to(device),
        spread=torch.from_numpy(_spread(base)).float().to(device),
        states=states.after.float(),
        embedded=embedded_tokens(drafter, target, torch.from_numpy(tokens).to(device)).float(),
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


@torch.inference_mode()
def scored_pools(
    scorer: TapsScorer,
    drafter: DFlashDrafter,
    target: Target,
    states: BlockStates,
    root_tokens: Ints,
    base: BaseCandidates,
    reach: PoolReach,
) -> PoolRows:
    """The pools below some roots.

    Args:
        scorer: and its drafter and target, whose embedding it borrows.
        drafter: see there.
        target: see there.
        states: of the drafter's pass, of N roots.
        root_tokens: int32 ``[N]``.
        base: the drafter's first candidates below these roots, ``reach.width`` of each depth.
        reach: of the pools; no more than the drafter has.
    """
    nodes = beam_nodes(base, reach)
    scores, _ = scorer(scorer_inputs(drafter, target, states, root_tokens, base, nodes))
    log_probs = scores.cpu().numpy()
    if not np.isfinite(log_probs).all():
        raise ModelError(NO_LAWS)
    # Marginals are rounded to the grid, so that all children of a node may have a hair more than 1.
    return pools_of(nodes, to_grid(np.minimum(log_probs, 0.0)))


def pool_columns(
    scorer: TapsScorer,
    drafter: DFlashDrafter,
    target: Target,
    features: Tensor,
    tokens: Tensor,
    rows: DraftRows,
    reach: PoolReach,
) -> PoolColumns:
    """The pools below every root of one text.

    Args:
        scorer: and its drafter and target.
        drafter: see there.
        target: see there.
        features: ``[C, taps x H]``, tapped target states from position 0 on.
        tokens: int64 ``[P + T]``, prompt and text.
        rows: the recorded candidates at its ``T - 1`` roots.
        reach: of the pools; no more than the drafter has.
    """
    config, num_roots, last = drafter.config, len(rows.counts), len(tokens) - 1
    base = base_candidates(rows.ids, rows.log_probs, rows.counts, reach.width)
    roots = torch.arange(last - num_roots, last, device=tokens.device)
    ids = tokens.cpu().numpy().astype(np.int32)
    per_pass = min(
        blocks_per_pass(config.num_attention_heads, config.block_size, len(tokens)),
        max(1, _NUMBERS_PER_PASS // (reach.num_scores(config.depth) * config.hidden_size)),
    )
    parts, first = list[PoolRows](), 0
    for some, states in draft_states(drafter, target, features, tokens, roots, per_pass):
        part, place = base.part(first, first + len(some)), last - num_roots + first
        parts.append(scored_pools(scorer, drafter, target, states, ids[place : place + len(some)], part, reach))
        first += len(some)
    return PoolColumns.unlabelled(joined_pools(parts))


def joined_pools(parts: Sequence[PoolRows]) -> PoolRows:
    """The pools of some roots, one part after the other; of no part none."""
    return PoolRows(
        np.concatenate([np.empty(0, np.int64), *(one.sizes for one in parts)]),
        np.concatenate([np.empty(0, np.int32), *(one.tokens for one in parts)]),
        np.concatenate([np.empty(0, np.int32), *(one.parents for one in parts)]),
        np.concatenate([np.empty(0, np.float32), *(one.log_probs for one in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(one.expanded for one in parts)]),
    )


# The channel of a TAPS scorer: the pool of a beam over its drafter's marginals, scored path by path.


@dataclass(frozen=True, slots=True, eq=False)
class TapsProducer:
    """A scorer, the drafter and the target that it borrows from, and how far its pools reach.

    Attributes:
        scorer: and its drafter and target, whose embedding it borrows.
        drafter: see there.
        target: see there.
        reach: as it was asked for; of a drafter with fewer tokens all are taken.
    """

    scorer: TapsScorer
    drafter: DFlashDrafter
    target: Target
    reach: PoolReach

    @property
    def kind(self) -> str:
        """The kind of a scorer's channel."""
        return self.reach.kind

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        return self._own.width

    def within(self, need: ChannelNeed) -> "TapsProducer":
        """This producer: a smaller beam has other children, so nothing of a pool is left out."""
        check_makes(need, self.kind, self.reach.settings(self.drafter.config.depth))
        return self

    def at_root(self, drafted: Drafted) -> Channel:
        """The pool at one root, in a round; see `Producer.at_root`."""
        root = np.array([drafted.root_token], np.int32)
        base = base_of(drafted.marginals, self.width)
        return scored_pools(self.scorer, self.drafter, self.target, drafted.states, root, base, self._own).row(0, 0)

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> PoolColumns:
        """The pools at every root of one text; see `Producer.columns`."""
        return pool_columns(self.scorer, self.drafter, self.target, features, tokens, rows, self._own)

    @property
    def _own(self) -> PoolReach:
        config = self.drafter.config
        return self.reach.within(config.draft_vocab_size or config.vocab_size)
