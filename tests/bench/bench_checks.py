"""What do the checks of every read cost, beside the replay that they are made for?

The same work is done in turn with the checks and with nothing in their place, so that what else the machine does slows
both: a whole process of `simlab replay` on the packaged trace, by seconds of the processor and of the wall, and the
reading and replaying of as many shards as come to a million positions.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simlab.policies.engine.replay import Replay
from simlab.policies.named.ddtree import DDTree
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.traces import reader
from simlab.traces.format import files, shards
from simlab.traces.parquet.sizes import _sizes
from simlab.traces.reader import Trace, open_trace, packaged_trace

CHECKS = (
    (shards, ("draft_fault", "refuse", "check_holds")),
    (reader, ("check_texts", "check_holds")),
    (files, ("check_size",)),
)
"""All that a replay's reads are held to; with nothing in its place, a trace is read as it comes."""

REPLAY = """
import sys
from simlab.cli.main import main
main(["replay", "-p", "chain", "-p", "ddtree:budget=8/16/64"])
"""
WITHOUT = """
from simlab.traces import reader
from simlab.traces.format import files, shards
for module, names in ((shards, ("draft_fault", "refuse", "check_holds")), (reader, ("check_texts", "check_holds")),
                      (files, ("check_size",))):
    for name in names:
        setattr(module, name, lambda *_: 0)
"""


@contextmanager
def unchecked() -> Iterator[None]:
    """Nothing is checked inside."""
    before = [(module, name, getattr(module, name)) for module, names in CHECKS for name in names]
    for module, name, _ in before:
        setattr(module, name, lambda *_: 0)
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def process(program: str) -> tuple[float, float]:
    """Seconds of the processor and of the wall."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def seconds_of(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def in_processes(pairs: int) -> None:
    process(REPLAY)
    process(WITHOUT + REPLAY)
    found = [(process(REPLAY), process(WITHOUT + REPLAY)) for _ in range(pairs)]
    for index, what in enumerate(("seconds of the processor", "seconds of the wall")):
        ratios = sorted(with_[index] / without[index] for with_, without in found)
        pooled = sum(one[index] for one, _ in found) / sum(one[index] for _, one in found)
        least = min(one[index] for one, _ in found) / min(one[index] for _, one in found)
        print(
            f"a process of `simlab replay` on the packaged trace, {what}: {statistics.median(ratios):.3f} x with the "
            f"checks (median of {pairs} pairs, middle half {ratios[pairs // 4]:.3f} to {ratios[-1 - pairs // 4]:.3f}; "
            f"pooled {pooled:.3f}, fastest of each {least:.3f}; {min(one[index] for one, _ in found):.2f} s)"
        )


def million(trace: Trace, positions: int) -> None:
    """Read and replay the packaged trace again and again, by turns with the checks and without."""
    num = sum(len(text.text) - 1 for text in trace.texts)
    replay = Replay([(DDTree(64), None)])

    def work() -> None:
        _sizes.cache_clear()  # a long trace has another file in each shard
        for texts in trace.recorded_texts(trace.draft_name(), most_roots=ROOTS_AT_ONCE):
            replay.sums(texts)

    work()
    checked = plain = 0.0
    times = -(-positions // num)
    for _ in range(times):
        checked += seconds_of(work)
        with unchecked():
            plain += seconds_of(work)
    print(
        f"reading and replaying {times * num:,} positions in {times} shards (ddtree:budget=64): "
        f"{checked / plain:.3f} x with the checks ({checked:.1f} s and {plain:.1f} s of the processor)"
    )


def only(trace: Trace) -> None:
    """What each check takes by itself."""
    taken: dict[str, float] = {}

    def timed(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def timing(*given: object) -> object:
            start = time.perf_counter()
            found = function(*given)
            taken[name] = taken.get(name, 0.0) + time.perf_counter() - start
            return found

        return timing

    before = [(module, name, getattr(module, name)) for module, names in CHECKS for name in names]
    best: dict[str, float] = {}
    num = 0
    for module, name, function in before:
        setattr(module, name, timed(name, function))
    for _ in range(10):
        taken.clear()
        _sizes.cache_clear()
        again = open_trace(trace.location)
        num = sum(len(texts.rows.ids) for texts in again.recorded_texts(again.draft_name()) if texts.rows is not None)
        best = {name: min(seconds, best.get(name, seconds)) for name, seconds in taken.items()}
    for module, name, function in before:
        setattr(module, name, function)
    parts = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in best.items())
    print(f"opening and reading the packaged trace once ({num:,} candidates), the best of ten: {parts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="of processes")
    parser.add_argument("--positions", type=int, default=1_000_000)
    given = parser.parse_args()
    trace = open_trace(packaged_trace())
    only(trace)
    million(trace, given.positions)
    in_processes(given.pairs)


if __name__ == "__main__":
    main()
