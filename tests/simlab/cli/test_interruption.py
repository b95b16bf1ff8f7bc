"""Ctrl-C, sent to real processes wherever it is hard to take: one line, exit code 130, whole files."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from depth import some

AT_ONCE = "import os, signal, sys, time\ndef press(): os.kill(os.getpid(), signal.SIGINT)\n"
RUN = "from simlab.__main__ import main\nsys.exit(main())\n"
LINE = "\nsimlab: interrupted\n"


def run(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process that runs this code and then the command line."""
    command = [sys.executable, "-c", AT_ONCE + textwrap.dedent(code) + RUN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | variables, timeout=100)


def policy_file(folder: Path, body: str) -> str:
    """A user's policy, as a person types it, whose file does something while it is loaded."""
    path = folder / "mine.py"
    path.write_text(AT_ONCE + textwrap.dedent(body) + "class Mine:\n    def select(self): ...\n")
    return f"{path}:Mine"


LOST = {
    "swallowed": """
        try:
            press()
            time.sleep(30)
        except BaseException:
            pass
        time.sleep(30)
        """,
    "swallowed at the end": """
        try:
            press()
            time.sleep(30)
        except BaseException:
            pass
        """,
    "turned into another": """
        try:
            press()
            time.sleep(30)
        except BaseException:
            raise OSError("of a library")
        """,
    "in a destructor": """
        class Destroyed:
            def __del__(self):
                press()
                time.sleep(1)
        Destroyed()
        time.sleep(30)
        """,
    "in compiled code": """
        import numba
        @numba.njit(nogil=True)
        def endless(number):
            while number != 0:
                number += 2
            return number
        import threading
        threading.Timer(5.0, press).start()
        endless(1)
        """,
    "while a thread is waited for": """
        import threading
        threading.Thread(target=time.sleep, args=(30,)).start()
        press()
        time.sleep(30)
        """,
    "twice": """
        try:
            press()
            time.sleep(30)
        finally:
            press()
            time.sleep(30)
        """,
    "in what another language calls": """
        import polars as pl
        def calls(frame):
            press()
            time.sleep(30)
        pl.LazyFrame({"a": [1]}).map_batches(calls).collect()
        """,
    "in a wait that goes on": """
        import threading
        signal.siginterrupt(signal.SIGINT, False)
        threading.Timer(0.5, press).start()
        try:
            os.read(os.pipe()[0], 1)
        finally:
            import pathlib
            pathlib.Path(__file__).with_name("unwound").touch()
        """,
    "when the work is done": """
        import atexit
        atexit.register(lambda: (press(), time.sleep(30)))
        """,
}


@pytest.mark.parametrize("body", some(list(LOST.values()), quick=3))
def test_an_interruption_is_never_lost(body: str, tmp_path: Path) -> None:
    started = time.monotonic()
    done = run("", "policies", policy_file(tmp_path, body))
    assert (done.returncode, done.stderr) == (130, LINE)
    assert time.monotonic() - started < 25
    assert (tmp_path / "unwound").exists() == ("unwound" in body)


@pytest.mark.parametrize("number", some([1, 2, 5, 20, 60, 150, 300, 500, 700], quick=2))
def test_imports_can_be_interrupted(number: int) -> None:
    code = f"""
        class Pressing:
            num = 0
            def find_spec(self, name, path=None, target=None):
                self.num += 1
                if self.num == {number}: press()
        import simlab.__main__
        sys.meta_path.insert(0, Pressing())
    """
    done = run(code, "replay", "-p", "chain", "--limit", "1")
    assert (done.returncode, done.stderr) == (130, LINE)


@pytest.mark.parametrize("seconds", some([2.0, 3.5]))
def test_compilation_can_be_interrupted(seconds: float, tmp_path: Path) -> None:
    code = f"import threading\nthreading.Timer({seconds}, press).start()\n"
    done = run(code, "replay", "-p", "chain", "--limit", "1", SIMLAB_KERNELS=str(tmp_path))
    assert (done.returncode, done.stderr) == (130, LINE)


@pytest.mark.parametrize("body", ["press()\ntime.sleep(30)\n", "exec('press(); time.sleep(30)')\n"])
def test_the_module_can_be_interrupted_too(body: str, tmp_path: Path) -> None:
    mine = policy_file(tmp_path, body)
    command = [sys.executable, "-m", "simlab", "policies", mine]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, LINE)


def test_who_ignores_interruptions_is_left_alone(tmp_path: Path) -> None:
    mine = policy_file(tmp_path, "press()\n")
    done = run("signal.signal(signal.SIGINT, signal.SIG_IGN)\n", "policies", mine)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_that_is_no_interruption_keeps_its_traceback() -> None:
    code = "import simlab.cli.main as m\ndef wrong(*_): raise ValueError('a bug')\nm._run = wrong\n"
    done = run(code, "version")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ValueError: a bug\n")


def test_an_interruption_while_everything_is_loaded_waits(tmp_path: Path) -> None:
    """Pressed at the import of what answers it."""
    pressed = "class Press:\n    def find_spec(self, name, path=None, target=None):\n"
    pressed += "        if name == 'simlab.cli.interruption': press()\nsys.meta_path.insert(0, Press())\n"
    done = run(pressed, "policies")
    assert (done.returncode, done.stderr) == (130, LINE)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_file(closed: str, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    typed = ["export", "--format", "conformance", "-p", "chain", "--limit", "1", "--out", str(out)]
    words = [sys.executable, "-m", "simlab", *typed]
    done = subprocess.run(["bash", "-c", f'"$0" "$@" {closed}', *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_text().startswith("{")
    assert out.read_text().endswith("}\n")
