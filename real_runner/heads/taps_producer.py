"""The channel of a TAPS scorer: the pool of a beam over its drafter's marginals, scored path by path."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from simlab.channels import Channel
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.heads.base import base_of
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.taps import TapsScorer
from simlab.real_runner.heads.taps_pool import PoolReach
from simlab.real_runner.heads.taps_rows import pool_columns, scored_pools
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import PoolColumns


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
