"""``simlab sparse``: what a log of one policy's rounds would have predicted for the others."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_cost, add_json, add_limit, add_policies, add_progress, add_trace
from simlab.cli.parser import Parser
from simlab.studies.sparse import POLICIES, RECORDED, sparse

DETAILS = """A server that logs its drafter's proposals logs them only where its own rounds began. This command takes
a dense trace, keeps of it only the roots at which rounds of one policy begin (--recorded), predicts the other policies
from these alone, and compares that with the prediction of the whole trace, and with a measurement of `simlab confirm`.
There are two estimates: the mean over the recorded rows, and a walk that reads the nearest of them. For the
recorded policy itself both are exact. docs/explanation/findings.md says what was found.

  simlab sparse
  simlab sparse --trace runs/mine --recorded chain --recorded ddtree:budget=64 -p ddtree:budget=8/16/32
  simlab sparse --measured runs/confirm --cost cost.json --json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_trace(parser)
    parser.add_argument(
        "--recorded",
        action="append",
        default=[],
        metavar="POLICY",
        help=f"whose rounds were logged; may be repeated (default: {' '.join(RECORDED)})",
    )
    add_policies(parser, f"what is predicted; may be repeated (default: {' '.join(POLICIES)})")
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="DIR",
        help="a folder of `simlab confirm`, or its result file; without --trace, the trace in it",
    )
    add_cost(parser)
    parser.add_argument(
        "--what-if",
        metavar="CHANGES",
        help='a hypothetical profile in its place, as with `simlab replay --what-if`: "verify*0.5,tile=64"',
    )
    add_limit(parser)
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Predict from logs, and print the tables."""
    table = sparse(
        options.trace,
        options.policy,
        recorded=options.recorded,
        measured=options.measured,
        cost=options.cost,
        what_if=options.what_if,
        draft=options.draft,
        limit=options.limit,
        progress=options.progress,
    )
    print(json.dumps(table.to_json(), indent=1, allow_nan=False) if options.json else table.text())
    return 0
