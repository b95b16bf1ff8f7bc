"""``simlab field``: every system on the same target, prompts and machine."""

import argparse
import json
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.model_options import add_device, add_dtype, add_execution, named_checkpoint
from simlab.cli.options import add_json
from simlab.cli.parser import Parser, not_negative
from simlab.errors import needing_models
from simlab.real_runner.execution.executions import EAGER
from simlab.studies.field.options import FieldOptions
from simlab.studies.inputs.models import value_or

FAILED = 1

DETAILS = """Records the prompts with every drafter, head and scorer, times these here, chooses the settings of
each system on dev prompts, replays all of them on other prompts at equal drafted tokens (16 and 64) and at their
fastest, searches the best composition of their parts, and runs everything on the real models.
Says beforehand about how long it takes, and goes on where it was interrupted. With --quick it takes about ten minutes
on two cores, runs systems at their fastest alone, and its figures are worth no more than that.
All figures are in OUT/field.json. Exit code 1: a text is not the target's, or rounds are not those of their replay.

  simlab field --quick --out runs/quick
  simlab field --dtype bfloat16 --out runs/field
  simlab field --models mine.json --dev dev.jsonl --prompts eval.jsonl --device cuda --out runs/mine

--models names other models, as JSON:
  {"target": "ORG/TARGET", "drafters": {"dflash": "ORG/DRAFTER"},
   "channels": {"eagle3": {"checkpoint": "ORG/HEAD", "settings": {"steps": 7}}}}"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/field"),
        metavar="DIR",
        help="where everything is kept (default runs/field)",
    )
    parser.add_argument("--quick", action="store_true", help="few prompts and brief measurements")
    parser.add_argument("--models", type=Path, metavar="FILE", help="target, drafters and channels (default: packaged)")
    parser.add_argument(
        "--add-draft",
        type=named_checkpoint,
        action="append",
        default=[],
        metavar="NAME=CHECKPOINT",
        help="another draft set beside these, such as self=ADAPTER; may be repeated",
    )
    parser.add_argument("--dev", type=Path, metavar="FILE", help="prompts to choose on (default: 40 that are packaged)")
    parser.add_argument(
        "--prompts", type=Path, metavar="FILE", help="prompts to report on (default: 64 that are packaged)"
    )
    parser.add_argument(
        "--confirm-minutes",
        type=not_negative,
        metavar="N",
        help="minutes of all runs together (default 75; --quick: 1); of a finished field, more of them; 0: none",
    )
    add_json(parser)
    running = parser.add_argument_group("running")
    add_dtype(running)
    add_device(running)
    add_execution(running)


def run(options: argparse.Namespace) -> int:
    """Make the field, and print its tables."""
    keep(f"finished steps are in {options.out}: the same command goes on")
    with needing_models("field"):
        from simlab.studies.field.field import field  # noqa: PLC0415 - loads torch
    chosen = FieldOptions(
        out=options.out,
        quick=options.quick,
        models=options.models,
        add_drafts=dict(options.add_draft),
        dev=options.dev,
        prompts=options.prompts,
        dtype=options.dtype,
        device=options.device,
        execution=value_or(options.execution, EAGER),
        confirm_minutes=options.confirm_minutes,
    )
    result = field(chosen)
    if options.json:
        print(json.dumps(result.to_json(), indent=1, allow_nan=False))
    else:
        print(f"{result.text()}\n\nAll figures: {options.out / 'field.json'}")
    return FAILED if result.has_failed else 0
