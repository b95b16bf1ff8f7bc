"""What do the checks of every read cost, beside the replay that they are made for?

The same work is done in turn with the checks and with nothing in their place: a whole process of `simlab replay` on the
packaged trace, and the reading and replaying of as many shards as come to a million positions.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from in_turn import asked_for, compared, program

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
from simlab.cli.main import main
main(["replay", "-p", "chain", "-p", "ddtree:budget=8/16/64"])
"""
WITHOUT = "import importlib\n" + "".join(
    f"importlib.import_module({module.__name__!r}).{name} = lambda *_: 0\n"
    for module, names in CHECKS
    for name in names
)


@contextmanager
def replaced(instead: Callable[[str, Callable[..., object]], Callable[..., object]]) -> Iterator[None]:
    """Each check has another function in its place inside, made from its name and itself."""
    before = [(module, name, getattr(module, name)) for module, names in CHECKS for name in names]
    for module, name, function in before:
        setattr(module, name, instead(name, function))
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def only(trace: Trace) -> None:
    """What each check takes by itself."""
    taken: dict[str, float] = {}

    def timed(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def timing(*given: object) -> object:
            start = time.perf_counter()
            try:
                return function(*given)
            finally:
                taken[name] = taken.get(name, 0.0) + time.perf_counter() - start

        return timing

    best: dict[str, float] = {}
    with replaced(timed):
        for _ in range(10):
            taken.clear()
            _sizes.cache_clear()
            again = open_trace(trace.location)
            sum(1 for _ in again.recorded_texts(again.draft_name()))
            best = {name: min(seconds, best.get(name, seconds)) for name, seconds in taken.items()}
    parts = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in best.items())
    print(f"opening and reading the packaged trace once, the best of ten: {parts}")


def main() -> None:
    asked = asked_for(__doc__, pairs=20, positions=1_000_000)
    trace = open_trace(packaged_trace())
    only(trace)
    replay = Replay([(DDTree(64), None)])

    def checked() -> None:
        _sizes.cache_clear()  # a long trace has another file in each shard
        for texts in trace.recorded_texts(trace.draft_name(), most_roots=ROOTS_AT_ONCE):
            replay.sums(texts)

    def plain() -> None:
        with replaced(lambda *_: lambda *_: 0):
            checked()

    shards_read = -(-asked.positions // sum(len(text.text) - 1 for text in trace.texts))
    compared({"a shard of ddtree:budget=64": plain, "the same, checked": checked}, shards_read, unit="ms")
    compared({"simlab replay": program("-c", WITHOUT + REPLAY), "checked": program("-c", REPLAY)}, asked.pairs)


if __name__ == "__main__":
    main()
