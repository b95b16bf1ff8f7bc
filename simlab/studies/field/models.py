"""The models of the field: a target, the drafters of its draft sets, and the networks of its channels."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from simlab.errors import TraceError, UsageError
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.model_options import DRAFTER, TARGET
from simlab.traces.format.documents import JsonFields, json_fields

DRAFT, CHANNEL = "draft", "channel"


@dataclass(frozen=True, slots=True)
class FieldChannel:
    """A channel of the field.

    Attributes:
        checkpoint: of its network: a name, folder or Hub id.
        drafter: the draft set that it stands on; None: it reads the target alone, and its policies run no drafter.
        settings: how far it is recorded.
        units: at which it is timed; empty: that of its settings.
    """

    checkpoint: str
    drafter: str | None
    settings: Mapping[str, int] = field(default_factory=dict)
    units: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldModels:
    """What runs, and how.

    Attributes:
        target: a name, folder or Hub id.
        drafters: checkpoint of each draft set; the first is recorded with the target.
        channels: by their names.
        dtype: of the models' arithmetic.
        device: as torch names it.
        execution: how passes are started.

    Raises:
        ValueError: there is no drafter, or a channel stands on a draft set that is not there.
    """

    target: str
    drafters: Mapping[str, str]
    channels: Mapping[str, FieldChannel]
    dtype: str = "float32"
    device: str = "cpu"
    execution: str = EAGER

    def __post_init__(self) -> None:
        if not self.drafters:
            raise ValueError("the field needs a drafter; got none")
        for name, one in self.channels.items():
            if one.drafter not in (None, *self.drafters):
                raise ValueError(
                    f"the channel {name} stands on the draft set {one.drafter}; there are {', '.join(self.drafters)}"
                )

    @property
    def first(self) -> str:
        """The draft set that is recorded with the target."""
        return next(iter(self.drafters))

    def channels_of(self, drafter: str) -> dict[str, FieldChannel]:
        """The channels that are timed beside a drafter: those on its draft set; at the first also those on none."""
        beside = (drafter, None) if drafter == self.first else (drafter,)
        return {name: one for name, one in self.channels.items() if one.drafter in beside}

    @property
    def additions(self) -> list[tuple[str, str]]:
        """What is added to the first recording, in turn: `DRAFT` or `CHANNEL`, and a name, which both may have."""
        return [*((DRAFT, name) for name in list(self.drafters)[1:]), *((CHANNEL, name) for name in self.channels)]

    def with_drafts(self, drafters: Mapping[str, str]) -> "FieldModels":
        """These models and further draft sets."""
        return replace(self, drafters={**self.drafters, **drafters})


PACKAGED_DRAFTERS: Mapping[str, str] = {"dflash": DRAFTER, "jetspec": "jetspec-smollm2-135m"}

PACKAGED_CHANNELS: Mapping[str, FieldChannel] = {
    "eagle3": FieldChannel("eagle3-smollm2-135m", None, {"steps": 7}, (1, 2, 3, 5, 7)),
    "treeflash": FieldChannel(
        "treeflash-smollm2-135m", "dflash", {"previous": 16, "top_k": 16, "candidates": 32}, (6, 16)
    ),
    "taps": FieldChannel("taps-smollm2-135m", "dflash"),
    "d2sd": FieldChannel("d2sd-smollm2-135m", "dflash", {"top_k": 8}, (1, 2, 4)),
    "router": FieldChannel("router-smollm2-135m", None),
    "extension": FieldChannel("jetspec-smollm2-135m", "jetspec", {"block": 15, "whole": 1}, (1,)),
    "jetspec": FieldChannel("jetspec-smollm2-135m", "jetspec", {"beam": 10, "top_k": 7}),
}
"""What comes with simlab; its head scores a row over the drafter's own 32 first candidates, simlab's variant."""


def packaged_models(dtype: str, device: str, execution: str) -> FieldModels:
    """The models that come with simlab."""
    return FieldModels(TARGET, PACKAGED_DRAFTERS, PACKAGED_CHANNELS, dtype, device, execution)


def read_models(path: Path, dtype: str, device: str, execution: str) -> FieldModels:
    """The models that a file names.

    Args:
        path: JSON: ``target``, ``drafters`` by draft set, and ``channels`` by name, each with ``checkpoint``,
            if need be ``drafter``, ``settings`` and ``units``. Draft sets are called ``dflash``, ``jetspec`` and
            ``self``, channels as the policies that read them have it.
        dtype: of the models' arithmetic.
        device: as torch names it.
        execution: how passes are started.

    Raises:
        UsageError: the file cannot be read, or something in it is missing or of another kind.
    """
    try:
        found = json_fields(path.read_bytes(), str(path))
        channels = found.inners("channels")
        return FieldModels(
            found.text("target"),
            found.texts("drafters"),
            {name: _channel(one) for name, one in channels.items()},
            dtype,
            device,
            execution,
        )
    except (OSError, ValueError, TraceError) as error:
        raise UsageError(f"{path} does not name the models of a field: {error}") from error


def _channel(found: JsonFields) -> FieldChannel:
    settings = found.inner("settings") if "settings" in found.values else None
    units = found.integers("units") if "units" in found.values else ()
    whole = {} if settings is None else {key: settings.integer(key) for key in settings.values}
    drafter = found.text("drafter") if "drafter" in found.values else None
    return FieldChannel(found.text("checkpoint"), drafter, whole, units)
