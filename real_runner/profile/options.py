"""What a person asks of a profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from simlab.real_runner.execution.executions import (
    COMPILED,
    CUDA_GRAPHS,
    EAGER,
    check_device_map,
    check_execution,
    node_counts_at_steps,
)
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.targets.hub_files import at_revision
from simlab.sampling.choice import Sampling
from simlab.traces.artefacts.cost import CATCH_UP, MOST_CELLS, CostFile
from simlab.traces.format.manifest_entries import check_name

NODE_COUNTS = (0, 1, 2, 4, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
CONTEXTS = (128, 256, 512, 1024, 2048)

_IN_FILE = (
    *("node_counts", "contexts", "repeats", "batch", "execution", "dtype", "threads"),
    *("temperature", "top_p", "top_k"),
)


@dataclass(frozen=True, slots=True)
class ProfileChannel:
    """A channel that is to be timed.

    Attributes:
        checkpoint: of its network: a name, folder or hub id.
        settings: how far it reaches, as typed behind the checkpoint; what is left out is as its kind has it.
        units: rising; None: that of its settings.
    """

    checkpoint: str
    settings: Mapping[str, object] = field(default_factory=dict)
    units: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.units is not None and (not _rise(self.units) or self.units[0] < 1):
            raise ValueError(f"units must rise from 1 or above; got {_listed(self.units)}")


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Which rounds to time, on which models, and how often; all is known.

    What stands here under the name that it has in `simlab.studies.profile.options.ProfileRequest` is explained there.

    Attributes:
        text: repeated where the largest context needs more.
        node_counts: rising from 0.
        contexts: rising.
        until_interval: looked at after a whole sweep; None: when every cell has its repeats.
        time_limit_s: end after so many seconds of measuring, once every cell has been visited.
        channels: what else is timed, by the channel's name, in rounds of its own.
        catch_up: rising from 1.
    """

    target: str
    draft: str
    out: Path
    text: str
    node_counts: tuple[int, ...] = NODE_COUNTS
    contexts: tuple[int, ...] = CONTEXTS
    repeats: int = 9
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    threads: int | None = None
    resume: bool = False
    batch: int = 1
    tap_offset: str | None = None
    execution: str = EAGER
    until_interval: float | None = None
    time_limit_s: float | None = None
    device_map: str | None = None
    channels: Mapping[str, ProfileChannel] = field(default_factory=dict)
    block: int | None = None
    noise: Noise | None = None
    catch_up: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("text must not be empty")
        if not _rise(self.node_counts) or self.node_counts[0] != 0:
            raise ValueError(f"node counts must rise from 0, the root alone; got {_listed(self.node_counts)}")
        if not _rise(self.contexts) or self.contexts[0] < 1:
            raise ValueError(f"contexts must rise from 1 or above; got {_listed(self.contexts)}")
        if min(self.repeats, self.batch) < 1 or (self.threads is not None and self.threads < 1):
            raise ValueError(
                f"repeats, batch and threads must be at least 1; got {self.repeats}, {self.batch} and {self.threads}"
            )
        if len(self.contexts) * len(self.node_counts) > MOST_CELLS:
            raise ValueError(
                f"{len(self.contexts):,} contexts and {len(self.node_counts):,} node counts make more than "
                f"{MOST_CELLS:,} cells; give fewer --contexts or --node-counts"
            )
        if self.until_interval is not None and not 0 < self.until_interval < 1:
            raise ValueError(f"until_interval is a share, above 0 and below 1; got {self.until_interval:g}")
        if self.time_limit_s is not None and not self.time_limit_s >= 0:
            raise ValueError(f"the time limit must not be negative; got {self.time_limit_s:g} s")
        for name in self.channels:
            check_name("channel", name)
        self._check_catch_up()
        if self.channels and (self.batch != 1 or self.execution == COMPILED):
            raise ValueError(
                f"channels are made for one text at a time, and have no compiled form; leave --batch out and give "
                f"--execution {EAGER} or {CUDA_GRAPHS}, or leave --channel out"
            )
        check_execution(self.execution, self.batch, self.device)
        others = {f"--execution {self.execution}": self.execution != EAGER, f"--batch {self.batch}": self.batch != 1}
        check_device_map(self.device_map, others)
        # Sampling refuses what is no temperature, share or count.
        _ = self.sampling

    def _check_catch_up(self) -> None:
        if self.catch_up and (not _rise(self.catch_up) or self.catch_up[0] != 1):
            raise ValueError(f"missed tokens must rise from 1, which stands for none; got {_listed(self.catch_up)}")
        if self.catch_up and (self.batch != 1 or self.execution == COMPILED):
            raise ValueError(
                f"drafters catch up with one text at a time, and not compiled; leave --batch out and give --execution "
                f"{EAGER} or {CUDA_GRAPHS}, or leave --catch-up out"
            )

    @property
    def may_stop(self) -> bool:
        """Whether it can end before every cell has its repeats."""
        return self.until_interval is not None or self.time_limit_s is not None

    @property
    def sampling(self) -> Sampling:
        """How the target chooses its tokens."""
        return Sampling(self.temperature, self.top_k, self.top_p, seed=0)


def node_counts_for(execution: str) -> tuple[int, ...]:
    """The grid where none is given: captured passes have sizes, and their prices step from one to the next."""
    return node_counts_at_steps(NODE_COUNTS[-1]) if execution == CUDA_GRAPHS else NODE_COUNTS


def settings_of(file: CostFile) -> dict[str, Any]:
    """The settings with which a file was begun, by their names as options; its device is none that torch knows."""
    return {name: getattr(file, name) for name in _IN_FILE} | {
        "target": at_revision(file.target.name, file.target.revision),
        "draft": at_revision(file.drafter.name, file.drafter.revision),
        "channels": {
            name: ProfileChannel(
                at_revision(channel.producer.name, channel.producer.revision), channel.settings, channel.units
            )
            for name, channel in file.channels.items()
            if channel.kind != CATCH_UP
        },
        "catch_up": next((channel.units for channel in file.channels.values() if channel.kind == CATCH_UP), ()),
    }


def _rise(values: Sequence[int]) -> bool:
    return len(values) > 0 and all(low < high for low, high in pairwise(values))


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) or "none"
