"""How long one starts: `simlab replay` on the packaged trace beside the bare imports it rests on, and `import simlab`.

The two of a pair run in turn, so that what else the machine does slows both. Wall seconds are what a person waits;
seconds of the processor, in all threads, are steadier on a machine with other work. To load the first compiled
function, numba reads all that it can compile and scipy's linear algebra; what that takes is beyond simlab, and shown
too.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """Two programs that are compared: what one wants is at most ``wanted`` times what the other takes."""

    name: str
    program: tuple[str, ...]
    base_name: str
    base: tuple[str, ...]
    wanted: float


PAIRS = (
    Pair(
        "simlab replay",
        ("-m", "simlab", "replay"),
        "import numpy, numba, polars",
        ("-c", "import numpy, numba, polars"),
        1.5,
    ),
    Pair(
        "simlab replay",
        ("-m", "simlab", "replay"),
        "... and one compiled function",
        ("-c", "import numpy, numba, polars; from simlab.grid import weight_scalar; weight_scalar(-1.0)"),
        1.5,
    ),
    Pair("import simlab", ("-c", "import simlab"), "import numpy", ("-c", "import numpy"), 1.0),
)


def timed(program: tuple[str, ...]) -> tuple[float, float]:
    """Seconds on the wall and of the processor that a run takes; compiled files are kept as in anybody's use."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *program], check=True, stdout=subprocess.DEVNULL, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    for pair in PAIRS:
        runs: dict[tuple[str, ...], list[tuple[float, float]]] = {pair.base: [], pair.program: []}
        for number in range(arguments.runs + 1):
            for program, measured in runs.items():
                seconds = timed(program)
                if number:  # the first warms up
                    measured.append(seconds)
        medians = {
            program: [statistics.median(seconds) for seconds in zip(*measured, strict=True)]
            for program, measured in runs.items()
        }
        for name, program in ((pair.base_name, pair.base), (pair.name, pair.program)):
            wall, cpu = medians[program]
            print(f"{name:29} {wall:6.3f} s, {cpu:6.3f} s of the processor")
        ratios = [mine / base for mine, base in zip(medians[pair.program], medians[pair.base], strict=True)]
        print(
            f"{pair.name} / {pair.base_name}: {ratios[0]:.2f} by the wall, {ratios[1]:.2f} by the processor "
            f"(wanted: at most {pair.wanted:g})"
        )
    print(f"medians of {arguments.runs} runs of each, in turn, on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
