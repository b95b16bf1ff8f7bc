"""The channel of a block drafter that is run again behind each path: a pool of paths."""

from dataclasses import dataclass

import torch
from torch import Tensor

from simlab.channels import Channel, PoolRows
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.heads.base import base_candidates, base_of
from simlab.real_runner.heads.path_pool import PathReach, path_pools
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.taps_rows import joined_pools
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import PoolColumns


@dataclass(frozen=True, slots=True, eq=False)
class PathProducer:
    """A drafter that goes on from its own rows, the target that it borrows from, and how far its pools reach.

    Attributes:
        drafter: whose rows begin the pools, and which is run again.
        target: see there.
        reach: as it was asked for; of a drafter with fewer tokens all are taken.
    """

    drafter: DFlashDrafter
    target: Target
    reach: PathReach

    @property
    def kind(self) -> str:
        """The kind of this channel."""
        return self.reach.kind

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        return self._own.width

    def within(self, need: ChannelNeed) -> "PathProducer":
        """This producer: a smaller beam has other children, so nothing of a pool is left out."""
        check_makes(need, self.kind, self.reach.settings(self.drafter.config.depth))
        return self

    def at_root(self, drafted: Drafted) -> Channel:
        """The pool at one root, in a round; see `Producer.at_root`."""
        device = drafted.states.after.device
        root, position = (torch.tensor([one], device=device) for one in (drafted.root_token, drafted.position))
        base = base_of(drafted.marginals, self.width)
        pools = path_pools(self.drafter, self.target, root, position, drafted.context, base, self._own)
        return pools.row(0, 0)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> PoolColumns:
        """The pools at every root of one text; see `Producer.columns`."""
        config, num_roots, last = self.drafter.config, len(rows.counts), len(tokens) - 1
        base = base_candidates(rows.ids, rows.log_probs, rows.counts, self.width)
        roots = torch.arange(last - num_roots, last, device=tokens.device)
        blocks = blocks_per_pass(config.num_attention_heads, config.block_size, len(tokens))
        per_pass = max(1, blocks // self._own.beam)
        context, parts = self.drafter.context(features[None]), list[PoolRows]()
        for first in range(0, num_roots, per_pass):
            some, part = roots[first : first + per_pass], base.part(first, first + per_pass)
            parts.append(path_pools(self.drafter, self.target, tokens[some], some, context, part, self._own))
        return PoolColumns.unlabelled(joined_pools(parts))

    @property
    def _own(self) -> PathReach:
        config = self.drafter.config
        return self.reach.within(config.draft_vocab_size or config.vocab_size)
