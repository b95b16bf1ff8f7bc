"""``simlab advise``: whether to draft, and chains or trees, at each batch size."""

import argparse
import json

from simlab.cli.options import (
    add_costs,
    add_json,
    add_limit,
    add_policies,
    add_progress,
    add_threads,
    add_trace,
    batch_sizes,
)
from simlab.cli.parser import Parser
from simlab.studies.engines.advise import BATCHES, advise

DETAILS = """At each batch size: the fastest chain and the fastest tree, each over plain decoding with its 95 % interval
over prompts, and whether the tree is a winner, a loser, or neither; the batch size from which each stops paying; and
what a drafted token may cost, or how many tokens a round must commit, for the tree to pay.
Give a cost file of each batch size: `simlab profile --batch N` measures one, `simlab import-cost --batch N` makes one
of an engine's table. Batch sizes without a file are modelled from that of one text, and marked.
Settings are chosen on the trace that is judged, unless --choose-on names another.

  simlab advise --batch 1,2,4,8
  simlab advise --trace runs/mine --choose-on runs/dev --cost one.json --cost eight.json --batch 1,8
  simlab advise -p chain:length=1..7 -p ddtree:budget=8/16/32 --json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_trace(parser)
    parser.add_argument("--choose-on", metavar="DIR", help="a trace of other prompts that settings are chosen on")
    add_policies(parser, "candidates (default: chains of every length, and ddtree of several sizes); may be repeated")
    add_costs(parser, "latency profile of one batch size; may be repeated")
    parser.add_argument(
        "--batch",
        type=batch_sizes,
        default=BATCHES,
        metavar="N,N,...",
        help=f"texts at a time (default: {','.join(map(str, BATCHES))})",
    )
    add_limit(parser)
    add_threads(parser)
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Advise, and print the page."""
    found = advise(
        options.trace,
        options.policy,
        cost=options.cost,
        batches=options.batch,
        choose_on=options.choose_on,
        draft=options.draft,
        limit=options.limit,
        threads=options.threads,
        progress=options.progress,
    )
    print(json.dumps(found.to_json(), indent=1, allow_nan=False) if options.json else found.text())
    return 0
