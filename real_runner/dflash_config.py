"""The configuration of a DFlash drafter, as its ``config.json`` holds it."""

from collections.abc import Mapping
from dataclasses import dataclass

from simlab.errors import ModelError

_RELEASED_HEAD_DIM = 128  # of the released class, where config.json names none
_COUNTS = (
    "num_target_layers",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """Sizes and choices of one drafter; sizes in elements, ids in the target's vocabulary."""

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    vocab_size: int
    attention_bias: bool = False
    max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ModelError(f"a drafter's {name} must be at least 1; got {getattr(self, name)}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ModelError(
                f"a drafter's {self.num_attention_heads} attention heads cannot share "
                f"{self.num_key_value_heads} key-value heads evenly"
            )
        if not self.target_layer_ids:
            raise ModelError("a drafter must tap at least one layer of its target; target_layer_ids is empty")
        if self.block_size < 2:
            raise ModelError(f"a drafter's block_size must be at least 2; got {self.block_size}")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise ModelError(
                f"mask_token_id {self.mask_token_id} is not in the target's vocabulary of {self.vocab_size}"
            )
        if any(not 0 <= tap < self.num_target_layers for tap in self.target_layer_ids):
            raise ModelError(
                f"target_layer_ids {list(self.target_layer_ids)} do not fit a target of {self.num_target_layers} layers"
            )
        if self.num_target_layers - 1 in self.target_layer_ids:
            raise ModelError(
                f"target_layer_ids {list(self.target_layer_ids)} name the last layer of a target of "
                f"{self.num_target_layers}, whose state released drafters read after the final norm and simlab does "
                "not; tap earlier layers"
            )

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead: one less than the block."""
        return self.block_size - 1

    def to_json(self) -> dict[str, object]:
        """The fields in the place where the released classes look for them."""
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "block_size": self.block_size,
            "num_target_layers": self.num_target_layers,
            "num_hidden_layers": self.num_hidden_layers,
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "dflash_config": {
                "mask_token_id": self.mask_token_id,
                "target_layer_ids": list(self.target_layer_ids),
            },
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "attention_bias": self.attention_bias,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_position_embeddings,
            "sliding_window": None,
            "use_sliding_window": False,
            "tie_word_embeddings": True,
            "vocab_size": self.vocab_size,
            "dtype": "bfloat16",
        }


def config_from_json(fields: Mapping[str, object]) -> DFlashConfig:
    """Read a drafter's ``config.json``; a field may stand at the top or in ``dflash_config``.

    Raises:
        ModelError: a field is missing, or asks for a variant that this runner does not carry.
    """
    inner = fields.get("dflash_config")
    nested = dict(inner) if isinstance(inner, Mapping) else {}

    def field(name: str, default: object = None) -> object:
        value = nested.get(name, fields.get(name, default))
        if value is None:
            raise ModelError(f"the drafter's config.json has no {name!r}, at the top or in dflash_config")
        return value

    _refuse_variants(fields, nested)
    rope = fields.get("rope_parameters")
    theta = rope.get("rope_theta") if isinstance(rope, Mapping) else None
    theta = fields.get("rope_theta") if theta is None else theta
    num_layers = _integer(field("num_hidden_layers"))
    num_target_layers = _integer(field("num_target_layers"))
    named = (nested.get("target_layer_ids"), fields.get("target_layer_ids"), nested.get("layer_ids"))
    taps = next((ids for ids in named if ids is not None), None)
    if taps is None:
        taps = default_taps(num_target_layers, num_layers)
    if not isinstance(taps, list | tuple):
        raise ModelError(f"the drafter's target_layer_ids must be a list of layer numbers; got {taps!r}")
    return DFlashConfig(
        block_size=_integer(field("block_size", 16)),
        mask_token_id=_integer(field("mask_token_id")),
        target_layer_ids=tuple(_integer(tap) for tap in taps),
        num_target_layers=num_target_layers,
        num_hidden_layers=num_layers,
        hidden_size=_integer(field("hidden_size")),
        intermediate_size=_integer(field("intermediate_size")),
        num_attention_heads=_integer(field("num_attention_heads")),
        num_key_value_heads=_integer(field("num_key_value_heads")),
        head_dim=_integer(field("head_dim", _RELEASED_HEAD_DIM)),
        rms_norm_eps=_number(field("rms_norm_eps")),
        rope_theta=_number(theta if theta is not None else 10000.0),
        vocab_size=_integer(field("vocab_size")),
        attention_bias=bool(fields.get("attention_bias", False)),
        max_position_embeddings=_integer(field("max_position_embeddings", 8192)),
    )


def default_taps(num_target_layers: int, num_draft_layers: int) -> list[int]:
    """The target layers tapped when a checkpoint names none: evenly spaced, one per draft layer."""
    if num_draft_layers == 1:
        return [num_target_layers // 2]
    span = num_target_layers - 4
    return [round(1 + i * span / (num_draft_layers - 1)) for i in range(num_draft_layers)]


# Per field: what asks for it, and the values that ask for nothing.
_VARIANT_FIELDS: dict[str, tuple[str, tuple[object, ...]]] = {
    "final_logit_softcapping": ("a soft-capped head", (0,)),
    "output_multiplier": ("a scaled head", (1,)),
    "input_embedding_scale": ("scaled embeddings", (1,)),
    "projector_type": ("another projector of the target's states", ("linear", "dflash")),
    "selector_rank": ("a DFlash2 candidate selector", (0,)),
    "shift_label": ("shifted labels", (False,)),
    "sample_from_anchor": ("predictions that begin at the root's own slot", (False,)),
    "use_confidence_head": ("a confidence head", (False,)),
    "use_swa": ("sliding windows", (False,)),
    "pure_draft_prefix_len": ("a drafted prefix", (0,)),
    "attention_mode": ("another attention", ("gqa", "mha")),
    "hidden_act": ("another activation", ("silu",)),
    "causal": ("blocks that are causal inside", (False,)),
    "is_causal": ("blocks that are causal inside", (False,)),
}


def _refuse_variants(fields: Mapping[str, object], nested: Mapping[str, object]) -> None:
    harmless = _VARIANT_FIELDS | {"draft_vocab_size": ("a reduced vocabulary", (0, fields.get("vocab_size")))}
    for name, (what, values) in harmless.items():
        value = nested.get(name, fields.get(name))
        if value is not None and value not in values:
            raise ModelError(f"this drafter needs {what} ({name}={value!r}), which simlab does not run")
    _refuse_sliding({**fields, **nested})
    for name in ("rope_scaling", "rope_parameters"):
        rope = fields.get(name)
        kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else "default"
        if kind != "default":
            raise ModelError(f"this drafter needs scaled rotary positions ({name} {kind!r}), which simlab does not run")


def _refuse_sliding(fields: Mapping[str, object]) -> None:
    given = fields.get("layer_types")
    kinds = {str(kind) for kind in given} if isinstance(given, list) else set()
    if fields.get("use_sliding_window") and (not kinds or fields.get("sliding_window") is not None):
        kinds.add("sliding_attention")
    if others := sorted(kinds - {"full_attention"}):
        raise ModelError(f"this drafter has layers of {', '.join(others)}, which simlab does not run")


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"the drafter's config.json holds {value!r} where a whole number belongs")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"the drafter's config.json holds {value!r} where a number belongs")
    return float(value)
