"""Loading a target, and saying which files it is made of."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from reprlib import repr as shown
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from simlab.errors import ModelError, SimlabError, reason_of
from simlab.real_runner.attention import grouped as attention
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.hub_files import (
    ADAPTER_CONFIG,
    CONFIG,
    ModelFiles,
    every_tensor,
    fetch_model,
    files_digest,
    is_hub_id,
    repository_of,
    weight_names,
)
from simlab.real_runner.targets.model import Target
from simlab.real_runner.targets.placement import (
    FAMILIES,
    ROTATED_BY_TYPE,
    DeviceMap,
    check_embedding,
    check_supported,
    rotates_by_type,
    window_of,
)
from simlab.real_runner.targets.quantised import check_quantised, dequantise
from simlab.traces.format.documents import json_fields
from simlab.untrusted.json_text import file_bytes

DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
)
"""What transformers raises for files that are no model, or a damaged one."""

_EXPECTED = f"{builtin.NAME!r}, a folder with config.json and safetensors, or a Hugging Face id such as ORG/NAME"


def load_target(name: str, dtype: torch.dtype, device: str = "cpu", device_map: DeviceMap | None = None) -> Target:
    """Load the built-in target, a local folder, or a Hugging Face id.

    Args:
        name: of one of these.
        dtype: in which it runs.
        device: as torch names it.
        device_map: where its parts are, in place of ``device``; None: all of it is there.

    Raises:
        ModelError: nothing can be loaded under that name.
    """
    disable_progress_bar()
    files = target_files(name)
    # What does not run is refused before its weights, which are large, are read.
    config = target_config(name, files.folder)
    stored = check_quantised(name, config)
    check_supported(name, target_shape(name, config, dtype))
    try:
        loaded_with_info: object = AutoModelForCausalLM.from_pretrained(
            files.folder,
            config=config,
            dtype=dtype,
            attn_implementation=attention.NAME,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            output_loading_info=True,
            **({} if device_map is None else {"device_map": device_map}),
        )
        tokenizer = load_tokenizer(name, files.folder)
    except torch.OutOfMemoryError:
        raise
    except DAMAGED as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        remedy = f"expected {_EXPECTED}"
        if name == builtin.NAME:
            remedy = f"delete {files.folder} and run the command again"
        raise ModelError(f"the target {name!r} could not be loaded ({reason}); {remedy}") from error
    model, loaded = cast("tuple[PreTrainedModel, dict[str, Any]]", loaded_with_info)
    _check_whole(name, loaded)
    dequantise(name, stored, model, loaded["unexpected_keys"], _without_scale(files.folder), dtype)
    check_supported(name, model)
    if device_map is None:
        model = cast(PreTrainedModel, cast(nn.Module, model).to(device))
    check_embedding(name, model)
    return Target(
        name=repository_of(name),
        revision=files.revision,
        digest=builtin.GGUF_SHA256 if name == builtin.NAME else weights_digest(files.folder),
        quantised=stored,
        model=cast(PreTrainedModel, cast(nn.Module, model).eval().requires_grad_(False)),
        tokenizer=tokenizer,
        stop_token_ids=stop_token_ids(model, tokenizer),
    )


_LARGEST, _MOST_LAYERS = 1 << 24, 1024
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "max_position_embeddings"),
)


def target_config(name: str, folder: Path) -> PretrainedConfig:
    """The configuration of a target, its sizes seen to be possible before anything is built of them.

    Args:
        name: of the target, for messages.
        folder: with its ``config.json``.

    Raises:
        ModelError: there is none, it cannot be read, or an adapter lies beside it.
    """
    path = folder / CONFIG
    if (folder / ADAPTER_CONFIG).is_file():
        raise ModelError(
            f"the target {name!r} has an {ADAPTER_CONFIG}: with that adapter it is another model; merge the adapter "
            "into its base, and give the merged model"
        )
    if not path.is_file():
        raise ModelError(f"the target {name!r} has no {CONFIG}; give a folder with one, or an id ORG/NAME of the hub")
    fields = _fields_of(name, path)
    try:
        inner = fields.get("text_config")
        for sizes in (fields, inner if isinstance(inner, Mapping) else {}):
            _check_possible(name, sizes)
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ModelError:
        raise
    except (*DAMAGED, ImportError, SimlabError) as error:
        raise unreadable(name, error) from error
    text = config.get_text_config()
    heads, shared = (getattr(text, key, None) for key in ("num_attention_heads", "num_key_value_heads"))
    if isinstance(heads, int) and isinstance(shared, int) and heads % shared:
        raise ModelError(
            f"the {CONFIG} of the target {name!r} holds {heads} attention heads, which {shared} key-value heads cannot "
            "share evenly; fetch it again"
        )
    if (window := window_of(text)) is not None and window < 1:
        raise ModelError(f"the {CONFIG} of the target {name!r} holds sliding_window={window}; expected at least 1")
    ropes = getattr(text, "rope_parameters", None) or {}
    for rope in (ropes, *(rope for rope in ropes.values() if isinstance(rope, Mapping))):
        theta = rope.get("rope_theta", 1.0)
        if isinstance(theta, bool) or not isinstance(theta, int | float) or not 1 <= theta <= 1e30:
            raise ModelError(f"the {CONFIG} of the target {name!r} holds rope_theta={shown(theta)}; expected 1 to 1e30")
    return config


def _fields_of(name: str, path: Path) -> Mapping[str, object]:
    try:
        return json_fields(file_bytes(path), str(path)).values
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the {CONFIG} of the target {name!r} could not be read ({reason_of(error)}); fetch the checkpoint again"
        ) from error


def _check_possible(name: str, sizes: Mapping[str, object]) -> None:
    for key in _SIZES:
        value, most = sizes.get(key), _MOST_LAYERS if key == "num_hidden_layers" else _LARGEST
        # A list has a value for each layer; what transformers does not take it refuses.
        if isinstance(value, list) or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ModelError(
                f"the {CONFIG} of the target {name!r} holds {key}={shown(value)}; expected a whole number from 1 to "
                f"{most:,}; fetch it again"
            )


def target_shape(name: str, config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """A target without its weights, of every architecture that transformers knows: shapes, and no memory.

    Raises:
        ModelError: transformers builds no causal language model of the configuration.
    """
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                deepcopy(config), dtype=dtype, trust_remote_code=False
            )
    except (*DAMAGED, ImportError, ArithmeticError) as error:
        if isinstance(error, KeyError) and rotates_by_type(config):
            raise ModelError(f"the target {name!r} {ROTATED_BY_TYPE}; {FAMILIES}") from error
        raise unreadable(name, error) from error
    return model


def unreadable(name: str, error: Exception) -> ModelError:
    """What is raised where transformers makes no model of a ``config.json``, its many lines as one."""
    reason = " ".join(str(error).split())
    if isinstance(error, KeyError):
        reason = f"it lacks or misnames {error.args[0]}"
    elif "nrecognized" in reason or "does not recognize" in reason:
        reason = "transformers has no causal language model of its model_type"
    elif "trust_remote_code" in reason:
        reason = "it needs code of its own, and simlab runs no code of a checkpoint"
    return ModelError(f"the {CONFIG} of the target {name!r} could not be read ({reason[:200]}); {FAMILIES}")


def load_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a target. The built-in one's stop token is its own, whatever transformers made of the GGUF."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if name == builtin.NAME:
        tokenizer.eos_token = builtin.STOP_TOKEN
    return tokenizer


def _check_whole(name: str, loaded: dict[str, Any]) -> None:
    """Refuse a checkpoint that is not what its config.json says: transformers makes up at random what it lacks."""
    missing, reshaped = sorted(loaded["missing_keys"]), sorted(loaded["mismatched_keys"])
    if missing:
        raise ModelError(
            f"the checkpoint of the target {name!r} lacks {len(missing)} of the tensors that its config.json asks "
            f"for, such as {missing[0]!r}; give a whole checkpoint of a causal language model"
        )
    if reshaped:
        key, shape, expected = reshaped[0]
        raise ModelError(
            f"{key!r} of the target {name!r} is {list(shape)}, and its config.json makes it {list(expected)}; fetch "
            "the checkpoint again"
        )


def stop_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The tokens that end a text: those of the model's generation settings, and the tokenizer's own."""
    stop_ids = model.generation_config.eos_token_id
    ids: list[object] = [*(stop_ids if isinstance(stop_ids, list) else [stop_ids]), tokenizer.eos_token_id]
    return tuple(sorted({token for token in ids if isinstance(token, int)}))


def target_files(name: str, is_needed: Callable[[str], bool] = every_tensor) -> ModelFiles:
    """The files of the built-in target, of a local one, or of one fetched from the hub.

    Args:
        name: see `load_target`.
        is_needed: by the name of a tensor; what the hub keeps in files of other tensors is not fetched.
    """
    if name == builtin.NAME:
        return ModelFiles(builtin.builtin_target_dir(), "")
    if Path(name).is_dir():
        return ModelFiles(Path(name), "")
    if not is_hub_id(name):
        raise ModelError(f"the target {name!r} could not be loaded: nothing has that name; expected {_EXPECTED}")
    return fetch_model("target", name, is_needed)


def weights_digest(folder: Path, is_needed: Callable[[str], bool] = every_tensor) -> str:
    """A digest of the weights' files. The built-in target has another: that of the file it is unpacked from.

    Args:
        folder: with the weights.
        is_needed: by the name of a tensor; files of other tensors are left out, where an index tells them apart.
    """
    return files_digest(_weight_files(folder, is_needed))


def _without_scale(folder: Path) -> list[str]:
    """Weights of one-byte numbers beside which no file has their scale; transformers 5.24 reads them as they are."""
    dtypes: dict[str, str] = {}
    for path in _weight_files(folder):
        with safe_open(path, "pt") as file:
            dtypes |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - no mapping
    scales = "_scale", "_scale_inv"
    small = (name for name, dtype in dtypes.items() if dtype.startswith("F8") and not name.endswith(scales))
    return [name for name in small if not any(f"{name}{end}" in dtypes for end in scales)]


def _weight_files(folder: Path, is_needed: Callable[[str], bool] = every_tensor) -> list[Path]:
    """The files with weights that transformers reads."""
    listed = [folder / name for name in weight_names(folder, is_needed)]
    return listed if all(path.is_file() for path in listed) else sorted(folder.glob("*.safetensors"))
