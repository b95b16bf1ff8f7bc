"""Pools of a block drafter that is run again behind each path: what may follow a path, given all of it.

A reconstruction of what JetSpec's paper describes (2026, arXiv 2606.18394; the released builder has rows of one pass
alone): depth by depth, the most probable paths fill the first slots of a block, and the first mask behind says what
follows. That is a generator of pools as EAGLE-2's is (Li and others 2024, arXiv 2406.16858), of a block drafter. The
drafter should have learnt with filled slots (`simlab train dflash --variable-prefix`).

One arithmetic serves the dense record, with many roots, and a round, with one.

Letters: N roots, D depths, b paths that are looked behind at a depth, R tokens behind each, V tokens of the drafter.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats, Ints, Longs
from simlab.channels import Channel, PoolRows
from simlab.grid import to_grid
from simlab.real_runner.drafters.dense import block_states
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.networks.candidates import BaseCandidates, base_candidates, base_of, first_of_all
from simlab.real_runner.networks.pools import beam_pools, joined_pools
from simlab.real_runner.networks.producer import Drafted, OnDrafter
from simlab.real_runner.networks.redraft.config import PathReach
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import PoolColumns

# The channel of a block drafter that is run again behind each path: a pool of paths.


@dataclass(frozen=True, slots=True, eq=False)
class PathProducer(OnDrafter[DFlashDrafter, PathReach]):
    """A drafter that goes on from its own rows; a smaller beam has other children, so nothing of a pool is left out."""

    def at_root(self, drafted: Drafted) -> Channel:
        """The pool at one root, in a round; see `Producer.at_root`."""
        device = drafted.states.after.device
        root, position = (torch.tensor([one], device=device) for one in (drafted.root_token, drafted.position))
        base = base_of(drafted.marginals, self.width)
        pools = self.pools(root, position, drafted.context, base)
        return pools.row(0, 0)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> PoolColumns:
        """The pools at every root of one text; see `Producer.columns`."""
        config, num_roots, last = self.drafter.config, len(rows.counts), len(tokens) - 1
        base = base_candidates(rows.ids, rows.log_probs, rows.counts, self.width)
        roots = torch.arange(last - num_roots, last, device=tokens.device)
        blocks = blocks_per_pass(config.num_attention_heads, config.block_size, len(tokens))
        per_pass = max(1, blocks // self.own.beam)
        context, parts = self.drafter.context(features[None]), list[PoolRows]()
        for first in range(0, num_roots, per_pass):
            some, part = roots[first : first + per_pass], base.part(first, first + per_pass)
            parts.append(self.pools(tokens[some], some, context, part))
        return PoolColumns.unlabelled(joined_pools(parts))

    @torch.inference_mode()
    def pools(self, root_tokens: Tensor, positions: Tensor, context: DrafterContext, base: BaseCandidates) -> PoolRows:
        """The pools below some roots of one text: its own candidates of the first depth, then a pass a depth.

        Args:
            root_tokens: int64 ``[N]``.
            positions: int64 ``[N]``, absolute.
            context: of the text; a block sees what lies before its own root.
            base: the drafter's first candidates below these roots, at least R.
        """
        paths, num_roots, top_k = np.empty((len(positions), 1, 0), np.int64), len(positions), self.own.top_k

        def behind(tokens: Ints, above: Longs) -> tuple[Ints, Floats]:
            nonlocal paths
            before = np.take_along_axis(paths, above[:, :, None], 1)
            paths = np.concatenate([before, tokens[:, :, None]], axis=2, dtype=np.int64)
            num_paths, length = paths.shape[1:]
            filled = torch.from_numpy(paths.reshape(num_roots * num_paths, length)).to(positions.device)
            roots, places = (one.repeat_interleave(num_paths) for one in (root_tokens, positions))
            states = block_states(self.drafter, self.target, roots, places, context, filled)
            ids, log_probs = first_of_all(self.drafter, self.target, states.after[:, length : length + 1], top_k)
            return ids.reshape(num_roots, num_paths, -1), to_grid(log_probs).reshape(num_roots, num_paths, -1)

        first = base.ids[:, :1, :top_k], base.log_probs[:, :1, :top_k]
        return beam_pools(first, behind, self.own.beam, self.drafter.config.depth - 1)
