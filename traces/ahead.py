"""Work done ahead in threads: a few pieces at once, results in order, memory bounded by the pieces' weights."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from simlab.workers.threads import num_cores

Work = TypeVar("Work")
Value = TypeVar("Value")

_MOST_THREADS = 4
"""More do not read faster than one replay takes in, and hold more in memory."""


def work_ahead(pieces: Iterable[tuple[Work, int]], work: Callable[[Work], Value], most_weight: int) -> Generator[Value]:
    """What work makes of each piece, in their order, while whoever takes it is still at the one before.

    Args:
        pieces: each with its weight. A single piece is worked on when it is asked for, without a thread.
        work: called in threads, for pieces that may never be asked for. What it raises is raised where its value
            would stand.
        most_weight: of the pieces that were begun and not yet taken, together, but for one that is heavier alone.
    """
    left = iter(pieces)
    first = list(islice(left, 2))
    if len(first) < 2:
        yield from (work(piece) for piece, _ in first)
        return
    threads = min(num_cores(), _MOST_THREADS)
    begun: deque[tuple[Future[Value], int]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for piece, weight in chain(first, left):
            while begun and (len(begun) > threads or weight + sum(one for _, one in begun) > most_weight):
                yield begun.popleft()[0].result()
            begun.append((pool.submit(work, piece), weight))
        while begun:
            yield begun.popleft()[0].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
