"""The channel of a TreeFlash head: transitions below the first tokens of its drafter."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from simlab.channels import Channel
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.heads.base import base_of
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.rows import HeadReach, head_rows
from simlab.real_runner.heads.text_rows import head_columns
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import TransitionColumns


@dataclass(frozen=True, slots=True, eq=False)
class TreeFlashProducer:
    """A head, the drafter and the target that it borrows from, and how far its rows reach.

    Attributes:
        head: and its drafter and target, whose embedding, norm and output head it borrows.
        drafter: see there.
        target: see there.
        reach: as it was asked for; of a drafter with fewer tokens all are taken.
    """

    head: TreeFlashHead
    drafter: DFlashDrafter
    target: Target
    reach: HeadReach

    @property
    def kind(self) -> str:
        """The kind of a first-order head's channel."""
        return self.reach.kind

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        return self._own.width

    def within(self, need: ChannelNeed) -> "TreeFlashProducer":
        """This producer with no more rows, and no more tokens of a row, than a policy reads.

        Raises:
            MissingChannelError: it makes fewer, or makes them otherwise.
        """
        check_makes(need, self.kind, self.reach.settings(self.drafter.config.depth))
        least = dict(need.least)
        previous, top_k = least.get("previous", self.reach.previous), least.get("top_k", self.reach.top_k)
        return replace(self, reach=HeadReach(previous, top_k, self.reach.candidates))

    def at_root(self, drafted: Drafted) -> Channel:
        """The transitions at one root, in a round; see `Producer.at_root`.

        Raises:
            ModelError: the marginals are too narrow, or the logits are no numbers.
        """
        root = np.array([drafted.root_token], np.int32)
        base = base_of(drafted.marginals, self.width)
        return head_rows(self.head, self.drafter, self.target, drafted.states, root, base, self._own).transitions.row(
            0, 0
        )

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> TransitionColumns:
        """The transitions at every root of one text; see `Producer.columns`.

        Raises:
            ModelError: the rows keep fewer candidates than are read, or the logits are no numbers.
        """
        return head_columns(self.head, self.drafter, self.target, features, tokens, rows, self._own)

    @property
    def _own(self) -> HeadReach:
        config = self.drafter.config
        return self.reach.within(config.draft_vocab_size or config.vocab_size)
