"""Workers, each watched for time and memory, and replaced after a case that went bad."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from attack_cases import Case, Finding
from attack_judge import BAD, HANG, MEMORY, MOST_BYTES, MOST_SECONDS, TRACEBACK
from attack_run import resident_bytes
from attack_worker import BEGIN, BROKEN, BrokenBaselineError, Worker

_LOOK_EVERY_S = 0.05
_LARGE_BYTES = 1 << 30
_PREPARING_S = 240.0
"""Inputs are copied and damaged, and undamaged ones run, in so many seconds."""

_FORK = multiprocessing.get_context("fork")


@dataclass(slots=True)
class _Watched:
    """A worker's process, and the case that it is at."""

    process: BaseProcess
    connection: Connection
    worker: Worker
    case: Case | None = None
    note: str = ""
    typed: str = ""
    since: float = 0.0
    in_command: bool = False
    is_spoiled: bool = False

    def give(self, case: Case, whole: bool) -> None:
        self.case, self.note, self.typed, self.in_command = case, "", "", False
        self.since = time.monotonic()
        self.connection.send((case.name, whole))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()

    def trouble(self) -> tuple[str, str] | None:
        """A class and why, where the process takes too much of something."""
        if (resident := resident_bytes(self.process.pid or 0)) > MOST_BYTES and self.in_command:
            return MEMORY, f"{resident / (1 << 30):.1f} GB resident after {time.monotonic() - self.since:.1f} s"
        most = MOST_SECONDS if self.in_command else _PREPARING_S
        return (HANG, f"not ended after {most:.0f} s") if time.monotonic() - self.since > most else None

    def is_used_up(self) -> bool:
        """Whether the process should run no other case: a command changed it, or left it large."""
        return self.is_spoiled or resident_bytes(self.process.pid or 0) > _LARGE_BYTES

    def lost(self, outcome: str, why: str) -> Finding:
        """What came of a case whose process is no more."""
        assert self.case is not None
        seconds, peak = time.monotonic() - self.since, resident_bytes(self.process.pid or 0)
        return Finding(
            self.case.name,
            outcome,
            why,
            self.note,
            self.typed,
            seconds,
            peak,
            f"{outcome}: {why if outcome == TRACEBACK else outcome}",
        )


class Watch:
    """Runs cases in several workers.

    Args:
        make: a worker, by its number.
        jobs: how many.
        failed: the folder in which damaged inputs of bad cases are kept.
        most_kept: inputs of one cause that are kept.
    """

    def __init__(self, make: Callable[[int], Worker], jobs: int, failed: Path, most_kept: int = 3) -> None:
        self._make, self._jobs, self._failed, self._most_kept = make, jobs, failed, most_kept
        self._kept: dict[str, int] = {}

    def run(self, cases: Sequence[Case], is_whole: Callable[[Case], bool]) -> Iterator[Finding]:
        """What comes of each case, as it comes.

        Args:
            cases: which.
            is_whole: whether a case is run once more, as a process of its own.
        """
        waiting = iter(cases)
        watched: dict[int, _Watched] = {}
        try:
            for number in range(self._jobs):
                self._next(watched, number, waiting, is_whole)
            while watched:
                wait([one.connection for one in watched.values()], timeout=_LOOK_EVERY_S)
                for number in list(watched):
                    found = self._look(watched[number])
                    if found is None:
                        continue
                    yield found
                    if found.outcome in BAD or watched[number].is_used_up():
                        watched.pop(number).end()
                    self._next(watched, number, waiting, is_whole)
        finally:
            for one in watched.values():
                one.end()

    def _next(
        self, watched: dict[int, _Watched], number: int, waiting: Iterator[Case], is_whole: Callable[[Case], bool]
    ) -> None:
        """Give a worker its next case; without one it is ended."""
        case = next(waiting, None)
        if case is None:
            if number in watched:
                watched.pop(number).end()
            return
        if number not in watched:
            watched[number] = _started(self._make(number))
        watched[number].give(case, is_whole(case))

    def _look(self, watched: _Watched) -> Finding | None:
        """What came of the case of a worker; None: it is still at it."""
        if watched.connection.poll():
            try:
                message = watched.connection.recv()
            except (EOFError, OSError):
                watched.process.join()
                return self._keep(
                    watched, watched.lost(TRACEBACK, f"the process ended, exit code {watched.process.exitcode}")
                )
            if message[0] == BROKEN:
                raise BrokenBaselineError(message[1])
            if message[0] == BEGIN:
                watched.note, watched.typed, watched.in_command, watched.since = (
                    message[1],
                    message[2],
                    True,
                    time.monotonic(),
                )
                return None
            watched.is_spoiled = message[2]
            return self._keep(watched, message[1])
        trouble = watched.trouble()
        return None if trouble is None else self._keep(watched, watched.lost(*trouble))

    def _keep(self, watched: _Watched, found: Finding) -> Finding:
        """Keep the damaged input of a bad case, and what is known of it."""
        cause = f"{found.kind} {found.signature}"
        disagrees = found.whole not in ("", found.outcome)
        if (found.outcome in BAD or found.shared or disagrees) and self._kept.get(cause, 0) < self._most_kept:
            self._kept[cause] = self._kept.get(cause, 0) + 1
            folder = self._failed / found.case.replace(":", "-")
            shutil.rmtree(folder, ignore_errors=True)
            slot = watched.worker.place.slot
            with contextlib.suppress(shutil.Error):  # pipes and files that nobody may read stay where they are
                shutil.copytree(slot / "run", folder, symlinks=True)
            folder.mkdir(exist_ok=True)
            for name in ("stdout", "stderr"):
                if (slot / name).is_file():
                    shutil.copyfile(slot / name, folder / f"case.{name}")
            lines = (found.case, found.outcome, found.why, found.note, found.command)
            (folder / "case.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
        return found


def _started(worker: Worker) -> _Watched:
    ours, theirs = _FORK.Pipe()
    worker.place.slot.mkdir(parents=True, exist_ok=True)
    process = _FORK.Process(target=worker.serve, args=(theirs,))
    process.start()
    theirs.close()
    return _Watched(process, ours, worker)
