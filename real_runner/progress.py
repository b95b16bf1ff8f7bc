"""What a person sees while a recording runs: a bar over texts, with positions a second."""

import time
from types import TracebackType

from tqdm import tqdm

_SECONDS_BETWEEN_DRAWINGS = 0.5


class Progress:
    """A bar on stderr, drawn as texts are finished and tokens decoded; a context manager."""

    def __init__(self, title: str, num_texts: int, num_done: int = 0) -> None:
        self._bar = tqdm(
            total=num_texts,
            initial=num_done,
            unit="text",
            desc=title,
            smoothing=0,
            mininterval=_SECONDS_BETWEEN_DRAWINGS,
        )
        self._started = self._drawn = time.perf_counter()
        self._decoded = 0
        self.positions = 0

    def decoded(self, num_tokens: int) -> None:
        """The target wrote so many tokens."""
        self._decoded += num_tokens
        self._bar.set_postfix_str(f"{self._speed()}, {self._decoded} tokens decoded", refresh=False)
        if time.perf_counter() - self._drawn > _SECONDS_BETWEEN_DRAWINGS:
            self._drawn = time.perf_counter()
            self._bar.refresh()

    def recorded(self, num_positions: int) -> None:
        """A text of so many positions is recorded."""
        self.positions += num_positions
        self._bar.set_postfix_str(self._speed(), refresh=False)
        self._bar.update(1)

    @property
    def seconds(self) -> float:
        """Since the bar began."""
        return time.perf_counter() - self._started

    def _speed(self) -> str:
        return f"{self.positions / max(self.seconds, 1e-9):.0f} positions/s"

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
