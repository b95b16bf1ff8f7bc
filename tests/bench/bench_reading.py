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
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

import simlab
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.traces.ahead import work_ahead
from simlab.traces.decoded import FOLDER, SWITCH
from simlab.traces.format.files import draft_file
from simlab.traces.format.schema import REPLAY_COLUMNS
from simlab.traces.reader import Trace, open_trace
from simlab.traces.synthetic import DRAFT, write_synthetic_trace

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


def seconds(work: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def replayed(folder: Path, switch: str) -> float:
    """Seconds of one replay of one policy."""
    os.environ[SWITCH] = switch
    return seconds(lambda: simlab.replay(folder, [POLICY], progress=False))


def compare_reading(trace: Trace, num_positions: int, runs: int) -> None:
    """Print how fast simlab decodes beside polars."""
    os.environ[SWITCH] = "off"
    paths = [Path(trace.place) / draft_file(DRAFT, shard) for shard in range(len(trace.manifest.held().shards))]
    works: dict[str, Callable[[], int]] = {
        "polars alone, file by file": lambda: decoded_by_polars(paths),
        "polars alone, files in threads": lambda: decoded_by_polars_ahead(paths),
        "simlab, decoding": lambda: read_by_simlab(trace),
    }
    measured: dict[str, list[float]] = {name: [] for name in works}
    for number in range(runs + 1):
        for name, work in works.items():
            took = seconds(lambda work=work: _expect(work(), num_positions))  # type: ignore[misc]
            if number:  # the first warms up
                measured[name].append(took)
    medians = {name: statistics.median(found) for name, found in measured.items()}
    for name, median in medians.items():
        print(f"{name:32} {median:7.3f} s  {num_positions / median:12,.0f} positions a second")
    *polars_alone, mine = medians.values()
    for name, base in zip(works, polars_alone, strict=False):
        print(f"  simlab's speed / {name}: {base / mine:.2f} (wanted: at least 0.7)")


def _expect(found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"expected {expected} rows; read {found}")


def compare_replays(folder: Path, runs: int) -> None:
    """Print how long a replay takes with rows kept decoded, beside one that decodes."""
    replayed(folder, "off")  # loads what is compiled
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    making = replayed(folder, "on")
    pairs = [(replayed(folder, "off"), replayed(folder, "on")) for _ in range(runs)]
    decoding, mapped = (statistics.median(found) for found in zip(*pairs, strict=True))
    kept = sum(path.stat().st_size for path in (folder / FOLDER).iterdir())
    print(f"replay of {POLICY}, decoding       {decoding:7.3f} s")
    print(f"replay of {POLICY}, first, keeping {making:7.3f} s ({kept / 1e6:,.0f} MB kept)")
    print(f"replay of {POLICY}, mapped         {mapped:7.3f} s")
    print(f"  decoding / mapped: {decoding / mapped:.1f} (wanted: at least 5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "trace"
        write_synthetic_trace(Path(name) / "small")  # loads what is compiled
        took = seconds(
            lambda: write_synthetic_trace(
                folder, num_sequences=arguments.positions // MEAN_POSITIONS, length=LENGTH, prompts_per_shard=8
            )
        )
        trace = open_trace(folder)
        num_positions = sum(len(record.text) - 1 for record in trace.sequences())
        print(
            f"{num_positions:,} positions of depth {trace.manifest.draft_sets[DRAFT].depth} in "
            f"{len(trace.manifest.held().shards)} shards, written in {took:.1f} s "
            f"({took / num_positions * 1e6:.0f} s a million)"
        )
        compare_reading(trace, num_positions, arguments.runs)
        compare_replays(folder, arguments.runs)
    print(
        f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB in memory, {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
