"""The command line as ``python -m simlab``."""

import sys

from simlab.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
