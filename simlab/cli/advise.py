"""``simlab advise``: go or no-go, on one page."""

import argparse
import json

from simlab.cli.options import add_costs, add_json, add_limit, add_policies, add_progress, add_trace, batch_sizes
from simlab.cli.parser import Parser
from simlab.studies.engines.advise import TREES, advise

DETAILS = """One page for an engineer: at each batch size and these prices, plain decoding, which chain or which tree;
with intervals, the break-even batch size, and what would have to change for a tree to pay.
Prices of a batch size come from its own cost file, where one is given (`simlab profile --batch N`, `simlab import-cost
--batch N`); others are worked out from that of one text, and marked as a what-if.
-p names the trees (default ddtree at five budgets); every chain and plain decoding are always there. Chain and tree
are chosen on the same prompts unless --choose-on names another trace.

  simlab advise
  simlab advise --trace runs/mine --cost runs/cost1.json --cost runs/cost8.json --batches 1,8 -p presto:budget=8/16/32
  simlab advise --trace runs/test --choose-on runs/dev --json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_trace(parser)
    add_costs(parser, "latency profile of one batch size; may be repeated (default: the packaged one of the trace)")
    parser.add_argument(
        "--batches",
        type=batch_sizes,
        metavar="N,N,...",
        help="batch sizes (default 1,2,4,8,16,32,64)",
    )
    add_policies(parser, "trees, see `simlab policies`; may be repeated (default ddtree:budget=4/8/16/32/64)")
    parser.add_argument(
        "--choose-on", metavar="DIR", help="a trace of the same models, on which chain and tree are chosen"
    )
    add_limit(parser)
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Work it out, and print the page."""
    found = advise(
        options.trace,
        costs=options.cost,
        batches=options.batches,
        policies=options.policy or TREES,
        choose_on=options.choose_on,
        draft=options.draft,
        limit=options.limit,
        progress=options.progress,
    )
    print(json.dumps(found.to_json(), indent=1, allow_nan=False) if options.json else found.text())
    return 0
