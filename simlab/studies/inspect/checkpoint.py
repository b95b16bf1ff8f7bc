"""What a drafter checkpoint is and holds, and whether it will run, read from its configuration and headers alone."""

import json
import math
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.explained import CheckpointSummary, explain_checkpoint
from simlab.real_runner.checkpoints.layouts import drafter_fields, is_drafter
from simlab.real_runner.targets.hub_files import CONFIG, at_revision, fetch, fetch_drafter, is_hub_id

_SAID = ("layer_views", "tap_offset")
_FILES = (".json", ".parquet", ".safetensors")
_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a safetensors file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


def looks_like_checkpoint(place: Path) -> bool:
    """Whether a path is a safetensors file, or a folder with a model's ``config.json``."""
    return (place.is_file() and place.suffix == ".safetensors") or (place / "config.json").is_file()


def fetched_checkpoint(name: str) -> Path | None:
    """The folder of a drafter that is fetched from the hub; None where a name is rather of a file or a folder here.

    Of another model its configuration is fetched, and not its weights.

    Raises:
        ModelError: it cannot be had, has no configuration, or is no drafter.
    """
    repository = Path(name.partition("@")[0])
    is_elsewhere = len(repository.parts) == 2 and repository.suffix not in _FILES and not repository.parent.is_dir()
    if not is_elsewhere or not is_hub_id(name):
        return None
    try:
        first = fetch("drafter", name, [CONFIG])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "simlab":
            raise
        raise ModelError(
            f"there is nothing at {name} on this machine, and to look for it on the Hugging Face Hub takes the package "
            f'{error.name}, which is not installed; install it with: pip install "simlab[models]"'
        ) from error
    if not (first.folder / CONFIG).is_file():
        raise ModelError(f"{name!r} has no {CONFIG} on the hub, so it is no drafter that simlab can run")
    _fields(first.folder / CONFIG)
    return fetch_drafter(at_revision(name, first.revision)).folder


def read_checkpoint(place: Path) -> tuple[CheckpointSummary | None, list[TensorInfo]]:
    """What the drafter is, if a ``config.json`` lies there, and its tensors.

    Raises:
        ModelError: the files are damaged, or are not those of a drafter.
    """
    folder = place if place.is_dir() else place.parent
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    if not files:
        raise ModelError(f"the checkpoint folder {place} has a config.json but no *.safetensors; fetch it again")
    config = folder / "config.json"
    fields = _fields(config) if config.is_file() else None
    tensors = [tensor for file in files for tensor in read_tensors(file)]
    names = [one.name for one in tensors]
    return None if fields is None else explain_checkpoint(fields, names, folder), tensors


def _fields(path: Path) -> dict[str, object]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{path} is not a JSON object; fetch the checkpoint again")
    if not is_drafter(fields):
        raise ModelError(f"{path} is not of a drafter: it has no {', no '.join(drafter_fields())}")
    return fields


def read_tensors(path: Path) -> list[TensorInfo]:
    """The tensors that a safetensors file lists, in the order of their bytes.

    Raises:
        ModelError: the header cannot be read, or the file is shorter or longer than it says.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        first = file.read(_LENGTH.size)
        length = _LENGTH.unpack(first)[0] if len(first) == _LENGTH.size else _LONGEST_HEADER
        header = file.read(length) if length < min(size, _LONGEST_HEADER) else b""
    try:
        entries = json.loads(header)
        spans = {name: entry for name, entry in entries.items() if name != "__metadata__"}
        ordered = sorted(spans.items(), key=lambda item: tuple(item[1]["data_offsets"]))
        tensors = [_tensor(name, entry) for name, entry in ordered]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} has no readable safetensors header: it is damaged; fetch or train it again"
        ) from error
    expected = _LENGTH.size + length + max((entry["data_offsets"][1] for entry in spans.values()), default=0)
    if size != expected:
        raise ModelError(f"{path} has {size} bytes; its header asks for {expected}: it is damaged; fetch it again")
    return tensors


def _tensor(name: str, entry: dict[str, object]) -> TensorInfo:
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not isinstance(offsets, list):
        raise TypeError(name)
    low, high = (int(offset) for offset in offsets)
    return TensorInfo(name, str(entry["dtype"]), tuple(int(side) for side in shape), high - low)


def checkpoint_json(place: Path) -> dict[str, object]:
    """All of it, for scripts."""
    found, tensors = read_checkpoint(place)
    about: dict[str, object] = {"format": None, "will_run": None, "problem": None, "config": None}
    if found is not None:
        config = None if found.config is None else asdict(found.config)
        about = {"format": found.format, "will_run": found.problem is None, "problem": found.problem, "config": config}
    return {"kind": "checkpoint", "path": str(place), **about, "tensors": [asdict(one) for one in tensors]}


def checkpoint_text(place: Path) -> str:
    """All of it, for people."""
    found, tensors = read_checkpoint(place)
    num_parameters = sum(math.prod(one.shape) for one in tensors)
    num_bytes = sum(one.num_bytes for one in tensors)
    lines = [f"checkpoint {place}", f"{len(tensors)} tensors, {num_parameters:,} parameters, {num_bytes:,} bytes", ""]
    if found is None:
        lines += ["will run   no: there is no config.json beside it", ""]
    else:
        lines += [f"{heading.ljust(10)} {text}" for heading, text in found.lines] + [""]
        settings = {} if found.config is None else asdict(found.config)
        width = max(map(len, settings), default=0)
        lines += [f"{name.ljust(width)}  {_shown(value)}" for name, value in settings.items() if name not in _SAID]
        lines += [""] if settings else []
    width = max((len(one.name) for one in tensors), default=0)
    lines += [
        f"{one.name.ljust(width)}  {one.dtype.ljust(5)} {_shape(one.shape)}  {one.num_bytes:,}" for one in tensors
    ]
    return "\n".join(lines)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _shape(shape: tuple[int, ...]) -> str:
    return ("[" + ", ".join(map(str, shape)) + "]").ljust(14)
