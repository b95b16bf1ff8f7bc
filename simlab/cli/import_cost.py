"""``simlab import-cost``: seconds that were measured elsewhere, as a cost file."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_draft_set, add_json, check_file_to_write
from simlab.cli.parser import Parser, positive
from simlab.cost import GRID_STAGES, PLAIN
from simlab.errors import UsageError
from simlab.studies.inputs.trace import opened
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.artefacts.cost_import import ImportedFor, imported_cost_file, read_timings

_COUNTS = ("root-included", "drafted-only")
_GIVEN = tuple(stage for stage in (*GRID_STAGES, PLAIN) if stage != "verify")

DETAILS = """TIMINGS is CSV with a line of names, or a JSON list of objects: nodes, context, seconds, and batch where it
is not 1; several rows of the same sizes are repeated measurements. The seconds are those of the target's pass. Engines
count its tokens in two ways, so --counts must say which; cost files count drafted tokens.
The file is for the models of a trace. simlab cannot verify which models these timings are from. Without --trace it is
for those of the small packaged trace. What is not given is printed, and kept as a note in the file.

  simlab import-cost timings.csv --counts root-included --trace runs/mine --draft-s 0.0065 --out runs/engine.json
  simlab import-cost caddtree-a800-qwen3-4b --counts root-included --draft-s 0.0065 --machine "NVIDIA A800"
    --dtype bfloat16 --out runs/a800.json
  simlab replay --trace runs/mine --cost runs/engine.json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("timings", metavar="TIMINGS", help="CSV or JSON; or the name of packaged timings")
    parser.add_argument(
        "--counts",
        choices=_COUNTS,
        required=True,
        help="what nodes counts: tokens of the pass, the root among them, or drafted tokens, one fewer",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the cost file")
    parser.add_argument("--trace", metavar="DIR", help="a recorded trace of the models that were timed")
    add_draft_set(parser)
    parser.add_argument("--machine", default="", metavar="NAME", help="the device, such as NVIDIA A800")
    parser.add_argument(
        "--dtype", default="unknown dtype", metavar="NAME", help="dtype of the models, such as bfloat16"
    )
    parser.add_argument(
        "--batch", type=positive, metavar="N", help="take the timings of N texts at a time, nodes being those of each"
    )
    add_json(parser)
    stages = parser.add_argument_group("stages that are no pass of the target, the same in every round")
    for stage in _GIVEN:
        said = "one token of autoregressive decoding" if stage == PLAIN else f"the stage {stage}"
        stages.add_argument(f"--{stage}-s", type=_seconds, metavar="SECONDS", help=f"latency of {said}")


def run(options: argparse.Namespace) -> int:
    """Make the cost file, and say what is in it."""
    check_file_to_write("--out", options.out, "cost.json")
    if options.out.exists():
        raise UsageError(f"{options.out} is there already; name another file, or delete it")
    if options.plain_s == 0:
        raise UsageError("--plain-s must be above 0: speedups are over autoregressive decoding")
    given = {stage: getattr(options, f"{stage}_s") for stage in _GIVEN}
    constants = {stage: seconds for stage, seconds in given.items() if seconds is not None}
    timings = read_timings(options.timings)
    file = imported_cost_file(timings, options.counts, _about(options), constants, options.batch)
    write_cost_file(options.out, file)
    size = f"{len(file.contexts)} contexts up to {file.contexts[-1]:,}, {file.node_counts[-1]:,} drafted tokens"
    if options.json:
        print(json.dumps({"path": str(options.out), "cost_id": file.cost_id, "notes": list(file.notes)}, indent=1))
    else:
        notes = [f"  {note}" for note in file.notes]
        print("\n".join([f"Cost file: {options.out} ({file.cost_id}), {file.device}, {size}", *notes]))
    return 0


def _about(options: argparse.Namespace) -> ImportedFor:

    trace = opened(options.trace)
    manifest = trace.manifest
    kept = manifest.draft_sets[trace.draft_name(options.draft)]
    sampling = manifest.sampling
    return ImportedFor(
        target=manifest.target,
        drafter=kept.model,
        block_size=kept.block_size,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        machine=options.machine,
        dtype=options.dtype,
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, at least 0; got {text!r}")
    return value
