"""The ``config.json`` of an EAGLE-3 head, as its authors and SpecForge write it; nothing here needs torch.

The released class is `LlamaForCausalLMEagle3` (Li and others 2025, arXiv 2503.01840): a Llama configuration with
``draft_vocab_size``. SpecForge, like sglang, names the tapped layers in
``eagle_config.eagle_aux_hidden_state_layer_ids``, by the layers whose outputs they are, counted from 0.
"""

from collections.abc import Iterator, Mapping
from typing import NoReturn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import flag_of, integer, layer_numbers, number, rotary_base
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.drafters.eagle3_config import Eagle3Config

_CLASS, _FIELD, _NESTED, _TAPS = (
    "LlamaForCausalLMEagle3",
    "draft_vocab_size",
    "eagle_config",
    "eagle_aux_hidden_state_layer_ids",
)
_OTHERS = ("speculators_model_type", "block_size", "dflash_config", "treeflash_config", "taps_config")


def is_eagle3(fields: Fields) -> bool:
    """Whether a ``config.json`` is of an EAGLE-3 head."""
    return _FIELD in fields and not any(name in fields for name in _OTHERS)


def eagle3_from_json(fields: Fields) -> Eagle3Config | None:
    """The head of a checkpoint; None where it is another one."""
    if not is_eagle3(fields):
        return None
    nested = fields.get(_NESTED)
    inner = nested if isinstance(nested, Mapping) else {}
    hidden_size, heads = integer(fields.get("hidden_size")), integer(fields.get("num_attention_heads"))
    vocab_size, own = integer(fields.get("vocab_size")), integer(fields.get(_FIELD))
    if fields.get("hidden_act") not in (None, "silu"):
        raise ModelError("this EAGLE-3 head has another activation than silu, which simlab does not run")
    layers = fields.get("num_target_layers")
    return Eagle3Config(
        hidden_size=hidden_size,
        intermediate_size=integer(fields.get("intermediate_size")),
        num_attention_heads=heads,
        num_key_value_heads=integer(fields.get("num_key_value_heads") or heads),
        head_dim=integer(fields.get("head_dim") or hidden_size // max(heads, 1)),
        rms_norm_eps=number(fields.get("rms_norm_eps", 1e-6)),
        rope_theta=rotary_base(fields),
        vocab_size=vocab_size,
        target_hidden_size=integer(fields.get("target_hidden_size") or hidden_size),
        target_layer_ids=layer_numbers(inner.get(_TAPS) or ()),
        num_target_layers=None if layers is None else integer(layers),
        draft_vocab_size=None if own == vocab_size else own,
        max_position_embeddings=integer(fields.get("max_position_embeddings", 8192)),
        attention_bias=flag_of(fields, "attention_bias"),
        fc_norm=flag_of(fields, "fc_norm"),
        norm_before_residual=flag_of(fields, "norm_before_residual"),
        norm_output=flag_of(fields, "norm_output"),
    )


def eagle3_to_json(config: Eagle3Config) -> dict[str, object]:
    """The fields of a head."""
    named = {_NESTED: {_TAPS: list(config.target_layer_ids)}} if config.target_layer_ids else {}
    flags = ("attention_bias", "fc_norm", "norm_before_residual", "norm_output")
    sizes = (
        *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("rms_norm_eps", "rope_theta", "vocab_size", "target_hidden_size", "max_position_embeddings"),
    )
    return {
        "architectures": [_CLASS],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        **{name: getattr(config, name) for name in sizes},
        _FIELD: config.num_tokens,
        **({} if config.num_target_layers is None else {"num_target_layers": config.num_target_layers}),
        **{name: True for name in flags if getattr(config, name)},
        **named,
    }


def eagle3_shapes(config: Eagle3Config) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that every head of a configuration has, each with its shape."""
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    yield "fc.weight", (hidden, config.num_taps * config.target_hidden_size)
    yield "norm.weight", (hidden,)
    if config.fc_norm:
        yield from ((f"fc_norm.{number}.weight", (config.target_hidden_size,)) for number in range(config.num_taps))
    yield from ((f"midlayer.{name}.weight", (hidden,)) for name in _NORMS)
    yield from ((f"midlayer.mlp.{name}_proj.weight", (inner, hidden)) for name in ("gate", "up"))
    yield "midlayer.mlp.down_proj.weight", (hidden, inner)
    shapes = {"q": (queries, 2 * hidden), "k": (keys, 2 * hidden), "v": (keys, 2 * hidden), "o": (hidden, queries)}
    for name, shape in shapes.items():
        yield f"midlayer.self_attn.{name}_proj.weight", shape
        if config.attention_bias:
            yield f"midlayer.self_attn.{name}_proj.bias", shape[:1]


_NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")


def no_drafter(fields: Fields) -> NoReturn:
    """Refuse a head where a DFlash drafter is wanted."""
    raise ModelError(
        "this is an EAGLE-3 head and no DFlash drafter, which is wanted here; record with it alone, `simlab record "
        "--draft CHECKPOINT`, or add its trees to a trace, `simlab record --trace DIR --add-channel eagle3=CHECKPOINT`"
    )


EAGLE3 = Layout(
    name="eagle3",
    field=_FIELD,
    recognises=is_eagle3,
    reads=no_drafter,
    named_target=lambda fields: None,
    described=lambda fields: "EAGLE-3, as its authors release it",
    tap_offset=None,
    counting="",
)
