"""The ``config.json`` of a DFlash checkpoint in z-lab's layout, as PyPI dflash 0.1.0 reads it.

simlab writes its own checkpoints in it. A causal head of JetSpec (2026), arXiv 2606.18394, is in the same layout, with
``dflash_config.causal_head``.
"""

from collections.abc import Mapping
from reprlib import repr as shown

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import (
    CLASSES_OF_OTHERS,
    flag,
    flag_of,
    integer,
    layer_count,
    layer_numbers,
    layer_types,
    number,
    rotary_base,
    sliding_window,
)
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.layer_views import PLAIN, LayerView

_RELEASED_HEAD_DIM = 128  # of the released class, where config.json names none
_TAP_OFFSET = 1  # its layer numbers count layers: 0 is the first, whose output is state 1


def config_from_json(fields: Fields) -> DFlashConfig:
    """Read a drafter's ``config.json``; a field may stand in ``dflash_config`` or at the top."""
    architectures = fields.get("architectures")
    for name in architectures if isinstance(architectures, list) else []:
        if isinstance(name, str) and name in CLASSES_OF_OTHERS:
            raise ModelError(f"this is a {name}; simlab has not {CLASSES_OF_OTHERS[name]}, and runs DFlash")
    inner = fields.get("dflash_config")
    nested = dict(inner) if isinstance(inner, Mapping) else {}

    def field(name: str, default: object = None) -> object:
        value = nested.get(name, fields.get(name, default))
        if value is None:
            raise ModelError(f"the drafter's config.json has no {name!r}, at the top or in dflash_config")
        return value

    _refuse_variants(fields, nested)
    num_layers = layer_count(field("num_hidden_layers"))
    num_target_layers = integer(field("num_target_layers"))
    named = (nested.get("target_layer_ids"), fields.get("target_layer_ids"), nested.get("layer_ids"))
    taps = next((ids for ids in named if ids is not None), None)
    return DFlashConfig(
        block_size=integer(field("block_size", 16)),
        mask_token_id=integer(field("mask_token_id")),
        target_layer_ids=layer_numbers(default_taps(num_target_layers, num_layers) if taps is None else taps),
        num_target_layers=num_target_layers,
        num_hidden_layers=num_layers,
        hidden_size=integer(field("hidden_size")),
        intermediate_size=integer(field("intermediate_size")),
        num_attention_heads=integer(field("num_attention_heads")),
        num_key_value_heads=integer(field("num_key_value_heads")),
        head_dim=integer(field("head_dim", _RELEASED_HEAD_DIM)),
        rms_norm_eps=number(field("rms_norm_eps")),
        rope_theta=rotary_base(fields),
        vocab_size=integer(field("vocab_size")),
        attention_bias=flag_of(fields, "attention_bias"),
        max_position_embeddings=integer(field("max_position_embeddings", 8192)),
        layer_views=_layer_views(fields, nested, num_layers),
        final_logit_softcapping=_soft_cap(nested.get("final_logit_softcapping", fields.get("final_logit_softcapping"))),
        output_multiplier=number(field("output_multiplier", 1.0)),
        input_embedding_scale=number(field("input_embedding_scale", 1.0)),
        tap_offset=_TAP_OFFSET,
    )


def config_to_json(config: DFlashConfig) -> dict[str, object]:
    """The fields of z-lab's layout, in the place where the released classes look for them."""
    windows = {view.window for view in config.layer_views if view.window is not None}
    if (
        len(windows) > 1
        or _causality(config) is None
        or config.draft_vocab_size is not None
        or config.predicts_from_root
        or config.tap_offset != _TAP_OFFSET
    ):
        raise ValueError(f"z-lab's layout cannot say that a drafter has {', '.join(config.variants)}")
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": config.block_size,
        "num_target_layers": config.num_target_layers,
        "num_hidden_layers": config.num_hidden_layers,
        "layer_types": ["sliding_attention" if slides else "full_attention" for slides in _sliding(config)],
        "dflash_config": {
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
            **(_causality(config) or {}),
        },
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "attention_bias": config.attention_bias,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_position_embeddings,
        "sliding_window": next(iter(windows), None),
        "use_sliding_window": bool(windows),
        "tie_word_embeddings": True,
        "vocab_size": config.vocab_size,
        "dtype": "bfloat16",
        **_unusual_scales(config),
    }


def _causality(config: DFlashConfig) -> dict[str, object] | None:
    """What says which blocks are causal inside, where it is not as a reader takes it to be; None: no field can."""
    causal = {view.causal for view in config.views}
    if [view.causal for view in config.views] == _sliding(config):
        return {}
    if len(causal) > 1:
        return None
    # vLLM reads the first name, JetSpec the second.
    return {"causal": causal.pop(), **({"causal_head": True} if config.is_causal_head else {})}


def _sliding(config: DFlashConfig) -> list[bool]:
    """Which layers are named as sliding ones; those without a window are so named for being causal inside alone."""
    return [view.window is not None or (view.causal and not config.is_causal_head) for view in config.views]


def _unusual_scales(config: DFlashConfig) -> dict[str, object]:
    """The scales that are not what a reader takes them to be where config.json does not name them."""
    usual = {"final_logit_softcapping": None, "output_multiplier": 1.0, "input_embedding_scale": 1.0}
    return {name: getattr(config, name) for name, value in usual.items() if getattr(config, name) != value}


def default_taps(num_target_layers: int, num_draft_layers: int) -> list[int]:
    """The target layers tapped when a checkpoint names none: evenly spaced, one per draft layer."""
    if num_draft_layers == 1:
        return [num_target_layers // 2]
    span = num_target_layers - 4
    return [round(1 + i * span / (num_draft_layers - 1)) for i in range(num_draft_layers)]


def _layer_views(fields: Fields, nested: Mapping[str, object], num_layers: int) -> tuple[LayerView, ...]:
    """Sliding layers are causal inside the block, full ones are not, unless config.json says so for all.

    ``dflash_config.causal`` is what vLLM reads for the same thing, ``dflash_config.causal_head`` what JetSpec does.
    """
    causal_flags = [
        flag(value, name)
        for name, value in (
            ("is_causal", fields.get("is_causal")),
            ("is_causal", nested.get("is_causal")),
            ("causal", nested.get("causal")),
            ("causal_head", nested.get("causal_head")),
        )
        if value is not None
    ]
    if len(set(causal_flags)) > 1:
        raise ModelError("the drafter's config.json says both that its blocks are causal inside and that they are not")
    causal = causal_flags[0] if causal_flags else None
    window = sliding_window(fields)
    views = []
    for kind in layer_types(fields, num_layers):
        slides = kind == "sliding_attention"
        views.append(LayerView(slides if causal is None else causal, window if slides else None))
    return () if all(view == PLAIN for view in views) else tuple(views)


def _soft_cap(value: object) -> float | None:
    cap = 0.0 if value is None else number(value)
    return cap if cap > 0 else None


# Per field: what asks for it, and the values that ask for nothing.
_VARIANT_FIELDS: dict[str, tuple[str, tuple[object, ...]]] = {
    "projector_type": ("another projector of the target's states", ("linear", "dflash")),
    "selector_rank": ("a DFlash2 candidate selector", (0,)),
    "markov_rank": ("a DSpark Markov head", (0,)),
    "conv_kernel_size": ("the convolutions of DFlash2", (0,)),
    "shift_label": ("shifted labels", (False,)),
    "sample_from_anchor": ("predictions that begin at the root's own slot", (False,)),
    "use_confidence_head": ("a confidence head", (False,)),
    "enable_confidence_head": ("a confidence head", (False,)),
    "use_swa": ("sliding windows by use_swa, whose rule is not published,", (False,)),
    "pure_draft_prefix_len": ("a drafted prefix", (0,)),
    "attention_mode": ("another attention", ("gqa", "mha")),
    "hidden_act": ("another activation", ("silu",)),
}


def _refuse_variants(fields: Fields, nested: Mapping[str, object]) -> None:
    harmless = _VARIANT_FIELDS | {
        "draft_vocab_size": ("a reduced vocabulary", (0, fields.get("vocab_size"))),
        "target_hidden_size": ("an adapter between two hidden sizes", (fields.get("hidden_size"),)),
    }
    for name, (what, values) in harmless.items():
        value = nested.get(name, fields.get(name))
        if value is not None and value not in values:
            raise ModelError(f"this drafter needs {what} ({name}={shown(value)}), which simlab does not run")


ZLAB = Layout(
    name="z-lab",
    field="dflash_config",
    recognises=lambda fields: True,
    reads=config_from_json,
    described=lambda fields: "z-lab, as PyPI dflash writes it",
    tap_offset=_TAP_OFFSET,
    counting="counts layers from 0",
)
