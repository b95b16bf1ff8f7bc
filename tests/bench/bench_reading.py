"""How fast is a trace read, beside polars alone; and how long is a replay, with and without rows kept decoded?

All of one synthetic trace, in one process. Polars decodes the columns that a replay reads and does nothing else; simlab
also compares sizes and digests, checks every value, and puts the rows into the arrays that kernels take.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from in_turn import Seconds, asked_for, compared, peak_gb
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


def replaying(folder: Path, switch: str) -> Callable[[], None]:
    """One replay of one policy, with rows kept decoded (``on``) or without (``off``)."""

    def run() -> None:
        os.environ[SWITCH] = switch
        simlab.replay(folder, [POLICY], progress=False)

    return run


def main() -> None:
    asked = asked_for(__doc__, positions=100_000, runs=5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "trace"
        write_synthetic_trace(Path(name) / "small")  # loads what is compiled
        num_texts = asked.positions // MEAN_POSITIONS
        took = Seconds.of(
            lambda: write_synthetic_trace(folder, num_sequences=num_texts, length=LENGTH, prompts_per_shard=8)
        )
        trace = open_trace(folder)
        os.environ[SWITCH] = "off"
        num_rows = read_by_simlab(trace)
        print(f"{num_rows:,} positions of depth {trace.manifest.draft_sets[DRAFT].depth} written in {took.wall:.3f} s")
        paths = [folder / draft_file(DRAFT, shard) for shard in range(len(trace.manifest.held().shards))]
        if decoded_by_polars(paths) != num_rows:
            raise ValueError("polars and simlab must read the same rows")
        works = {
            "simlab, decoding": lambda: read_by_simlab(trace),
            "polars alone, file by file": lambda: decoded_by_polars(paths),
            "polars alone, files in threads": lambda: decoded_by_polars_ahead(paths),
        }
        compared(works, asked.runs, wanted="at least 0.7 for polars")
        replaying(folder, "off")()  # loads what is compiled
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        first = Seconds.of(replaying(folder, "on"))
        kept = sum(path.stat().st_size for path in (folder / FOLDER).iterdir())
        print(f"replay of {POLICY}, first: {first.wall:.3f} s ({kept / 1e6:,.0f} MB kept)")
        replays = {f"replay, {word}": replaying(folder, at) for word, at in (("mapped", "on"), ("decoding", "off"))}
        compared(replays, asked.runs, wanted="decoding at least 5 times as long")
    print(f"at most {peak_gb():.2f} GB in memory")


if __name__ == "__main__":
    main()
