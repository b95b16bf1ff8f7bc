"""One command, run in this process or in one of its own, and all that it left."""

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

import polars as pl
from attack_cases import BEFORE, OUT, Command
from attack_judge import MOST_BYTES, MOST_SECONDS, PERSON_CAN_FIX, Ran, canonical, left_in

from simlab.traces.format.files import FAILURES, file_sha256

ADDRESS = "ADDRESS"
"""Stands for the server of a case in the words of its command."""

Main = Callable[[Sequence[str]], int]
"""The command line, or what stands in its place."""

_A_MOMENT_S = 0.02
_CLEAR_PEAK = "5"


def words_of(command: Command, address: str) -> list[str]:
    """What is typed, with the address of the server in it."""
    return [word.replace(ADDRESS, address) for word in command.words]


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

SETTINGS: dict[str, Setting] = {
    "closed output": _shell(">&-"),
    "closed error": _shell("2>&-"),
    "closed input": _shell("<&-"),
    "all closed": _shell("<&- >&- 2>&-"),
    "a full disk behind the output": _shell(">/dev/full"),
    "a reader that has left": _shell("| true; exit ${PIPESTATUS[0]}"),
    "no home": Setting(changed={"HOME": None, "XDG_CACHE_HOME": None, "USER": None}),
    "a home that is a file": Setting(changed={"HOME": "/dev/null", "XDG_CACHE_HOME": None}),
    "a cache that cannot be written": Setting(changed={"SIMLAB_CACHE": "/proc/cache", "XDG_CACHE_HOME": "/proc"}),
    "no privileges": Setting(_WITHOUT_PRIVILEGES if os.getuid() == 0 else ()),
}
"""What a command line may be started in. Root reads what nobody may read, unless it has no privileges."""


def scratch(folder: Path) -> Path:
    """The folder for temporary files of a command that runs in a folder, beside it."""
    return folder.parent / "scratch"


def prepare_outs(folder: Path, command: Command) -> dict[str, str]:
    """Make the folder of outputs, with what stood there before where the command writes over it.

    Returns:
        Digests of the files elsewhere that it is to write, by their names.
    """
    (folder / OUT).mkdir(exist_ok=True)
    shutil.rmtree(scratch(folder), ignore_errors=True)
    scratch(folder).mkdir()
    for name in command.outs if command.overwrites else ():
        (folder / name).write_bytes(BEFORE)
    return {name: digest_of(folder / name) for name in command.outs if not name.startswith(OUT)}


def run_here(main: Main, command: Command, folder: Path, address: str = "") -> Ran:
    """Run a command in this process, in a folder, as a process of its own would run it."""
    before = prepare_outs(folder, command)
    words = words_of(command, address)
    modules = set(sys.modules)
    clear_caches()
    tempfile.tempdir = str(scratch(folder))
    with _captured(folder) as said, contextlib.chdir(folder):
        _clear_peak()
        begun = time.monotonic()
        code = _code_of(main, words)
        seconds = time.monotonic() - begun
        peak = peak_bytes(os.getpid())
    for name in set(sys.modules) - modules:
        if name.startswith("simlab_user"):
            del sys.modules[name]
    return _ran(code, folder, command, before, said, seconds, peak, address)


def _code_of(main: Main, words: Sequence[str]) -> int:
    """The exit code that a process would end with."""
    try:
        return main(words)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - the interpreter, whose place this takes, catches everything
        traceback.print_exc()
        return 1


def run_whole(command: Command, folder: Path, address: str = "", starts: Sequence[str] = ()) -> Ran:
    """Run a command as a process of its own, which is ended where it takes too long or too much."""
    before = prepare_outs(folder, command)
    said = (folder.parent / "stdout", folder.parent / "stderr")
    begun, peak = time.monotonic(), 0
    setting = SETTINGS[command.setting] if command.setting else Setting()
    changed = {"TMPDIR": str(scratch(folder)), **setting.changed}
    with said[0].open("wb") as out, said[1].open("wb") as err:
        process = subprocess.Popen(
            [*setting.starts, *(starts or (sys.executable, "-m", "simlab")), *words_of(command, address)],
            cwd=folder,
            env={name: text for name, text in (os.environ | changed).items() if text is not None},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            if peak > MOST_BYTES or time.monotonic() - begun > MOST_SECONDS:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            time.sleep(_A_MOMENT_S)
    ran = _ran(process.returncode, folder, command, before, said, time.monotonic() - begun, peak, address)
    if not setting.is_silent:
        return ran
    # What was said is lost; that a refusal is one sentence is seen where somebody can read it.
    said_so = "simlab: not to be read\n" if ran.code == PERSON_CAN_FIX and not ran.err.strip() else ran.err
    return replace(ran, err=said_so, figures={name: text for name, text in ran.figures.items() if name != "stdout"})


def _ran(
    code: int,
    folder: Path,
    command: Command,
    before: Mapping[str, str],
    said: tuple[Path, Path],
    seconds: float,
    peak: int,
    address: str,
) -> Ran:
    out, err = (path.read_bytes().decode("utf-8", "replace") for path in said)
    out, err = (text.replace(address, ADDRESS) if address else text for text in (out, err))
    err += "".join(path.read_text(errors="replace") for path in sorted(scratch(folder).glob("simlab-bug-*.txt")))
    figures = {"stdout": canonical(out), **figures_of(folder, command)} if code >= 0 else {}
    left = left_in(folder) | {name: "changed" for name, digest in before.items() if digest != digest_of(folder / name)}
    return Ran(code, out, err, seconds, peak, figures, left)


def digest_of(path: Path) -> str:
    """What tells the bytes of a file, or of a folder's files, from others; empty where there is none."""
    if path.is_dir():
        return " ".join(f"{one.name} {file_sha256(one)}" for one in sorted(path.rglob("*")) if one.is_file())
    return file_sha256(path) if path.is_file() else ""


def figures_of(folder: Path, command: Command) -> dict[str, str]:
    """What the files say that a command wrote."""
    others = [folder / name for name in command.outs if not name.startswith(OUT) and (folder / name).is_file()]
    paths = [*sorted(path for path in (folder / OUT).rglob("*") if path.is_file()), *others]
    return {path.relative_to(folder).as_posix(): _said_in(path) for path in paths}


def _said_in(path: Path) -> str:
    if path.suffix != ".parquet":
        return canonical(path.read_bytes().decode("utf-8", "replace"))
    try:
        rows = pl.read_parquet(path, glob=False)
    except FAILURES as error:
        return f"cannot be read: {type(error).__name__}"
    return "\n".join(f"{name} {rows.schema[name]} {rows[name].to_list()}" for name in rows.columns)


@contextlib.contextmanager
def _captured(folder: Path) -> Iterator[tuple[Path, Path]]:
    """What is written to standard output and standard error, by compiled code too, goes to files."""
    paths = (folder.parent / "stdout", folder.parent / "stderr")
    kept = os.dup(1), os.dup(2)
    try:
        for number, path in zip((1, 2), paths, strict=True):
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(made, number)
            os.close(made)
        yield paths
    finally:
        for stream, number, before in zip((sys.stdout, sys.stderr), (1, 2), kept, strict=True):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
            os.dup2(before, number)
            os.close(before)


State = tuple[TextIO, TextIO, int]


def own_streams() -> State:
    """Give this process streams of its own, whatever stood in their place; returns what commands must leave alone."""
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    return sys.stdout, sys.stderr, sys.getrecursionlimit()


def is_spoiled(first: State) -> bool:
    """Whether a command has changed this process, so that it is no place for another one."""
    return (sys.stdout, sys.stderr, sys.getrecursionlimit()) != first or first[0].closed or first[1].closed


def clear_caches() -> None:
    """Empty what functions of the product remember, so that each command begins as a new process does."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "simlab":
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def _clear_peak() -> None:
    """Begin anew to count resident memory, where the system lets a process do so."""
    gc.collect(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def peak_bytes(pid: int) -> int:
    """Resident memory of a process, at most; 0 where it has ended, or the system does not say."""
    return _status(pid).get("VmHWM", 0)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process now; 0 where it has ended, or the system does not say."""
    return _status(pid).get("VmRSS", 0)


def _status(pid: int) -> Mapping[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    sizes = (line.split() for line in lines if line.startswith("Vm"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in sizes}
