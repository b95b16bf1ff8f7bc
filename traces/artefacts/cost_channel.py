"""The channels of a cost file: what made each, how it was bounded, and how much of it was timed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise

from simlab.channels.rows import EXACT_NODES, POOL
from simlab.limits.typed_numbers import MOST_COUNT
from simlab.policy import UNITS, counted_setting
from simlab.traces.format.json_fields import Json, JsonFields
from simlab.traces.format.manifest_entries import ModelInfo

CATCH_UP = "catch-up"
"""In place of a channel's kind: what drafting takes by how many tokens more than usual wait to be read."""


def bounds_of(kind: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a channel that its price depends on besides its units: not what a recording counted in it.

    A pool whose steps are its units is one deeper than these.
    """
    counted = counted_setting(kind, settings)
    left_out = {EXACT_NODES, counted, *(("depth",) if counted == UNITS[POOL] else ())}
    return {key: value for key, value in settings.items() if key not in left_out}


@dataclass(frozen=True, slots=True)
class CostChannel:
    """A channel whose making was timed.

    Attributes:
        kind: one of `simlab.channels.KINDS`, or `CATCH_UP`.
        producer: the network that makes it.
        settings: all that bounded it, but for what units count; see `bounds_of`.
        units: those that were timed, ascending from 1 or above.
    """

    kind: str
    producer: ModelInfo
    settings: Mapping[str, object]
    units: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if (
            not self.units
            or self.units[0] < 1
            or any(low >= high for low, high in pairwise(self.units))
            or self.units[-1] > MOST_COUNT
        ):
            raise ValueError(f"units of a channel must rise from 1, up to {MOST_COUNT:,}; got {self.units}")

    @property
    def counted(self) -> str:
        """What its units count; a pool with the depth of its drafter among its settings is timed whole."""
        if self.kind == CATCH_UP:
            return "missed tokens"
        key = UNITS.get(self.kind)
        return "units" if key is None or (self.kind == POOL and "depth" in self.settings) else key

    def difference(self, kind: str, producer: ModelInfo, settings: Mapping[str, object]) -> str | None:
        """In what another channel was made otherwise, in words that follow "measured with"; None: in nothing."""
        if kind != self.kind:
            return f"{self.kind}, and not {kind}"
        if not self.producer.is_same(producer):
            return f"{_short(self.producer)}, and not with {_short(producer)}"
        other = bounds_of(kind, settings)
        for key in sorted({*self.settings, *other}):
            if self.settings.get(key) != other.get(key):
                return f"{key} {_said(self.settings.get(key))}, and not with {_said(other.get(key))}"
        return None

    def to_json(self) -> Json:
        """The entry of this channel in the file."""
        return {**asdict(self), "settings": dict(self.settings), "units": list(self.units)}


def cost_channels(fields: Mapping[str, JsonFields]) -> dict[str, CostChannel]:
    """The channels of a cost file, by name; a file of the format that has them names at least one."""
    if not fields:
        raise ValueError("it names no channel, and is of the format of files with channels")
    return {name: _channel(one) for name, one in fields.items()}


def _channel(fields: JsonFields) -> CostChannel:
    made_by = fields.inner("producer")
    producer = ModelInfo(made_by.text("name"), made_by.text("revision"), made_by.text("digest"))
    return CostChannel(fields.text("kind"), producer, fields.inner("settings").values, fields.integers("units"))


def _short(model: ModelInfo) -> str:
    return f"{model.name} (sha256 {model.digest.removeprefix('sha256:')[:8]})"


def _said(value: object) -> str:
    return "none" if value is None else str(value)
