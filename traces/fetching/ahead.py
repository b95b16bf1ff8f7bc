"""What comes next is fetched while something is worked on: a few at a time, and not far ahead."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

THREADS = 4
"""So many files are fetched at a time."""

ITEMS_AHEAD = 2
"""So many items, such as shards, are fetched before they are wanted."""

T = TypeVar("T")
Fetch = Callable[[], object]


def fetched_ahead(items: Sequence[T], fetches: Callable[[T], Sequence[Fetch]]) -> Iterator[T]:
    """Each item once its files are there, while those of the next are fetched.

    What a fetch gives back is kept until the item behind is asked for, so that a held file stays in the cache.

    Args:
        items: in the order in which they are wanted.
        fetches: from an item to what fetches its files; a failure of these is raised when the item's turn comes.
    """
    waiting: deque[list[Future[object]]] = deque()
    fetchers = _Fetchers()
    try:
        for place, item in enumerate(items):
            for one in items[place + len(waiting) : place + 1 + ITEMS_AHEAD]:
                waiting.append([fetchers.submit(fetch) for fetch in fetches(one)])
            there = [future.result() for future in waiting[0]]
            yield item
            waiting.popleft()
            del there
    finally:
        fetchers.stop()


class _Fetchers:
    """Threads that fetch, and that nobody waits for: a program that ends leaves them behind, and what came is kept."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[object], Fetch] | None] = SimpleQueue()
        self._num = 0

    def submit(self, fetch: Fetch) -> Future[object]:
        """Have something fetched by a thread that is free."""
        if self._num < THREADS:
            self._num += 1
            threading.Thread(target=self._work, name="simlab-fetch", daemon=True).start()
        future: Future[object] = Future()
        self._asked.put((future, fetch))
        return future

    def stop(self) -> None:
        """Begin nothing more, and end the threads."""
        while not self._asked.empty():
            self._asked.get()
        for _ in range(self._num):
            self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, fetch = asked
            try:
                future.set_result(fetch())
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)
            del asked, future, fetch
