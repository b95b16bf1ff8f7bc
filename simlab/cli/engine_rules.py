"""``simlab engine-rules``: what the rules of vLLM and SGLang admit to verification, and what that is worth."""

import argparse
import json

from simlab.cli.options import add_cost, add_json, add_limit, add_progress, add_trace
from simlab.cli.parser import Parser, positive
from simlab.studies.engines.rules import BATCHES, engine_rules

DETAILS = """vLLM's adaptive verification and SGLang's DSpark planner cut the chains of all requests where tokens of the
whole pass bring the most per second. Both are replayed as their released code has them (`simlab policies` says what
differs), at each --batch: how fast is each, what is missing to a schedule that knows what the target accepts, and to
trees under joint-throughput? What do stale confidences cost? Is what vLLM learns calibrated, position by position, and
what does it miss since it hears of no token that it cut itself?
Without --trace it takes the small packaged trace, without --cost the packaged latency profile; for more texts at a time
than the profile is of, latencies are hypothetical, as --what-if batch=N of `simlab replay` reckons them.

  simlab engine-rules
  simlab engine-rules --trace runs/mine --cost runs/cost.json --batch 1 --batch 8 --json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_trace(parser)
    add_cost(parser)
    parser.add_argument(
        "--batch",
        type=positive,
        action="append",
        metavar="N",
        help=f"texts at a time; may be repeated (default: {', '.join(map(str, BATCHES))})",
    )
    add_limit(parser)
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Replay the rules, and print the tables."""
    table = engine_rules(
        options.trace,
        batches=options.batch or BATCHES,
        cost=options.cost,
        draft=options.draft,
        limit=options.limit,
        progress=options.progress,
    )
    print(json.dumps(table.to_json(), indent=1, allow_nan=False) if options.json else table.text())
    return 0
