"""Where a layer hides context and slots. Letters as in `simlab.real_runner.drafters.dflash`."""

import torch
from torch import Tensor

from simlab.real_runner.drafters.layer_views import LayerView


def hidden_context(view: LayerView, roots: Tensor, block_size: int, length: int) -> Tensor:
    """Where context tokens are hidden.

    Args:
        view: of the layer.
        roots: int64 ``[S, G]``, absolute positions.
        block_size: B.
        length: C.

    Returns:
        bool ``[S, G, C]`` where all slots see the same, ``[S, G, B, C]`` where each has its own window.
    """
    past = torch.arange(length, device=roots.device)
    outside = past >= roots[..., None]
    if view.window is None:
        return outside
    if view.from_root:
        return outside | (past < roots[..., None] - view.window)
    slots = roots[..., None] + torch.arange(block_size, device=roots.device)
    return outside[..., None, :] | (slots[..., None] - past >= view.window)


def hidden_block(view: LayerView, block_size: int, device: torch.device) -> Tensor | None:
    """bool ``[B, B]``, slot by slot, where other slots are hidden; None where none is."""
    if view.shows_all or (view.from_root and not view.causal):
        return None
    slot = torch.arange(block_size, device=device)
    ahead = slot[None, :] - slot[:, None]
    hidden = ahead > 0 if view.causal else torch.zeros_like(ahead, dtype=torch.bool)
    if view.window is not None and not view.from_root:
        hidden = hidden | (ahead.abs() >= view.window)
    return hidden
