"""The process of the command line, as ``simlab`` and as ``python -m simlab``."""

import os
import signal
import sys

# What comes of Ctrl-C while this is loaded waits until somebody can say it.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
from simlab.cli.interruption import begin  # noqa: E402


def main() -> int:
    """Run what was typed, and give back the exit code; Ctrl-C is waited for before anything else is loaded."""
    _fill_closed_streams()
    begin()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    from simlab.cli.main import main as run  # noqa: PLC0415 - what it loads can be interrupted too

    return run()


def _fill_closed_streams() -> None:
    """Put nothing in the place of streams that are closed, so that no file is opened there, and written into."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        if number == 1:
            sys.stdout = open(number, "w", closefd=False)  # noqa: SIM115
        elif number == 2:
            sys.stderr = open(number, "w", closefd=False)  # noqa: SIM115
    os.close(number)


if __name__ == "__main__":
    sys.exit(main())
