"""Quantised weights: what a ``config.json`` says of them, and which targets run with them dequantised.

transformers dequantises weights when they are loaded; they are then what an engine multiplies with. What an engine
rounds besides (activations, keys and values) is not rounded here, and the description says so. Nothing here needs torch
until a target is loaded.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from simlab.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PretrainedConfig, PreTrainedModel

QUANTISATION = "quantization_config"
"""The key of a ``config.json`` that says how its weights are stored."""

_SETTINGS = (QUANTISATION, "compression_config")
_UNKNOWN = "by a method that its config.json does not say"
_ACTIVATIONS = "activations too"
_BITSANDBYTES = "bitsandbytes"
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def quantisation_of(fields: Mapping[str, object]) -> str:
    """How the weights of a checkpoint are stored, in words such as ``fp8, blocks of 128 x 128, activations too``.

    Args:
        fields: of its ``config.json``.

    Returns:
        Empty where they are not quantised.
    """
    inner = fields.get("text_config")
    asked = [text.get(key) for text in (fields, inner) if isinstance(text, Mapping) for key in _SETTINGS]
    settings = next((value for value in asked if value), None)
    if settings is None:
        return ""
    if not isinstance(settings, Mapping) or not settings.get("quant_method"):
        return _UNKNOWN
    method = _word(settings.get("quant_method"))
    return f"{method}, {', '.join(_details(method, settings))}".removesuffix(", ")


def _details(method: str, settings: Mapping[str, object]) -> Iterable[str]:
    """What a method's settings say, in the words of `quantisation_of`."""
    if method == "compressed-tensors":
        yield _word(settings.get("format"))
        yield from _groups(settings)
    elif method == _BITSANDBYTES:
        in_8_bits = settings.get("load_in_8bit")
        yield from ("int8", _ACTIVATIONS) if in_8_bits else (_word(settings.get("bnb_4bit_quant_type")),)
    else:
        yield from (_word(settings[key]) for key in ("quant_algo", "quant_type") if settings.get(key))
        yield from (f"{_word(settings[key])} bits" for key in ("bits", "w_bit") if settings.get(key))
        block = settings.get("weight_block_size")
        yield from (f"blocks of {' x '.join(map(_word, block))}",) if isinstance(block, list | tuple) else ()
        yield from (_ACTIVATIONS,) if settings.get("activation_scheme") else ()


def _groups(settings: Mapping[str, object]) -> Iterable[str]:
    """How compressed-tensors stores each group of weights, and what is rounded beside them."""
    groups = settings.get("config_groups")
    schemes = [group for group in groups.values() if isinstance(group, Mapping)] if isinstance(groups, Mapping) else []
    stored = [scheme["weights"] for scheme in schemes if isinstance(scheme.get("weights"), Mapping)]
    yield from dict.fromkeys(_numbers(weights) for weights in stored)
    if any(scheme.get("input_activations") for scheme in schemes):
        yield _ACTIVATIONS
    if settings.get("kv_cache_scheme"):
        yield "keys and values too"


def _numbers(weights: Mapping[str, object]) -> str:
    kind, group = f"{_word(weights.get('type') or 'int')}{_word(weights.get('num_bits'))}", weights.get("group_size")
    return f"{kind} in groups of {_word(group)}" if group else f"{kind} for each {_word(weights.get('strategy'))}"


def _word(value: object) -> str:
    """A word or number of a file that anybody may have written, fit to be printed."""
    return str(value) if _WORD.fullmatch(str(value)) else "?"


_PACKAGES = {"fp8": None, "compressed-tensors": "compressed_tensors", _BITSANDBYTES: _BITSANDBYTES}
"""Methods whose weights transformers dequantises, and the package that it needs for it."""

_OF_QUANTISED = re.compile(
    r"(weight_scale|input_scale|scale_inv|scale_2|\.scales|zero_point|\.zeros|qzeros|qweight|weight_packed|absmax|SCB|g_idx)$"
)
"""How the names of tensors end that weights need which are quantised."""
_ELSEWHERE = (
    "give the same model with weights in F32, BF16 or F16, or record what a serving engine computed, with "
    "--completions and --hidden-states"
)


def check_quantised(name: str, config: "PretrainedConfig") -> str:
    """See that a target's quantised weights can be dequantised, and ask transformers for it.

    Args:
        name: of the target, for the message.
        config: of the target; its ``quantization_config`` is changed so that they are.

    Returns:
        How they are stored; empty where they are not quantised.

    Raises:
        ModelError: simlab does not load such weights, or a package is missing.
    """
    settings: object = getattr(config, QUANTISATION, None)
    stored = quantisation_of({QUANTISATION: settings})
    if not stored:
        return ""
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or method not in _PACKAGES:
        raise ModelError(
            f"the target {name!r} is quantised ({stored}), and simlab loads fp8, compressed-tensors and bitsandbytes; "
            f"{_ELSEWHERE}"
        )
    package = _PACKAGES[method]
    if package is not None and find_spec(package) is None:
        raise ModelError(
            f"the target {name!r} is quantised ({stored}), which takes a package that is not installed; install it "
            f"with: pip install {method}"
        )
    if method != _BITSANDBYTES:
        settings["dequantize"] = True
    return stored


def _check_rows(name: str, stored: str, model: "nn.Module") -> None:
    """Refuse what bitsandbytes 0.50 makes wrong numbers of on a CPU: rows that end within one of its 4-bit blocks."""
    for key, weight in model.named_parameters():
        state = getattr(weight, "quant_state", None)
        if state is not None and state.shape[-1] % state.blocksize:
            raise ModelError(
                f"{key!r} of the target {name!r} ({stored}) has rows of {state.shape[-1]}, and bitsandbytes "
                f"reads 4 bits rightly in rows of multiples of {state.blocksize} only; {_ELSEWHERE}"
            )


def dequantise(
    name: str,
    stored: str,
    model: "PreTrainedModel",
    unread: Iterable[str],
    unscaled: Iterable[str],
    dtype: "torch.dtype",
) -> None:
    """Dequantise all weights to one dtype, in place; none may be left as it was stored.

    Args:
        name: of the target, for the message.
        stored: see `quantisation_of`.
        model: as transformers loaded it.
        unread: names of tensors that it left in the file.
        unscaled: names of weights that need a scale and have none.
        dtype: in which it is to run.

    Raises:
        ModelError: weights are quantised and their scales were not read, or would be read wrongly.
    """
    of_model: nn.Module = model
    if stored and getattr(model, "is_quantized", False):
        _check_rows(name, stored, of_model)
        model.dequantize()
    strange = [*sorted(key for key in unread if _OF_QUANTISED.search(key)), *unscaled]
    strange += [key for key, weight in of_model.named_parameters() if not _is_plain(weight)]
    if strange:
        says = f"{QUANTISATION} in its config.json ({stored})" if stored else f"a config.json without {QUANTISATION}"
        raise ModelError(
            f"the target {name!r} has quantised weights that {says} does not explain, such as {strange[0]!r}; "
            "fetch the checkpoint again, or give the same model with weights in F32, BF16 or F16"
        )
    if stored:
        # Norms and embeddings are stored in a dtype of their own, and transformers leaves them in it.
        for weight in of_model.parameters():
            weight.data = weight.data.to(dtype)


def _is_plain(weight: "torch.Tensor") -> bool:
    """Whether its numbers are F64, F32, BF16 or F16; those of one byte stand for others."""
    return weight.is_floating_point() and weight.element_size() > 1
