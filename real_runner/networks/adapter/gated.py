"""A gated low-rank adapter: the target's products are changed at mask rows, and at no other row.

Samragh and others 2025, "Your LLM Knows the Future", arXiv 2507.11851. In a pass some rows hold masks, tokens of which
nothing is known but where they stand. Every product ``y = W x`` is made for all rows at once as without an adapter;
what the adapter adds, ``B(A x)`` (Hu and others 2021, "LoRA", arXiv 2106.09685), is added at mask rows alone. As no
other row attends to a mask, all others are those of the target, bit for bit in a pass of the same shape.

Letters: S sequences, L rows of a pass, M mask rows among them, k masks behind a token, H hidden size, r rank.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.files import loaded_tensors, write_checkpoint
from simlab.real_runner.networks.adapter.config import MASKS, MODULES, PREFIX, AdapterConfig, adapter_to_json
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.networks.parts import checked_network
from simlab.real_runner.targets.hub_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from simlab.real_runner.targets.model import Target


@dataclass(frozen=True, slots=True, eq=False)
class MaskRows:
    """Which rows of a pass hold masks, the same in every sequence.

    Attributes:
        rows: int64 ``[M]``, each once.
        slots: int64 ``[M]``, from 0: which of the k masks behind its token each is.
        tokens: int64 ``[S or 1, M]``, the noise that stands there; None: masks have embeddings of their own.
    """

    rows: Tensor
    slots: Tensor
    tokens: Tensor | None = None

    def to(self, device: torch.device) -> "MaskRows":
        """These on another device."""
        return MaskRows(
            self.rows.to(device), self.slots.to(device), self.tokens if self.tokens is None else self.tokens.to(device)
        )


class LowRank(nn.Module):
    """What is added to one product: ``B(A x)``, times a scale."""

    def __init__(self, num_inputs: int, num_outputs: int, rank: int, scale: float) -> None:
        """Begin with a change of nothing: A at random, B zero."""
        super().__init__()
        self.scale = scale
        # The names under which PEFT stores them.
        self.lora_A = nn.Linear(num_inputs, rank, bias=False)
        self.lora_B = nn.Linear(rank, num_outputs, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """A ``[r, in]`` and B ``[out, r]``."""
        return self.lora_A.weight, self.lora_B.weight

    def forward(self, x: Tensor) -> Tensor:
        """``[..., out]`` of inputs ``[..., in]``, in their dtype."""
        inner = nn.functional.linear(x, self.lora_A.weight.to(x.dtype))
        return nn.functional.linear(inner, self.lora_B.weight.to(x.dtype)) * self.scale


def config_for(target: Target, num_masks: int, rank: int, alpha: float, noise: Noise | None = None) -> AdapterConfig:
    """The sizes of an adapter of a target.

    Args:
        target: whose it is to be.
        num_masks: k.
        rank: r.
        alpha: its changes are scaled by alpha / r.
        noise: that stands in place of masks; None: these have embeddings of their own.
    """
    return AdapterConfig(
        rank=rank,
        alpha=alpha,
        num_masks=num_masks,
        target_digest=target.digest,
        num_layers=len(target.layers),
        hidden_size=target.embedding.embedding_dim,
        vocab_size=target.vocab_size,
        noise=noise,
    )


class GatedAdapter(nn.Module):
    """The weights of an adapter: a change for each product of each layer.

    Attributes:
        mask_embeddings: ``[k, H]``; None where noise stands in place of masks.
    """

    def __init__(self, config: AdapterConfig, target: Target) -> None:
        """Begin with masks at random, as long as the target's tokens, and no change."""
        super().__init__()
        check_target(config, target)
        self.config = config
        spread = float(target.embedding.weight.float().std())
        masks = torch.randn(config.num_masks, config.hidden_size) * spread
        self.mask_embeddings = nn.Parameter(masks) if config.noise is None else None
        self.layers = nn.ModuleList(_layer(config, target, number) for number in range(config.num_layers))

    @torch.no_grad()
    def take(self, other: "GatedAdapter", location: object) -> None:
        """Begin with the changes of another adapter of this target, and with its masks as far as both have some."""
        if other.config.rank != self.config.rank:
            raise ModelError(
                f"the adapter {location} has rank {other.config.rank}, and this run {self.config.rank}; give --rank "
                f"{other.config.rank}"
            )
        self.layers.load_state_dict(other.layers.state_dict())
        if self.mask_embeddings is not None and other.mask_embeddings is not None:
            num = min(len(self.mask_embeddings), len(other.mask_embeddings))
            self.mask_embeddings[:num] = other.mask_embeddings[:num]

    def masks(self) -> nn.Parameter | None:
        """What stands at masks, ``[k, H]``; None: noise does."""
        return self.mask_embeddings

    def change(self, number: int, name: str) -> LowRank:
        """What it adds to one product of one layer."""
        group, _, product = name.partition(".")
        low_rank = cast(nn.ModuleDict, cast(nn.ModuleDict, self.layers[number])[group])[product]
        return cast(LowRank, low_rank)


def check_target(config: AdapterConfig, target: Target) -> None:
    """Refuse an adapter that was made for another target."""
    if config.target_digest != target.digest:
        raise ModelError(
            f"this adapter was trained for a target of the digest {config.target_digest}, and {target.name} has "
            f"{target.digest}; choose the target that it was trained for"
        )
    sizes = {
        "layers": (config.num_layers, len(target.layers)),
        "hidden size": (config.hidden_size, target.embedding.embedding_dim),
        "vocabulary": (config.vocab_size, target.vocab_size),
    }
    for what, (wanted, present) in sizes.items():
        if wanted != present:
            raise ModelError(
                f"this adapter was made for a target with {what} {wanted}; {target.name} has {present}; choose the "
                "target that it was trained for"
            )


def _layer(config: AdapterConfig, target: Target, number: int) -> nn.ModuleDict:
    groups: dict[str, dict[str, nn.Module]] = {}
    for name in MODULES:
        product = _product(target, number, name)
        group, _, own = name.partition(".")
        made = LowRank(product.in_features, product.out_features, config.rank, config.scale)
        groups.setdefault(group, {})[own] = made
    return nn.ModuleDict({group: nn.ModuleDict(inner) for group, inner in groups.items()})


def _product(target: Target, number: int, name: str) -> nn.Linear:
    """One product of the target."""
    try:
        linear = target.layers[number].get_submodule(name)
    except AttributeError as error:
        raise ModelError(f"the layers of {target.name} are not of the Llama or Qwen3 kind ({error})") from error
    if not isinstance(linear, nn.Linear):
        raise ModelError(f"{name} of {target.name} is no plain product of a matrix, which an adapter changes")
    return linear


_Hook = Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]


@contextmanager
def adapted(target: Target, adapter: GatedAdapter, masks: MaskRows) -> Iterator[None]:
    """Run passes of the target in which some rows are masks.

    What stands at these rows as a token is not read.

    Args:
        target: whose passes these are.
        adapter: of it.
        masks: which rows.
    """
    with ExitStack() as hooks:

        def hook(module: nn.Module, call: _Hook) -> None:
            hooks.callback(module.register_forward_hook(call).remove)

        hooks.callback(target.embedding.register_forward_pre_hook(_without_tokens(masks)).remove)
        hook(target.embedding, _embedding(adapter, masks))
        for number in range(len(target.layers)):
            for name in MODULES:
                hook(_product(target, number, name), _changed(adapter.change(number, name), masks))
        yield


def _without_tokens(masks: MaskRows) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    def blanked(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        ids, *rest = inputs
        return ids.index_fill(1, masks.rows, 0), *rest

    return blanked


def _embedding(adapter: GatedAdapter, masks: MaskRows) -> _Hook:
    def placed(module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if adapter.mask_embeddings is None:
            assert masks.tokens is not None
            own = nn.functional.embedding(masks.tokens, cast(nn.Embedding, module).weight)
        else:
            own = adapter.mask_embeddings[masks.slots].to(output.dtype)
        return output.index_copy(1, masks.rows, own.expand(output.shape[0], -1, -1))

    return placed


def _changed(change: LowRank, masks: MaskRows) -> _Hook:
    def added(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output.index_add(1, masks.rows, change(inputs[0].index_select(1, masks.rows)))

    return added


# Adapters on disk, as PEFT lays them out.


def load_adapter(location: Path, target: Target) -> GatedAdapter:
    """Read an adapter of a target, in its dtype and where it is; what is refused says `checked_network`."""
    config, tensors = checked_network(location, AdapterConfig, "adapter of a target")
    if not config.target_digest:
        # What is not told can only be compared by its sizes, when the weights are taken.
        config = config_for(target, config.num_masks, config.rank, config.alpha, config.noise)
    adapter = GatedAdapter(config, target)
    try:
        loaded = loaded_tensors(location, tensors)
        adapter.load_state_dict({name.removeprefix(PREFIX): tensor for name, tensor in loaded.items()})
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(f"the tensors in {location} are not of an adapter of {target.name} ({reason})") from error
    return adapter.to(target.device, target.dtype).eval().requires_grad_(False)


def save_adapter(adapter: GatedAdapter, target: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write an adapter of a target of that name, with weights of a dtype."""
    tensors = {name if name == MASKS else PREFIX + name: tensor for name, tensor in adapter.state_dict().items()}
    write_checkpoint(folder, tensors, dtype, adapter_to_json(adapter.config, target), (ADAPTER_WEIGHTS, ADAPTER_CONFIG))
