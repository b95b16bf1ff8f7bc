"""Loading a target, and saying which files it is made of."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from torch import nn

from simlab.errors import ModelError
from simlab.real_runner import attention, builtin
from simlab.real_runner.hub_files import fetch_target, is_hub_id, repository_of, weight_names
from simlab.real_runner.target import Target
from simlab.real_runner.target_support import check_supported

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_EXPECTED = f"{builtin.NAME!r}, a folder with config.json and safetensors, or a Hugging Face id such as ORG/NAME"


def load_target(name: str, dtype: torch.dtype, device: str = "cpu") -> Target:
    """Load the built-in target, a local folder, or a Hugging Face id.

    Raises:
        ModelError: nothing can be loaded under that name.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    folder, revision = target_files(name)
    try:
        found: object = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=attention.NAME,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, and simlab runs no code of a checkpoint"
        remedy = f"expected {_EXPECTED}"
        if name == builtin.NAME:
            remedy = f"delete {folder} and run the command again"
        raise ModelError(f"the target {name!r} could not be loaded ({reason}); {remedy}") from error
    model, loaded = cast("tuple[PreTrainedModel, dict[str, Any]]", found)
    _check_whole(name, loaded)
    check_supported(name, model)
    return Target(
        name=repository_of(name),
        revision=revision,
        digest=builtin.GGUF_SHA256 if name == builtin.NAME else weights_digest(folder),
        model=cast("nn.Module", model).to(device).eval().requires_grad_(False),  # type: ignore[arg-type]
        tokenizer=tokenizer,
        stop_token_ids=stop_token_ids(model, tokenizer),
    )


def _check_whole(name: str, loaded: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks tensors: transformers makes them up at random.

    Raises:
        ModelError: it does, or has some of another shape.
    """
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise ModelError(
            f"the checkpoint of the target {name!r} lacks {len(missing)} of the tensors that its config.json asks "
            f"for, such as {missing[0]!r}; give a whole checkpoint of a causal language model"
        )


def stop_token_ids(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """The tokens that end a text: those of the model's generation settings, and the tokenizer's own."""
    found = model.generation_config.eos_token_id
    ids: list[object] = [*(found if isinstance(found, list) else [found]), tokenizer.eos_token_id]
    return tuple(sorted({token for token in ids if isinstance(token, int)}))


def target_files(name: str, is_needed: Callable[[str], bool] = lambda _tensor: True) -> tuple[Path, str]:
    """The folder of the built-in target, of a local one, or of one fetched from the hub, and its revision there.

    Args:
        name: see `load_target`.
        is_needed: by the name of a tensor; what the hub keeps in files of other tensors is not fetched.

    Raises:
        ModelError: there is none of that name.
    """
    if name == builtin.NAME:
        return builtin.builtin_target_dir(), ""
    if Path(name).is_dir():
        return Path(name), ""
    if not is_hub_id(name):
        raise ModelError(f"the target {name!r} could not be loaded: nothing has that name; expected {_EXPECTED}")
    found = fetch_target(name, is_needed)
    return found.folder, found.revision


def weights_digest(folder: Path, is_needed: Callable[[str], bool] = lambda _tensor: True) -> str:
    """A digest of the weights' files. The built-in target has another: that of the file it is unpacked from."""
    listed = [folder / name for name in weight_names(folder, is_needed)]
    return files_digest(listed if all(path.is_file() for path in listed) else sorted(folder.glob("*.safetensors")))


def files_digest(paths: Sequence[Path]) -> str:
    """sha256 over the contents of the files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
