"""Progress of a study, on standard error: a bar where somebody looks, and a line for each step that takes long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from tqdm import tqdm

PATIENCE_S = 2.0
"""What is done sooner is done in silence."""


def announce(line: str) -> None:
    """Say on standard error what happens now, for the person who waits."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def step(task: str, what: str) -> Iterator[None]:
    """Say what a study is at: on a terminal at once, elsewhere if it takes more than two seconds.

    Args:
        task: the study.
        what: the step, in a word or two.
    """

    def say() -> None:
        sys.stderr.write(f"{task}: {what} ...\n")
        sys.stderr.flush()

    timer = Timer(PATIENCE_S, say)
    timer.daemon = True
    if sys.stderr.isatty():
        say()
    else:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def progress_bar(
    wanted: bool | None, task: str, unit: str, total: int | None = None, unit_scale: bool = False, initial: int = 0
) -> tqdm:
    """Make a bar that shows after two seconds.

    Args:
        wanted: whether it is shown; None: on a terminal.
        task: what is being done.
        unit: what is counted.
        total: how many of it; None: not known.
        unit_scale: whether large numbers are shortened.
        initial: how many were done before.
    """
    shown = sys.stderr.isatty() if wanted is None else wanted
    return tqdm(
        total=total,
        desc=task,
        unit=unit,
        unit_scale=unit_scale,
        initial=initial,
        delay=PATIENCE_S,
        disable=not shown,
    )
