"""Works that are timed in turn, so that what else the machine does slows all of them, and their ratios."""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

Work = Callable[[], object]
"""What is timed. Where it gives back a float, that is the seconds on the wall: of a part, or a token."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one run: on the wall, and of the processor in all threads and processes that it waited for."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Work) -> "Seconds":
        """Do a work and time it."""
        before, start = _processor_s(), time.perf_counter()
        given = work()
        wall, cpu = time.perf_counter() - start, _processor_s() - before
        return cls(given, cpu * given / wall) if isinstance(given, float) else cls(wall, cpu)


def _processor_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long as another work one takes: the median over pairs of runs, and where half of them lie."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], base: Sequence[float]) -> "Ratio":
        """The ratios of pairs."""
        ratios = sorted(value / other if other else 1.0 for value, other in zip(values, base, strict=True))
        quarter = len(ratios) // 4
        return cls(statistics.median(ratios), ratios[quarter], ratios[-1 - quarter])

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f} to {self.high:.3f}]"


def compared(
    works: Mapping[str, Work], runs: int, unit: str = "s", wanted: str = "", most_seconds: float = math.inf
) -> dict[str, Ratio]:
    """Do works in turn, so many times after one that warms up, and print what each takes beside the first.

    Args:
        works: by their names.
        runs: of each.
        unit: of what is printed: ``s``, ``ms`` or ``us``, and of what.
        wanted: what is aimed at, in words.
        most_seconds: no other run begins when these are over, counted from the one that warms up.

    Returns:
        The ratio of each to the first, on the wall.
    """
    taken: dict[str, list[Seconds]] = {name: [] for name in works}
    base, until = next(iter(works)), math.inf
    for run in range(runs + 1):
        if time.perf_counter() > until:
            break
        for name, work in list(works.items())[:: 1 if run % 2 else -1]:
            seconds = Seconds.of(work)
            taken[name] += [seconds] if run else []
        until = until if run else time.perf_counter() + most_seconds
    scale = {"ms": 1e3, "us": 1e6}.get(unit[:2], 1.0)
    ratios = {}
    for name, own in taken.items():
        wall, cpu = ([getattr(one, clock) for one in own] for clock in ("wall", "cpu"))
        base_wall, base_cpu = ([getattr(one, clock) for one in taken[base]] for clock in ("wall", "cpu"))
        ratios[name] = Ratio.of(wall, base_wall)
        beside = f"{ratios[name]} of {base}, {Ratio.of(cpu, base_cpu)} by the processor" if name != base else ""
        print(f"{name:34} {scale * statistics.median(wall):9.3f} {unit} (least {scale * min(wall):.3f})  {beside}")
    aim = f"; wanted: {wanted}" if wanted else ""
    print(f"medians of {len(taken[base])} runs of each, in turn, on {os.cpu_count()} cores{aim}")
    if "--json" in sys.argv:
        print(json.dumps({name: asdict(ratio) for name, ratio in ratios.items()}), flush=True)
    return ratios


def asked_for(text: str | None, **options: object) -> argparse.Namespace:
    """What was typed: an option for each name, of the type of its default, and ``--json``."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        many = {"nargs": "+", "type": str} if isinstance(default, tuple) else {"type": type(default)}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, **many)
    parser.add_argument("--json", action="store_true", help="print ratios as JSON too")
    return parser.parse_args()


def program(*words: str) -> Work:
    """A run of Python with some words behind it; compiled files are kept, as in anybody's use."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run() -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)

    return run


def peak_gb() -> float:
    """The most memory that this process used, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
