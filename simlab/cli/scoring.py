"""``simlab scoring``: do edge models say the truth, do orders of nodes find it, and what does that bring?"""

import argparse
import json
from pathlib import Path

from simlab.cli.options import (
    add_by,
    add_cost,
    add_json,
    add_limit,
    add_policies,
    add_progress,
    add_ray,
    add_trace,
    check_file_to_write,
)
from simlab.cli.parser import Parser, positive
from simlab.studies.scoring import scoring

DETAILS = """Are the drafter's probabilities calibrated along tree paths? Four questions at every root of a recorded
trace, each with 95 % intervals over prompts: is a candidate right as often as an edge model says (calibration, by
depth and rank, on the greedy path and off it); how far down a policy's order of nodes lies the true path; what share
of the gap from the chain to the oracle upper bound does a policy close; and what are its nodes spent on.
docs/explanation/findings.md defines every figure, and says what was found on the packaged trace.
Each edge model and each order of nodes is scored once, whatever the budgets of the policies that have it.
Without -p these are the drafter's marginals, calibrated, corrected by a 3-gram, the same renormalised, and one fixed
tree, as far as tables for the models come with simlab. --out keeps all reliability curves; --json has those of
all candidates and of first ones.

  simlab scoring
  simlab scoring --trace runs/mine -p ddtree:budget=16/64 -p presto:ngram_weight=0.1/0.2/0.4,budget=64
  simlab scoring --by dataset --json --out reliability.parquet"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_trace(parser)
    add_policies(parser)
    add_cost(parser)
    parser.add_argument(
        "--nodes",
        type=positive,
        metavar="N",
        help="how many nodes of an order are examined (default: 512, or as many as the trace is exact for)",
    )
    add_by(parser, ("dataset",), "tables for each dataset, and those of all")
    add_limit(parser)
    add_ray(parser)
    add_json(parser)
    add_progress(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write a Parquet: a row for each bin of each reliability curve"
    )


def run(options: argparse.Namespace) -> int:
    """Score, and print the tables."""
    check_file_to_write("--out", options.out, "reliability.parquet")
    table = scoring(
        options.trace,
        options.policy,
        cost=options.cost,
        draft=options.draft,
        nodes=options.nodes,
        by_dataset=options.by is not None,
        limit=options.limit,
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
        print(f"\nReliability curves: {options.out}")
    return 0
