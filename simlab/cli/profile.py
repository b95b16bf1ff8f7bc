"""``simlab profile``: what drafting, selecting, verifying and committing take on this machine."""

import argparse
import json
import sys
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.model_options import (
    add_block,
    add_device,
    add_device_map,
    add_dtype,
    add_execution,
    add_law,
    add_model_threads,
    add_tap_offset,
)
from simlab.cli.options import add_json
from simlab.cli.parser import Parser, between, positive
from simlab.cli.record import channel_checkpoint
from simlab.errors import UsageError, needing_models
from simlab.studies.inputs.models import DRAFTER, TARGET, AnswerOptions

_HIGHEST, _MOST_NUMBERS, _MOST_REPEATS = 1_000_000, 10_000, 100_000

DETAILS = """Runs real rounds of target and drafter over a grid of tree sizes and context lengths, and autoregressive
decoding beside them. Writes the seconds of each stage to one cost file, the latency profile with which
`simlab replay --cost` predicts speeds. Other work on the machine is measured too: leave it alone meanwhile.

  simlab profile --dtype bfloat16 --out runs/cost.json
  simlab profile --batch 4 --out runs/cost4.json      for simlab replay --batch 4 --cost runs/cost4.json
  simlab profile --out runs/cost.json --resume        continue, under the options it was begun with
  simlab profile --out runs/cost.json --resume --channel treeflash=treeflash-smollm2-135m --units 4,8,16"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command; those that are not given are None, or as the file says."""
    parser.add_argument("--target", metavar="T", help=f"a folder, or a Hub id (default {TARGET})")
    parser.add_argument("--draft", metavar="D", help=f"a folder, a *.safetensors file, or a Hub id (default {DRAFTER})")
    add_tap_offset(parser, "as the drafter's format has it")
    add_block(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/cost.json"),
        metavar="FILE",
        help="the cost file (default runs/cost.json)",
    )
    parser.add_argument("--resume", action="store_true", help="continue the file that is there")
    add_json(parser)
    _add_grid(parser.add_argument_group("what is measured"))
    add_law(parser.add_argument_group("sampling, which is part of verification"))
    running = parser.add_argument_group("running")
    add_dtype(running, default=None)
    add_device(running, default=None)
    add_device_map(running)
    add_execution(running)
    add_model_threads(running)


def _add_grid(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--node-counts",
        type=_node_counts,
        metavar="LIST",
        help="drafted tokens, such as 1,2,8..12; 0 is always measured (default 18 numbers from 0 to 512; with "
        "cuda_graphs both ends of each size of a pass)",
    )
    group.add_argument(
        "--contexts", type=_contexts, metavar="LIST", help="tokens before the root (default 128,256,512,1024,2048)"
    )
    group.add_argument(
        "--repeats",
        type=between(1, _MOST_REPEATS),
        metavar="N",
        help="measurements of each cell, with --until-interval at least (default 9)",
    )
    group.add_argument(
        "--until-interval",
        type=float,
        metavar="X",
        help="go on until the price of every round over autoregressive decoding's is known to this share of it, by "
        "95 %% intervals: 0.03 is 3 %%",
    )
    group.add_argument(
        "--time-limit",
        type=float,
        metavar="M",
        help="end after so many minutes of measuring, once every cell has been measured",
    )
    group.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="texts at a time, each with as many drafted tokens and as long a context (default 1)",
    )
    group.add_argument(
        "--channel",
        type=channel_checkpoint,
        action="append",
        default=[],
        metavar="NAME=CHECKPOINT[,KEY=N...]",
        help="time a channel too, made by this network, with the settings of `simlab record --add-channel`; may be "
        "repeated. With --resume it is added to the file",
    )
    group.add_argument(
        "--units",
        type=_contexts,
        metavar="LIST",
        help="how much of a channel is made, such as 4,8,16: of a TreeFlash head its `previous` (default: as its "
        "settings have it)",
    )
    group.add_argument(
        "--catch-up",
        type=_missed,
        metavar="LIST",
        help="time drafts that read so many missed tokens first, such as 1,16,64,256 (1 stands for none and is always "
        "measured): what a router's drafters take that did not run for a while, the drafter's and those of each "
        "--channel that reads the text itself",
    )


_number = between(0, _HIGHEST)


def _node_counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({0, *_whole_numbers(text)}))


def _contexts(text: str) -> tuple[int, ...]:
    found = tuple(sorted(set(_whole_numbers(text))))
    if found[0] == 0:
        raise argparse.ArgumentTypeError(f"expected whole numbers, at least 1; got {text!r}")
    return found


def _missed(text: str) -> tuple[int, ...]:
    return tuple(sorted({1, *_contexts(text)}))


def _whole_numbers(text: str) -> list[int]:
    """``1,2,8..12``, both ends included, in any order."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = _number(first)
        high = _number(last) if dots else low
        if not low <= high:
            raise argparse.ArgumentTypeError(f"expected rising ranges such as 8..12; got {part!r}")
        if len(found) + high - low >= _MOST_NUMBERS:
            raise argparse.ArgumentTypeError(f"expected at most {_MOST_NUMBERS:,} numbers; {part!r} is too many")
        found += range(low, high + 1)
    return found


def run(options: argparse.Namespace) -> int:
    """Measure, and print a short report."""
    law = AnswerOptions(temperature=options.temperature, top_p=options.top_p, top_k=options.top_k)
    _ = law.sampling
    names = [name for name, _, _ in options.channel]
    if len(set(names)) < len(names):
        raise UsageError("--channel is there twice with one name; leave one out, or name another channel")
    if options.units is not None and not names:
        raise UsageError("--units says how much of a channel is timed; name the channel with --channel NAME=CHECKPOINT")
    with needing_models("profile"):
        from simlab.real_runner.profile.options import ProfileChannel  # noqa: PLC0415 - loads torch
        from simlab.studies.profile import profile  # noqa: PLC0415 - loads torch
    channels = {name: ProfileChannel(place, settings, options.units) for name, place, settings in options.channel}
    keep(f"what was measured is in {options.out}: add --resume to go on")
    table = profile(
        options.target,
        options.draft,
        out=options.out,
        node_counts=options.node_counts,
        contexts=options.contexts,
        repeats=options.repeats,
        batch=options.batch,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        dtype=options.dtype,
        device=options.device,
        device_map=options.device_map,
        execution=options.execution,
        threads=options.threads,
        tap_offset=options.tap_offset,
        block=options.block,
        until_interval=options.until_interval,
        time_limit=options.time_limit,
        resume=options.resume,
        channels=channels,
        catch_up=options.catch_up,
    )
    if table.num_visits == 0:
        print(f"{options.out} has {table.file.repeats} samples of everything; nothing was measured", file=sys.stderr)
    print(json.dumps(table.to_json(), indent=1) if options.json else table.text())
    return 0
