"""The DFlash block-diffusion drafter, in the published checkpoint contract.

Chen, Liang and Liu, "DFlash: Block Diffusion for Flash Speculative Decoding" (2026), arXiv
2602.06036. The weight names, the configuration fields and the arithmetic are those of the
released checkpoints, so that a file written here loads in the authors' own class and theirs
loads here. One attention serves training, dense recording and live drafting: many blocks of a
sequence are drafted in one call, each seeing only the context before its own root.

Letters: S sequences, C context tokens, G blocks of a sequence, B block size, H hidden size,
A attention heads, E key-value heads, F head size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simlab.real_runner.drafters.config import Convolution, DFlashConfig, LayerView, Markov
from simlab.real_runner.drafters.vocabulary import DraftVocabulary

# Where a layer hides context and slots. Letters as in `simlab.real_runner.drafters.dflash`.


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


class RMSNorm(nn.Module):
    """Root-mean-square norm; the statistics are taken in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """What the drafter keeps of the target's hidden states: keys and values of every layer.

    keys, values: one tensor per draft layer, ``[S, E, C, F]``, keys already rotated.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def length(self) -> int:
        """C, the number of context tokens held."""
        return int(self.keys[0].shape[2])

    def extended(self, new: "DrafterContext") -> "DrafterContext":
        """This context followed by ``new``: the growing drafter cache of live decoding."""
        return DrafterContext(
            tuple(torch.cat(pair, dim=2) for pair in zip(self.keys, new.keys, strict=True)),
            tuple(torch.cat(pair, dim=2) for pair in zip(self.values, new.values, strict=True)),
        )


class Attention(nn.Module):
    """Block queries over context and block."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        hidden, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(hidden, self.num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(hidden, self.num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(hidden, self.num_kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.num_heads * self.head_dim, hidden, bias=bias)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def keys_values(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Rotated keys and values ``[..., E, L, F]`` of inputs ``[..., L, H]``."""
        shape = (*x.shape[:-1], self.num_kv_heads, self.head_dim)
        keys = self.k_norm(self.k_proj(x).view(shape)).transpose(-2, -3)
        return rotated(keys, rotation), self.v_proj(x).view(shape).transpose(-2, -3)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        keys: Tensor,
        values: Tensor,
        hidden_from: Tensor,
        hidden_slots: Tensor | None = None,
    ) -> Tensor:
        """Attend from ``x`` ``[S, G, B, H]`` to the context ``[S, E, C, F]`` and to the own block.

        hidden_from: bool ``[S, G, C]``, True where a context token lies outside a block's past; or
            ``[S, G, B, C]``, slot by slot.
        hidden_slots: bool ``[B, B]``, slots that a slot does not see; None: it sees all.
        """
        s, g, b, _ = x.shape
        e, r, f = self.num_kv_heads, self.num_heads // self.num_kv_heads, self.head_dim
        queries = self.q_norm(self.q_proj(x).view(s, g, b, self.num_heads, f)).transpose(-2, -3)
        queries = rotated(queries, rotation) * f**-0.5
        block_keys, block_values = self.keys_values(x, rotation)
        queries = queries.view(s, g, e, r, b, f)
        across = queries.permute(0, 2, 1, 3, 4, 5).reshape(s, e, g * r * b, f)
        to_context = (across @ keys.transpose(-1, -2)).view(s, e, g, r * b, keys.shape[2])
        unseen = hidden_from[..., None, :] if hidden_from.dim() == 3 else hidden_from.repeat(1, 1, r, 1)
        to_context = to_context.masked_fill(unseen[:, None], float("-inf"))
        within = queries.reshape(s, g, e, r * b, f)
        to_block = (within @ block_keys.transpose(-1, -2)).transpose(1, 2)
        if hidden_slots is not None:
            to_block = to_block.masked_fill(hidden_slots.repeat(r, 1), float("-inf"))
        weights = torch.cat([to_context, to_block], dim=-1).float().softmax(-1).to(x.dtype)
        context_weights = weights[..., :-b].reshape(s, e, g * r * b, keys.shape[2])
        from_context = (context_weights @ values).view(s, e, g, r * b, f)
        from_block = weights[..., -b:].transpose(1, 2) @ block_values
        mixed = from_context.transpose(1, 2) + from_block
        mixed = mixed.view(s, g, e, r, b, f).permute(0, 1, 4, 2, 3, 5).reshape(s, g, b, e * r * f)
        out: Tensor = self.o_proj(mixed)
        return out


class MLP(nn.Module):
    """The SwiGLU perceptron of a layer."""

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, inner_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, inner_size, bias=False)
        self.down_proj = nn.Linear(inner_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Convolved(nn.Module):
    """What stands before and after a part of a layer in DFlash 2: every slot mixed with those before it in its block.

    With x the state of a slot, whose part reads ``norm(x)``, and j slots back, element c of group h becomes
    ``sum over j of (base[side, j, c] + computed[side, j, h]) x[-j, c]``; what is computed is a product with the normed
    state, once for both sides. Nothing stands before the root's slot. As PyPI dflash 0.1.0 has it; sums are float32.
    """

    def __init__(self, hidden_size: int, sizes: Convolution) -> None:
        super().__init__()
        self.sizes = sizes
        groups = hidden_size // sizes.group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, sizes.kernel_size, hidden_size))
        self.kernel_projection = nn.Linear(hidden_size, 2 * sizes.kernel_size * groups, bias=False)

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """The part's outputs ``[..., B, H]`` of normed states of the same shape, mixed on both sides."""
        size, group = self.sizes.kernel_size, self.sizes.group_size
        computed = self.kernel_projection(x).float().view(*x.shape[:-1], 2, size, -1).repeat_interleave(group, -1)
        return self._mixed(part(self._mixed(x, computed, 0)), computed, 1)

    def _mixed(self, x: Tensor, computed: Tensor, side: int) -> Tensor:
        wide, mixed = x.float(), torch.zeros_like(x, dtype=torch.float32)
        for back in range(min(self.sizes.kernel_size, x.shape[-2])):
            earlier = nn.functional.pad(wide[..., : x.shape[-2] - back, :], (0, 0, back, 0))
            mixed = mixed + (self.base_kernel[side, back].float() + computed[..., side, back, :]) * earlier
        return mixed.to(x.dtype)


class Layer(nn.Module):
    """One decoder layer; the context enters as extra keys and values only.

    Attributes:
        attention_conv: around its attention; None: nothing is. The same for ``mlp_conv`` and its perceptron.
    """

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        sizes = config.convolution
        self.attention_conv, self.mlp_conv = (
            None if sizes is None else Convolved(config.hidden_size, sizes) for _ in range(2)
        )

    def forward(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """The states that it hands on, of states ``[S, G, B, H]``; ``attend`` is its attention."""
        x = x + _within(self.attention_conv, self.input_layernorm(x), attend)
        return x + _within(self.mlp_conv, self.post_attention_layernorm(x), self.mlp)


def _within(around: Convolved | None, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
    mixed: Tensor = part(x) if around is None else around(x, part)
    return mixed


class MarkovHead(nn.Module):
    """What DSpark adds to the logits of a slot once the token before it is known.

    With h the state of the slot behind the final norm and p the token before it, the logit of v gets
    ``<W2[v], e>``, where e is ``W1[p]``, or ``sigmoid(G [h; W1[p]]) * W1[p]`` with a gate. Names and arithmetic are
    those of the released checkpoints, as sglang 0.5.23 reads them.
    """

    def __init__(self, config: DFlashConfig, sizes: Markov) -> None:
        super().__init__()
        self.hidden_size, self.inner_size = config.hidden_size, sizes.rank
        self.markov_w1 = nn.Embedding(config.vocab_size, sizes.rank)
        self.markov_w2 = nn.Linear(sizes.rank, config.vocab_size, bias=False)
        self.gate_proj = nn.Linear(config.hidden_size + sizes.rank, sizes.rank) if sizes.is_gated else None

    def forward(self, after: Tensor, above: Tensor) -> Tensor:
        """By what the second table is multiplied, ``[..., rank]``.

        Args:
            after: ``[..., H]``, states behind the drafter's final norm.
            above: int64 ``[...]``, the token before each.
        """
        made: Tensor = self.markov_w1(above)
        if self.gate_proj is None:
            return made
        return torch.sigmoid(self.gate_proj(torch.cat([after, made], dim=-1))) * made


class DFlashDrafter(nn.Module):
    """The drafter's own weights; embedding and output head are the target's, where it has none itself.

    Attributes:
        markov_head: which its logits are corrected by, slot after slot; None: there is none.
        embed_tokens: the drafter's own embedding, of the target's vocabulary; None: the target's.
        lm_head: its own head, of its own vocabulary; None: the target's.
        vocabulary: which tokens its own head proposes; None: those of the target.
    """

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens: nn.Embedding | None = None
        self.lm_head: nn.Linear | None = None
        self.vocabulary: DraftVocabulary | None = None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.markov_head = None if config.markov is None else MarkovHead(config, config.markov)

    def each_layer(self) -> Iterator[Layer]:
        """The layers in order."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    def context(self, features: Tensor, first_position: int = 0) -> DrafterContext:
        """Project target hidden states into keys and values of every layer.

        Args:
            features: ``[S, C, taps x H]``, raw outputs of the tapped target layers, concatenated.
            first_position: absolute position of the first of them.
        """
        positions = torch.arange(first_position, first_position + features.shape[1], device=features.device)
        return self.context_at(features, positions)

    def context_at(self, features: Tensor, positions: Tensor) -> DrafterContext:
        """Keys and values as `context` gives them, of tokens at any absolute positions, int64 ``[C]``."""
        injected = self.hidden_norm(self.fc(features))
        rotation = self.rotation(positions, injected.dtype)
        pairs = [layer.self_attn.keys_values(injected, rotation) for layer in self.each_layer()]
        return DrafterContext(tuple(keys for keys, _ in pairs), tuple(values for _, values in pairs))

    def forward(self, block_embeddings: Tensor, root_positions: Tensor, context: DrafterContext) -> Tensor:
        """Hidden states of drafted blocks after the final norm: the second of what `states` gives."""
        return self.states(block_embeddings, root_positions, context)[1]

    def states(
        self, block_embeddings: Tensor, root_positions: Tensor, context: DrafterContext
    ) -> tuple[Tensor, Tensor]:
        """Hidden states of drafted blocks, before and after the final norm.

        Args:
            block_embeddings: ``[S, G, B, H]``, the target's embeddings of root and mask tokens.
            root_positions: int64 ``[S, G]``; a block sees the context strictly before its root.
            context: of the same S sequences.

        Returns:
            Twice ``[S, G, B, H]``; slot i predicts the token at root position + i, slot 0 is not trained. Where the
            first slot predicts too, slot i predicts the token at root position + i + 1.
        """
        block = torch.arange(block_embeddings.shape[2], device=root_positions.device)
        positions = root_positions[..., None] + block
        rotation = self.rotation(positions[:, :, None, :], block_embeddings.dtype)
        hidden = {
            view: (
                hidden_context(view, root_positions, len(block), context.length),
                hidden_block(view, len(block), block.device),
            )
            for view in dict.fromkeys(self.config.views)
        }
        x = block_embeddings
        held = zip(self.each_layer(), self.config.views, context.keys, context.values, strict=True)
        for layer, view, keys, values in held:
            where = (rotation, keys, values, *hidden[view])
            x = layer(x, lambda normed, attend=layer.self_attn, where=where: attend(normed, *where))
        return x, self.norm(x)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines ``[..., F]`` of the rotary embedding at absolute positions ``[...]``."""
        return rotation_at(positions, self.config.rope_theta, self.config.head_dim, dtype)


def rotation_at(positions: Tensor, base: float, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[..., F]`` of a rotary embedding of a base and of heads of F, at positions ``[...]``."""
    exponents = torch.arange(0, size, 2, device=positions.device, dtype=torch.int64).float()
    frequencies = 1.0 / (base ** (exponents / size))
    angles = positions[..., None].float() * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding of ``[..., L, F]``."""
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
