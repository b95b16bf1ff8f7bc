"""``simlab import-cost``: seconds that were measured elsewhere, as a cost file."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_draft_set, add_json, check_file_to_write
from simlab.cli.parser import Parser, positive
from simlab.cost import GRID_STAGES, PLAIN
from simlab.errors import UsageError
from simlab.studies.inputs.trace import longest_context, opened
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.artefacts.cost_import import (
    DRAFTED_ONLY,
    ImportedFor,
    PassTimings,
    imported_cost_file,
    read_timings,
)
from simlab.traces.artefacts.engine_files import FORMS, read_engine_table
from simlab.traces.artefacts.engine_tables import BenchCell
from simlab.traces.artefacts.engine_timings import engine_timings, shape_checks
from simlab.untrusted.visible import visible

TIMINGS = "timings"
_COUNTS = ("root-included", "drafted-only")
_GIVEN = tuple(stage for stage in (*GRID_STAGES, PLAIN) if stage != "verify")

DETAILS = """TIMINGS is CSV with a line of names, or a JSON list of objects: nodes, context, seconds, and batch where it
is not 1; several rows of the same sizes are repeated measurements. The seconds are those of the target's pass. Engines
count its tokens in two ways, so --counts must say which; cost files count drafted tokens.
TIMINGS may also be a cost table of an engine, which is recognised: SGLang's JSON of steps a second or its additive one,
vLLM's two curves {"draft_curve": [[requests, ms], ...], "verify_curve": [[tokens, ms], ...]}, or a result of
`vllm bench serve --save-result`, which is one cell. Shapes of such a table that cannot occur are printed.
The file is for the models of a trace. simlab cannot verify which models these timings are from. Without --trace it is
for those of the small packaged trace. What is not given is printed, and kept as a note in the file.

  simlab import-cost timings.csv --counts root-included --trace runs/mine --draft-s 0.0065 --out runs/engine.json
  simlab import-cost caddtree-a800-qwen3-4b --counts root-included --draft-s 0.0065 --machine "NVIDIA A800"
    --dtype bfloat16 --out runs/a800.json
  simlab import-cost dspark_sps.json --batch 8 --plain-s 0.011 --trace runs/mine --out runs/sglang8.json
  simlab replay --trace runs/mine --cost runs/engine.json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("timings", metavar="TIMINGS", help="CSV or JSON; or the name of packaged timings")
    parser.add_argument(
        "--counts",
        choices=_COUNTS,
        help="what nodes of CSV and lists counts, needed there: tokens of the pass, the root among them, or drafted "
        "tokens, one fewer",
    )
    parser.add_argument(
        "--format",
        choices=("auto", TIMINGS, *FORMS),
        default="auto",
        help="what is expected in TIMINGS; auto recognises it (default: auto)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the cost file")
    parser.add_argument("--trace", metavar="DIR", help="a recorded trace of the models that were timed")
    add_draft_set(parser)
    parser.add_argument("--machine", default="", metavar="NAME", help="the device, such as NVIDIA A800")
    parser.add_argument(
        "--dtype", default="unknown dtype", metavar="NAME", help="dtype of the models, such as bfloat16"
    )
    parser.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="take the timings of N texts at a time, nodes being those of each; of an engine's table it may be any "
        "number within (default: 1, or that of the run)",
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
    about, longest = _about(options)
    timings, counts, checks = _timings(options, about.block_size, longest, constants)
    file = imported_cost_file(timings, counts, about, constants, options.batch)
    write_cost_file(options.out, file)
    size = f"{len(file.contexts)} contexts up to {file.contexts[-1]:,}, {file.node_counts[-1]:,} drafted tokens"
    if options.json:
        found = {"path": str(options.out), "cost_id": file.cost_id, "notes": list(file.notes), "checks": list(checks)}
        print(json.dumps(found, indent=1))
    else:
        notes = [f"  {visible(note)}" for note in (*file.notes, *checks)]
        print("\n".join([f"Cost file: {options.out} ({file.cost_id}), {file.device}, {size}", *notes]))
    return 0


def _timings(
    options: argparse.Namespace, block_size: int, longest: int, constants: dict[str, float]
) -> tuple[PassTimings, str, tuple[str, ...]]:
    """The timings, what their nodes count, and what to know of shapes; ``constants`` get what an engine's table has."""
    table = None if options.format == TIMINGS else read_engine_table(options.timings)
    form = TIMINGS if table is None else table.form
    if options.format not in ("auto", form):
        raise UsageError(f"{options.timings} is no file of --format {options.format}; it looks like {form}")
    if table is None:
        if options.counts is None:
            raise UsageError(f"timings need --counts {' or '.join(_COUNTS)}: what nodes counts is not in the file")
        return read_timings(options.timings), options.counts, ()
    if options.counts is not None:
        raise UsageError("--counts is for CSV and lists; an engine's table counts the roots, which is known")
    batch = options.batch or (table.concurrency if isinstance(table, BenchCell) else 1)
    timings = engine_timings(table, Path(options.timings).name, batch, longest)
    if not table.whole_steps:
        constants.setdefault("draft", table.draft_s(batch))
    return timings, DRAFTED_ONLY, shape_checks(table, batch, block_size)


def _about(options: argparse.Namespace) -> tuple[ImportedFor, int]:

    trace = opened(options.trace)
    manifest = trace.manifest
    kept = manifest.draft_sets[trace.draft_name(options.draft)]
    sampling = manifest.sampling
    about = ImportedFor(
        target=manifest.target,
        drafter=kept.model,
        block_size=kept.block_size,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        machine=options.machine,
        dtype=options.dtype,
    )
    return about, max(longest_context(trace, None), 1)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, at least 0; got {text!r}")
    return value
