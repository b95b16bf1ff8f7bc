"""``simlab scoring``: do edge models say the truth, do orders of nodes find it, and what does that bring?"""

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cli.options import add_cost, add_progress, add_trace, make_room
from simlab.cli.parser import Parser, add_command, positive
from simlab.studies.inputs.shelf import in_sample_note
from simlab.studies.scoring import Inputs, inputs_of

if TYPE_CHECKING:
    from simlab.analysis.scoring.score import Scoring

_DETAILS = """Four questions at every root of a recorded trace, each with 95 % intervals over prompts:
is a candidate as often right as an edge model says (calibration, by depth, rank, on the spine of
first candidates and off it); how far down a policy's order of nodes lies the true path; how much
of the way from the chain to the hindsight bound does a policy go; and what are its nodes spent on.
docs/findings.md defines every figure, and says what was found on the packaged trace.
Each edge model and each order of nodes is scored once, whatever the budgets of the policies that have it.
Without -p these are the drafter's marginals, calibrated, corrected by a 3-gram, the same renormalised, and one fixed
tree, as far as tables for the models come with simlab. --out keeps all reliability curves; --json has those of
all candidates and of first ones.

  simlab scoring
  simlab scoring --trace runs/mine -p ddtree:budget=16/64 -p presto:ngram_weight=0.1/0.2/0.4,budget=64
  simlab scoring --by dataset --json --out reliability.parquet"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(
        commands, "scoring", "Are edge probabilities right, and where is the true path in a policy's order?", _DETAILS
    )
    add_trace(parser)
    parser.add_argument(
        "-p", "--policy", action="append", default=[], metavar="POLICY", help="see `simlab policies`; may be repeated"
    )
    add_cost(parser)
    parser.add_argument(
        "--nodes",
        type=positive,
        metavar="N",
        help="so many nodes of an order are looked at (default: 512, or as many as the trace is exact for)",
    )
    parser.add_argument("--by", choices=("dataset",), help="tables for each dataset, and those of all")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_progress(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write a Parquet: a row for each bin of each reliability curve"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    make_room("--out", options.out, "reliability.parquet")
    inputs = inputs_of(options)
    scored = _scored(inputs, options.progress)
    parts: list[tuple[str | None, Scoring]] = [*(scored.by_dataset() if options.by else ()), (None, scored)]
    if options.out is not None:
        _write(options.out, parts, inputs)
    if options.json:
        print(json.dumps(_json(parts, inputs), indent=1, allow_nan=False))
        return 0
    print(_text(parts, inputs))
    if options.out is not None:
        print(f"\nReliability curves: {options.out}")
    return 0


def _scored(inputs: Inputs, shown: bool | None) -> "Scoring":
    from tqdm import tqdm

    from simlab.analysis.scoring.score import score_trace

    shown = sys.stderr.isatty() if shown is None else shown
    with tqdm(total=inputs.num_roots, desc="scoring", unit="root", unit_scale=True, delay=2, disable=not shown) as bar:
        return score_trace(
            inputs.policies, inputs.prompts, inputs.texts(), inputs.limits, inputs.prices.cost, bar.update
        )


def _write(path: Path, parts: "list[tuple[str | None, Scoring]]", inputs: Inputs) -> None:
    from simlab.analysis.scoring.rows import reliability_rows, with_slice, write_reliability

    rows = [row for name, part in parts for row in with_slice(reliability_rows(part, every_depth=True), name)]
    write_reliability(path, rows, {**_ids(inputs), "simlab_version": metadata.version("simlab")})


def _ids(inputs: Inputs) -> dict[str, str]:
    return {"text_id": inputs.trace.text_id, "draft_id": inputs.trace.draft_ids[inputs.draft]}


def _json(parts: "list[tuple[str | None, Scoring]]", inputs: Inputs) -> dict[str, object]:
    """Everything for scripts; in each list of rows the slice is the dataset, or null for all."""
    from simlab.analysis.scoring import rows

    def listed(made: "list[tuple[str | None, list[rows.Row]]]") -> "list[rows.Row]":
        return [row for name, some in made for row in rows.with_slice(some, name)]

    return {
        "text_id": inputs.trace.text_id,
        "draft_ids": {inputs.draft: inputs.trace.draft_ids[inputs.draft]},
        "cost": inputs.prices.cost_id,
        "prompts": len(inputs.prompts),
        "roots": inputs.num_roots,
        "nodes": inputs.limits.most,
        "width": inputs.limits.width,
        "in_sample": list(inputs.in_sample),
        "calibration": listed([(name, rows.calibration_rows(part)) for name, part in parts]),
        "reliability": listed([(name, rows.reliability_rows(part, every_depth=False)) for name, part in parts]),
        "orders": listed([(name, rows.order_rows(part)) for name, part in parts]),
        "coverage": listed([(name, rows.coverage_rows(part)) for name, part in parts]),
        "policies": listed([(name, rows.policy_rows(part)) for name, part in parts]),
    }


def _text(parts: "list[tuple[str | None, Scoring]]", inputs: Inputs) -> str:
    """Everything for people."""
    from simlab.analysis.scoring.text import scoring_notes, scoring_text

    prices = inputs.prices
    heading = (
        f"trace    {inputs.trace.place} (text {inputs.trace.text_id})",
        f"prices   {prices.heading if prices.cost is not None else prices.why_none}",
        f"scored   {len(inputs.prompts)} prompts, {inputs.num_roots:,} roots, {inputs.limits.width} candidates a depth",
    )
    lines = [
        "\n".join(heading),
        *(scoring_text(part, "all" if name is None and len(parts) > 1 else name or "") for name, part in parts),
        scoring_notes(),
        *inputs.without,
        *([in_sample_note(inputs.in_sample)] if inputs.in_sample else []),
    ]
    return "\n\n".join(lines)
