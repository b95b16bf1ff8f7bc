"""How fast is a trace read, beside polars alone; and how long is a replay, with and without rows kept decoded?

All of one synthetic trace, in one process. The two of a pair run in turn, and the medians are compared, so that what
else the machine does slows both. Polars decodes the columns that a replay reads and does nothing else; simlab also
compares sizes and digests, checks every value, and puts the rows into the arrays that kernels take.
"""

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from synthetic_traces import DRAFT, write_synthetic_trace

import simlab
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.traces.decoded import FOLDER, SWITCH, work_ahead
from simlab.traces.format.files import draft_file
from simlab.traces.format.schema import REPLAY_COLUMNS
from simlab.traces.reader import Trace, open_trace

LENGTH, MEAN_POSITIONS = 500, 374
"""Tokens of a text at most, and positions of one in the mean: half of them end anywhere."""

POLICY = "ddtree:budget=16"


def decoded_by_polars(paths: Sequence[Path]) -> int:
    """Polars alone, file by file; gives back the number of rows."""
    return sum(len(pl.scan_parquet(path, glob=False).select(REPLAY_COLUMNS).collect()) for path in paths)


def decoded_by_polars_ahead(paths: Sequence[Path]) -> int:
    """Polars alone, in as many threads as simlab's reader has."""
    weighed = ((path, 0) for path in paths)
    return sum(work_ahead(weighed, lambda path: decoded_by_polars([path]), 0))


def read_by_simlab(trace: Trace) -> int:
    """What a replay reads; gives back the number of rows."""
    return sum(len(texts.rows.counts) for texts in trace.recorded_texts(DRAFT, None, ROOTS_AT_ONCE) if texts.rows)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one call, or the medians of several: on the wall, and of the processor in all threads."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> "Seconds":
        """Of one call."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - wall, time.process_time() - cpu)

    @classmethod
    def median(cls, found: Sequence["Seconds"]) -> "Seconds":
        """The medians of several."""
        return cls(
            statistics.median(seconds.wall for seconds in found), statistics.median(seconds.cpu for seconds in found)
        )

    def __str__(self) -> str:
        return f"{self.wall:7.3f} s, {self.cpu:7.3f} s of the processor"

    def beside(self, base: "Seconds") -> str:
        """How many times as fast as another."""
        return f"{base.wall / self.wall:.2f} by the wall, {base.cpu / self.cpu:.2f} by the processor"


def in_turn(works: Mapping[str, Callable[[], object]], runs: int) -> dict[str, Seconds]:
    """Medians of some runs of each, in turn, after one that warms up."""
    found: dict[str, list[Seconds]] = {name: [] for name in works}
    for _ in range(runs + 1):
        for name, work in works.items():
            found[name].append(Seconds.of(work))
    return {name: Seconds.median(measured[1:]) for name, measured in found.items()}


def compare_reading(trace: Trace, runs: int) -> None:
    """Print how fast simlab decodes beside polars."""
    os.environ[SWITCH] = "off"
    paths = [Path(trace.location) / draft_file(DRAFT, shard) for shard in range(len(trace.manifest.held().shards))]
    num_rows = read_by_simlab(trace)
    if decoded_by_polars(paths) != num_rows:
        raise ValueError("polars and simlab must read the same rows")
    medians = in_turn(
        {
            "polars alone, file by file": lambda: decoded_by_polars(paths),
            "polars alone, files in threads": lambda: decoded_by_polars_ahead(paths),
            "simlab, decoding": lambda: read_by_simlab(trace),
        },
        runs,
    )
    for name, median in medians.items():
        print(f"{name:32} {median} {num_rows / median.wall:10,.0f} positions a second")
    *polars_alone, mine = medians.items()
    for name, base in polars_alone:
        print(f"  simlab's speed / {name}: {mine[1].beside(base)} (wanted: at least 0.7)")


def replayed(folder: Path, switch: str) -> None:
    """One replay of one policy."""
    os.environ[SWITCH] = switch
    simlab.replay(folder, [POLICY], progress=False)


def compare_replays(folder: Path, runs: int) -> None:
    """Print how long a replay takes with rows kept decoded, beside one that decodes."""
    replayed(folder, "off")  # loads what is compiled
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    first = Seconds.of(lambda: replayed(folder, "on"))
    kept = sum(path.stat().st_size for path in (folder / FOLDER).iterdir())
    medians = in_turn({"decoding": lambda: replayed(folder, "off"), "mapped": lambda: replayed(folder, "on")}, runs)
    print(f"replay of {POLICY}, first    {first} ({kept / 1e6:,.0f} MB kept)")
    for name, median in medians.items():
        print(f"replay of {POLICY}, {name:8} {median}")
    print(f"  mapped beside decoding: {medians['mapped'].beside(medians['decoding'])} (wanted: at least 5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "trace"
        write_synthetic_trace(Path(name) / "small")  # loads what is compiled
        num_sequences = arguments.positions // MEAN_POSITIONS
        took = Seconds.of(
            lambda: write_synthetic_trace(folder, num_sequences=num_sequences, length=LENGTH, prompts_per_shard=8)
        )
        trace = open_trace(folder)
        num_positions = sum(len(record.text) - 1 for record in trace.sequences())
        print(f"{num_positions:,} positions of depth {trace.manifest.draft_sets[DRAFT].depth} written in {took}")
        compare_reading(trace, arguments.runs)
        compare_replays(folder, arguments.runs)
    print(
        f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB in memory, {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
