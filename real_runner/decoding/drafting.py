"""What a round's draft is made of: the drafter's candidates, and the channels that a policy reads beside them.

The drafter is run once. Producers may read more of its candidates than the policy declares, and the policy sees only
what it declares, as a replay cuts a record.
"""

from dataclasses import replace

from torch import Tensor

from simlab.channels import Channel
from simlab.draft import Marginals
from simlab.errors import MissingChannelError
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.live_drafter import LiveDrafter
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.heads.producer import Drafted, Producer
from simlab.real_runner.models import Models


class Drafting:
    """The drafter of one text, and what makes its policy's channels from each of its passes."""

    def __init__(self, models: Models, policy: AnyPolicy, room: int) -> None:
        """Begin with nothing read of the text.

        Args:
            models: of them the drafter, and what makes the channels that the policy reads.
            policy: which drafts, or reads channels.
            room: tokens that the drafter's context will hold.

        Raises:
            MissingChannelError: a channel that the policy reads is not made, or made otherwise.
        """
        self._needs, self._producers = policy.needs, producers_of(models, policy)
        self._own = candidates_read(policy) if policy.needs.draft else CandidatesRead(0)
        width = max([self._own.width, *(one.width for one in self._producers.values())])
        self._drafter = LiveDrafter(models, replace(self._own, width=width), room)
        self._is_cut = width > self._own.width
        self._drafted: Drafted | None = None

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._drafter.read(features)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the context; see `LiveDrafter.rewind`."""
        self._drafter.rewind(length)

    def draft(self, root_token: int, position: int) -> None:
        """Run the drafter below a root at an absolute position, all before it read.

        Raises:
            ModelError: the drafter's logits are not numbers.
        """
        self._drafted = self._drafter.drafted(root_token, position)

    def marginals(self) -> Marginals | None:
        """What the policy sees of the last draft; None where it declares that it reads none."""
        if not self._needs.draft:
            return None
        marginals = self._last().marginals
        return marginals.first_ranks(self._own.width) if self._is_cut else marginals

    def channels(self) -> dict[str, Channel]:
        """The channels of a root, by name, each made here.

        Raises:
            ModelError: the numbers of a network are none.
        """
        drafted = self._last()
        return {name: one.at_root(drafted) for name, one in self._producers.items()}

    def _last(self) -> Drafted:
        if self._drafted is None:
            raise ValueError("nothing was drafted yet")
        return self._drafted


def is_drafting(policy: AnyPolicy) -> bool:
    """Whether rounds of a policy need the drafter's pass."""
    return policy.needs.draft or bool(policy.needs.channels)


def candidates_read(policy: AnyPolicy) -> CandidatesRead:
    """What a policy may read of a draft: a best-first tree of n nodes reads no candidate past rank n."""
    needs = policy.needs
    return CandidatesRead(policy.budget if needs.top_k is None else needs.top_k, needs.entropies)


def producers_of(models: Models, policy: AnyPolicy) -> dict[str, Producer]:
    """What makes the channels that a policy reads, each no more than it declares, by name.

    Raises:
        MissingChannelError: a channel is not made, or not as the policy reads it, or not by passes that run otherwise
            than one operation after the other.
    """
    needs = policy.needs.channels
    check_passes(policy, models.execution)
    for need in needs:
        if need.name not in models.channels:
            made = f"the channels {', '.join(models.channels)}" if models.channels else "no channel"
            raise MissingChannelError(
                f"{policy!r} reads the channel {need.name}, and the runner makes {made}; confirm the policy on a trace "
                f"with that channel, or give what makes it, `replace(models, channels={{{need.name!r}: PRODUCER}})`"
            )
    return {need.name: models.channels[need.name].within(need) for need in needs}


def check_passes(policy: AnyPolicy, execution: str, batch: int = 1) -> None:
    """Refuse a policy that reads channels where passes run otherwise than one text and one operation after the other.

    Args:
        policy: any.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`.
        batch: texts at a time.

    Raises:
        MissingChannelError: see above.
    """
    if policy.needs.channels and execution != EAGER:
        raise MissingChannelError(
            f"{policy!r} reads the channel {policy.needs.channels[0].name}, and channels are made by {EAGER} passes "
            f"alone; leave --execution {execution} out"
        )
    if policy.needs.channels and batch > 1:
        raise MissingChannelError(
            f"{policy!r} reads the channel {policy.needs.channels[0].name}, and channels are made for one text at a "
            "time; leave --batch out"
        )
