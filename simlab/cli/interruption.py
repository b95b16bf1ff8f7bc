"""Ctrl-C: wherever it comes, the process says so in one line and ends with exit code 130. Read `begin` first.

An interruption unwinds the command as any exception does, so that files are closed and other processes ended. That
fails where an exception is lost (in a destructor, in a callback of compiled code) and where none can be raised (while
compiled code runs, while threads are waited for). There the process is ended at once, or after `PATIENCE_S` seconds.
What libraries say of an exception that they did not expect (panics, warnings of half-made objects) is not shown. Every
file is written beside its place and renamed, so what is ended so leaves whole files too.
"""

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import NoReturn

from simlab.untrusted.visible import visible

INTERRUPTED = 130
"""The exit code, as shells have it: 128 and the number of the signal."""

PATIENCE_S = 2.0
"""Seconds that a command has to unwind; a second Ctrl-C takes the rest of them."""

_A_MOMENT_S = 0.1

_kept: list[str] = []
_shown = [2]
"""The file descriptor of standard error, also when no one else is heard any more."""

_has_come = threading.Event()
_is_said = threading.Event()
_speaker = threading.RLock()


def begin() -> None:
    """From here on Ctrl-C ends this process in one line, wherever it is.

    Where SIGINT is ignored, as behind ``nohup``, or another program's business, nothing is changed.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook, sys.unraisablehook = _uncaught, _unraisable
    # What is registered first is called last: behind it the interpreter takes its modules apart, these among them.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()


def set_resume_hint(sentence: str) -> None:
    """Say what an interrupted command leaves and how to go on; it is printed if there is an interruption.

    Args:
        sentence: without capital and full stop; empty: nothing is left.
    """
    _kept[:] = [sentence] if sentence else []


def has_come() -> bool:
    """Whether Ctrl-C was pressed in this process; whatever is raised afterwards, that is the cause."""
    return _has_come.is_set()


def interrupted() -> int:
    """Print the line, and give back the exit code."""
    if has_come():
        _say_once()
    else:
        print(_line(), file=sys.stderr)
    return INTERRUPTED


def leave() -> NoReturn:
    """End an interrupted process that has unwound, without waiting for its threads.

    Not by returning to the interpreter: it remembers an interruption of code that was made while it ran (``exec``,
    which named tuples and data classes are made with), and would die of the signal.
    """
    _say_once()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(INTERRUPTED)


def _line() -> str:
    # It begins a new line: a terminal shows ^C, and a progress bar has no end of line.
    return visible("; ".join(["\nsimlab: interrupted", *_kept]))


def _say_once() -> None:
    with _speaker:
        if not _is_said.is_set():
            _is_said.set()
            os.write(_shown[0], f"{_line()}\n".encode())


def _end() -> NoReturn:
    """End the process here and now, from whatever thread."""
    _say_once()
    os._exit(INTERRUPTED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Raise, but once: what unwinds is not disturbed again, it is ended by `_watch`."""
    if not has_come():
        _has_come.set()
        _hush()
        raise KeyboardInterrupt


def _hush() -> None:
    """Keep standard error for the last line; polars, for one, writes a long report of its own."""
    with contextlib.suppress(OSError):
        _shown[0] = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _watch(signals: int) -> None:
    """Wait for Ctrl-C, and end a process that has not ended by itself soon after, or when it comes again."""
    while os.read(signals, 1) != bytes([signal.SIGINT]):
        pass
    if not _has_come.wait(_A_MOMENT_S):
        # The main thread, which must raise, computes, or it waits for the system and was not woken: another thread was
        # given the signal, or a library (polars) has put its own handler in between, under which a wait goes on.
        signal.siginterrupt(signal.SIGINT, True)
        signal.pthread_kill(_main_thread(), signal.SIGINT)
        os.read(signals, 1)
    select.select([signals], [], [], PATIENCE_S)
    _end()


def _main_thread() -> int:
    number = threading.main_thread().ident
    assert number is not None
    return number


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if has_come():
        _end()
    sys.__excepthook__(kind, error, trace)


def _unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """An interruption that is lost where it came, as in a destructor."""
    if has_come() and lost.exc_type is KeyboardInterrupt:
        _end()
    sys.__unraisablehook__(lost)
