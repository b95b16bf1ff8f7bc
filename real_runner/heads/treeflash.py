"""The first-order head of TreeFlash: a drafter's state of a depth, corrected for the token at the depth above.

Rheinboldt, Berdoz and Wattenhofer, "TreeFlash: Parallel AR-Approximation for Faster Speculative Decoding" (2026),
arXiv 2606.03819. The names of the weights and the arithmetic are those of the released checkpoints.

Letters: H hidden size of the drafter, I inner size of the head.
"""

from torch import Tensor, nn

from simlab.real_runner.drafters.dflash import RMSNorm

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
