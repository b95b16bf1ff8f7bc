"""``simlab report``: one HTML file, for reading in a meeting."""

import argparse
import shlex
from pathlib import Path

from simlab.cli.options import add_cost, add_limit, add_policies, add_trace, check_file_to_write
from simlab.cli.parser import Parser, not_negative
from simlab.studies.report.report import report

DETAILS = """The file needs nothing else, no network and no server: the verdict in a sentence, the table, speed
against tree size, four labels that say how far to trust it, and below that acceptance by depth, where rounds end,
early-stopping rules, latencies, and the trees that policies chose, text by text.
RESULTS are files of `simlab replay --out`, or folders of `simlab confirm`, in any number: predicted
and measured rows of the same texts. Without RESULTS the trace is replayed, under -p or a usual set;
without --trace it takes the small packaged trace. Sections about single rounds need the
trace: the one named, the one in a folder of confirm, or the packaged one.
--optimum FILE is what `simlab optimize --out` wrote: the verdict is then about the policy chosen there.

  simlab report --out report.html
  simlab report runs/confirm --out report.html
  simlab report results.parquet runs/confirm --trace runs/mine --cost runs/cost.json --optimum optimum.json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULTS", help="result files, or folders of confirm")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="default report.html")
    add_trace(parser)
    add_cost(parser)
    add_policies(parser, "without RESULTS: what to replay, see `simlab policies`; may be repeated")
    parser.add_argument("--optimum", type=Path, metavar="FILE", help="what `simlab optimize --out` wrote")
    parser.add_argument(
        "--crosscheck",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="what `simlab crosscheck --out` wrote; may be repeated",
    )
    add_limit(parser, "without RESULTS: the first N prompts only")
    parser.add_argument(
        "--texts", type=not_negative, default=6, metavar="N", help="texts whose trees are shown (default 6; 0: none)"
    )
    parser.add_argument("--title", default="simlab report", metavar="TEXT", help="of the browser's tab")


def run(options: argparse.Namespace) -> int:
    """Make the report, write it, and print its verdict."""
    check_file_to_write("--out", options.out, "report.html")
    made = report(
        options.results,
        trace=options.trace,
        cost=options.cost,
        optimum=options.optimum,
        crosschecks=options.crosscheck,
        policies=options.policy,
        draft=options.draft,
        limit=options.limit,
        texts=options.texts,
        title=options.title,
        command=shlex.join(["simlab", *options.typed]),
    )
    size = made.write(options.out)
    print(made.verdict)
    for sentence in made.missing:
        print(sentence)
    print(f"Report: {options.out} ({size / 1e6:.1f} MB)")
    return 0
