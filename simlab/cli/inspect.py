"""``simlab inspect``: what a trace, a checkpoint, prices, a fitted table, counts, a choice or results hold."""

import argparse
import json

from simlab.cli.options import add_json, add_progress
from simlab.cli.parser import Parser
from simlab.studies.inspect.inspect import KINDS, inspect

DETAILS = """A trace is read whole and proved whole: every file, every invariant and every id.
Of a drafter checkpoint it is said what it is, what it reads of its target and whether it will run
(docs/checkpoints.md), and settings and tensors are listed; of a cost file the seconds of each stage, of
a fitted table (calibration, ranks) and of the counts of a 3-gram what they were made from and the
beginning of what they say, of a choice of `simlab optimize` the verdict and the finalists, of a result file
the summaries. A file that comes with simlab may be named without its path.

  simlab inspect runs/dev
  simlab inspect z-lab/Qwen3-8B-DFlash-b16
  simlab inspect smollm2-135m-calibration"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("path", metavar="PATH", help=f"{KINDS}; or the name of a shipped file")
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Inspect, and print what was found."""
    inspection = inspect(options.path, options.progress)
    print(json.dumps(inspection.to_json(), indent=1, allow_nan=False) if options.json else inspection.text())
    return 0
