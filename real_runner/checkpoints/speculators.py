"""The ``config.json`` of a DFlash checkpoint in the format of PyPI speculators 0.9."""

from collections.abc import Mapping
from reprlib import repr as shown
from typing import cast

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import (
    DFLASH_CLASS,
    KINDS_OF_OTHERS,
    check_classes,
    check_keys,
    flag,
    flag_of,
    integer,
    layer_count,
    layer_numbers,
    layer_types,
    markov_of,
    number,
    rotary_base,
)
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.drafters.config import PLAIN, Convolution, DFlashConfig, LayerView, Markov

_KIND = "speculators_model_type"
_TAP_OFFSET = 0  # its layer numbers count states: 0 is the embedding
_CLASSES = {
    "dflash": ("DFlashSpeculator", DFLASH_CLASS),
    "dflash2": ("DFlash2DraftModel",),
    "dspark": ("DSparkSpeculator", "DSparkDraftModel"),
}
_DFLASH2 = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 256, "selector_top_k": 16}
_DSPARK: Mapping[str, object] = {
    "markov_rank": 256,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}
_OWN: Mapping[str, Mapping[str, object]] = {"dflash": {}, "dflash2": _DFLASH2, "dspark": _DSPARK}
"""What the configuration of each kind has beside, with its defaults."""
_READ = (
    *(_KIND, "speculators_version", "speculators_config", "transformer_layer_config", "block_size", "mask_token_id"),
    *("aux_hidden_state_layer_ids", "draft_vocab_size", "target_hidden_size", "sample_from_anchor"),
    "sliding_window_non_causal",
)
_READ_OF_LAYERS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim"),
    *("num_key_value_heads", "rms_norm_eps", "attention_bias", "layer_types", "rope_theta", "rope_scaling"),
    *("rope_parameters", "use_sliding_window", "sliding_window", "max_window_layers", "hidden_act"),
)


def config_from_speculators(fields: Fields) -> DFlashConfig:
    """Read a drafter's ``config.json``.

    What the nested configuration does not name has the default of its model type in transformers.
    """
    kind = str(fields[_KIND])
    if kind not in _CLASSES:
        lacking = KINDS_OF_OTHERS.get(kind, "that kind of drafter")
        raise ModelError(
            f"this is a drafter of speculators' kind {shown(fields[_KIND])}; simlab lacks {lacking}, and runs DFlash"
        )
    check_classes(fields, _CLASSES[kind], "DFlash drafters")
    check_keys(fields, (*_READ, *_OWN[kind]), "the drafter's config.json")
    layers = _layer_config(fields)
    num_layers = layer_count(layers.get("num_hidden_layers"))
    hidden_size, vocab_size = integer(layers.get("hidden_size")), integer(layers.get("vocab_size"))
    if fields.get("target_hidden_size") not in (None, hidden_size):
        wide = shown(fields["target_hidden_size"])
        raise ModelError(
            f"this drafter is {hidden_size} wide and its target {wide}; speculators' own class "
            "reads targets of its own width only, and so does simlab"
        )
    if layers.get("hidden_act") not in (None, "silu"):
        raise ModelError(f"this drafter needs the activation {shown(layers['hidden_act'])}, which simlab does not run")
    heads, draft_vocab_size = (
        integer(layers.get("num_attention_heads")),
        integer(_field(fields, "draft_vocab_size")),
    )
    if _OWN[kind] and draft_vocab_size != vocab_size:
        raise ModelError(
            f"this drafter of the kind {kind} drafts {draft_vocab_size} of {vocab_size} tokens, and simlab runs its "
            "head over all of them alone; choose a release of the whole vocabulary"
        )
    config = DFlashConfig(
        block_size=integer(_field(fields, "block_size")),
        mask_token_id=integer(_field(fields, "mask_token_id")),
        target_layer_ids=tuple(tap - 1 for tap in layer_numbers(_field(fields, "aux_hidden_state_layer_ids"))),
        num_target_layers=None,
        num_hidden_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=integer(layers.get("intermediate_size")),
        num_attention_heads=heads,
        # Its model type has filled in what the file leaves out.
        num_key_value_heads=integer(layers.get("num_key_value_heads")),
        head_dim=integer(layers.get("head_dim")),
        rms_norm_eps=number(layers.get("rms_norm_eps")),
        rope_theta=rotary_base(layers),
        vocab_size=vocab_size,
        attention_bias=flag_of(layers, "attention_bias"),
        max_position_embeddings=integer(layers.get("max_position_embeddings", 8192)),
        layer_views=_layer_views(fields, layers, num_layers),
        predicts_from_root=flag(_field(fields, "sample_from_anchor", is_dspark(fields)), "sample_from_anchor"),
        draft_vocab_size=None if draft_vocab_size == vocab_size else draft_vocab_size,
        tap_offset=_TAP_OFFSET,
        convolution=Convolution(*sizes_of_dflash2(fields)[:2]) if is_dflash2(fields) else None,
        markov=_markov(fields) if is_dspark(fields) else None,
    )
    _check_promise(fields, config)
    return config


def is_dflash2(fields: Fields) -> bool:
    """Whether these are the fields of a drafter of DFlash 2 in this format."""
    return fields.get(_KIND) == "dflash2"


def is_dspark(fields: Fields) -> bool:
    """Whether these are the fields of a drafter of DSpark in this format."""
    return fields.get(_KIND) == "dspark"


def confidence_reads_token(fields: Fields) -> bool:
    """Whether the confidence head of such a drafter reads the token before, as the Markov head does."""
    name = "confidence_head_with_markov"
    return flag(_field(fields, name, _DSPARK[name]), name)


def _markov(fields: Fields) -> Markov:
    rank, kind = (_field(fields, name, _DSPARK[name]) for name in ("markov_rank", "markov_head_type"))
    if rank == 0:
        raise ModelError("this drafter of DSpark has markov_rank=0, no Markov head; name it a DFlash drafter to run it")
    return markov_of(rank, kind)


def sizes_of_dflash2(fields: Fields) -> tuple[int, int, int, int]:
    """Taps of a convolution and channels of a group, rank of the selector and its number of candidates."""
    kernel, group, rank, top_k = (integer(_field(fields, name, default)) for name, default in _DFLASH2.items())
    return kernel, group, rank, top_k


def _check_promise(fields: Fields, config: DFlashConfig) -> None:
    """Refuse a checkpoint whose own proposal drafts more tokens than its block has slots for."""
    promised = _promised_depth(fields)
    if promised is not None and promised > config.depth:
        raise ModelError(
            f"the drafter's config.json promises {promised} drafted tokens, and block_size {config.block_size} with "
            f"sample_from_anchor={config.predicts_from_root} makes {config.depth}; its publisher must say which holds"
        )


def _promised_depth(fields: Fields) -> int | None:
    """D as the checkpoint's own proposal says it; None where it does not."""
    inner = fields.get("speculators_config")
    methods = inner.get("proposal_methods") if isinstance(inner, Mapping) else None
    first = methods[0] if isinstance(methods, list) and methods else None
    num_tokens = first.get("speculative_tokens") if isinstance(first, Mapping) else None
    return None if num_tokens is None else integer(num_tokens)


def _named_target(fields: Fields) -> str | None:
    """The target that the checkpoint was made for, as it names it."""
    inner = fields.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return name if isinstance(name, str) else None


def _field(fields: Fields, name: str, default: object = None) -> object:
    value = fields.get(name)
    if value is None and default is None:
        raise ModelError(f"the drafter's config.json has no {name!r}")
    return default if value is None else value


def _layer_config(fields: Fields) -> dict[str, object]:
    """All fields of the draft layers: files hold only what differs from the defaults of their model type."""
    # The command line reads the table of layouts for its help, and transformers takes seconds to import.
    from transformers import AutoConfig  # noqa: PLC0415

    nested = fields.get("transformer_layer_config")
    if not isinstance(nested, Mapping):
        raise ModelError("the drafter's config.json has no 'transformer_layer_config'; fetch the checkpoint again")
    check_keys(nested, _READ_OF_LAYERS, "transformer_layer_config of the drafter's config.json")
    kind = nested.get("model_type", "qwen3")
    if not isinstance(kind, str):
        raise ModelError(f"the drafter's transformer_layer_config has the model_type {shown(kind)}; expected a text")
    if nested.get("num_hidden_layers") is not None:
        layer_count(nested["num_hidden_layers"])
    rest = {name: value for name, value in nested.items() if name != "model_type"}
    rope = rest.get("rope_parameters")
    if isinstance(rope, Mapping) and isinstance(rope.get("sliding_attention"), Mapping):
        # The released class has one rotation for all layers, and takes this one.
        rest["rope_parameters"] = dict(cast(Mapping[str, object], rope["sliding_attention"]))
    try:
        return cast(dict[str, object], AutoConfig.for_model(kind, **rest).to_dict())
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"the drafter's transformer_layer_config cannot be read ({reason})") from error


def _layer_views(fields: Fields, layers: Fields, num_layers: int) -> tuple[LayerView, ...]:
    """What each layer shows: windows begin before the root, and blocks of sliding layers are causal, unless said not.

    A sliding layer without a window shows everything, as in the released class.
    """
    if layers.get("layer_types") is None:
        return ()
    window = layers.get("sliding_window")
    both_ways = flag(_field(fields, "sliding_window_non_causal", is_dflash2(fields)), "sliding_window_non_causal")
    sliding = PLAIN if window is None else LayerView(not both_ways, integer(window), from_root=True)
    views = tuple(sliding if kind == "sliding_attention" else PLAIN for kind in layer_types(layers, num_layers))
    return () if all(view == PLAIN for view in views) else views


def _described(fields: Fields) -> str:
    return f"speculators {fields.get('speculators_version', '')}".strip() + f", {fields[_KIND]}"


SPECULATORS = Layout(
    name="speculators",
    field=_KIND,
    recognises=lambda fields: _KIND in fields,
    reads=config_from_speculators,
    named_target=_named_target,
    described=_described,
    tap_offset=_TAP_OFFSET,
    counting="counts the embedding as state 0",
)
