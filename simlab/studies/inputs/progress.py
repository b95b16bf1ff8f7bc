"""Progress of a study, on standard error: a bar where somebody looks, and a line for each step that takes long."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from tqdm import tqdm

from simlab.errors import TraceError, UsageError
from simlab.traces.format.documents import json_fields
from simlab.traces.format.files import write_beside
from simlab.untrusted.json_text import file_bytes, parse_json

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


STEPS = "steps.json"
"""The file that says which steps are done."""


class Steps:
    """Steps that leave something in a folder, each done once; a folder of something else than asked for is refused."""

    def __init__(self, folder: Path, asked: Mapping[str, Any]) -> None:
        self._path, self._asked, self.seconds = folder / STEPS, asked, dict[str, float]()
        folder.mkdir(parents=True, exist_ok=True)
        if not self._path.exists():
            return
        try:
            fields = json_fields(file_bytes(self._path), str(self._path))
            before, seconds = fields.inner("asked").values, fields.inner("seconds")
            self.seconds |= {name: seconds.number(name) for name in seconds.values}
        except (OSError, ValueError, TraceError) as error:
            what = f"{self._path} cannot be read: {error}"
            raise UsageError(f"{what}; give another --out, or remove {folder}") from error
        wanted = parse_json(json.dumps(asked))
        assert isinstance(wanted, dict)
        differing = [key for key in {**wanted, **before} if wanted.get(key) != before.get(key)]
        if differing:
            other = ", ".join(differing)
            raise UsageError(f"{folder} was begun with other {other}; ask for the same, or give another --out")

    def once(self, step: str, title: str, work: Callable[[], object], again: bool = False) -> None:
        """Do a step, unless an earlier run finished it; what it leaves is written before this is noted.

        Args:
            step: its name, by which its seconds are kept.
            title: what is said when it begins.
            work: what it does.
            again: do it even so; its seconds are added to the earlier ones.
        """
        if step in self.seconds and not again:
            return
        announce(title)
        begun = time.perf_counter()
        work()
        self.seconds[step] = round(self.seconds.get(step, 0.0) + time.perf_counter() - begun, 1)
        text = json.dumps({"asked": self._asked, "seconds": self.seconds}, indent=1) + "\n"
        write_beside(self._path, lambda file: file.write(text.encode()))
