"""The setting of a cost file: what it says of the models and the machine, and whether another one says the same."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from simlab.cost import Visits
from simlab.errors import CostError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.models import Models
from simlab.real_runner.profile.machine import library_versions, machine_of, system_name
from simlab.real_runner.profile.options import ProfileOptions
from simlab.real_runner.profile.rounds import VISITS
from simlab.real_runner.targets.hub_files import repository_of
from simlab.sampling.choice import Sampling
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.artefacts.cost_channel import CostChannel
from simlab.traces.format.manifest_entries import ModelInfo

SETTING = (
    "device",
    "threads",
    "system",
    "target",
    "drafter",
    "block_size",
    "dtype",
    "attention",
    "execution",
    "batch",
    "temperature",
    "top_k",
    "top_p",
    "versions",
)
"""What every sample depends on."""

GRID = ("contexts", "node_counts", "visits")
"""Where samples are taken, and how."""

NO_CHANNELS: Mapping[str, CostChannel] = {}


def empty_file(options: ProfileOptions, models: Models, channels: Mapping[str, CostChannel] = NO_CHANNELS) -> CostFile:
    """A cost file of these models and channels on this machine, without samples."""
    setting = setting_of(models, options.draft, options.dtype, options.device, options.sampling)
    return replace(
        setting,
        contexts=options.contexts,
        node_counts=options.node_counts,
        repeats=options.repeats,
        batch=options.batch,
        visits=VISITS,
        channels=channels,
    )


def setting_of(models: Models, draft: str, dtype: str, device: str, sampling: Sampling) -> CostFile:
    """All that prices depend on, as a cost file of the least grid, without samples.

    Args:
        models: as they are run.
        draft: the drafter's name.
        dtype: of both.
        device: as torch names it.
        sampling: how the target chooses.
    """
    target = models.target
    return CostFile(
        device=machine_of(device, target.placement),
        threads=torch.get_num_threads(),
        system=system_name(),
        target=ModelInfo(target.name, target.revision, target.digest),
        drafter=ModelInfo(repository_of(draft), models.draft_revision, checkpoint_digest(models.draft_folder)),
        block_size=models.drafter.config.block_size,
        dtype=dtype,
        attention=str(target.model.config._attn_implementation),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        execution=models.execution,
        versions=library_versions(),
        contexts=(1,),
        node_counts=(0,),
        repeats=1,
    )


def check_same(path: Path, earlier: CostFile, now: CostFile) -> None:
    """Refuse to go on with a file whose samples were taken in another setting."""
    difference = first_difference(earlier, now, (*SETTING, *GRID))
    if difference is not None:
        raise CostError(
            f"{path} was measured with {difference}; samples of the two do not belong together: give another --out, "
            "or the options it was begun with"
        )


def first_difference(earlier: CostFile, now: CostFile, names: Sequence[str]) -> str | None:
    """The first of some settings in which two files differ, in words that follow "measured with"; or None."""
    for name in names:
        before, after = _shown(earlier, name), _shown(now, name)
        if before != after:
            return f"{name.replace('_', ' ')} {before}, and this run has {after}"
    return None


def _shown(file: CostFile, name: str) -> str:
    """A setting as text, by which it is compared: models by their digests, wherever they lie."""
    value = getattr(file, name)
    if isinstance(value, ModelInfo):
        return value.digest[:16]
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Visits):
        return f"of {value.rounds} rounds and {value.steps} steps{'' if value.paired else ', each at another time'}"
    if name == "versions":
        return ", ".join(f"{library} {version}" for library, version in sorted(file.versions.items()))
    return str(value)
