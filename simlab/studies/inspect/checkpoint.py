"""What a drafter checkpoint is and holds, and whether it will run, read without torch."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import config_file, read_fields, stored_tensors
from simlab.real_runner.checkpoints.explained import CheckpointSummary, explain_checkpoint
from simlab.real_runner.checkpoints.weights import StoredTensor
from simlab.real_runner.targets.hub_files import CONFIG, at_revision, fetch, fetch_drafter, is_hub_id

_SAID = ("layer_views", "tap_offset")
_FILES = (".json", ".parquet", ".safetensors")
_NO_CONFIG = "there is no config.json beside it"


def looks_like_checkpoint(place: Path) -> bool:
    """Whether a path is a safetensors file, or a folder with the configuration of a model or an adapter."""
    return (place.is_file() and place.suffix == ".safetensors") or (place.is_dir() and config_file(place).is_file())


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
    read_fields(first.folder / CONFIG)
    return fetch_drafter(at_revision(name, first.revision)).folder


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What lies at a place.

    Attributes:
        place: a folder, or a file with weights.
        summary: what the drafter is; None where no ``config.json`` lies there.
        tensors: file after file, each in the order of its bytes.
    """

    place: Path
    summary: CheckpointSummary | None
    tensors: Sequence[StoredTensor]

    def to_json(self) -> dict[str, object]:
        """All of it, for scripts."""
        found = self.summary
        about: dict[str, object] = {"format": None, "will_run": False, "problem": _NO_CONFIG, "config": None}
        if found is not None:
            config = None if found.config is None else asdict(found.config)
            about = {"format": found.format, "will_run": found.problem is None, "problem": found.problem}
            about["config"] = config
        tensors = [
            {"name": one.name, "dtype": one.dtype, "shape": list(one.shape), "num_bytes": one.num_bytes}
            for one in self.tensors
        ]
        return {"kind": "checkpoint", "path": str(self.place), **about, "tensors": tensors}

    def text(self) -> str:
        """All of it, for people."""
        found, tensors = self.summary, self.tensors
        num_parameters = sum(math.prod(one.shape) for one in tensors)
        num_bytes = sum(one.num_bytes for one in tensors)
        lines = [
            f"checkpoint {self.place}",
            f"{len(tensors)} tensors, {num_parameters:,} parameters, {num_bytes:,} bytes",
            "",
        ]
        if found is None:
            lines += [f"will run   no: {_NO_CONFIG}", ""]
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


def read_checkpoint(place: Path) -> Checkpoint:
    """What the drafter is, if a ``config.json`` lies there, and its tensors.

    Raises:
        ModelError: the files are damaged, or are not those of a drafter.
    """
    config = config_file(place)
    fields = read_fields(config) if config.exists() else None
    tensors = stored_tensors(place)
    summary = None if fields is None else explain_checkpoint(fields, tensors, place)
    return Checkpoint(place, summary, tuple(tensors.values()))


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _shape(shape: tuple[int, ...]) -> str:
    return ("[" + ", ".join(map(str, shape)) + "]").ljust(14)
