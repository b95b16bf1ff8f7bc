"""``simlab curves``: expected tokens per second by the size of the tree, and what rules lose that stop on the way."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import (
    add_by,
    add_costs,
    add_json,
    add_limit,
    add_progress,
    add_ray,
    add_threads,
    add_trace,
    check_file_to_write,
)
from simlab.cli.parser import Parser, positive
from simlab.studies.curves import CALIBRATED, RAW, curves

DETAILS = """At each root the curve of (1 + summed path probabilities) / seconds over the number of drafted tokens,
0 to --budget: is it unimodal, or how many local maxima has it? Where does early stopping end (caddtree: at the first
size that brings no more)? What does that lose against the best of all sizes, against the best fixed budget, and
against one exchange rate of tokens for seconds in all rounds? docs/explanation/unimodality.md says what was found on
the packaged trace. With several --cost a policy that reads a latency profile reads the first.
Without --trace it takes the small packaged trace, without --cost the packaged latency profile; the latency is that of
a whole round: draft, select, verify and commit.
Prices are noisy, and noise makes maxima: it says how many survive prices from samples drawn again and from each half of
the samples, and how many samples would tell more. Intervals contain the noise of the prices.
The curves are of the drafter's own probabilities (raw), and of calibrated ones where there is a table.

  simlab curves
  simlab curves --trace runs/mine --cost a.json --cost b.json --by dataset --out curves.parquet
  simlab curves -p caddtree --edges calibrated --calibration runs/calibration.json --json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_trace(parser)
    add_costs(parser, "latency profile: a file of `simlab profile`, or the name of a packaged one; may be repeated")
    parser.add_argument(
        "--budget",
        type=positive,
        metavar="N",
        help="the largest tree (default: as far as trace and profile reach)",
    )
    parser.add_argument(
        "--edges",
        action="append",
        default=[],
        choices=(RAW, CALIBRATED),
        help="which probabilities; may be repeated (default: both)",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="a table of `simlab train calibration` (default: the packaged one)",
    )
    parser.add_argument(
        "-p", "--policy", metavar="POLICY", help="only where rounds of this policy start (default: at every root)"
    )
    add_by(parser)
    add_limit(parser)
    add_threads(parser)
    add_ray(parser)
    add_json(parser)
    add_progress(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a Parquet: a row for each rule at each root")


def run(options: argparse.Namespace) -> int:
    """Look at the curves, and print the tables."""
    check_file_to_write("--out", options.out, "curves.parquet")
    table = curves(
        options.trace,
        cost=options.cost,
        draft=options.draft,
        budget=options.budget,
        edges=options.edges,
        calibration=options.calibration,
        policy=options.policy,
        by=options.by,
        limit=options.limit,
        threads=options.threads,
        ray=options.ray,
        workers=options.workers,
        progress=options.progress,
    )
    if options.out is not None:
        table.write(options.out)
    if options.json:
        print(json.dumps(table.to_json(), indent=1, allow_nan=False))
        return 0
    print(table.text())
    if options.out is not None:
        print(f"Rows: {options.out}")
    return 0
