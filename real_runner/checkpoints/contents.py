"""What the files of a checkpoint hold: its configuration and its tensors, read without torch.

`simlab inspect` and the loader read the same files in the same way, and so find the same damage.
"""

from importlib.resources import files
from pathlib import Path

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.weights import StoredTensor, lacking, read_tensors
from simlab.real_runner.targets.hub_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CONFIG,
    WHOLE,
    files_digest,
    weight_names,
)

_PARTS = "model-*-of-*.safetensors"


def packaged_checkpoints() -> dict[str, Path]:
    """The folders of the drafters, heads, scorers and adapters that come with simlab, by their names."""
    data = Path(str(files("simlab.real_runner"))) / "data"
    configs = (*data.glob(f"*/{CONFIG}"), *data.glob(f"*/{ADAPTER_CONFIG}"))
    return {config.parent.name: config.parent for config in sorted(configs)}


def config_file(location: Path) -> Path:
    """Where the ``config.json`` of a checkpoint lies, if it has one, or the ``adapter_config.json`` in its place.

    Args:
        location: the folder, or the one file with weights beside its ``config.json``.
    """
    folder = location.parent if _is_one_file(location) else location
    return folder / (ADAPTER_CONFIG if _is_adapter(folder) else CONFIG)


def _is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / CONFIG).is_file()


def _is_one_file(location: Path) -> bool:
    return location.suffix == ".safetensors" and not location.is_dir()


def checkpoint_files(location: Path) -> tuple[Path, ...]:
    """``config.json`` and the files with weights, whether or not they are there.

    Args:
        location: the folder, or the one file with weights beside its ``config.json``.
    """
    if _is_one_file(location):
        return config_file(location), location
    if _is_adapter(location):
        return location / ADAPTER_CONFIG, location / ADAPTER_WEIGHTS
    parts = sorted(location.glob(_PARTS))
    if parts and not (location / WHOLE).is_file():
        return location / CONFIG, *parts
    return location / CONFIG, *(location / name for name in weight_names(location))


def checkpoint_digest(location: Path) -> str:
    """sha256 over the contents of a checkpoint's files, in order."""
    paths = checkpoint_files(location)
    for path in paths:
        if not path.exists():
            raise lacking(path)
    return files_digest(paths)


_CHANGING = ("adapter", "calibration", "lora", "mask_embed", "d2t", "t2d", "vocab_map")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".npy", ".npz", ".gguf")
_FEATURES = "features-"  # of texts: `simlab train` keeps them beside what it trains


def check_beside(location: Path) -> None:
    """Refuse a checkpoint beside which something lies that may change what it computes, and that simlab does not read.

    That is a folder with weights (but for snapshots of training, ``checkpoint-*``), or a folder or file that is named
    as one, such as ``calibration/``, ``adapter_config.json`` or ``mask_embedding.pt``.

    Args:
        location: the folder, or the one file with weights.
    """
    folder = location.parent if _is_one_file(location) else location
    read = set(checkpoint_files(location))
    try:
        beside = sorted(path for path in folder.iterdir() if path not in read)
        changing = [path.name + "/" * path.is_dir() for path in beside if _may_change(path)]
    except OSError as error:
        raise ModelError(f"{folder} cannot be listed ({error.strerror or error}); make it readable") from error
    if changing:
        raise ModelError(
            f"{', '.join(changing[:3])} in {folder} may change what the drafter computes, and simlab does not read "
            "it; give a checkpoint into which it is merged, or, if its publisher says that it changes nothing, a copy "
            "without it"
        )


def _may_change(path: Path) -> bool:
    named = path.name.lower().startswith(_CHANGING)
    if not path.is_dir():
        return named and path.suffix in (*_WEIGHTS, ".json")
    held = [] if path.name.startswith((".", "checkpoint-")) else list(path.iterdir())
    return any(named or (inner.suffix in _WEIGHTS and not inner.name.startswith(_FEATURES)) for inner in held)


def stored_tensors(location: Path) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint by name, file after file, each file in the order of its bytes.

    Args:
        location: the folder, or the one file with weights.
    """
    tensors: dict[str, StoredTensor] = {}
    _, *files = checkpoint_files(location)
    for tensor in (tensor for path in files for tensor in read_tensors(path)):
        if tensor.name in tensors:
            raise ModelError(
                f"{tensor.name} is in {tensors[tensor.name].file} and in {tensor.file.name}; fetch the checkpoint again"
            )
        tensors[tensor.name] = tensor
    return tensors
