"""The first-order head of TreeFlash: a drafter's state of a depth, corrected for the token at the depth above.

Rheinboldt, Berdoz and Wattenhofer, "TreeFlash: Parallel AR-Approximation for Faster Speculative Decoding" (2026),
arXiv 2606.03819. The names of the weights and the arithmetic are those of the released checkpoints.

Letters: H hidden size of the drafter, I inner size of the head, N roots, D depths, M tokens above, R tokens of a row,
S = 1 + (D - 1) M rows of a root.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.files import loaded_tensors, write_checkpoint
from simlab.real_runner.drafters.dense import BlockStates, Outputs, embedded_tokens, finished_logits, logits_of
from simlab.real_runner.drafters.dflash import RMSNorm
from simlab.real_runner.networks.first_order import FirstOrderProducer, products_by_depth
from simlab.real_runner.networks.network import HeadReach, Reach
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.networks.producer import ChannelAsked, Stage, WithModels, check_belongs
from simlab.real_runner.networks.treeflash.config import HEAD_PREFIX, HeadConfig, head_to_json
from simlab.real_runner.targets.model import Target

_EPS = 1e-6


class TreeFlashHead(nn.Module):
    """What is added to a drafter's state once the token above is known; at its start, nothing.

    With g the state before the drafter's final norm, n the one after it and E y the embedding of the token above::

        z = [norm(E y); n]        g' = g + d(silu(G z) * (U z))

    The first half of ``ug`` is U, the second G.

    Attributes:
        dropout: of z, in training alone; without weights.
    """

    def __init__(self, hidden_size: int, inner_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.ug = nn.Linear(2 * hidden_size, 2 * inner_size)
        self.d = nn.Linear(inner_size, hidden_size, bias=False)
        self.norm = RMSNorm(hidden_size, _EPS)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.d.weight)

    @property
    def hidden_size(self) -> int:
        """H, the width of the drafter's states."""
        return self.d.out_features

    @property
    def inner_size(self) -> int:
        """I, the width between the head's matrices."""
        return self.d.in_features

    def forward(self, before: Tensor, after: Tensor, embedded: Tensor, slots: Tensor) -> Tensor:
        """The corrected states, before the drafter's final norm.

        Args:
            before: ``[N, D, H]``, states of D slots before the drafter's final norm.
            after: ``[N, D, H]``, the same after it.
            embedded: ``[N, S, H]``, embeddings of the tokens above, not scaled.
            slots: int64 ``[S]``, whose state each of them corrects.

        Returns:
            ``[N, S, H]``.
        """
        of_token, of_state = self.ug.weight.chunk(2, dim=1)
        token, state = self.dropout(self.norm(embedded)), self.dropout(after)
        # A state meets many tokens, so its half of the product is made once.
        half = nn.functional.linear(state, of_state, self.ug.bias)[:, slots]
        up, gate = (nn.functional.linear(token, of_token) + half).chunk(2, dim=-1)
        corrected: Tensor = before[:, slots] + self.d(nn.functional.silu(gate) * up)
        return corrected


def load_head(location: Path, drafter: Outputs, digest: str, dtype: torch.dtype) -> TreeFlashHead:
    """Read the first-order head of a drafter whose checkpoint has a digest; it lies alone, or beside that drafter.

    What is refused says `checked_network`; a head of another drafter is, too.
    """
    parts = checked_parts(location)
    if not isinstance(parts.head, HeadConfig):
        raise ModelError(f"{location} has no head: it is a drafter alone, whose candidates stand in its draft set")
    check_belongs("head", location, parts.head.extends, digest)
    if parts.head.hidden_size != drafter.config.hidden_size:
        raise ModelError(
            f"the head in {location} is {parts.head.hidden_size} wide and its drafter {drafter.config.hidden_size}; "
            "train it again"
        )
    head = TreeFlashHead(parts.head.hidden_size, parts.head.inner_size)
    head.load_state_dict(loaded_tensors(location, parts.head_tensors))
    return head.to(dtype).eval().requires_grad_(False)


def save_head(head: TreeFlashHead, folder: Path, digest: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a head alone, with its drafter's digest and weights of a dtype."""
    tensors = {HEAD_PREFIX + name: tensor for name, tensor in head.state_dict().items()}
    config = HeadConfig(head.hidden_size, head.inner_size, digest)
    write_checkpoint(folder, tensors, dtype, head_to_json(config))


# The channel of a TreeFlash head: transitions below the first tokens of its drafter.


@dataclass(frozen=True, slots=True, eq=False)
class TreeFlashProducer(FirstOrderProducer):
    """A head whose embedding, norm and output head are the drafter's and the target's."""

    head: TreeFlashHead

    def _of_rows(self, states: BlockStates, above: Tensor, slots: Tensor) -> Tensor:
        """States ``[N, S, H]`` behind the final norm, of tokens above."""
        embedded = embedded_tokens(self.drafter, self.target, above).to(states.before.dtype)
        return self.drafter.norm(self.head(states.before, states.after, embedded, slots))

    def _logits(self, made: Tensor) -> Tensor:
        return logits_of(self.drafter, self.target, made)

    def _candidate_logits(
        self, states: Tensor, rows: Tensor, theirs: Tensor, sizes: list[int], slots: Tensor
    ) -> Tensor:
        """float32 ``[N, S, C]``: the candidates, int64 ``[N, D, C]``, by the states ``[N, S, H]``.

        ``theirs``, float32 ``[N, D, C]``, are the drafter's log-probabilities of these.
        """
        head = self.drafter.lm_head or self.target.head
        weight, bias = head.weight, getattr(head, "bias", None)
        assert isinstance(weight, Tensor)
        logits = products_by_depth(states, weight, rows, sizes)
        if isinstance(bias, Tensor):
            logits = logits + bias[rows.to(bias.device)].to(states.device).float()[:, slots]
        return finished_logits(self.drafter, logits)


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The head of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    assert isinstance(reach, HeadReach)
    assert asked.stage is not None
    head = load_head(asked.location, asked.stage, asked.digest, asked.dtype)

    def on(its: Stage | None, target: Target) -> TreeFlashProducer:
        assert its is not None
        return TreeFlashProducer(its, target, reach, head.to(target.device))

    return on
