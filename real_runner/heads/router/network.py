"""The network of a router, and what it reads: what the target said of the token before a root.

After WhiFlash (2026, arXiv 2606.07710), whose network was not published; this one is a reconstruction. It sees no
candidate of any drafter, so that only the route that is taken need draft.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from simlab.real_runner.heads.router.config import NUM_BESIDE, RouterConfig
from simlab.real_runner.targets.model import Target, entropies_of

_ROOTS_PER_PASS = 128
"""Roots whose laws are in memory at a time."""


def router_inputs(states: Tensor, logits: Tensor, positions: Tensor) -> Tensor:
    """What a router's network reads of some roots.

    Args:
        states: ``[N, H]``, of the target behind its last norm, at the token before each root.
        logits: ``[N, V]``, of these states: the laws that the roots were chosen from.
        positions: int64 ``[N]``, of the roots, absolute; at least 1.

    Returns:
        float32 ``[N, H + 3]``: the state, the law's entropy and the gap between its two most probable tokens, in nats,
        and the logarithm of the position.
    """
    log_probs = logits.float().log_softmax(-1)
    first, second = log_probs.topk(2, dim=-1).values.unbind(-1)
    beside = torch.stack([entropies_of(log_probs), first - second, positions.float().log()], dim=-1)
    return torch.cat([states.float(), beside], dim=-1)


def inputs_along(target: Target, states: Tensor, num_roots: int) -> Iterator[Tensor]:
    """What is read of the last roots of a text but for its last token, some of them at a time.

    Args:
        target: which read the text.
        states: ``[C, H]``, of it behind its last norm, from position 0 to the text's last token.
        num_roots: T - 1, of a text of T tokens.

    Yields:
        float32 ``[N, H + 3]``, see `router_inputs`.
    """
    last = len(states) - 1
    for roots in torch.arange(last - num_roots, last, device=states.device).split(_ROOTS_PER_PASS):
        before = states[roots - 1]
        yield router_inputs(before, target.logits(before), roots)


class RouterNetwork(nn.Module):
    """From `router_inputs` to the tokens that a round by each route is expected to add, the bonus token among them."""

    def __init__(self, config: RouterConfig) -> None:
        super().__init__()
        self.config = config
        num_inputs = config.hidden_size + NUM_BESIDE
        self.norm = nn.LayerNorm(num_inputs)
        self.inner = nn.Linear(num_inputs, config.inner_size)
        self.outer = nn.Linear(config.inner_size, len(config.routes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Expected tokens ``[N, routes]``, above 0, of `router_inputs` ``[N, H + 3]``."""
        return functional.softplus(self.outer(functional.silu(self.inner(self.norm(inputs)))))
