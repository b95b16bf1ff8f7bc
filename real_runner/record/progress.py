"""What a person sees while a recording runs: a bar over texts, with positions a second and the time left."""

import time
from types import TracebackType
from typing import Protocol

from tqdm import tqdm

_SECONDS_BETWEEN_DRAWINGS = 0.5
_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"


class ProgressReporter(Protocol):
    """What is told while a recording runs."""

    def decoded(self, num_tokens: int) -> None:
        """The target wrote so many tokens."""

    def recorded(self, num_positions: int) -> None:
        """A text of so many positions is recorded."""


class RecordingProgress:
    """A bar on stderr, drawn as texts are finished and tokens decoded; a context manager."""

    def __init__(self, title: str, num_texts: int, num_done: int = 0, token_worth: float = 0.0) -> None:
        """Draw the bar for the first time.

        Args:
            title: stands before the bar.
            num_texts: how many there are.
            num_done: of these, how many were done before.
            token_worth: the share of its text that a decoded token is, before the text is recorded.
        """
        self._bar = tqdm(
            total=num_texts,
            initial=num_done,
            desc=title,
            bar_format=_LAYOUT,
            smoothing=0,
            mininterval=_SECONDS_BETWEEN_DRAWINGS,
        )
        self._started = time.perf_counter()
        self._num_texts, self._num_done, self._token_worth = num_texts, num_done, token_worth
        self._decoded = self._waiting = 0
        self.positions = 0

    def decoded(self, num_tokens: int) -> None:
        """The target wrote so many tokens."""
        self._decoded += num_tokens
        self._waiting += num_tokens
        self._move(f"{self._decoded} tokens decoded")

    def recorded(self, num_positions: int) -> None:
        """A text of so many positions is recorded."""
        self.positions += num_positions
        self._num_done += 1
        self._waiting = max(self._waiting - num_positions, 0)
        self._move(f"{self.positions / max(self.seconds, 1e-9):.0f} positions/s")

    @property
    def done(self) -> float:
        """Texts that are done; one that is decoded but not recorded counts in part."""
        return self._num_done + self._waiting * self._token_worth

    @property
    def seconds(self) -> float:
        """Since the bar began."""
        return time.perf_counter() - self._started

    def _move(self, doing: str) -> None:
        self._bar.set_postfix_str(f"{self._num_done}/{self._num_texts} texts, {doing}", refresh=False)
        self._bar.update(self.done - self._bar.n)

    def __enter__(self) -> "RecordingProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
