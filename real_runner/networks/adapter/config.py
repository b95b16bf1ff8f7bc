"""What a gated adapter is: its sizes, and its ``adapter_config.json`` in the layout of PEFT. Nothing here needs torch.

PEFT's fields say what its own code would run: a plain LoRA of these products. What makes it gated, whose it is and how
many masks it has stands in fields of simlab's own, which PEFT does not know. Without these fields it is read as one of
UNO's (arXiv 2609.04010; ifm-ai/uno at 9018a5d, ``nano_vllm_uno/utils/lora.py``): noise stands at the rows that it
changes, and the user says how many these are and which noise.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shown
from typing import ClassVar, NoReturn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import check_keys, integer, number
from simlab.real_runner.checkpoints.layout import Fields, layout_alone
from simlab.real_runner.checkpoints.weights import check_numbers
from simlab.real_runner.drafters.config import check_counts
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.networks.network import Network, Settings, Tensors

MODULES = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
"""The products of every layer that an adapter changes at mask rows."""

MOST_MASKS = 64
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Sizes of a gated adapter, and whose it is.

    Attributes:
        rank: r, of each change.
        alpha: changes are scaled by alpha / r.
        num_masks: k, the tokens that it drafts behind one; of UNO's the most that may be asked for.
        target_digest: of the target's weights, see `simlab.real_runner.targets.model.Target`; empty: it is not said,
            and neither are the next three, which are 0.
        num_layers: of the target.
        hidden_size: H, of the target.
        vocab_size: of the target.
        noise: tokens that stand in place of masks; None: masks have embeddings of their own.
    """

    draft_name: ClassVar[str] = "self"
    is_chain: ClassVar[bool] = False
    root_seen: ClassVar[bool] = False
    no_blocks: ClassVar[str] = "an adapter, with which the target drafts in its own passes"
    mask_token_id: ClassVar[None] = None
    draft_vocab_size: ClassVar[None] = None
    tap_offset: ClassVar[None] = None

    rank: int
    alpha: float
    num_masks: int
    target_digest: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    noise: Noise | None = None

    def __post_init__(self) -> None:
        check_counts("an adapter's", {"num_masks": self.num_masks}, MOST_MASKS)
        sizes = ("rank", "num_layers", "hidden_size", "vocab_size") if self.target_digest else ("rank",)
        check_counts("an adapter's", {name: getattr(self, name) for name in sizes}, _LARGEST)
        if not 0 < self.alpha < math.inf:
            raise ModelError(f"an adapter's alpha must be above 0; got {self.alpha}")

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead: one for each mask."""
        return self.num_masks

    @property
    def block_size(self) -> int:
        """The token that masks stand behind, and these."""
        return self.num_masks + 1

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """Layers of the target whose states are read: none, since its own passes draft."""
        return ()

    def with_block(self, size: int) -> "AdapterConfig":
        """This adapter with fewer masks: the first of them do not know of those behind.

        Args:
            size: the token that they stand behind is counted.
        """
        if not 2 <= size <= self.block_size:
            raise ModelError(
                f"an adapter of {self.num_masks} masks drafts in blocks of 2 to {self.block_size}, the root counted; "
                f"got {size}"
            )
        return replace(self, num_masks=size - 1)

    def with_noise(self, noise: Noise | None) -> "AdapterConfig":
        """This adapter with what stands in place of masks, in the target's vocabulary; None: as it says itself."""
        if self.noise is None:
            if noise is not None:
                raise ModelError("this adapter has masks of its own, and no noise stands there; leave --noise out")
            return self
        chosen = self.noise if noise is None else noise
        chosen = chosen if chosen.below else replace(chosen, below=self.noise.below)
        try:
            return replace(self, noise=chosen.within(self.vocab_size))
        except ValueError as error:
            raise ModelError(str(error)) from error

    @property
    def scale(self) -> float:
        """What each change is multiplied by."""
        return self.alpha / self.rank

    def check(self, tensors: Tensors, location: object) -> None:
        """Refuse tensors, by PEFT's names, that are no adapter; whether it is as wide as a target is seen beside it."""
        if not self.target_digest:
            numbers = {name.removeprefix(f"{PREFIX}layers.").partition(".")[0] for name in tensors}
            replace(self, num_layers=len(numbers)).check_products(tensors, location)
        else:
            self.check_products(tensors, location)

    def check_products(self, tensors: Tensors, location: object) -> None:
        """Refuse tensors that are not those of its number of layers."""
        names = set(_tensor_names(self))
        if wrong := sorted(names ^ set(tensors)):
            what = "lacks" if names - set(tensors) else "holds, beside its own tensors,"
            raise ModelError(f"the adapter in {location} {what} {', '.join(wrong[:3])}; fetch or train it again")
        shapes = {MASKS: (self.num_masks, self.hidden_size)} if self.noise is None else {}
        for name in names - {MASKS}:
            sizes = (*tensors[name].shape, 0, 0)
            shapes[name] = (self.rank, sizes[1]) if ".lora_A." in name else (sizes[0], self.rank)
        check_numbers(shapes, tensors, location)

    def lines(self) -> list[tuple[str, str]]:
        if not self.target_digest:
            return [
                ("adapter", f"UNO's: the target drafts for itself behind a token; rank {self.rank}, gated"),
                ("it needs", "--block N, the rows of its pass that drafts, and --noise, what stands there"),
                ("belongs to", "a target that is not told; only its sizes can be checked"),
            ]
        stands = "" if self.noise is None else f", where noise stands ({self.noise.text()})"
        return [
            (
                "adapter",
                f"the target drafts for itself: {self.num_masks} masks behind a token{stands}; rank {self.rank}, gated",
            ),
            ("belongs to", f"the target of the digest {self.target_digest}, and no other"),
        ]


MASKS = "mask_embeddings"
"""The tensor of the masks' embeddings."""

PREFIX = "base_model.model.model."
"""What stands before the names of a decoder's modules."""

_FIELD, _OWN = "simlab_gated", "simlab"


_BASE = ("num_layers", "hidden_size", "vocab_size")
_NOISE = "noise_below"
_UNUSUAL = (
    *("use_rslora", "use_dora", "fan_in_fan_out", "modules_to_save", "layers_to_transform", "rank_pattern"),
    *(
        "alpha_pattern",
        "exclude_modules",
        "trainable_token_indices",
        "lora_bias",
        "layer_replication",
        "megatron_config",
    ),
)
"""Fields of PEFT that, with a value, change what is run."""

_NO_CHANGE = ("corda_config", "eva_config", "loftq_config", "megatron_core", "qalora_group_size")
"""Fields of PEFT that change nothing once an adapter was trained, or by themselves."""

_READ = (
    *(_FIELD, _OWN, "peft_type", "task_type", "base_model_name_or_path", "r", "lora_alpha", "lora_dropout", "bias"),
    *("inference_mode", "target_modules", "revision", "peft_version", "init_lora_weights"),
)


def is_adapter(fields: Fields) -> bool:
    """Whether these are the fields of a gated adapter."""
    return _FIELD in fields


def adapter_from_json(fields: Fields) -> AdapterConfig | None:
    """The adapter of a checkpoint; None where it is another one."""
    if "peft_type" not in fields and not is_adapter(fields):
        return None
    if fields.get("peft_type", "LORA") != "LORA":
        raise ModelError(
            f"this is an adapter of the kind {shown(fields['peft_type'])} of PEFT, and simlab runs LORA alone, UNO's "
            "or one of `simlab train self`"
        )
    if fields.get(_FIELD, True) is not True:
        raise ModelError(
            f"this adapter has {_FIELD} {fields[_FIELD]}, and changed at all rows it is another model; merge it"
        )
    modules = fields.get("target_modules")
    if not isinstance(modules, list) or sorted(map(str, modules)) != sorted(_short_names()):
        raise ModelError(
            f"an adapter changes {', '.join(_short_names())} of every layer; this one {shown(modules)}: one that "
            "changes others is no drafter"
        )
    unusual = [name for name in _UNUSUAL if fields.get(name)]
    if unusual or fields.get("bias", "none") != "none":
        raise ModelError(f"this adapter asks for {', '.join(unusual) or 'biases'}, which simlab does not run")
    rank, alpha = integer(fields.get("r")), number(fields.get("lora_alpha"))
    if not is_adapter(fields):
        check_keys(fields, (*_READ, *_NO_CHANGE), "adapter_config.json")
        return AdapterConfig(rank, alpha, MOST_MASKS, "", 0, 0, 0, Noise())
    own = fields.get(_OWN)
    if not isinstance(own, Mapping) or not isinstance(own.get("target_digest"), str):
        raise ModelError(f"this adapter's {_OWN} does not say whose it is; train it again")
    check_keys(fields, _READ, "adapter_config.json")
    num_masks, *base = (integer(own.get(name)) for name in ("num_masks", *_BASE))
    noise = Noise(below=integer(own[_NOISE])) if _NOISE in own else None
    return AdapterConfig(rank, alpha, num_masks, str(own["target_digest"]), base[0], base[1], base[2], noise)


def adapter_to_json(config: AdapterConfig, target: str) -> dict[str, object]:
    """The fields of an adapter.

    Args:
        config: of it.
        target: the name of its target.
    """
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": target,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "target_modules": list(_short_names()),
        _FIELD: True,
        _OWN: {name: getattr(config, name) for name in ("num_masks", "target_digest", *_BASE)}
        | ({} if config.noise is None else {_NOISE: config.noise.below}),
    }


def _tensor_names(config: AdapterConfig) -> Iterator[str]:
    """The tensors that every adapter of a configuration has, as they are named on disk."""
    if config.noise is None:
        yield MASKS
    names = (f"layers.{number}.{name}" for number in range(config.num_layers) for name in MODULES)
    yield from (f"{PREFIX}{name}.lora_{side}.weight" for name in names for side in "AB")


def _short_names() -> tuple[str, ...]:
    return tuple(name.rpartition(".")[2] for name in MODULES)


def _no_channel(fields: Fields, settings: Settings, is_base: bool) -> NoReturn:
    raise ModelError(
        "an adapter of the target makes no channel; what it drafts is a draft set, `simlab record --trace DIR "
        "--add-draft self=CHECKPOINT`"
    )


def _named_target(fields: Fields) -> str | None:
    name = fields.get("base_model_name_or_path")
    return None if name is None else str(name)


ADAPTER = Network(
    what="an adapter of the target",
    layout=replace(
        layout_alone(
            "peft",
            _FIELD,
            "",
            "this is an adapter with which a target drafts for itself, and no DFlash drafter, which is wanted here; "
            "record with it alone, `simlab record --draft CHECKPOINT`",
        ),
        recognises=lambda fields: "peft_type" in fields or is_adapter(fields),
        described=lambda fields: "PEFT, gated" if is_adapter(fields) else "PEFT, read as UNO's",
        named_target=_named_target,
    ),
    reads=adapter_from_json,
    reach=_no_channel,
    module="simlab.real_runner.networks.adapter.masked",
    draft_name=AdapterConfig.draft_name,
    first_policies="-p self:budget=4,masked=-1/0/4",
)
