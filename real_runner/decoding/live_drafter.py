"""The drafter in live decoding: a growing context, and the candidates below one root."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from simlab.channels import Channel
from simlab.draft import Marginals
from simlab.real_runner.drafters.dense import block_states, logits_of
from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.execution.kv_buffers import ContextBuffer
from simlab.real_runner.heads.producer import Producer
from simlab.real_runner.models import Models


class LiveDrafter:
    """Drafts for one sequence. What the target has read since the last draft is projected when it drafts."""

    def __init__(
        self, models: Models, read: CandidatesRead, room: int, producers: Mapping[str, Producer] | None = None
    ) -> None:
        """Begin with nothing read of the text.

        Args:
            models: both of them; the drafter borrows the target's embedding and head.
            read: what is given at each depth.
            room: tokens that the context will hold.
            producers: of channels, by name; None: of none.
        """
        self._models, self._wanted, self._producers = models, read, dict(producers or {})
        widest = max((one.width for one in self._producers.values()), default=0)
        self._wide = replace(read, width=max(read.width, widest))
        self._buffer = ContextBuffer(models.drafter, room)
        self._waiting: list[Tensor] = []
        self._last = torch.empty(0)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._waiting.append(features)

    def marginals(self, root_token: int, position: int) -> Marginals:
        """The first candidates at each depth below a root at an absolute position, all before it read.

        Raises:
            ModelError: the drafter's logits are not numbers.
        """
        return self.drafted(root_token, position)[0]

    def drafted(self, root_token: int, position: int) -> tuple[Marginals, dict[str, Channel]]:
        """The candidates as `marginals` has them, and what each producer makes of the same pass, by name.

        Raises:
            ModelError: the numbers of a model are none.
        """
        drafter, target, context = self._models.drafter, self._models.target, self._project()
        roots = torch.tensor([root_token], device=target.device)
        positions = torch.tensor([position], device=target.device)
        states = block_states(drafter, target, roots, positions, context)
        logits = logits_of(drafter, target, states.after)[0]
        wide, own = first_marginals(logits, self._wide), drafter.vocabulary
        if own is not None:
            wide = own.in_target(wide)
        channels = {name: one.at_root(states, root_token, wide) for name, one in self._producers.items()}
        # A producer may read more candidates than the policy, which sees no more than it declares.
        return wide.first_ranks(self._wanted.width) if self._producers else wide, channels

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the context; the last few are left to be projected again."""
        if self._waiting:
            self._project()
        num_again = min(self._last.shape[1], length)
        self._buffer.length = length - num_again
        self._waiting = [self._last[:, :num_again]]

    def _project(self) -> DrafterContext:
        features = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting, dim=1)
        self._waiting, self._last = [], features[:, -3:]
        return self._buffer.append(self._models.drafter.context(features, self._buffer.length))
