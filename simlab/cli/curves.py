"""``simlab curves``: expected tokens per second by the size of the tree, and what rules lose that stop on the way."""

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cli.options import add_progress, add_trace, make_room
from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import UsageError
from simlab.studies.curves import CALIBRATED, RAW, Inputs, inputs_of
from simlab.studies.inputs.shelf import in_sample_note

if TYPE_CHECKING:
    from simlab.analysis.curves.rows import CurveRows, CurveSetting
    from simlab.recorded import RecordedTexts

_DETAILS = """At each root the curve of (1 + summed path probabilities) / seconds over the number of drafted
tokens, 0 to --budget: how many local maxima has it, where does the first size that brings no more
end (caddtree), and what does that lose against trying all sizes, against the best fixed budget, and
against one price for all rounds? docs/unimodality.md says what was found on the packaged trace.
With several --cost a policy that reads prices reads the first.
Without --trace it takes the small trace that comes with simlab, without --cost the prices that
come with it; a whole round counts, drafting, selecting, verifying and committing.
The curves are of the drafter's own probabilities (raw), and of calibrated ones where there is a table.

  simlab curves
  simlab curves --trace runs/mine --cost a.json --cost b.json --by dataset --out curves.parquet
  simlab curves -p caddtree --edges calibrated --calibration runs/calibration.json --json"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(
        commands,
        "curves",
        "Expected tokens per second by tree size: how many peaks, and what rules lose.",
        _DETAILS,
    )
    add_trace(parser)
    parser.add_argument(
        "--cost",
        type=Path,
        action="append",
        metavar="FILE",
        help="prices: a file of `simlab profile`, or the name of a shipped one; may be repeated",
    )
    parser.add_argument(
        "--budget", type=positive, metavar="N", help="the largest tree (default: as far as trace and prices reach)"
    )
    parser.add_argument(
        "--edges", action="append", choices=(RAW, CALIBRATED), help="probabilities; may be repeated (default: both)"
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="a table of `simlab train calibration` (default: the one that comes with simlab)",
    )
    parser.add_argument(
        "-p",
        "--policy",
        metavar="POLICY",
        help="only where rounds of this policy start (default: at every root)",
    )
    parser.add_argument("--by", choices=("dataset", "context", "turn"), help="a table for each, and one of all")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_progress(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a Parquet: a row for each rule at each root")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab.analysis.curves.rows import curve_rows

    _check(options)
    inputs = inputs_of(options)
    with _Bar(options.progress) as bar:
        rows, settings = curve_rows(inputs.orders, inputs.machines, inputs.roots(bar.advance), inputs.most)
    if options.out is not None:
        _write(rows, inputs, options.out)
    if options.json:
        print(json.dumps(_json(rows, settings, inputs, options.by), indent=1, allow_nan=False))
        return 0
    print(_text(rows, settings, inputs, options.by))
    if options.out is not None:
        print(f"Rows: {options.out}")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse before the work what could not be done after it."""
    if options.calibration is not None and options.edges is not None and CALIBRATED not in options.edges:
        raise UsageError("--calibration is read with --edges calibrated; leave one of the two out")
    make_room("--out", options.out, "curves.parquet")


def _write(rows: "CurveRows", inputs: Inputs, path: Path) -> None:
    from simlab.analysis.curves.rows import write_rows

    ids = {"text_id": inputs.trace.text_id, "draft_id": inputs.trace.draft_ids[inputs.draft]}
    visited_by = None if inputs.visits is None else inputs.visits.label
    write_rows(path, rows, {**ids, "visited_by": visited_by, "simlab_version": metadata.version("simlab")})


def _text(rows: "CurveRows", settings: "list[CurveSetting]", inputs: Inputs, by: str | None) -> str:
    """Everything for people."""
    from simlab.analysis.curves.summaries import curve_summaries
    from simlab.analysis.curves.text import curves_text

    found = curve_summaries(rows, settings)
    if by is not None:
        found = [*curve_summaries(rows, settings, by), *found]
    where = "every root" if inputs.visits is None else f"the rounds of {inputs.visits.label}"
    lines = [
        f"trace    {inputs.trace.place} (text {inputs.trace.text_id})",
        f"curves   at {where}, 0 to {inputs.most} drafted tokens\n",
        curves_text(found, {one.cost_id or "": one.heading for one in inputs.prices}, by),
        *([inputs.without] if inputs.without else []),
        *([f"\n{in_sample_note(inputs.in_sample)}"] if inputs.in_sample else []),
    ]
    return "\n".join(lines)


def _json(rows: "CurveRows", settings: "list[CurveSetting]", inputs: Inputs, by: str | None) -> dict[str, object]:
    """Everything for scripts: summaries; the curve of the whole over fixed budgets; that where first stop lost most."""
    from simlab.analysis.curves.examples import worst_example
    from simlab.analysis.curves.summaries import curve_summaries

    def text(sequence: int) -> "RecordedTexts":
        return next(inputs.trace.recorded_texts(inputs.draft, [sequence]))

    orders, by_id = inputs.orders, {machine.cost_id: machine for machine in inputs.machines}
    return {
        "text_id": inputs.trace.text_id,
        "draft_ids": {inputs.draft: inputs.trace.draft_ids[inputs.draft]},
        "policy": None if inputs.visits is None else inputs.visits.label,
        "budget": inputs.most,
        "in_sample": list(inputs.in_sample),
        "rows": [row for one in curve_summaries(rows, settings, by) for row in one.rows()],
        "fixed_budget_curves": [
            {"edges": one.edges, "cost_id": one.cost_id, "tokens_per_s": one.budget_curve.tolist()} for one in settings
        ],
        "worst_curves": [
            worst_example(rows, one, orders[one.edges], by_id[one.cost_id], text, inputs.most).row() for one in settings
        ],
    }


class _Bar:
    """A bar that shows after two seconds how many roots were looked at; each is looked at a few times."""

    def __init__(self, shown: bool | None) -> None:
        from tqdm import tqdm

        shown = sys.stderr.isatty() if shown is None else shown
        self._bar = tqdm(desc="curves", unit="root", unit_scale=True, delay=2, disable=not shown)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.close()

    def advance(self, number: int, once: int) -> None:
        """Some more; ``once`` is how many there are, each time that all are looked at."""
        done = self._bar.n + number
        self._bar.total = -(-done // once) * once
        self._bar.update(number)
