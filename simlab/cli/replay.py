"""``simlab replay``: policies on a recorded trace, and the table of what they did."""

import argparse
import json
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.options import (
    add_by,
    add_costs,
    add_json,
    add_limit,
    add_policies,
    add_progress,
    add_ray,
    add_shard,
    add_threads,
    add_trace,
    check_file_to_write,
)
from simlab.cli.parser import Parser, positive
from simlab.studies.replay.replay import replay

DETAILS = """Without --trace it takes the small packaged trace.
The table always has autoregressive decoding, the chain and two oracle upper bounds (rows `hindsight:...`), which know
the target's text and are no policies; without -p it has ddtree:budget=16/64 too.
Speeds are estimated from a latency profile: that of --cost FILE, else the packaged one for the trace's models, if
there is one. `simlab profile` measures a profile on this machine.
Policies that weigh tokens against latency read the same profile, unless they name another: cost=FILE.
Several --cost give a table for each, and all rows in one result file. --what-if adds to each of them a hypothetical
profile, not measured: "verify*0.5" scales a stage (draft, select, verify, commit, plain); plain, a token of
autoregressive decoding, is scaled with verify unless it is named. tile=64 gives a pass the latency of one that fills
whole tiles of 64 tokens, batch=8 lets 8 texts share a pass, convex takes the closest convex curve; a comma joins
changes.
--batch N replays texts as a server does that decodes N at a time, round after round together; with it
-p joint:budget=B shares B drafted tokens out over the whole batch, and joint-throughput:budget=B chooses by latency
how many, up to B. The latencies of N texts are worked out from those of one text as with --what-if, unless a file of
`simlab profile --batch N` is given.

  simlab replay -p ddtree:budget=16/32/64
  simlab replay --trace runs/mine -p chain:length=1..7 --by dataset --out results.parquet
  simlab replay --trace runs/mine -p ddtree:budget=1..512 -p caddtree --cost a.json --cost b.json
    --out results.parquet --resume
  simlab replay -p ddtree:budget=16..256 --what-if "verify*0.5" --what-if verify*0.5,tile=64
  simlab replay --batch 4 -p ddtree:budget=8/16 -p joint:budget=32/64
  simlab replay --trace runs/mine -p ddtree:budget=1..512 --shard 0/4 --out part0.parquet"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_trace(parser)
    add_policies(parser)
    add_costs(parser, "latency profile: a file of `simlab profile`, or the name of a packaged one; may be repeated")
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGES",
        help='a hypothetical profile beside the one it changes: "verify*0.5,tile=64"; may be repeated',
    )
    parser.add_argument("--batch", type=positive, metavar="N", help="decode N texts at a time (default: each alone)")
    add_by(parser)
    add_limit(parser)
    add_threads(parser)
    add_ray(parser)
    add_json(parser)
    add_progress(parser)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--out", type=Path, metavar="FILE", help="write the result rows, one per policy, sequence and cost file"
    )
    files.add_argument(
        "--resume",
        action="store_true",
        help="continue with --out, and with --rounds: what is finished is kept and not made again",
    )
    files.add_argument(
        "--rounds", type=Path, metavar="FILE", help="write a row for each round of each policy, and why it ended"
    )
    add_shard(files, "replay one part of the prompts into --out, on each machine another: 0/4 to 3/4")


def run(options: argparse.Namespace) -> int:
    """Replay, and print the table."""
    check_file_to_write("--out", options.out, "results.parquet")
    check_file_to_write("--rounds", options.rounds, "rounds.parquet")
    if options.out is not None:
        keep(f"finished rows are kept: add --resume to go on with {options.out}")
    table = replay(
        options.trace,
        options.policy,
        cost=options.cost,
        what_if=options.what_if,
        draft=options.draft,
        batch=options.batch,
        by=options.by,
        limit=options.limit,
        threads=options.threads,
        ray=options.ray,
        workers=options.workers,
        progress=options.progress,
        out=options.out,
        resume=options.resume,
        rounds=options.rounds,
        shard=options.shard,
    )
    if options.json:
        print(json.dumps(table.to_json(), indent=1, allow_nan=False))
        return 0
    print(table.text())
    for what, path in (("Result rows", options.out), ("Rows of rounds", options.rounds)):
        if path is not None:
            print(f"{what}: {path}")
    return 0
