"""The process of the command line, as ``simlab`` and as ``python -m simlab``."""

import os
import signal
import sys


def main() -> int:
    """Run what was typed, and give back the exit code; Ctrl-C is waited for before anything else is loaded."""
    # An interruption while this is loaded comes when there is somebody to say it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    _fill_closed_streams()
    from simlab.cli.interruption import begin  # noqa: PLC0415 - as above

    begin()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    from simlab.cli.main import main as run  # noqa: PLC0415 - what it loads can be interrupted too

    return run()


def _fill_closed_streams() -> None:
    """Put nothing in the place of streams that are closed, so that no file is opened there, and written into."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        if number > 0:
            stream = open(number, "w", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, ("stdin", "stdout", "stderr")[number], stream)
    os.close(number)


if __name__ == "__main__":
    sys.exit(main())
