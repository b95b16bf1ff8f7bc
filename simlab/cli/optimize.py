"""``simlab optimize``: choose a policy and its settings on some prompts, and report the choice once on others."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cli.options import add_progress, make_room
from simlab.cli.parser import Parser, add_command, not_negative, positive
from simlab.studies.optimize.inputs import OBJECTIVES, Inputs, inputs_of
from simlab.studies.optimize.report import Told, told
from simlab.studies.optimize.search import Manner, Searched, at_the_ends, searched
from simlab.studies.optimize.space import Space, space_of
from simlab.studies.optimize.trials import SEED, TRIALS, plan_of, tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simlab.studies.optimize.space import Point

_DETAILS = """Every policy of -p, or of the whole shelf without it, is replayed on the prompts of --trace; the best
of them is then held against its rivals, the chain and plain decoding on the prompts of --report-on, which
played no part in the choice. With one trace its prompts are split in two halves.
-p is typed as for replay, with grids: a/b lists values, 1..256 counts. Budgets cost next to nothing together. The
chain, plain decoding and ddtree at every budget are searched in any case.
A range a~b is searched with optuna (pip install "simlab[optimize]"); beside it, grids are searched whole.
The objective is tokens per second at the prices of --cost, else at those that come with simlab for the models;
with several --cost the smallest speedup over plain decoding among them; or the acceptance length.
docs/optimising.md says how to read the report.

  simlab optimize --trace runs/dev --report-on runs/test --out optimize.json
  simlab optimize --trace runs/dev --report-on runs/test -p ddtree:budget=1..512 -p caddtree
  simlab optimize --trace runs/dev -p presto:ngram_weight=0.0~1.0,budget=8/16/32 --storage sqlite:///optimize.db
  simlab optimize --trace runs/dev --objective acceptance_length --node-cap 16
  simlab confirm --from optimize.json"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(
        commands, "optimize", "Choose a policy and its settings on dev prompts, report it on others.", _DETAILS
    )
    parser.add_argument(
        "--trace", metavar="DEV", help="the trace to choose on (default: the one that comes with simlab)"
    )
    parser.add_argument("--report-on", metavar="EVAL", help="the trace to report on; no prompt of it may be in DEV")
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where a trace holds more than one")
    parser.add_argument(
        "-p", "--policy", action="append", default=[], metavar="POLICY", help="with grids and ranges; may be repeated"
    )
    parser.add_argument(
        "--cost",
        type=Path,
        action="append",
        metavar="FILE",
        help="prices: a file of `simlab profile`, or the name of a shipped one; repeated: the worst case of all",
    )
    parser.add_argument("--objective", choices=OBJECTIVES, help="what is to be large (default: tokens_per_s)")
    parser.add_argument(
        "--node-cap", type=positive, metavar="N", help="only policies that draft at most N tokens a round"
    )
    parser.add_argument(
        "--halving",
        action=argparse.BooleanOptionalAction,
        help="drop policies that are surely worse after a part of the prompts (default: where there are many)",
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="of the CPU (default: all cores)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_progress(parser)
    ranges = parser.add_argument_group("ranges")
    ranges.add_argument("--trials", type=positive, metavar="N", help=f"of each -p with a range (default: {TRIALS})")
    ranges.add_argument("--seed", type=not_negative, metavar="N", help=f"of the trials (default: {SEED})")
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
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    make_room("--out", options.out, "optimize.json")
    make_room("--results", options.results, "results.parquet")
    inputs = inputs_of(options)
    space = space_of(options.policy, inputs)
    plan, manner = plan_of(options, space), Manner(options.threads, options.progress)
    trials, num_tried = tried(space, inputs, plan, manner)
    dev = searched(space, trials, inputs.dev, inputs.objective, options.halving, manner)
    evaluation = searched(
        space, [*trials, dev.best(inputs.objective)], inputs.evaluation, inputs.objective, options.halving, manner
    )
    found = told(inputs, dev, evaluation, len(space.points) + num_tried, manner)
    _write(found, options)
    if options.json:
        print(json.dumps(_json(found, inputs, space, trials), indent=1, allow_nan=False))
        return 0
    print(_text(found, inputs, space, trials, dev))
    for what, path in (("Choice", options.out), ("Result rows", options.results)):
        if path is not None:
            print(f"{what}: {path}")
    return 0


def _write(found: Told, options: argparse.Namespace) -> None:
    from simlab.traces.artefacts.optimum import write_optimum
    from simlab.traces.results.rows import write_results

    if options.results is not None:
        write_results(options.results, found.results)
    if options.out is not None:
        write_optimum(options.out, found.optimum)


def _json(found: Told, inputs: Inputs, space: Space, trials: "Sequence[Point]") -> dict[str, object]:
    """The file, and what only this search knows."""
    extra: dict[str, object] = {
        "in_sample_on_dev": list(found.in_sample[0]),
        "in_sample_on_evaluation": list(found.in_sample[1]),
        "at_the_ends": _ends(found, space, trials),
        "left_out": list(space.left_out),
        "split": inputs.split,
    }
    return found.optimum.to_json() | extra


def _text(found: Told, inputs: Inputs, space: Space, trials: "Sequence[Point]", dev: Searched) -> str:
    """Everything for people."""
    from simlab.analysis.optimize.text import finalist_table, optimism_text
    from simlab.analysis.table.text import summary_notes, summary_table

    optimum = found.optimum
    parts = [_heading(inputs, space, dev, optimum.searched), optimum.verdict]
    parts.append(finalist_table(optimum))
    for prices, summaries in zip(inputs.evaluation.prices, found.summaries, strict=True):
        parts.append(f"evaluation prompts, prices {prices.heading}\n{summary_table(summaries)}")
    parts.append(optimism_text(optimum))
    parts.append(summary_notes(found.summaries[0], inputs.evaluation.prices[0].why_none))
    parts += _warnings(found, space, trials)
    return "\n\n".join(parts)


def _heading(inputs: Inputs, space: Space, dev: Searched, num_searched: int) -> str:
    objective = {
        "tokens_per_s": "tokens per second",
        "acceptance_length": "acceptance length",
        "worst_case": f"the smallest speedup at {len(inputs.dev.prices)} machines' prices",
    }[inputs.objective]
    cap = "" if inputs.node_cap is None else f", at most {inputs.node_cap} drafted tokens a round"
    lines = [
        f"chosen on    {inputs.dev.heading()}",
        f"reported on  {inputs.evaluation.heading()}",
        f"objective    {objective}{cap}",
        f"searched     {num_searched:,} policies of {len(space.entries)} entries",
    ]
    if len(dev.steps) > 1:
        lines[-1] += "; " + ", ".join(f"{num:,} on {prompts} prompts" for num, prompts in dev.steps)
    if space.capped:
        lines.append(f"left out     {space.capped:,} policies that draft more")
    return "\n".join([*lines, *([inputs.split] if inputs.split else [])])


def _ends(found: Told, space: Space, trials: "Sequence[Point]") -> list[str]:
    points = [*space.points, *trials]
    return at_the_ends(next(one for one in points if one.typed == found.optimum.best.policy), points)


def _warnings(found: Told, space: Space, trials: "Sequence[Point]") -> list[str]:
    from simlab.studies.inputs.shelf import in_sample_note

    lines = [f"At an end: {one}; search further." for one in _ends(found, space, trials)]
    on_dev, on_evaluation = found.in_sample
    if on_dev:
        lines.append(
            f"In sample on dev: {', '.join(on_dev)}. Tables or counts of theirs were made from the dev texts, so their "
            "dev figures are too high; those on evaluation prompts are not."
        )
    if on_evaluation:
        lines.append(in_sample_note(on_evaluation))
    if space.left_out:
        lines.append("Not searched:\n" + "\n".join(f"  {one}" for one in space.left_out))
    return lines
