"""The producer of a first-order head: the same rows for a recording and for a round."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from simlab.channels import TRANSITIONS, Transitions
from simlab.draft import Marginals
from simlab.errors import MissingChannelError
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.heads.base import base_of
from simlab.real_runner.heads.rows import HeadReach, head_rows
from simlab.real_runner.heads.text_rows import head_columns
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import TransitionColumns


@dataclass(frozen=True, slots=True, eq=False)
class TreeFlashProducer:
    """A first-order head, its drafter and its target; see `simlab.real_runner.heads.producer.Producer`.

    Attributes:
        head: on the device of the target, like the drafter.
        drafter: see there.
        target: see there.
        reach: how far its rows reach; no further than the drafter has tokens.
    """

    head: TreeFlashHead
    drafter: DFlashDrafter
    target: Target
    reach: HeadReach

    @property
    def kind(self) -> str:
        """Transitions."""
        return TRANSITIONS

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        return self.reach.width

    def within(self, need: ChannelNeed) -> "TreeFlashProducer":
        """This head with the rows and the candidates that a policy reads.

        Raises:
            MissingChannelError: the policy declares another kind, or more than the head was set to give.
        """
        least, num = dict(need.least), self.drafter.config.draft_vocab_size or self.drafter.config.vocab_size
        previous, top_k = least.get("previous", self.reach.previous), least.get("top_k", self.reach.top_k)
        too_many = min(previous, num) > self.reach.previous or min(top_k, num) > self.reach.top_k
        if need.kind != TRANSITIONS or need.equal or too_many:
            raise MissingChannelError(
                f"the policy declares {need}, and the head gives {TRANSITIONS} of previous {self.reach.previous} and "
                f"top_k {self.reach.top_k}; ask for no more"
            )
        return replace(self, reach=HeadReach(previous, top_k, self.reach.candidates).within(num))

    def at_root(self, states: BlockStates, root_token: int, marginals: Marginals) -> Transitions:
        """The rows below one root, in a round."""
        root = np.array([root_token], np.int32)
        base = base_of(marginals, self.reach.width)
        return head_rows(self.head, self.drafter, self.target, states, root, base, self.reach).transitions.row(0, 0)

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> TransitionColumns:
        """The rows at every root of one text, to be recorded."""
        return head_columns(self.head, self.drafter, self.target, features, tokens, rows, self.reach)
