"""``simlab reproduce``: a published figure, theirs, ours, and what would have to be equal."""

import argparse
import json

from simlab.cli.options import add_cost, add_json, add_limit, add_policies, add_progress
from simlab.cli.parser import Parser
from simlab.errors import UsageError
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.reproduce import reproduce

DETAILS = """Without a name it lists what is known and whether it can be run here.

With what comes with simlab, or with traces of your own:
  ddtreepp-rounds  4,392 GPU rounds that others released, through the statistics of this project
  averaging        the pooled mean and the macro average, on the packaged trace and each --trace
  zlab-166         a printed acceptance length; needs a trace of its models
  ddtree-gsm8k     a tree's gain over the chain, its budget chosen on dev prompts; needs two traces and a cost file

With files that others released. They are fetched from the repository at one commit, checked and kept; --data takes a
clone instead. Their figures are read from their own files, which are named with their digests:
  domino-rounds    which mean a published table has, and which of its comparisons remain with intervals over prompts
  domino-gsm8k     Qwen3-8B on GSM8K by another group: which published figures are near
  domino-caddtree  whether costs changed what was drafted
  domino-lossless  where texts diverge from autoregressive decoding's, and what cannot be told
  specdecode-bench chains of a fixed length, the oracle and an adaptive rule, at batch sizes
  adixg-cost       what a pass costs by context on an H100, and what a wrong price costs
  eliran-online    unary and pairwise trees of equal budgets; its files were not at hand, so not yet run by us

With a trace, each setting that must be equal is compared with its manifest, and what differs is named; the figures are
printed all the same. docs/how_to/reproduce.md says more.

  simlab reproduce
  simlab reproduce ddtreepp-rounds
  simlab reproduce domino-rounds
  simlab reproduce domino-rounds --data Domino-Tree
  simlab reproduce averaging --trace runs/mine --trace runs/other
  simlab reproduce zlab-166 --trace runs/zlab-166"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="one of the list; without it, the list")
    parser.add_argument("--list", action="store_true", help="the list")
    parser.add_argument(
        "--trace", metavar="DIR", action="append", default=[], help="a recorded trace; may be repeated for averaging"
    )
    parser.add_argument("--dev-trace", metavar="DIR", help="a trace of other prompts, on which the budget is chosen")
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where a trace holds more than one")
    parser.add_argument(
        "--data", metavar="PLACE", help="released files: a clone, or an address; else they are fetched and kept"
    )
    add_cost(parser)
    add_policies(parser, "of averaging; may be repeated")
    add_limit(parser, "the first N prompts of each trace only")
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Reproduce one figure, or list all."""
    if options.name is not None and options.list:
        raise UsageError("--list shows all; leave out the name, or leave out --list")
    chosen = ReproduceOptions(
        name=options.name,
        traces=tuple(options.trace),
        dev_trace=options.dev_trace,
        draft=options.draft,
        cost=options.cost,
        policies=tuple(options.policy),
        limit=options.limit,
        progress=options.progress,
        data=options.data,
    )
    made = reproduce(chosen)
    print(json.dumps(made.to_json(), indent=1, allow_nan=False) if options.json else made.text())
    return 0
