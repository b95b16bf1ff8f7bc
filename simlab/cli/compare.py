"""``simlab compare``: two results, traces, drafters, machines or policies on the same prompts."""

import argparse
import json

from simlab.cli.options import add_by, add_json, add_limit, add_policies
from simlab.cli.parser import Parser
from simlab.studies.compare import compare

DETAILS = """A and B are result files of `simlab replay --out` or `simlab confirm`, or traces, which are replayed.
Prompts that only one side has are named and left out. Where both have several policies, each
is compared with the same policy of the other side.
With A alone its policies are compared: the first -p with each of the others.
Tests are paired over prompts. Several comparisons are one family: their p-values are adjusted.

  simlab compare before.parquet after.parquet
  simlab compare results.parquet -p ddtree:budget=16 --against chain
  simlab compare runs/one runs/other -p ddtree:budget=16/32 --by dataset
  simlab compare runs/one runs/one --cost a.json --cost b.json -p caddtree"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("first", metavar="A", help="a result file or a trace")
    parser.add_argument("second", metavar="B", nargs="?", help="another; without it policies of A are compared")
    add_policies(parser, "a policy to compare; may be repeated")
    parser.add_argument("--against", metavar="POLICY", help="the policy of B (or of A alone) to compare them with")
    parser.add_argument(
        "--measure",
        choices=("tokens_per_s", "speedup", "acceptance_length", "acceptance_length_macro"),
        help="measure of the verdict (default: tokens_per_s where both have latencies, else acceptance_length)",
    )
    add_by(parser, explained="a comparison for each, and one of all")
    parser.add_argument(
        "--correction",
        choices=("holm", "bh"),
        default="holm",
        help="adjustment of the p-values of a family (default: holm)",
    )
    parser.add_argument(
        "--kind", choices=("predicted", "measured"), help="which rows to compare, where a file holds both"
    )
    parser.add_argument(
        "--cost",
        action="append",
        default=[],
        metavar="COST",
        help="for a trace a cost file, for a result file a cost id; a second one is for B",
    )
    parser.add_argument(
        "--draft", action="append", default=[], metavar="NAME", help="the draft set of a trace; a second one is for B"
    )
    add_limit(parser, "only the first N prompts of a trace")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Compare, and print the verdicts and the table."""
    table = compare(
        options.first,
        *options.policy,
        second=options.second,
        against=options.against,
        measure=options.measure,
        by=options.by,
        correction=options.correction,
        kind=options.kind,
        cost=options.cost,
        draft=options.draft,
        limit=options.limit,
    )
    print(json.dumps(table.to_json(), indent=1, allow_nan=False) if options.json else table.text())
    return 0
