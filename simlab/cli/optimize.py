"""``simlab optimize``: choose a policy and its settings on some prompts, and report the choice once on others."""

import argparse
import json
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.options import (
    add_costs,
    add_json,
    add_policies,
    add_progress,
    add_ray,
    add_shard,
    add_threads,
    add_track,
    check_file_to_write,
)
from simlab.cli.parser import Parser, positive, seed
from simlab.errors import UsageError
from simlab.studies.optimize.inputs import OBJECTIVES
from simlab.studies.optimize.optimize import optimize, sum_part
from simlab.studies.optimize.trials import SEED, TRIALS

DETAILS = """Every policy of -p (without -p all built-in policies) is replayed on the prompts of --trace. The best
of them is then compared with its rivals, the chain and autoregressive decoding on the prompts of --report-on, which
played no part in the choice. With one trace its prompts are split in two halves.
-p is typed as for replay, with grids: a/b lists values, 1..256 counts. Many budgets of one policy cost little more
than one. The chain, autoregressive decoding and ddtree at every budget are searched in any case.
A range a~b is searched with optuna (pip install "simlab[optimize]"); beside it, grids are searched whole.
The objective is tokens/s by the latency profile of --cost, else by the packaged one for the models; with several
--cost the smallest speedup among them over the autoregressive baseline; or the acceptance length.
docs/how_to/optimize.md says how to read the report.

  simlab optimize --trace runs/dev --report-on runs/test --out optimize.json
  simlab optimize --trace runs/dev --report-on runs/test -p ddtree:budget=1..512 -p caddtree
  simlab optimize --trace runs/dev -p presto:ngram_weight=0.0~1.0,budget=8/16/32 --storage sqlite:///optimize.db
  simlab optimize --trace runs/dev --objective acceptance_length --node-cap 16
  simlab confirm --from optimize.json

Several machines sum up a part of the prompts each; whoever has all sums chooses (docs/how_to/many_machines.md):

  simlab optimize --trace runs/dev -p ddtree:budget=1..512 --shard 0/4 --sums part0.parquet
  simlab merge part0.parquet part1.parquet part2.parquet part3.parquet --out sums.parquet
  simlab optimize --trace runs/dev -p ddtree:budget=1..512 --sums sums.parquet --out optimize.json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--trace", metavar="DEV", help="the trace to choose on (default: the packaged one)")
    parser.add_argument("--report-on", metavar="EVAL", help="the trace to report on; no prompt of it may be in DEV")
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where a trace holds more than one")
    add_policies(parser, "with grids and ranges; may be repeated")
    add_costs(
        parser,
        "latency profile: a file of `simlab profile`, or the name of a packaged one; repeated: the worst case of all",
    )
    parser.add_argument("--objective", choices=OBJECTIVES, help="objective to maximise (default: tokens_per_s)")
    parser.add_argument(
        "--node-cap", type=positive, metavar="N", help="only policies that draft at most N tokens a round"
    )
    parser.add_argument(
        "--halving",
        action=argparse.BooleanOptionalAction,
        help="drop policies that are clearly worse after a part of the prompts (default: where there are many)",
    )
    add_threads(parser)
    add_ray(parser)
    add_json(parser)
    add_progress(parser)
    add_track(parser)
    ranges = parser.add_argument_group("ranges")
    ranges.add_argument(
        "--trials", type=positive, metavar="N", help=f"trials of each -p with a range (default: {TRIALS})"
    )
    ranges.add_argument("--seed", type=seed, metavar="N", help=f"random seed of the trials (default: {SEED})")
    ranges.add_argument(
        "--storage",
        metavar="URL",
        help="keep the trials, and go on with earlier ones: sqlite:///FILE, which optuna-dashboard shows",
    )
    parts = parser.add_argument_group("several machines")
    add_shard(parts, "sum up one part of the prompts into --sums, on each machine another")
    parts.add_argument(
        "--sums",
        type=Path,
        metavar="FILE",
        help="with --shard the file to write; without it, merged sums of the same search, which are not made again",
    )
    files = parser.add_argument_group("files")
    files.add_argument("--out", type=Path, metavar="FILE", help="write the choice, for `simlab confirm --from`")
    files.add_argument(
        "--results", type=Path, metavar="FILE", help="write the finalists' result rows on the prompts of the report"
    )


def run(options: argparse.Namespace) -> int:
    """Search, and print the choice."""
    check_file_to_write("--out", options.out, "optimize.json")
    check_file_to_write("--results", options.results, "results.parquet")
    if options.storage is not None:
        keep(f"the trials are in {options.storage}: the same command goes on")
    if options.shard is not None:
        return _sum_part(options)
    result = optimize(
        options.trace,
        options.policy,
        report_on=options.report_on,
        cost=options.cost,
        draft=options.draft,
        objective=options.objective,
        node_cap=options.node_cap,
        halving=options.halving,
        trials=options.trials,
        seed=options.seed,
        storage=options.storage,
        threads=options.threads,
        ray=options.ray,
        workers=options.workers,
        progress=options.progress,
        sums=options.sums,
        track=options.track,
    )
    if options.results is not None:
        result.write_results(options.results)
    if options.out is not None:
        result.write(options.out)
    if options.json:
        print(json.dumps(result.to_json(), indent=1, allow_nan=False))
        return 0
    print(result.text())
    for what, path in (("Choice", options.out), ("Result rows", options.results)):
        if path is not None:
            print(f"{what}: {path}")
    return 0


def _sum_part(options: argparse.Namespace) -> int:
    """Sum up one part of the prompts, and say where the sums are."""
    if options.sums is None:
        raise UsageError("--shard makes one part of the sums of a search; name their file with --sums FILE")
    for name in ("out", "results", "trials", "seed", "storage"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name} belongs to the choice, and --shard only sums up; give it with --sums afterwards"
            )
    check_file_to_write("--sums", options.sums, "sums.parquet")
    found = sum_part(
        options.shard,
        options.sums,
        options.trace,
        options.policy,
        report_on=options.report_on,
        cost=options.cost,
        draft=options.draft,
        objective=options.objective,
        node_cap=options.node_cap,
        halving=options.halving,
        threads=options.threads,
        ray=options.ray,
        workers=options.workers,
        progress=options.progress,
    )
    print(json.dumps(found.to_json(), indent=1) if options.json else found.text())
    return 0
