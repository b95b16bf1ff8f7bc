"""One command, in a process of its own: how it is started, what it is allowed, and all that it left."""

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import TypeVar

import polars as pl
from attack_cases import ADDRESS

from simlab.traces.format.files import FAILURES, file_sha256

MOST_BYTES = 2 << 30
MOST_SECONDS = 30.0

_LOOK_EVERY_S = 0.01
_KEPT_DECODED = ".decoded"
"""A folder in that of a trace that a replay may fill at any time; nothing in it is an output."""

Main = Callable[[Sequence[str]], int]
"""The command line, or what stands in its place."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a command runs that meets nothing unusual in its input.

    Attributes:
        starts: words before those of the command's own program.
        changed: environment variables; None: without it.
        is_silent: whether its standard output, or error, is nowhere to be read.
    """

    starts: tuple[str, ...] = ()
    changed: Mapping[str, str | None] = field(default_factory=dict)
    is_silent: bool = False


def _shell(redirected: str) -> Setting:
    return Setting(("bash", "-c", f'"$0" "$@" {redirected}'), is_silent=True)


_WITHOUT_PRIVILEGES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
UNPRIVILEGED = "no privileges"
BROKEN_PIPE = 141

SETTINGS: dict[str, Setting] = {
    "": Setting(),
    "closed output": _shell(">&-"),
    "closed error": _shell("2>&-"),
    "closed input": _shell("<&-"),
    "all closed": _shell("<&- >&- 2>&-"),
    "a full disk behind the output": _shell(">/dev/full"),
    "a reader that has left": _shell("| true; exit ${PIPESTATUS[0]}"),
    "no home": Setting(changed={"HOME": None, "XDG_CACHE_HOME": None, "USER": None}),
    "a home that is a file": Setting(changed={"HOME": "/dev/null", "XDG_CACHE_HOME": None}),
    "a cache that cannot be written": Setting(changed={"SIMLAB_CACHE": "/proc/cache", "XDG_CACHE_HOME": "/proc"}),
    UNPRIVILEGED: Setting(_WITHOUT_PRIVILEGES if os.getuid() == 0 else ()),
}
"""What a command line may be started in. Root reads what nobody may read, unless it has no privileges."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left.

    Attributes:
        code: the exit code; below 0 the signal that ended it.
        out: standard output.
        err: standard error, and what it put into a report of a mistake of its own.
        seconds: that it took.
        peak_bytes: resident memory, at most.
        files: what the files say that it wrote or changed, by their names; "gone" of one that it took away.
    """

    code: int
    out: str
    err: str
    seconds: float = 0.0
    peak_bytes: int = 0
    files: Mapping[str, str] = field(default_factory=dict)


def apart(function: Callable[..., T], *arguments: object) -> T:
    """What a function gives back in a forked process, so that this one starts no threads and can be forked again.

    Raises:
        RuntimeError: it raises there, or the process ends.
    """
    ours, theirs = Pipe(duplex=False)
    if (pid := os.fork()) == 0:
        try:
            theirs.send((True, function(*arguments)))
        except BaseException:  # noqa: BLE001 - raised on the other side
            theirs.send((False, traceback.format_exc()))
        finally:
            os._exit(0)
    theirs.close()
    try:
        is_well, answer = ours.recv()
    except EOFError:
        is_well, answer = False, "the process that prepares a case ended"
    finally:
        os.waitpid(pid, 0)
        ours.close()
    if not is_well:
        raise RuntimeError(answer)
    given: T = answer
    return given


class Held:
    """A process that has the imports behind it and waits for a command; to be made before any thread is started.

    Args:
        main: the command line.
    """

    def __init__(self, main: Main) -> None:
        theirs, self._ours = Pipe(duplex=False)
        self._ended: tuple[int, int] | None = None
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            code = 1
            try:
                words, folder, slot, setting = theirs.recv()
                code = _child(main, words, folder, slot, setting)
            except EOFError:
                code = 0
            finally:
                os._exit(code)
        theirs.close()

    def start(self, words: Sequence[str], folder: Path, slot: Path, setting: str | None = None) -> None:
        """Let it run a command in a folder, with what it says in files of another one.

        Args:
            words: behind the name of the program.
            folder: where it runs.
            slot: where ``stdout``, ``stderr`` and the folder for temporary files are.
            setting: one of `SETTINGS`, for a program that begins with its own imports; None: the process as it is.
        """
        (slot / "scratch").mkdir(parents=True, exist_ok=True)
        self._ours.send((words, folder, slot, setting))

    def end(self, most_seconds: float) -> tuple[int, int]:
        """Its exit code and the most memory that was resident; it is killed when it has taken so long, or too much."""
        until = time.monotonic() + most_seconds
        while self._ended is None:
            pid, status, usage = os.wait4(self._pid, os.WNOHANG)
            if pid:
                self._ours.close()
                self._ended = os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
                break
            if time.monotonic() > until or resident_bytes(self._pid) > MOST_BYTES:
                with contextlib.suppress(ProcessLookupError):  # it has no group of its own before it has begun
                    os.killpg(self._pid, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            time.sleep(_LOOK_EVERY_S)
        return self._ended

    def run(self, words: Sequence[str], folder: Path, setting: str | None = None, address: str = "") -> Ran:
        """Run a command and give back what it left; files beside its folder hold what it says."""
        slot, before, begun = folder.parent, _digests(folder), time.monotonic()
        self.start([word.replace(ADDRESS, address) for word in words], folder, slot, setting)
        code, peak = self.end(MOST_SECONDS)
        seconds, after = time.monotonic() - begun, _digests(folder)
        texts = [(slot / name).read_bytes().decode("utf-8", "replace") for name in ("stdout", "stderr")]
        out, err = (text.replace(address, ADDRESS) if address else text for text in texts)
        err += "".join(path.read_text(errors="replace") for path in sorted(slot.glob("scratch/simlab-bug-*.txt")))
        names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        files = {name: _said_in(folder / name) if name in after else "gone" for name in names}
        return Ran(code, out, err, seconds, peak, files if code >= 0 else {})


def _child(main: Main, words: Sequence[str], folder: Path, slot: Path, setting: str | None) -> int:
    """What the process does with a command; the exit code that a program would end with."""
    os.setsid()
    os.chdir(folder)
    tempfile.tempdir = os.environ["TMPDIR"] = str(slot / "scratch")
    writes = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, path in enumerate((Path("/dev/null"), slot / "stdout", slot / "stderr")):
        opened = os.open(path, writes if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    if setting is not None:
        somewhere = SETTINGS[setting]
        environment = {name: text for name, text in (os.environ | somewhere.changed).items() if text is not None}
        typed = [*somewhere.starts, sys.executable, "-m", "simlab", *words]
        os.execvpe(typed[0], typed, environment)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115 - to the end
    code = 1
    try:
        code = main(words)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            code = end.code or 0
        else:
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the interpreter, whose place this takes, catches everything
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    return code & 0xFF


def resident_bytes(pid: int) -> int:
    """Resident memory of a process now; 0 where it has ended, or the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _digests(folder: Path) -> dict[str, str]:
    """What tells the bytes of each regular file in a folder from others, by their names."""
    digests = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and not path.is_symlink() and _KEPT_DECODED not in name.parts:
            with contextlib.suppress(PermissionError):
                digests[name.as_posix()] = file_sha256(path)
    return digests


def _said_in(path: Path) -> str:
    """What a file says, in a form that is the same for the same figures."""
    if path.suffix != ".parquet":
        return canonical(path.read_bytes().decode("utf-8", "replace"))
    try:
        rows = pl.read_parquet(path, glob=False)
    except FAILURES as error:
        return f"cannot be read: {type(error).__name__}"
    return "\n".join(f"{name} {rows.schema[name]} {rows[name].to_list()}" for name in rows.columns)


def canonical(text: str) -> str:
    """A text, as JSON in one form if it is JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, indent=1)
    except ValueError:
        return text
