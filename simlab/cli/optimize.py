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
    add_threads,
    add_track,
    check_file_to_write,
)
from simlab.cli.parser import Parser, positive, seed
from simlab.studies.optimize.inputs import OBJECTIVES
from simlab.studies.optimize.optimize import optimize
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
  simlab confirm --from optimize.json"""


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
        progress=options.progress,
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
