"""``simlab confirm``: the real models run the policies that replay compared."""

import argparse
import json
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.model_options import (
    add_device,
    add_device_map,
    add_dtype,
    add_execution,
    add_model_threads,
    add_sampling,
    add_tap_offset,
    named_checkpoint,
)
from simlab.cli.options import Options, add_by, add_json, add_limit, add_policies, add_track
from simlab.cli.parser import Parser, positive
from simlab.errors import needing_models
from simlab.studies.inputs.models import AnswerOptions

FAILED = 1

DETAILS = """Decodes the prompts of a trace with the real models, every policy in turn, and compares with the
prediction: the speed, the rounds, and whether the text is the target's own.
The prompts are those of --trace DIR, of --prompts FILE (recorded first, into OUT/trace), or of the small packaged
trace. Autoregressive decoding and the chain always run.
Exit code 1: a text is not the target's, or rounds are not those of their replay.

With --from it runs what `simlab optimize` chose: its best policy, the closest rivals and the chain.
--until-interval X ends the run when every speed ratio is known to a share X of it, --time-limit M after M minutes,
whichever comes first; where prompts are used up before, each is run again.
--batch N decodes N texts at a time, in autoregressive decoding too: prompts in groups, each decoded from its first
text to the end of its last by every policy in turn. It confirms `simlab replay --batch N`, with a latency profile of
`simlab profile --batch N`.
--batch-invariant gives every pass of the target the shape of the largest one, so that in bfloat16 too every policy
writes the text of autoregressive decoding, token for token. Autoregressive decoding then pays for as many rows, so
speeds and speedups are those of this mode, and nothing is predicted.

  simlab confirm -p ddtree:budget=16 --dtype bfloat16 --cost runs/cost.json
  simlab confirm --from runs/optimize.json --cost runs/cost.json --until-interval 0.03 --time-limit 20
  simlab confirm --batch 4 -p ddtree:budget=8 -p joint:budget=32 --cost runs/cost4.json --out runs/batches
  simlab confirm --batch-invariant -p ddtree:budget=8 --dtype bfloat16 --limit 8 --out runs/invariant
  simlab confirm -p ddtree:budget=8/16/32 --prompts prompts.jsonl --limit 20 --out runs/mine"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    add_policies(parser)
    parser.add_argument(
        "--from", dest="choice", type=Path, metavar="FILE", help="run what `simlab optimize --out FILE` chose"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--trace", metavar="DIR", help="a recorded trace: a folder, or an address such as hf://...")
    source.add_argument("--prompts", type=Path, metavar="FILE", help="prompts to record first; see `simlab record`")
    parser.add_argument(
        "--cost",
        type=Path,
        metavar="FILE",
        help="latency profile: a cost file of exactly what is run, or a packaged one",
    )
    parser.add_argument(
        "--reprice",
        type=Path,
        metavar="FILE",
        help="write that latency profile anew, corrected by the rounds that ran",
    )
    add_limit(parser)
    parser.add_argument("--batch", type=positive, metavar="N", help="decode N texts at a time (default: each alone)")
    add_by(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/confirm"),
        metavar="DIR",
        help="log, result rows and summary (default runs/confirm)",
    )
    parser.add_argument("--resume", action="store_true", help="continue where an interrupted run stopped")
    add_json(parser)
    add_track(parser)
    _add_running(parser.add_argument_group("running"))
    add_sampling(parser.add_argument_group("sampling, with --prompts; a trace brings its own"))


def _add_running(group: Options) -> None:
    group.add_argument("--target", metavar="T", help="a folder, or a Hub id (default: as the trace names it)")
    group.add_argument(
        "--draft", metavar="D", help="a folder, a *.safetensors file, or a Hub id (default: as the trace names it)"
    )
    group.add_argument(
        "--channel",
        type=named_checkpoint,
        action="append",
        default=[],
        metavar="NAME=CHECKPOINT",
        help="where the checkpoint of a channel is now (default: as the trace names it); may be repeated",
    )
    add_tap_offset(group, "as the trace was recorded")
    add_dtype(group)
    add_device(group)
    add_device_map(group)
    group.add_argument(
        "--audit-device",
        metavar="NAME",
        help="where the audit's float32 target runs, 4 bytes x parameters: cpu, cuda:1, or auto, which spreads it as "
        "--device-map does (default: that of --device)",
    )
    add_execution(group)
    group.add_argument(
        "--batch-invariant",
        action="store_true",
        help="passes of one fixed shape: the same text in any dtype, slower; caddtree, bastion and price may draft 512 "
        "tokens unless told less, and then every pass has 520 rows: give them budget=16",
    )
    add_model_threads(group)
    group.add_argument(
        "--repeats",
        type=positive,
        metavar="N",
        help="how often each text is decoded (default 1; with a stop rule at most 10)",
    )
    group.add_argument(
        "--until-interval",
        type=float,
        metavar="X",
        help="stop when every 95 %% interval of a speed ratio reaches no further than this share: 0.03 is 3 %%",
    )
    group.add_argument(
        "--time-limit",
        type=float,
        metavar="M",
        help="stop after so many minutes of measuring, at a whole prompt; the audit comes after; 0 with --resume: now",
    )


def run(options: argparse.Namespace) -> int:
    """Run policies with the real models, and print what came out."""
    answers = AnswerOptions(
        options.temperature,
        options.top_p,
        options.top_k,
        options.seed,
        options.max_new_tokens,
        options.chat_template_kwargs,
    )
    answers.check_prompts(options.prompts)
    with needing_models("confirm"):
        from simlab.studies.confirm.confirm import confirm  # noqa: PLC0415 - loads torch
    keep(f"finished parts are in {options.out}: add --resume to go on")
    confirmation = confirm(
        options.trace,
        options.policy,
        choice=options.choice,
        prompts=options.prompts,
        cost=options.cost,
        reprice=options.reprice,
        target=options.target,
        draft=options.draft,
        tap_offset=options.tap_offset,
        dtype=options.dtype,
        device=options.device,
        device_map=options.device_map,
        audit_device=options.audit_device,
        execution=options.execution,
        batch_invariant=options.batch_invariant,
        channels=dict(options.channel),
        threads=options.threads,
        repeats=options.repeats,
        batch=options.batch,
        until_interval=options.until_interval,
        time_limit=options.time_limit,
        limit=options.limit,
        by=options.by,
        out=options.out,
        resume=options.resume,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
        max_new_tokens=options.max_new_tokens,
        chat_template_kwargs=options.chat_template_kwargs,
        track=options.track,
    )
    if options.json:
        print(json.dumps(confirmation.to_json(), indent=1, allow_nan=False))
    else:
        print(f"{confirmation.text()}\n\nLog, result rows and summary: {options.out}")
    return FAILED if confirmation.has_failed else 0
