"""What the recorder and the runner ask of a network that puts a channel beside a drafter's candidates."""

from typing import Protocol

from torch import Tensor

from simlab.channels import Channel
from simlab.draft import Marginals
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import BlockStates
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import ChannelColumns


class Producer(Protocol):
    """A network, its drafter and its target, and how far its channel reaches.

    A row is a function of the models and of the text up to its root, on the grid; so what is recorded at every root of
    a text is what a round has at that root, up to the last bits of the arithmetic.
    """

    @property
    def kind(self) -> str:
        """One of `simlab.channels.KINDS`."""
        ...

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        ...

    def within(self, need: ChannelNeed) -> "Producer":
        """This producer making no more than a policy reads.

        Raises:
            MissingChannelError: it cannot make as much, or makes it otherwise.
        """
        ...

    def at_root(self, states: BlockStates, root_token: int, marginals: Marginals) -> Channel:
        """The channel at one root, in a round.

        Args:
            states: ``[1, D, H]``, of the drafter's pass.
            root_token: below which was drafted.
            marginals: the first candidates of each depth, at least ``width``.

        Raises:
            ModelError: the marginals are too narrow, or the network's numbers are none.
        """
        ...

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> ChannelColumns:
        """The channel at every root of one text, to be recorded.

        Args:
            features: ``[C, taps x H]``, tapped states of the target from position 0 on.
            tokens: int64 ``[P + T]``, prompt and text.
            rows: the recorded candidates at the ``T - 1`` roots.

        Raises:
            ModelError: the rows keep fewer candidates than are read, or the network's numbers are none.
        """
        ...
