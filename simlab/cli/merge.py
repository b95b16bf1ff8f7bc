"""``simlab merge``: several result files in one."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_json, check_file_to_write
from simlab.cli.parser import Parser
from simlab.studies.merge import merge

DETAILS = """Files of other policies, latency profiles, prompts or traces. Rows that are the same in several files, such
as those of autoregressive decoding, are taken once; files that say different things of one policy and text are
refused.

  simlab merge monday.parquet tuesday.parquet --out all.parquet"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("results", nargs="+", metavar="FILE", help="result files of replay, optimize or confirm")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Merge, and say what came of it."""
    check_file_to_write("--out", options.out, "results.parquet")
    found = merge(options.results, options.out)
    if options.json:
        value = {"path": str(options.out), "rows": found.rows.height, "repeated": found.repeated}
        print(json.dumps(value | {"unfinished": found.unfinished}, indent=1))
        return 0
    print(f"{found.rows.height:,} rows of {len(options.results)} files: {options.out}")
    if found.repeated:
        print(f"{found.repeated:,} rows were in more than one file, and stand there once.")
    if found.unfinished is not None:
        print(
            f"Not finished: {found.unfinished}. Merge the rest too, or replay it with --resume; no table is made "
            "before."
        )
    return 0
