"""Attention in which the query heads of a group share their keys and values without a copy of them.

The heads that read the same keys are laid side by side as further rows of one product. That is
exact, it needs no repeated keys, and it keeps the product on a fast path where the framework's own
grouped attention leaves it: single tokens in bfloat16 on a CPU, and masked trees everywhere.
"""

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from simlab.real_runner.attention.batch_invariant import FixedPass, fixed_attention
from simlab.real_runner.attention.packed import PackedPass, packed_attention

NAME = "grouped_sdpa"
"""The name by which a model asks for this attention."""


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    packed: PackedPass | None = None,
    fixed: FixedPass | None = None,
    **_settings: object,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention, in the form in which transformers calls it.

    Args:
        module: the layer; unused.
        query: ``[S, A, L, F]``.
        key: ``[S, E, K, F]``, with ``A`` a multiple of ``E``.
        value: ``[S, E, K, F]``.
        attention_mask: what `additive_mask` makes, or None: everything is visible to a single token,
            and more tokens are a text from its beginning (``K = L``), each seeing what is before it.
        dropout: must be 0.
        scaling: of the scores; None: ``F ** -0.5``.
        packed: the tokens are those of several sequences; see `simlab.real_runner.attention.packed`.
        fixed: the tokens are rows of a fixed shape; see `simlab.real_runner.attention.batch_invariant`.

    Returns:
        ``[S, L, A, F]``, and None in place of the weights.
    """
    if dropout:
        raise ValueError(f"this attention is for decoding and knows no dropout; got {dropout}")
    if packed is not None:
        return packed_attention(query, key, value, packed, scaling), None
    if fixed is not None:
        return fixed_attention(query, key, value, fixed, scaling), None
    s, a, length, f = query.shape
    groups = key.shape[1]
    if attention_mask is None and length > 1:
        if key.shape[2] != length:
            raise ValueError(f"{length} tokens after {key.shape[2] - length} others need a mask")
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=groups < a
        )
        return mixed.transpose(1, 2), None
    side_by_side = query.reshape(s, groups, a // groups * length, f)
    mixed = nn.functional.scaled_dot_product_attention(
        side_by_side, key, value, attn_mask=attention_mask, scale=scaling
    )
    # Some kernels hand over other strides.
    return mixed.reshape(s, a, length, f).transpose(1, 2), None


def additive_mask(visible: Tensor, heads_per_group: int, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: 0 where a token is visible, -inf elsewhere.

    Args:
        visible: bool ``[S, 1, L, K]``.
        heads_per_group: query heads that share a key.
        dtype: of the model.

    Returns:
        ``[S, 1, heads_per_group x L, K]``.
    """
    added = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))
    return added.repeat(1, 1, heads_per_group, 1)


def causal_after(num_before: int, length: int, device: torch.device) -> Tensor:
    """bool ``[1, 1, L, num_before + L]``: each of some tokens sees all before it, and itself."""
    return torch.ones(length, num_before + length, dtype=torch.bool, device=device).tril(num_before)[None, None]


AttentionInterface.register(NAME, grouped_attention)
