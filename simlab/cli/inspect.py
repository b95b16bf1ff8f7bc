"""``simlab inspect``: what a trace, a checkpoint, prices, a fitted table, counts, a choice or results hold."""

import argparse
import json

from simlab.cli.options import add_json, add_progress
from simlab.cli.parser import Parser
from simlab.errors import UsageError
from simlab.studies.inspect.inspect import KINDS, inspect
from simlab.studies.inspect.sign import sign
from simlab.traces.artefacts.schemas import SCHEMAS, read_schema

DETAILS = """A trace is read whole and checked whole: every file, every invariant and every id.
For a drafter checkpoint it says what it is, what it reads of its target, whether it will run
(docs/reference/checkpoints.md), and lists settings and tensors; for a cost file the latency of each stage; for
a fitted table (calibration, ranks) and the counts of a 3-gram what they were made from and their
first values; for a choice of `simlab optimize` the verdict and the finalists; for a result file
the summaries. What comes with simlab may be named without its path.

  simlab inspect runs/dev
  simlab inspect z-lab/Qwen3-8B-DFlash-b16
  simlab inspect eagle3-smollm2-135m
  simlab inspect smollm2-135m-calibration
  simlab inspect my-cost.json --sign          after an edit by hand; says what is vouched for
  simlab inspect --schema cost                what a cost file must hold, for other programs"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("path", nargs="?", metavar="PATH", help=f"{KINDS}; or the name of what comes with simlab")
    parser.add_argument(
        "--schema", choices=SCHEMAS, help="print the JSON Schema of a trace's manifest, of cost files or of choices"
    )
    parser.add_argument(
        "--sign",
        action="store_true",
        help="vouch for a file of simlab's that you edited: it is checked, and gets the digest of what it says now",
    )
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Inspect, and print what was found."""
    if options.schema is not None:
        if options.path is not None or options.sign:
            raise UsageError("--schema is of a kind of file, not of one; leave out PATH, or leave out --schema")
        print(json.dumps(read_schema(options.schema), indent=1))
        return 0
    if options.path is None:
        raise UsageError("name what to inspect: simlab inspect PATH; see `simlab inspect --help`")
    inspection = (sign if options.sign else inspect)(options.path, options.progress)
    print(json.dumps(inspection.to_json(), indent=1, allow_nan=False) if options.json else inspection.text())
    return 0
