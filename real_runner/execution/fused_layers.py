"""A decoder's layers over rows at fixed slots, in few kernels: what captured passes of both models are made of.

Between two attentions a layer's work is one region, compiled once for all layers and sizes: what follows an attention,
the perceptron, and the next layer's projections, which end in keys and values that are written where they belong.
Projections of the same input are one product. The arithmetic is that of the models' own modules, in another order of
kernels; their weights become views of the joined ones, so nothing is held twice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from simlab.errors import ModelError
from simlab.real_runner.attention.tree_attention import tree_attention
from simlab.real_runner.drafters.dflash import DFlashDrafter, hidden_block
from simlab.real_runner.execution.kv_buffers import FixedRows
from simlab.real_runner.targets.model import Target

LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer")
"""Classes of transformers whose layers are known: attention and then an MLP, each behind a norm and added."""

Region: TypeAlias = Callable[..., object]
"""A piece of a model that is compiled by itself."""

Compiler: TypeAlias = Callable[[Region], Region]
"""Makes of a region a function that computes the same."""


def compiled(region: Region) -> Region:
    """The region as torch.compile makes it, once for all sizes of texts and trees."""
    return torch.compile(region, dynamic=True, fullgraph=True)


def as_it_is(region: Region) -> Region:
    """The region, operation by operation: on a CPU, where nothing is captured."""
    return region


@contextmanager
def where_torch_compiles() -> Iterator[None]:
    """Say what torch.compile needs, where it fails.

    Raises:
        ModelError: it does not work on this machine.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ImportError) as error:
        reason = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no reason given")
        raise ModelError(
            f"torch.compile does not work here ({_cause(error) or reason}); it needs a C++ compiler such as g++ for a "
            "CPU and triton for a GPU: install it, or give --execution eager"
        ) from error


def _cause(error: BaseException) -> str:
    """What a missing compiler is called by torch."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "InvalidCxxCompiler":
            return "there is no C++ compiler"
        cause = cause.__cause__ or cause.__context__
    return ""


class _Norm(Protocol):
    weight: Tensor


class DecoderAttention(Protocol):
    """The attention of a layer of transformers; some kinds have no norms of heads."""

    head_dim: int
    layer_idx: int
    scaling: float
    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    o_proj: nn.Module
    q_norm: nn.Module
    k_norm: nn.Module


class DecoderLayer(Protocol):
    """A layer of transformers, see `LAYERS`."""

    self_attn: DecoderAttention
    mlp: nn.Module
    input_layernorm: nn.Module
    post_attention_layernorm: nn.Module


class Change(Protocol):
    """What an adapter adds to one product at mask rows: ``B(A x)``, times a scale."""

    scale: float

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """A ``[r, in]`` and B ``[out, r]``."""
        ...


@runtime_checkable
class Adapter(Protocol):
    """With which a target drafts for itself, see `simlab.real_runner.networks.adapter.gated.GatedAdapter`.

    All of it are methods: from Python 3.12 on ``isinstance`` looks up without ``__getattr__``, and only there does a
    module have its weights.
    """

    def masks(self) -> nn.Parameter | None:
        """What stands at masks, ``[k, H]``; None: noise does."""
        ...

    def change(self, number: int, name: str) -> Change:
        """What it adds to one product of one layer."""
        ...


_PRODUCTS = {
    "inputs": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gates": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""The products of a packed layer, and those of the model's layer that each consists of."""


class PackedLayer(nn.Module):
    """The weights of a layer, those of one product joined."""

    def __init__(self, layer: nn.Module, head_size: int) -> None:
        super().__init__()
        attention, mlp = cast(nn.Module, layer.self_attn), cast(nn.Module, layer.mlp)
        inputs = [cast(nn.Linear, getattr(attention, f"{name}_proj")) for name in "qkv"]
        self.head_size, self.eps = head_size, _eps(layer.input_layernorm)
        self.num_heads, self.num_groups = (inputs[i].out_features // head_size for i in (0, 1))
        self.inputs, self.inputs_bias = _joined(inputs)
        self.gates, self.gates_bias = _joined([cast(nn.Linear, mlp.gate_proj), cast(nn.Linear, mlp.up_proj)])
        out, down = cast(nn.Linear, attention.o_proj), cast(nn.Linear, mlp.down_proj)
        self.out, self.out_bias, self.down, self.down_bias = out.weight, out.bias, down.weight, down.bias
        self.norm = cast(_Norm, layer.input_layernorm).weight
        self.norm_behind = cast(_Norm, layer.post_attention_layernorm).weight
        self.query_norm = cast(_Norm, attention.q_norm).weight if hasattr(attention, "q_norm") else None
        self.key_norm = cast(_Norm, attention.k_norm).weight if hasattr(attention, "k_norm") else None
        self.change_scale = 1.0
        for name in _PRODUCTS:
            setattr(self, f"{name}_low", None)
            setattr(self, f"{name}_high", None)

    def adapt(self, change: Callable[[str], Change]) -> None:
        """Have mask rows changed by what is added to each product of the layer, by its name in the model."""
        for name, parts in _PRODUCTS.items():
            changes = [change(part) for part in parts]
            low = torch.cat([added.factors[0].detach() for added in changes])
            high = torch.block_diag(*(added.factors[1].detach() for added in changes))
            setattr(self, f"{name}_low", nn.Parameter(low, requires_grad=False))
            setattr(self, f"{name}_high", nn.Parameter(high, requires_grad=False))
            self.change_scale = changes[0].scale


def _eps(norm: object) -> float:
    return cast(float, getattr(norm, "variance_epsilon", None) or getattr(norm, "eps", None))


def _joined(products: Sequence[nn.Linear]) -> tuple[nn.Parameter, nn.Parameter | None]:
    """The weights below each other, of which those of the products become views; and their biases."""
    weights = nn.Parameter(torch.cat([product.weight.detach() for product in products]), requires_grad=False)
    sizes = [product.out_features for product in products]
    for product, part in zip(products, weights.detach().split(sizes), strict=True):
        product.weight.data = part
    if products[0].bias is None:
        return weights, None
    biases = nn.Parameter(torch.cat([product.bias.detach() for product in products]), requires_grad=False)
    for product, part in zip(products, biases.detach().split(sizes), strict=True):
        product.bias.data = part
    return weights, biases


def _product(layer: PackedLayer, name: str, x: Tensor, masks: Tensor | None) -> Tensor:
    """A product of rows ``[R, F]``; the last ones, as many as there are masks, are changed by the target's adapter."""
    made = linear(x, getattr(layer, name), getattr(layer, f"{name}_bias"))
    if masks is None:
        return made
    first = len(x) - len(masks)
    change = linear(linear(x[first:], getattr(layer, f"{name}_low")), getattr(layer, f"{name}_high"))
    return torch.cat([made[:first], made[first:] + change * layer.change_scale])


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    normed: Tensor = weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
    return normed


def _rotated(x: Tensor, rotations: Tensor, positions: Tensor) -> Tensor:
    """Heads ``[R, A, F]`` at positions ``[R]``; rotations ``[2, room, F]`` are cosines and sines."""
    cos, sin = rotations[:, positions]
    first, second = x.chunk(2, dim=-1)
    turned: Tensor = x * cos[:, None] + torch.cat([-second, first], dim=-1) * sin[:, None]
    return turned


def _write(
    layer: PackedLayer,
    key: Tensor,
    value: Tensor,
    rotations: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
) -> None:
    """Rotated keys and values of rows ``[R, E x F]``, to slots int64 ``[R]`` of ``[E, room, F]``.

    These are two arguments: both as one are copied before they are written.
    """
    key = key.unflatten(-1, (layer.num_groups, layer.head_size))
    if layer.key_norm is not None:
        key = _normed(key, layer.key_norm, layer.eps)
    keys.index_copy_(1, at, _rotated(key, rotations, positions).transpose(0, 1))
    values.index_copy_(1, at, value.unflatten(-1, (layer.num_groups, layer.head_size)).transpose(0, 1))


def _before(
    layer: PackedLayer,
    x: Tensor,
    rotations: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
    masks: Tensor | None = None,
) -> Tensor:
    """Rotated queries ``[R, A, F]`` of inputs ``[R, H]``; keys and values are written."""
    of_groups = layer.num_groups * layer.head_size
    products = _product(layer, "inputs", _normed(x, layer.norm, layer.eps), masks)
    query, key, value = products.split([layer.num_heads * layer.head_size, of_groups, of_groups], dim=-1)
    _write(layer, key, value, rotations, positions, keys, values, at)
    query = query.unflatten(-1, (layer.num_heads, layer.head_size))
    if layer.query_norm is not None:
        query = _normed(query, layer.query_norm, layer.eps)
    return _rotated(query, rotations, positions)


def _first(
    layer: PackedLayer,
    tokens: Tensor,
    embedding: Tensor,
    scale: float,
    rotations: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
    masks: Tensor | None = None,
    mask_embeddings: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Embedded tokens ``[R, H]``, the last ones those of masks, and the first layer's queries."""
    x = torch.nn.functional.embedding(tokens, embedding)
    x = x if scale == 1 else x * scale
    if masks is not None and mask_embeddings is not None:
        x = torch.cat([x[: len(x) - len(masks)], mask_embeddings[masks].to(x.dtype)])
    return x, _before(layer, x, rotations, positions, keys, values, at, masks)


def _behind(layer: PackedLayer, x: Tensor, mixed: Tensor, masks: Tensor | None) -> Tensor:
    """What the layer hands on, ``[R, H]``, of its input and of what its heads have mixed, ``[R, A x F]``."""
    x = x + _product(layer, "out", mixed, masks)
    gate, up = _product(layer, "gates", _normed(x, layer.norm_behind, layer.eps), masks).chunk(2, dim=-1)
    return x + _product(layer, "down", silu(gate) * up, masks)


def _between(
    layer: PackedLayer,
    following: PackedLayer,
    x: Tensor,
    mixed: Tensor,
    rotations: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
    masks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What a layer hands on, and the next one's queries."""
    x = _behind(layer, x, mixed, masks)
    return x, _before(following, x, rotations, positions, keys, values, at, masks)


def _last(
    layer: PackedLayer, x: Tensor, mixed: Tensor, norm: Tensor, eps: float, masks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What the last layer hands on, before and after the final norm."""
    x = _behind(layer, x, mixed, masks)
    return x, _normed(x, norm, eps)


def _project(
    layers: "PackedDrafter", features: Tensor, rotations: Tensor, held: list[tuple[Tensor, Tensor]], at: Tensor
) -> None:
    """Keys and values of all layers, of the target's features ``[R, taps x H]`` at positions that are their slots."""
    x = _normed(linear(features, layers.context, layers.context_bias), layers.context_norm, layers.context_eps)
    for layer, (keys, values) in zip(layers.each(), held, strict=True):
        sizes = [layer.num_heads * layer.head_size, 2 * layer.num_groups * layer.head_size]
        bias = None if layer.inputs_bias is None else layer.inputs_bias.split(sizes)[1]
        key, value = linear(x, layer.inputs.split(sizes)[1], bias).chunk(2, dim=-1)
        _write(layer, key, value, rotations, at, keys, values, at)


class Regions:
    """The pieces that layers are run in; those of both models are the same, and are compiled once."""

    def __init__(self, compiler: Compiler) -> None:
        self.first, self.between = compiler(_first), compiler(_between)
        self.last, self.project = compiler(_last), compiler(_project)


_Pair = tuple[Tensor, Tensor]


class PackedLayers(nn.Module):
    """The layers of a decoder, and how they are run over rows at fixed slots."""

    def __init__(self, layers: Iterable[nn.Module], head_size: int, norm: nn.Module, regions: Regions) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PackedLayer(layer, head_size) for layer in layers)
        self.norm, self.eps, self.scaling = cast(_Norm, norm).weight, _eps(norm), head_size**-0.5
        self.mask_embeddings: nn.Parameter | None = None
        self._regions = regions

    def each(self) -> "list[PackedLayer]":
        """The layers in order."""
        return [cast(PackedLayer, layer) for layer in self.layers]

    def states(
        self,
        tokens: Tensor,
        embedding: Tensor,
        positions: Tensor,
        ancestors: Tensor,
        rotations: Tensor,
        rows: FixedRows,
        num_seen: int,
        tap: Callable[[int, Tensor], None] = lambda _number, _state: None,
        scale: float = 1,
        masks: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """States ``[R, H]`` of nodes, before and after the final norm.

        Args:
            tokens: int64 ``[R]``; the first one is the root.
            embedding: ``[V, H]``.
            positions: int64 ``[R]``, absolute.
            ancestors: bool ``[R, R]``, a node itself counted.
            rotations: of all positions, ``[2, room, F]``; as `rotations` gives them.
            rows: keys and values of all layers; node i is written to slot ``root + i``.
            num_seen: slots that are looked at.
            tap: is told each layer's number and the state behind it, -1 for the embedding.
            scale: of the embedding.
            masks: int64 ``[M]``, which of the adapter's masks each of the last M rows holds; None: none does.
        """
        layers, root, run = self.each(), positions[:1], self._regions
        at = root + torch.arange(len(tokens), device=root.device)
        held, where = rows.of_layers(), (rotations, positions)
        own = (masks, self.mask_embeddings)
        x, query = cast(_Pair, run.first(layers[0], tokens, embedding, scale, *where, *held[0], at, *own))
        tap(-1, x)
        for number, layer in enumerate(layers[:-1]):
            mixed = tree_attention(query, *held[number], root, ancestors, num_seen, self.scaling)
            following = (layers[number + 1], x, mixed, *where, *held[number + 1], at, masks)
            x, query = cast(_Pair, run.between(layer, *following))
            tap(number, x)
        mixed = tree_attention(query, *held[-1], root, ancestors, num_seen, self.scaling)
        before, after = cast(_Pair, run.last(layers[-1], x, mixed, self.norm, self.eps, masks))
        tap(len(layers) - 1, after)
        return before, after


class PackedTarget(PackedLayers):
    """The layers of a target, and what an adapter with which it drafts for itself adds at masks."""

    def __init__(self, target: Target, regions: Regions, adapter: Adapter | None = None) -> None:
        decoder = cast(nn.Module, target.model.get_decoder())
        attention = cast(nn.Module, target.layers[0].self_attn)
        super().__init__(target.layers, cast(int, attention.head_dim), cast(nn.Module, decoder.norm), regions)
        self._rotary = cast(Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], decoder.rotary_emb)
        self._like = target.embedding.weight
        if adapter is not None:
            self.mask_embeddings = adapter.masks()
            for number, layer in enumerate(self.each()):
                layer.adapt(partial(adapter.change, number))

    def rotations(self, room: int) -> Tensor:
        """Cosines and sines of the first positions, ``[2, room, F]``."""
        positions = torch.arange(room, device=self._like.device)
        return torch.cat(self._rotary(self._like, positions[None]))


class PackedDrafter(PackedLayers):
    """A drafter's layers, and the projection of its context."""

    def __init__(self, drafter: DFlashDrafter, regions: Regions) -> None:
        super().__init__(drafter.layers, drafter.config.head_dim, drafter.norm, regions)
        self._rotation, self._scale = drafter.rotation, drafter.config.input_embedding_scale
        self.context, self.context_bias = drafter.fc.weight, drafter.fc.bias
        self.context_norm, self.context_eps = drafter.hidden_norm.weight, drafter.hidden_norm.eps
        hidden = hidden_block(drafter.config.views[0], drafter.config.block_size, drafter.fc.weight.device)
        everything = torch.ones((drafter.config.block_size,) * 2, dtype=torch.bool, device=drafter.fc.weight.device)
        self.sees = everything if hidden is None else ~hidden

    def rotations(self, room: int) -> Tensor:
        """Cosines and sines of the first positions, ``[2, room, F]``."""
        weight = self.context_norm
        return torch.stack(self._rotation(torch.arange(room, device=weight.device), weight.dtype))

    def block_states(
        self, blocks: Tensor, embedding: Tensor, position: Tensor, rotations: Tensor, rows: FixedRows, num_seen: int
    ) -> tuple[Tensor, Tensor]:
        """States ``[B, L, H]`` of blocks below one root, before and after the final norm.

        Their keys are written behind the context, where the next context will lie; no block sees another.

        Args:
            blocks: int64 ``[B, L]``, tokens.
            embedding: ``[V, H]``.
            position: int64 ``[1]``, absolute, of the root.
            rotations: as `rotations` gives them.
            rows: keys and values of the text before the root.
            num_seen: slots that are looked at, at least ``position + B x L``.
        """
        num, size = blocks.shape
        own, alone = self.sees[:size, :size], torch.eye(num, dtype=torch.bool, device=blocks.device)
        sees = (alone[:, None, :, None] & own[None, :, None, :]).view(num * size, num * size)
        positions = (position + torch.arange(size, device=blocks.device)).repeat(num)
        where = (positions, sees, rotations, rows, num_seen)
        before, after = self.states(blocks.flatten(), embedding, *where, scale=self._scale)
        return before.view(num, size, -1), after.view(num, size, -1)

    def take(self, features: Tensor, slots: Tensor, rotations: Tensor, rows: FixedRows) -> None:
        """Project features ``[R, taps x H]`` into keys and values at slots, which are absolute positions."""
        self._regions.project(self, features, rotations, rows.of_layers(), slots)


def can_fuse_target(target: Target) -> bool:
    """Whether all layers are of a class that is known, with one activation, plain products, and on one device."""
    kinds = {type(layer).__name__ for layer in target.layers}
    if not kinds <= set(LAYERS) or getattr(target.model.config, "hidden_act", "silu") != "silu":
        return False
    # Quantised products have no weights that can be joined.
    products = (
        getattr(getattr(layer, part), f"{name}_proj")
        for layer in target.layers
        for part, names in (("self_attn", "qkvo"), ("mlp", ("gate", "up", "down")))
        for name in names
    )
    return all(type(product) is nn.Linear for product in products) and len(set(target.layer_devices)) == 1


def can_fuse_drafter(drafter: DFlashDrafter) -> bool:
    """Whether all layers see all of the context, and the same of the block, and nothing is convolved."""
    views = set(drafter.config.views)
    return drafter.config.convolution is None and len(views) == 1 and next(iter(views)).window is None
