"""``simlab merge``: several result files in one, or the parts of a recording."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_json, add_progress, check_file_to_write
from simlab.cli.parser import Parser
from simlab.studies.merge import merge

DETAILS = """Files of other policies, latency profiles, prompts or traces. Rows that are the same in several files, such
as those of autoregressive decoding, are taken once; files that say different things of one policy and text are
refused.

  simlab merge monday.parquet tuesday.parquet --out all.parquet

What several machines made with --shard is put together, in any order, to the bytes that one would have written.
Missing parts, and parts of different works, are refused by name. Parts that were recorded into one folder need no
--out.

  simlab merge part0.parquet part1.parquet part2.parquet part3.parquet --out all.parquet
  simlab merge runs/part0 runs/part1 --out runs/mine
  simlab merge runs/shared"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "parts",
        nargs="+",
        metavar="FILE|DIR",
        help="result files of replay, optimize or confirm; parts of rounds or sums; or folders of recordings in parts",
    )
    parser.add_argument("--out", type=Path, metavar="FILE|DIR", help="what to write; not needed for one folder")
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Merge, and say what came of it."""
    if not any(Path(part).is_dir() for part in options.parts):
        check_file_to_write("--out", options.out, "results.parquet")
    found = merge(options.parts, options.out, progress=options.progress)
    print(json.dumps(found.to_json(), indent=1) if options.json else found.text())
    return 0
