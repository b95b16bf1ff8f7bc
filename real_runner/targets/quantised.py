"""Quantised targets: which are loaded, with their weights made dense.

Weights are made dense by transformers when they are loaded, and are then what an engine multiplies with. What an engine
rounds besides (activations, keys and values) is not rounded here, and the description says so.
"""

import re
from collections.abc import Iterable
from importlib.util import find_spec

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from simlab.errors import ModelError
from simlab.real_runner.targets.hub_files import BITSANDBYTES, QUANTISATION, quantisation_of

_PACKAGES = {"fp8": None, "compressed-tensors": "compressed_tensors", BITSANDBYTES: BITSANDBYTES}
"""Methods whose weights transformers makes dense, and the package that it needs for it."""

_NUMBERS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_OF_QUANTISED = re.compile(
    r"(?<!k_)(?<!v_)(scale|scale_inv|scale_2|scales|zero_point|zeros|qzeros|qweight|weight_packed|absmax|SCB|g_idx)$"
)
_ELSEWHERE = (
    "give the same model with weights in F32, BF16 or F16, or record what a serving engine computed, with "
    "--completions and --hidden-states"
)


def check_quantised(name: str, config: PretrainedConfig) -> str:
    """See that a target's quantised weights can be made dense, and ask transformers for it.

    Args:
        name: of the target, for the message.
        config: of the target; its ``quantization_config`` is changed so that weights are made dense.

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
    if method != BITSANDBYTES:
        settings["dequantize"] = True
    return stored


def _check_rows(name: str, stored: str, model: nn.Module) -> None:
    """Refuse what bitsandbytes 0.50 makes wrong numbers of on a CPU: rows that end within one of its 4-bit blocks."""
    for key, weight in model.named_parameters():
        state = getattr(weight, "quant_state", None)
        if state is not None and state.shape[-1] % state.blocksize:
            raise ModelError(
                f"{key!r} of the target {name!r} ({stored}) has rows of {state.shape[-1]}, and bitsandbytes "
                f"reads 4 bits rightly in rows of multiples of {state.blocksize} only; {_ELSEWHERE}"
            )


def made_dense(name: str, stored: str, model: PreTrainedModel, unread: Iterable[str], dtype: torch.dtype) -> None:
    """Make all weights dense and of one dtype, in place; none may be left as it was stored.

    Args:
        name: of the target, for the message.
        stored: see `quantisation_of`.
        model: as transformers loaded it.
        unread: names of tensors that it left in the file.
        dtype: in which it is to run.

    Raises:
        ModelError: weights are quantised and their scales were not read, or would be read wrongly.
    """
    of_model: nn.Module = model
    if stored and getattr(model, "is_quantized", False):
        _check_rows(name, stored, of_model)
        model.dequantize()
    strange = sorted(key for key in unread if _OF_QUANTISED.search(key))
    strange += [key for key, weight in of_model.named_parameters() if weight.dtype not in _NUMBERS]
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
