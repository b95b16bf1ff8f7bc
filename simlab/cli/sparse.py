"""``simlab sparse``: what a log of one policy's rounds would have predicted for the others."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cli.options import add_cost, add_progress, add_trace
from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import UsageError
from simlab.studies.inputs.shelf import in_sample_note
from simlab.studies.sparse import POLICIES, RECORDED, Inputs, inputs_of, logs_of

if TYPE_CHECKING:
    from simlab.analysis.sparse.table import SparseChoice, SparseFigure, SparseLog

_DETAILS = """A server that logs its drafter logs it where its own rounds began. This command takes a trace that has
every position, keeps of it only the roots at which rounds of one policy begin (--recorded), predicts the other policies
from these alone, and holds that against what the whole trace predicts, and against a measurement of `simlab confirm`.
Two estimates are made: the mean over the rows that there are, and a walk that reads the nearest of them. For the
recorded policy itself both are exact. docs/findings.md says what was found.

  simlab sparse
  simlab sparse --trace runs/mine --recorded chain --recorded ddtree:budget=64 -p ddtree:budget=8/16/32
  simlab sparse --measured runs/confirm --cost cost.json --json"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "sparse", "What a log of one policy's rounds would predict for others.", _DETAILS)
    add_trace(parser)
    parser.add_argument(
        "--recorded",
        action="append",
        default=[],
        metavar="POLICY",
        help=f"whose rounds were logged; may be repeated (default: {' '.join(RECORDED)})",
    )
    parser.add_argument(
        "-p",
        "--policy",
        action="append",
        default=[],
        metavar="POLICY",
        help=f"what is predicted; may be repeated (default: {' '.join(POLICIES)})",
    )
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="DIR",
        help="a folder of `simlab confirm`, or its result file; without --trace, the trace in it",
    )
    add_cost(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_progress(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab.analysis.sparse.table import sparse_choices, sparse_figures

    inputs = inputs_of(options)
    labels = [one.label for one in inputs.policies]
    logs = logs_of(inputs, options.progress)
    figures = [sparse_figures(log, labels) for log in logs]
    if not figures[0]:
        raise UsageError("there is no prompt that the trace and the measurement both have; nothing can be compared")
    found = [sparse_choices(some) for some in figures]
    if options.json:
        print(json.dumps(_json(inputs, logs, figures, found), indent=1, allow_nan=False))
    else:
        print(_text(inputs, options, logs, figures, found))
    return 0


def _text(
    inputs: Inputs,
    options: argparse.Namespace,
    logs: "Sequence[SparseLog]",
    figures: "Sequence[Sequence[SparseFigure]]",
    found: "Sequence[Sequence[SparseChoice]]",
) -> str:
    from simlab.analysis.sparse.table import num_left_out
    from simlab.analysis.sparse.text import sparse_notes, sparse_text

    lines = [f"trace    {inputs.trace.place} (text {inputs.trace.text_id}), {figures[0][0].prompts} prompts"]
    lines.append(f"prices   {inputs.prices.heading}")
    if inputs.measured is not None:
        lines.append(f"measured {options.measured}")
        missing = num_left_out(logs[0], [one.label for one in inputs.policies])
        if missing:
            lines.append(f"Left out, not measured with the same turns and samples: {missing} prompts of the trace.")
    parts = ["\n".join(lines)]
    parts += [sparse_text(*one) for one in zip(logs, figures, found, strict=True)]
    parts.append(sparse_notes([one for some in figures for one in some]))
    if inputs.prices.cost is None:
        parts.append(inputs.prices.why_none)
    if inputs.in_sample:
        parts.append(in_sample_note(inputs.in_sample))
    return "\n\n".join(parts)


def _json(
    inputs: Inputs,
    logs: "Sequence[SparseLog]",
    figures: "Sequence[Sequence[SparseFigure]]",
    found: "Sequence[Sequence[SparseChoice]]",
) -> Mapping[str, object]:
    from simlab.analysis.sparse.table import borrowed_row

    return {
        "text_id": inputs.trace.text_id,
        "draft_ids": {inputs.draft: inputs.trace.draft_ids[inputs.draft]},
        "cost": inputs.prices.cost_id,
        "in_sample": list(inputs.in_sample),
        "logs": [{"recorded_policy": one.policy, "rows": one.num_rows, "roots": one.num_roots} for one in logs],
        "rows": [one.row() for some in figures for one in some],
        "borrowed": [borrowed_row(one, label) for one in logs for label in one.borrowed],
        "choices": [one.row() for some in found for one in some],
    }
