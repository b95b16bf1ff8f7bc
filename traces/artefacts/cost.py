"""Cost files: what the stages of a round took on one machine, every sample kept."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from simlab.channels.root_rows import POOL
from simlab.channels.rows import EXACT_NODES
from simlab.cost import GRID_STAGES, PLAIN, Visits, channel_stage, plain_beside
from simlab.cost.stages import LEAST_S, MOST_S
from simlab.errors import CostError, TraceError
from simlab.ids import content_id
from simlab.limits import MOST_COUNT
from simlab.policy import UNITS, counted_setting
from simlab.traces.format.documents import (
    DocumentKind,
    Json,
    JsonFields,
    check_digest,
    in_lines,
    read_document,
    read_once,
    value_of,
    with_digest,
)
from simlab.traces.format.files import write_beside
from simlab.traces.format.manifest_entries import ModelInfo, as_json, check_name

# The channels of a cost file: what made each, how it was bounded, and how much of it was timed.


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
        if not self.units or self.units[0] < 1 or not _rise(self.units) or self.units[-1] > MOST_COUNT:
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
                return f"{key} {_shown_setting(self.settings.get(key))}, and not with {_shown_setting(other.get(key))}"
        return None

    def to_json(self) -> Json:
        """The entry of this channel in the file."""
        return {**as_json(self), "settings": dict(self.settings), "units": list(self.units)}


def cost_channels(fields: Mapping[str, JsonFields]) -> dict[str, CostChannel]:
    """The channels of a cost file, by name; a file of the format that has them names at least one."""
    if not fields:
        raise ValueError("it names no channel, and is of the format of files with channels")
    return {name: value_of(CostChannel, entry) for name, entry in fields.items()}


def _short(model: ModelInfo) -> str:
    return f"{model.name} (sha256 {model.digest.removeprefix('sha256:')[:8]})"


def _shown_setting(value: object) -> str:
    return "none" if value is None else str(value)


FORMAT = "simlab-cost"
FORMAT_VERSION = 3
"""The newest format of cost files: channels are timed. Files without are of format 2, and of format 1 where plain
decoding was not timed at every visit."""

KIND = DocumentKind(FORMAT, FORMAT_VERSION, "cost file", "`simlab profile --out FILE` makes one")

MOST_DRAFTED = 1_000_000
"""The largest number of drafted tokens that has a price: that of all texts of a batch together."""
MOST_CELLS = 100_000
"""The most numbers of drafted tokens, times contexts, that are timed."""

PACKAGED = Path(str(files("simlab.traces"))) / "data" / "costs"
"""Where the cost files lie that are shipped with simlab."""
EXAMPLES = PACKAGED / "examples"
"""Where those lie that are of others' models on their machines."""

DEFAULT_DTYPE = "bfloat16"
"""Of several shipped cost files of the same models the default is the one in the dtype that engines serve in."""

EXECUTION = "eager"
IMPORTED = "imported"
"""In place of an execution: the seconds were measured elsewhere."""
WHOLE_ROUNDS = "within the seconds of verify, which are those of whole rounds"
"""A note of imported seconds: the other stages are in them."""
NOT_STATED = "models not stated"
"""In place of a model's name: nobody said whose seconds they are."""
UNKNOWN = "unknown"
"""The system of seconds that were measured elsewhere; the digest of models whose weights nobody can name."""

Cell = tuple[str, int, int]
"""What was timed: stage, drafted tokens (the root not counted; of a channel its units), tokens before the root."""


@dataclass(frozen=True)
class CostFile:
    """Measured seconds of each stage on one machine, with all that they depend on.

    Attributes:
        device: the model of the CPU or GPU.
        threads: of the CPU that the models ran on; 1 where nobody knows.
        system: operating system and architecture.
        dtype: of both models' arithmetic.
        attention: the target's attention implementation.
        temperature: of the sampling under which the target's choice was timed; the same for ``top_k`` and ``top_p``.
        versions: of the libraries that did the work.
        contexts: tokens before the root, ascending.
        node_counts: drafted tokens, the root not counted, ascending from 0; a pass runs one token more.
        repeats: samples wanted of each cell.
        execution: how the models' operations were started.
        batch: texts at a time.
        samples: seconds by cell; for ``plain`` (one token of autoregressive decoding) no token is drafted, and where
            visits are paired, the number is that of the rounds beside it.
        notes: what else to know of the seconds, such as that not all are of `simlab profile`; they enter the id.
        visits: how samples were taken.
        channels: what else was timed, by the channel's name, in rounds of its own.
    """

    device: str
    threads: int
    system: str
    target: ModelInfo
    drafter: ModelInfo
    block_size: int
    dtype: str
    attention: str
    temperature: float
    top_k: int
    top_p: float
    versions: Mapping[str, str]
    contexts: tuple[int, ...]
    node_counts: tuple[int, ...]
    repeats: int
    execution: str = EXECUTION
    batch: int = 1
    samples: Mapping[Cell, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    visits: Visits = Visits()
    channels: Mapping[str, CostChannel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.contexts or self.contexts[0] < 1 or not _rise(self.contexts):
            raise ValueError(f"contexts must rise from 1 or above; got {self.contexts}")
        if not self.node_counts or self.node_counts[0] != 0 or not _rise(self.node_counts):
            raise ValueError(f"node counts must rise from 0; got {self.node_counts}")
        if min(self.threads, self.block_size, self.repeats, self.batch) < 1:
            raise ValueError("threads, block_size, repeats and batch must be at least 1")
        sizes = (self.threads, self.block_size, self.repeats, self.batch, self.contexts[-1])
        if max(sizes) > MOST_COUNT or self.node_counts[-1] > MOST_DRAFTED:
            raise ValueError(
                f"node counts go up to {MOST_DRAFTED:,} and all other sizes up to {MOST_COUNT:,}; got a node count of "
                f"{self.node_counts[-1]}, and {max(sizes)}"
            )
        if not 0 <= self.temperature < math.inf or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(
                "the temperature is from 0, top_p above 0 and at most 1, top_k from 0; got "
                f"{self.temperature:g}, {self.top_p:g} and {self.top_k}"
            )
        if len(self.contexts) * len(self.node_counts) > MOST_CELLS:
            raise ValueError(
                f"{len(self.contexts):,} contexts and {len(self.node_counts):,} node counts make more than "
                f"{MOST_CELLS:,} cells; take fewer"
            )
        self._check_channels()
        wanted = set(self.cells())
        for cell, seconds in self.samples.items():
            if cell not in wanted:
                raise ValueError(
                    f"samples of {cell}, which is not in the grid of contexts and node counts, nor in that of a channel"
                )
            if not seconds or not all(value == 0 or LEAST_S <= value <= MOST_S for value in seconds):
                raise ValueError(
                    f"samples of {cell} must be one or more times, 0 or from {LEAST_S:g} to {MOST_S:g} seconds; got "
                    f"{str(seconds)[:100]}"
                )

    def _check_channels(self) -> None:
        for name in self.channels:
            check_name("channel", name)
        if self.channels and not self.is_imported and (self.batch > 1 or not self.visits.paired):
            raise ValueError("channels are timed for one text at a time, and with autoregressive decoding beside them")
        if len(self.contexts) * sum(len(channel.units) for channel in self.channels.values()) > MOST_CELLS:
            raise ValueError(f"contexts and units of channels make more than {MOST_CELLS:,} cells; take fewer")

    def cells(self) -> Iterator[Cell]:
        """All that is to be timed: every stage over the whole grid, and plain decoding over the contexts.

        Where visits are paired, plain decoding stands beside every number of drafted tokens, and beside every number of
        units of a channel.
        """
        for context in self.contexts:
            if not self.visits.paired:
                yield PLAIN, 0, context
            for num_drafted in self.node_counts:
                if self.visits.paired:
                    yield PLAIN, num_drafted, context
                for stage in GRID_STAGES:
                    yield stage, num_drafted, context
        for name, channel in sorted(self.channels.items()):
            stage = channel_stage(name)
            for context in self.contexts:
                for units in channel.units:
                    if self.visits.paired:
                        yield plain_beside(stage), units, context
                    yield stage, units, context

    def fits(self, target: ModelInfo, drafter: ModelInfo, block_size: int) -> bool:
        """Whether it has prices of these models and this block."""
        return self.target.is_same(target) and self.drafter.is_same(drafter) and self.block_size == block_size

    def missing(self) -> tuple[Cell, ...]:
        """The cells without a sample."""
        return tuple(cell for cell in self.cells() if cell not in self.samples)

    @property
    def is_complete(self) -> bool:
        """Whether every cell has samples; only then can rounds be priced."""
        return not self.missing()

    def with_samples(self, samples: Mapping[Cell, tuple[float, ...]]) -> "CostFile":
        """This file with the samples of some cells added, or put in the place of earlier ones."""
        return replace(self, samples={**self.samples, **samples})

    def verify_key(self) -> str:
        """Content id of what the seconds of the target's stages depend on."""
        return content_id(self._verify_setting())

    def draft_key(self) -> str:
        """Content id of what the drafter's seconds depend on: the same, the drafter and its block."""
        return content_id(self._verify_setting() | {"drafter": self.drafter.digest, "block_size": self.block_size})

    @property
    def is_imported(self) -> bool:
        """Whether the seconds were measured elsewhere; then nobody knows the threads."""
        return self.system == UNKNOWN

    @property
    def is_of_others(self) -> bool:
        """Whether it is an example: of others' models, whose weights nobody can name, so any trace may borrow it."""
        return self.is_imported and self.target.digest == UNKNOWN

    @property
    def models_are_stated(self) -> bool:
        """Whether anyone said of which models the seconds are."""
        return self.target.name != NOT_STATED

    @property
    def is_of_whole_rounds(self) -> bool:
        """Whether the seconds of verify are those of whole rounds, as engines count steps."""
        return self.is_imported and any(WHOLE_ROUNDS in note for note in self.notes)

    @property
    def has_plain(self) -> bool:
        """Whether autoregressive decoding, or a pass of one token that can stand for it, was timed."""
        if not self.is_imported:
            return True
        given = [self.samples.get((PLAIN, 0, context), ()) for context in self.contexts]
        if not all(map(any, given)):
            return False
        if not self.lacks_plain or len(self.node_counts) == 1:
            return True
        # Files of earlier versions have the seconds of the shortest pass there, of however many tokens it was.
        first, second = self.node_counts[:2]
        return any(
            self.samples.get(("verify", first, c)) != self.samples.get(("verify", second, c)) for c in self.contexts
        )

    @property
    def lacks_plain(self) -> bool:
        """Whether autoregressive decoding was not timed by itself: a pass of one token stands for it."""
        shortest = {(PLAIN, 0, context): self.samples.get(("verify", 0, context)) for context in self.contexts}
        return self.is_imported and all(
            self.samples.get(cell) in (seconds, (0.0,)) for cell, seconds in shortest.items()
        )

    @property
    def threads_text(self) -> str:
        """The threads in words."""
        return f"{self.threads} thread" + ("" if self.threads == 1 else "s")

    @cached_property
    def cost_id(self) -> str:
        """Content id of everything, the samples included."""
        return content_id(self.to_json())

    def to_json(self) -> Json:
        """The JSON value of the file."""
        rows = [
            {
                "stage": stage,
                "num_drafted": num_drafted,
                "context": context,
                "seconds": [float(value) for value in self.samples[cell]],
            }
            for cell in self.cells()
            if cell in self.samples
            for stage, num_drafted, context in [cell]
        ]
        others = ("samples", "notes", "visits", "channels")
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in others}
        values |= {"notes": list(self.notes)} if self.notes else {}
        values |= {"target": as_json(self.target), "drafter": as_json(self.drafter), "versions": dict(self.versions)}
        values |= {"contexts": list(self.contexts), "node_counts": list(self.node_counts)}
        values |= self._sampling()
        version = FORMAT_VERSION if self.channels else 2 if self.visits.paired else 1
        values |= {"visit_rounds": self.visits.rounds, "visit_steps": self.visits.steps} if version > 1 else {}
        values |= (
            {"channels": {name: channel.to_json() for name, channel in sorted(self.channels.items())}}
            if version > 2
            else {}
        )
        return {"format": FORMAT, "format_version": version, **values, "samples": rows}

    def _verify_setting(self) -> Json:
        names = ("device", "threads", "system", "dtype", "attention", "execution", "batch")
        values = {name: getattr(self, name) for name in names}
        return values | self._sampling() | {"target": self.target.digest, "versions": dict(self.versions)}

    def _sampling(self) -> Json:
        """As floats where they may be whole numbers, so that an id is the same before and after writing."""
        return {"temperature": float(self.temperature), "top_k": self.top_k, "top_p": float(self.top_p)}


def write_cost_file(path: Path, file: CostFile) -> None:
    """Write a cost file, complete or not, beside and rename it: one line per setting, one per cell."""
    text = in_lines(with_digest(file.to_json()), "samples")
    try:
        write_beside(path, lambda target: target.write(text.encode()))
    except TraceError as error:
        raise CostError(str(error)) from error


def read_cost_file(path: str | Path) -> CostFile:
    """A cost file, complete or not.

    Args:
        path: a file, or the name of one that comes with simlab.

    Raises:
        CostError: there is none, it is of another kind, newer than this simlab, or damaged.
    """
    try:
        fields = read_document(path, KIND, [*packaged_cost_files(), *example_cost_files()])
        file = _cost_file(fields)
        check_digest(fields)
        check_not_alike(file, str(path))
    except TraceError as error:
        raise CostError(str(error)) from error
    except ValueError as error:
        raise CostError(f"{path}: {error}. Copy the file again, or measure again with `simlab profile`.") from error
    return file


read_packaged_cost = read_once(read_cost_file)
"""A cost file that comes with simlab, by its path; the errors are those of `read_cost_file`."""


def check_not_alike(file: CostFile, where: str) -> None:
    """Refuse passes that all take the same time to the last digit, which no clock measures: nothing was.

    Args:
        file: whose passes that verify are looked at; two may be alike, rounded or one standing for the other.
        where: what it is called in the message.

    Raises:
        CostError: three or more are the same.
    """
    passes = [seconds for (stage, _, _), seconds in file.samples.items() if stage == "verify"]
    values = {value for seconds in passes for value in seconds}
    if len(passes) > 2 and len(values) == 1:
        raise CostError(
            f"{where} has {values.pop():g} s for each of its passes, whatever their nodes and context; that was not "
            "measured: give the time of each size, with its digits"
        )


def packaged_cost_files() -> list[Path]:
    """The cost files that are shipped with simlab, by name; there may be none."""
    return sorted(PACKAGED.glob("*.json"))


def example_cost_files() -> list[Path]:
    """The shipped cost files of others' models on their machines, by name; they price a trace only if asked for."""
    return sorted(EXAMPLES.glob("*.json"))


def packaged_for(target: ModelInfo, drafter: ModelInfo, block_size: int) -> dict[str, CostFile]:
    """The shipped cost files of these models and this block, by name."""
    files = [(path.stem, read_packaged_cost(path)) for path in packaged_cost_files()]
    return {name: file for name, file in files if file.fits(target, drafter, block_size)}


def find_packaged(
    target: ModelInfo, drafter: ModelInfo, block_size: int, dtype: str = DEFAULT_DTYPE
) -> CostFile | None:
    """The shipped cost file of these models and this block; of several the first in this dtype, else the first."""
    packaged = list(packaged_for(target, drafter, block_size).values())
    return next((file for file in packaged if file.dtype == dtype), packaged[0] if packaged else None)


def _cost_file(fields: JsonFields) -> CostFile:
    version = fields.integer("format_version")
    return value_of(
        CostFile,
        fields,
        execution=fields.text("execution"),
        batch=fields.integer("batch"),
        samples=_samples(fields.objects("samples")),
        visits=_visits(fields, version),
        channels=cost_channels(fields.inners("channels")) if version > 2 else {},
    )


def _visits(fields: JsonFields, version: int) -> Visits:
    """How samples were taken; seconds that were measured elsewhere are each a visit of their own."""
    if version > 1 and fields.text("execution") != IMPORTED:
        return Visits(fields.integer("visit_rounds"), fields.integer("visit_steps"), paired=True)
    return Visits(1, 1) if fields.text("execution") == IMPORTED else Visits()


def _samples(rows: list[JsonFields]) -> dict[Cell, tuple[float, ...]]:
    samples: dict[Cell, tuple[float, ...]] = {}
    for row in rows:
        cell = (row.text("stage"), row.integer("num_drafted"), row.integer("context"))
        if cell in samples:
            raise ValueError(f"the cell {cell} stands there twice")
        samples[cell] = row.numbers("seconds")
    return samples


def gap_around(node_counts: Sequence[int], num_drafted: float) -> tuple[int, int] | None:
    """The measured node counts around a size that nobody timed, where more than one size between them was not.

    Prices in between are a straight line, and so is their noise: neither shows what a machine does there.

    Args:
        node_counts: that were measured, rising.
        num_drafted: drafted tokens of a round; a mean of several rounds is rounded.

    >>> gap_around((0, 4, 8), 2.4), gap_around((0, 1, 2, 4), 3.0), gap_around((0, 4, 8), 3.9)
    ((0, 4), None, None)
    """
    size = round(num_drafted)
    return next(((low, high) for low, high in pairwise(node_counts) if low < size < high and high - low > 2), None)


def _rise(values: tuple[int, ...]) -> bool:
    return all(low < high for low, high in pairwise(values))
