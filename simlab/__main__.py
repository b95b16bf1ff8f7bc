"""The process of the command line, as ``simlab`` and as ``python -m simlab``."""

import sys

from simlab.cli.interruption import begin


def main() -> int:
    """Run what was typed, and give back the exit code; Ctrl-C is waited for before anything else is loaded."""
    begin()
    from simlab.cli.main import main as run  # noqa: PLC0415 - what it loads can be interrupted too

    return run()


if __name__ == "__main__":
    sys.exit(main())
