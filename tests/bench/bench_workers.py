"""A large replay by workers of Ray: how many times as fast are two as one, and how much memory does each take?

    PYTHONPATH=tests/helpers python tests/bench/bench_workers.py --trace runs/large --workers 1,2

Without --trace a synthetic one of a million positions is made first. Each replay is a whole command, in a process of
its own: start, reading, replaying, result rows, tables. Nothing may run beside it. ``--workers 0`` is threads of one
process; ``--out 1`` writes result rows too.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from in_turn import asked_for
from synthetic_traces import write_synthetic_trace

from simlab.traces.reader import open_trace


def timed(arguments: list[str]) -> tuple[float, dict[str, int]]:
    """Seconds of a command, and the largest resident memory of the driver and of any worker, bytes."""
    begun, peaks = time.perf_counter(), {"driver": 0, "worker": 0}
    process = subprocess.Popen([sys.executable, "-m", "simlab", *arguments], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(process.pid)
            peaks["driver"] = max(peaks["driver"], driver.memory_info().rss)
            for child in driver.children(recursive=True):
                if child.name().startswith("ray::RayWorker"):
                    peaks["worker"] = max(peaks["worker"], child.memory_info().rss)
        time.sleep(0.1)
    if process.returncode != 0:
        raise SystemExit(f"a replay ended with exit code {process.returncode}")
    return time.perf_counter() - begun, peaks


FAMILIES = (
    "ddtree:budget=1..{most}",
    "spine-gap:budget=1..{most}",
    *(f"expand-parent:gap_slope={slope},budget=1..{{most}}" for slope in (0.5, 1.0, 2.0, 4.0)),
    *(f"eagle2-beam:beam={beam},budget=1..{{most}}" for beam in (4, 8, 12, 16)),
    *(f"entropy-width:power={power},budget=1..{{most}}" for power in (0.5, 1.0, 2.0)),
    *(f"survival:threshold={threshold},budget=1..{{most}}" for threshold in (0.01, 0.02, 0.05, 0.1)),
)
"""Whatever needs no fitted table, at 64 budgets each: 17 families, 1,088 policies."""


def policies(num: int) -> list[str]:
    """So many policies, as they are typed: all families at as many budgets as that takes."""
    typed: list[str] = []
    left = num
    for family in FAMILIES:
        most = min(64, left)
        if most > 0:
            typed += ["-p", family.format(most=most)]
            left -= most
    return typed


def ask() -> None:
    options = asked_for(__doc__, trace="", workers="1,2", policies=1000, out=0)
    with tempfile.TemporaryDirectory(prefix="simlab-workers-") as folder:
        trace = options.trace or write_synthetic_trace(
            Path(folder) / "trace", num_sequences=2680, length=512, prompts_per_shard=16
        )
        positions = sum(len(sequence.text) - 1 for sequence in open_trace(trace).sequences())
        print(f"{positions:,} positions, {options.policies:,} policies", flush=True)
        first = None
        for workers in map(int, options.workers.split(",")):
            out = ["--out", str(Path(folder) / f"{workers}.parquet")] if options.out else []
            ray = ["--ray", "local", "--workers", str(workers)] if workers else []
            typed = ["replay", "--trace", str(trace), *policies(options.policies), "--no-progress", *out, *ray]
            seconds, peaks = timed(typed)
            first = seconds if first is None else first
            memory = ", ".join(f"{name} {peak / 1e6:,.0f} MB" for name, peak in peaks.items())
            print(f"workers {workers}: {seconds:.1f} s, {first / seconds:.2f} x the first; {memory}", flush=True)


if __name__ == "__main__":
    ask()
