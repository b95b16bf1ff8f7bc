"""The ``config.json`` of a DFlash checkpoint in z-lab's layout, as PyPI dflash 0.1.0 reads it.

simlab writes its own checkpoints in it. A causal head of JetSpec (2026), arXiv 2606.18394, is in the same layout, with
``dflash_config.causal_head``.
"""

from collections.abc import Mapping
from reprlib import repr as shown

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import (
    DFLASH_CLASS,
    check_classes,
    check_keys,
    flag,
    flag_of,
    integer,
    layer_count,
    layer_numbers,
    layer_types,
    number,
    refuse_heads,
    rotary_base,
    said_once,
    sliding_window,
)
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.drafters.config import PLAIN, DFlashConfig, LayerView

_RELEASED_HEAD_DIM = 128  # of a Qwen3 configuration in transformers, where config.json names none
_TAP_OFFSET = 1  # its layer numbers count layers: 0 is the first, whose output is state 1
_CLASSES = (DFLASH_CLASS, "TreeFlashDraftModel")
_SCALES = ("final_logit_softcapping", "output_multiplier", "input_embedding_scale")
_EITHER = (
    *("block_size", "mask_token_id", "target_layer_ids", "num_target_layers", "is_causal", *_SCALES),
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "rms_norm_eps", "vocab_size", "draft_vocab_size", "target_hidden_size"),
)
_AT_THE_TOP = (
    *("dflash_config", "treeflash_config", "ar_approximation", "candidate_tokens", "attention_bias", "layer_types"),
    *("max_window_layers", "use_sliding_window", "sliding_window", "rope_theta", "rope_scaling", "rope_parameters"),
)


def config_from_json(fields: Fields) -> DFlashConfig:
    """Read a drafter's ``config.json``; a field may stand in ``dflash_config`` or at the top."""
    refuse_heads(fields, config_from_json)
    check_classes(fields, _CLASSES, "DFlash drafters")
    inner = fields.get("dflash_config")
    if inner is not None and not isinstance(inner, Mapping):
        raise ModelError(f"the drafter's config.json holds dflash_config={shown(inner)} where an object belongs")
    nested = {} if inner is None else dict(inner)

    def field(name: str, default: object = None) -> object:
        value = said_once(name, nested, fields)
        if value is None and default is None:
            raise ModelError(
                f"the drafter's config.json has no {name!r}, at the top or in dflash_config; ask its publisher for a "
                "config.json that has it"
            )
        return default if value is None else value

    _refuse_variants(fields, nested)
    check_keys(fields, (*_AT_THE_TOP, *_EITHER, *_VARIANT_FIELDS), "the drafter's config.json")
    inside = (*_EITHER, *_VARIANT_FIELDS, "layer_ids", "causal", "causal_head")
    check_keys(nested, inside, "dflash_config of the drafter's config.json", nothing=(None,))
    num_layers = layer_count(field("num_hidden_layers"))
    taps = said_once("target_layer_ids", nested, fields, {"target_layer_ids": nested.get("layer_ids")})
    is_qwen3 = fields.get("model_type") in (None, "qwen3")
    cap, multiplier, scale = (said_once(name, nested, fields) for name in _SCALES)
    return DFlashConfig(
        block_size=integer(field("block_size")),
        mask_token_id=integer(field("mask_token_id")),
        # How many there are could be read off the weights, and which only its training knows.
        target_layer_ids=layer_numbers(field("target_layer_ids") if taps is None else taps),
        num_target_layers=integer(field("num_target_layers")),
        num_hidden_layers=num_layers,
        hidden_size=integer(field("hidden_size")),
        intermediate_size=integer(field("intermediate_size")),
        num_attention_heads=integer(field("num_attention_heads")),
        num_key_value_heads=integer(field("num_key_value_heads")),
        head_dim=integer(field("head_dim", _RELEASED_HEAD_DIM if is_qwen3 else None)),
        rms_norm_eps=number(field("rms_norm_eps")),
        rope_theta=rotary_base(fields),
        vocab_size=integer(field("vocab_size")),
        attention_bias=flag_of(fields, "attention_bias"),
        max_position_embeddings=integer(field("max_position_embeddings", 8192)),
        layer_views=_layer_views(fields, nested, num_layers),
        final_logit_softcapping=_soft_cap(cap),
        output_multiplier=number(1.0 if multiplier is None else multiplier),
        input_embedding_scale=number(1.0 if scale is None else scale),
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
        or config.convolution is not None
        or config.markov is not None
        or config.tap_offset != _TAP_OFFSET
    ):
        raise ValueError(f"z-lab's layout cannot say that a drafter has {', '.join(config.variants)}")
    return {
        "architectures": [DFLASH_CLASS],
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
        value = said_once(name, nested, fields)
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
