"""The drafter in live decoding: a growing context, and the candidates below one root."""

import torch
from torch import Tensor

from simlab.draft import Marginals
from simlab.real_runner.drafters.dense import block_states, logits_of
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.drafters.text_context import TextContext
from simlab.real_runner.heads.producer import Drafted
from simlab.real_runner.models import Models


class LiveDrafter:
    """Drafts for one sequence. What the target has read since the last draft is projected when it drafts."""

    def __init__(self, models: Models, read: CandidatesRead, room: int) -> None:
        """Begin with nothing read of the text.

        Args:
            models: both of them; the drafter borrows the target's embedding and head.
            read: what is given at each depth.
            room: tokens that the context will hold.
        """
        self._models, self._wanted = models, read
        self._text = TextContext(models.block_drafter, room)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._text.read(features)

    def marginals(self, root_token: int, position: int) -> Marginals:
        """The first candidates at each depth below a root at an absolute position, all before it read."""
        return self.drafted(root_token, position).marginals

    def drafted(self, root_token: int, position: int) -> Drafted:
        """These candidates, and what else the pass that they are from left."""
        context = self._text.context()
        device = self._models.target.device
        roots, positions = torch.tensor([root_token], device=device), torch.tensor([position], device=device)
        drafter, target = self._models.block_drafter, self._models.target
        states = block_states(drafter, target, roots, positions, context)
        found = first_marginals(logits_of(drafter, target, states.after)[0], self._wanted)
        marginals = found if drafter.vocabulary is None else drafter.vocabulary.in_target(found)
        return Drafted(root_token, position, marginals, states, context)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the context; see `TextContext.rewind`."""
        self._text.rewind(length)
