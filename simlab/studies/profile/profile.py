"""A profile: what drafting, selecting, verifying and committing take on this machine, as a cost file and as tables."""

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from simlab.analysis.table.text import aligned
from simlab.cost import GRID_STAGES, PLAIN, channel_stage
from simlab.errors import as_usage_error
from simlab.options import given_for, study
from simlab.policies.costs.cell_prices import Cell, cell_prices, fewest_samples, ratio_half_widths
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.model_options import DRAFTER, TARGET
from simlab.real_runner.profile.options import (
    ProfileChannel,
    ProfileOptions,
    node_counts_for,
    settings_of,
)
from simlab.real_runner.profile.profile import profile as run_profile
from simlab.studies.inspect.cost import cost_json
from simlab.studies.profile.options import ProfileRequest
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.cost import CostFile, read_cost_file

_PROMPTS = Path(str(files("simlab"))) / "data" / "demo_prompts.jsonl"
_SHOWN_COUNTS = (0, 8, 16, 64, 256, 512)
_SHOWN_CONTEXT = 512
_ONE_MORE = "The target's pass runs one token more than were drafted."


@dataclass(frozen=True, eq=False, repr=False)
class ProfileTable(StudyResult):
    """What rounds cost on a machine, as it was measured: a row per stage, drafted tokens and context.

    Attributes:
        path: of the cost file.
        file: what is in it; every cell has its samples.
        num_visits: measurements that this run added to it; 0: everything had been measured before.
    """

    path: Path
    file: CostFile
    num_visits: int

    ROWS: ClassVar[str] = "prices"

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab profile --json`` prints: settings, keys and the price of each cell in seconds."""
        return cost_json(self.path, self.file)

    def text(self) -> str:
        """The short report that ``simlab profile`` prints: a few of the numbers, and what to do with them."""
        file = self.file
        context = min(file.contexts, key=lambda number: abs(number - _SHOWN_CONTEXT))
        together = f" in each of {file.batch} texts at a time" if file.batch > 1 else ""
        batch = f"--batch {file.batch} " if file.batch > 1 else ""
        path, torch = shlex.quote(str(self.path)), file.versions.get("torch", "?")
        prices = cell_prices(file.samples, file.visits)
        return "\n".join(
            (
                f"machine  {file.device}, threads {file.threads}, {file.system}, torch {torch}",
                f"target   {file.target.label}, {file.dtype}, temperature {file.temperature:g}",
                f"drafter  {file.drafter.name}, block {file.block_size}",
                "",
                f"Milliseconds of a token of autoregressive decoding, and of a round by its drafted tokens{together}:",
                "",
                _rounds_table(file, prices),
                "",
                f"Milliseconds of each stage at a context of {context}:",
                "",
                _stages_table(file, prices, context),
                "",
                *_channel_tables(file, prices),
                f"{self._how_known()} {_ONE_MORE}",
                f"Cost file: {self.path} (cost {file.cost_id}); `simlab inspect {path}` shows all of it.",
                f"Predict speeds with `simlab replay {batch}--cost {path} -p ddtree:budget=16/32/64`.",
            )
        )

    def _how_known(self) -> str:
        """How many visits there were, and how well prices are known."""
        file = self.file
        fewest = fewest_samples(file.samples) // file.visits.rounds
        first = f"Each cell was visited {fewest} times or more"
        if fewest < 2:
            return (
                f"{first}; how noisy its prices are needs two visits (`--resume --repeats {2 * file.visits.rounds}`)."
            )
        known = max(ratio_half_widths(file.samples, file.visits).values())
        return f"{first}; a round over autoregressive decoding is known to ±{100 * known:.1f} % or better (95 %)."


@study(ProfileRequest)
def profile(options: ProfileRequest) -> ProfileTable:
    """Measure what rounds cost on this machine, and write it to a cost file.

    What is None is, with ``resume``, as the file says, and else the default.

    Raises:
        SimlabError: options do not fit each other, models cannot be used, or the file at ``out`` is of another
            measurement.
    """
    path = Path(options.out)
    begun = settings_of(read_cost_file(path)) if options.resume and path.is_file() else {}
    values = {"target": TARGET, "draft": DRAFTER} | begun | given_for(ProfileOptions, options)
    values.setdefault("node_counts", node_counts_for(values.get("execution", EAGER)))
    lists = {name: tuple(values[name]) for name in ("node_counts", "contexts", "catch_up") if name in values}
    changed = {
        "out": path,
        "text": reading_text() if options.text is None else options.text,
        "time_limit_s": None if options.time_limit is None else 60 * options.time_limit,
        "channels": {**begun.get("channels", {}), **_channels(options)},
    }
    with as_usage_error():
        run = ProfileOptions(**values | lists | changed)
    done = run_profile(run)
    return ProfileTable(path, done.file, done.num_visits)


def _channels(options: ProfileRequest) -> Mapping[str, ProfileChannel]:
    if isinstance(options.channel, Mapping):
        return options.channel
    units = None if options.units is None else tuple(options.units)
    return {name: ProfileChannel(checkpoint, settings, units) for name, checkpoint, settings in options.channel}


def reading_text() -> str:
    """Real words for the models to read: the demo's prompts, then Python's own documentation where it is installed."""
    lines = _PROMPTS.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]  # noqa: TID251 - simlab's own file
    parts = [turn for row in rows for turn in row["turns"]]
    with contextlib.suppress(ModuleNotFoundError):
        # Some distributions of Python leave this module out.
        from pydoc_data.topics import topics  # noqa: PLC0415

        parts += topics.values()
    return "\n\n".join(parts)


def _rounds_table(file: CostFile, prices: Mapping[Cell, float]) -> str:
    """Milliseconds of a round, contexts down and drafted tokens across, after those of plain decoding."""
    counts = _shown_counts(file.node_counts)
    rows = [["context", PLAIN, *map(str, counts)]]
    for context in file.contexts:
        sums = [sum(prices[stage, n, context] for stage in GRID_STAGES) for n in counts]
        rows.append([f"{context:,}", *(f"{1e3 * s:.2f}" for s in (prices[PLAIN, 0, context], *sums))])
    return _aligned(rows)


def _stages_table(file: CostFile, prices: Mapping[Cell, float], context: int) -> str:
    """Milliseconds of each stage at one context, drafted tokens down."""
    rows = [["drafted", *GRID_STAGES, "round"]]
    for n in _shown_counts(file.node_counts):
        values = [prices[stage, n, context] for stage in GRID_STAGES]
        rows.append([str(n), *(f"{1e3 * s:.2f}" for s in (*values, sum(values)))])
    return _aligned(rows)


def _channel_tables(file: CostFile, prices: Mapping[Cell, float]) -> list[str]:
    """Milliseconds that making each channel takes in a round, contexts down and units across."""
    tables = []
    for name, channel in sorted(file.channels.items()):
        rows = [["context", *map(str, channel.units)]]
        for context in file.contexts:
            seconds = (prices[channel_stage(name), units, context] for units in channel.units)
            rows.append([f"{context:,}", *(f"{1e3 * s:.2f}" for s in seconds)])
        tables += [
            f"Milliseconds of the channel {name} ({channel.producer.name}), by {channel.counted}:",
            "",
            _aligned(rows),
            "",
        ]
    return tables


def _shown_counts(counts: Sequence[int]) -> list[int]:
    """A few of the node counts: those nearest to round ones, each once."""
    return sorted({min(counts, key=lambda count: abs(count - wanted)) for wanted in _SHOWN_COUNTS})


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    return aligned(rows, [False] * len(rows[0]))
