"""``simlab record``: what a drafter proposed and a target said, at every position of real text."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cli.interruption import keep
from simlab.cli.model_options import (
    add_block,
    add_device_map,
    add_dtype,
    add_sampling,
    add_tap_offset,
    named_checkpoint,
)
from simlab.cli.options import add_limit, add_ray, add_shard
from simlab.cli.parser import Parser, not_negative, positive
from simlab.errors import UsageError, named_or_listed, needing_models
from simlab.limits.typed_numbers import shown
from simlab.policy import MADE_WITH
from simlab.studies.inputs.models import DRAFTER, TARGET, AnswerOptions, value_or
from simlab.workers.parts import Part

if TYPE_CHECKING:
    from simlab.real_runner.record.additions.add import ChannelOptions, DraftOptions

_CONFIGS, _SAMPLE = "configs", "sample"

_SETTINGS = tuple(dict.fromkeys(key for keys in MADE_WITH.values() for key in keys))
"""Of a channel, behind its checkpoint."""

_OF_DRAFTER = "-p ddtree:budget=16/32/64"
_TO_REPLAY = {("chain", True): "-p chain -p eagle3:budget=59", ("drafter", False): "-p self:budget=4,masked=-1/0/4"}
"""Policies for a first replay, by what all draft sets of a trace are."""

_OF_TEXTS = (
    "out",
    "limit",
    "hidden_states",
    "hidden_layers",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "max_new_tokens",
    "chat_template_kwargs",
    "batch_size",
    "ray",
    "workers",
    "gpus_per_worker",
    "shard",
)
"""Options that say which texts are recorded, where and how."""

_OF_DRAFTS = ("min_width", "exact_budget", "tap_offset", "block")
"""Options that say what is kept of a drafter, and how it is read."""

DETAILS = """The text comes from one of --prompts (the target answers them), --completions (text made
elsewhere) and --text-from (the text of another trace, for another drafter). With --hidden-states
the target's layers do not run: they ran in a serving engine that dumped them. Target and drafter
are a name that comes with simlab, a folder, or an id on the Hugging Face Hub such as Qwen/Qwen3-4B.

  simlab record --target smollm2-135m --draft dflash-smollm2-135m --prompts prompts.jsonl --out runs/mine
  simlab record --target Qwen/Qwen3-8B --draft z-lab/Qwen3-8B-DFlash-b16 --completions served.jsonl \\
    --hidden-states dumped --hidden-layers 2,10,18,26,34,36 --out runs/served
  simlab replay --trace runs/mine -p ddtree:budget=16/32/64

A head of EAGLE-3 is a --draft too: its chain becomes the draft set, its trees the channel eagle3. So is an
adapter with which a target drafts for itself: what it says at its own masks becomes the draft set self.

A head of TreeFlash, a scorer of TAPS, or another drafter, is added to a finished trace along its own texts:

  simlab record --trace runs/mine --add-channel treeflash=runs/head,previous=16,top_k=16
  simlab record --trace runs/mine --add-draft other=runs/drafter

Several machines record a part each: with --shard 0/4 to 3/4, into one folder that they share, or each into its own
(docs/how_to/many_machines.md)."""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--target",
        metavar="T",
        help=f"a folder, or a Hub id (default {TARGET}; with --trace as the trace names it)",
    )
    parser.add_argument(
        "--draft",
        metavar="D",
        help=f"a folder, a *.safetensors file, or a Hub id (default {DRAFTER}; with --trace as the trace names it)",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, metavar="FILE", help="JSONL: turns, messages, ShareGPT, or prompt")
    source.add_argument("--completions", type=Path, metavar="FILE", help="JSONL of prompts with their answers")
    source.add_argument("--text-from", metavar="TRACE", help="a trace whose text to take")
    source.add_argument("--trace", metavar="DIR", help="a finished trace, to which something is added")
    parser.add_argument(
        "--hidden-states", type=Path, metavar="DIR", help="hidden states that vLLM dumped along --completions"
    )
    parser.add_argument(
        "--hidden-layers",
        type=_layers,
        default=(),
        metavar="K,K,...",
        help="which: its eagle_aux_hidden_state_layer_ids",
    )
    add_tap_offset(parser, "as its format has it")
    add_block(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder of the new trace")
    add_limit(parser)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted recording stopped")
    parser.add_argument(
        "--dry-run",
        nargs="?",
        const=_CONFIGS,
        choices=(_CONFIGS, _SAMPLE),
        help="record nothing. configs (default): memory and disk, computed from both config.json; nothing else is "
        "fetched. sample: the first prompt, size and time, measured on a few prompts",
    )
    add_sampling(parser.add_argument_group("sampling"))
    _add_running(parser.add_argument_group("running"))
    _add_kept(parser.add_argument_group("what is kept"))
    _add_additions(parser.add_argument_group("what is added to --trace"))


def _add_running(group: argparse._ArgumentGroup) -> None:
    add_dtype(group, None, "float32; with --trace that of the trace")
    group.add_argument(
        "--device",
        type=_devices,
        default=("cpu",),
        metavar="NAME[,NAME...]",
        help="cpu, cuda, cuda:1, ...; of several, each gets a worker and some of the batches (default cpu)",
    )
    add_device_map(group)
    add_ray(group)
    group.add_argument(
        "--gpus-per-worker", type=positive, metavar="N", help="with --device-map auto: GPUs of one worker (default 1)"
    )
    add_shard(group, "record one part of the batches, on each machine another, into one folder or each its own")
    group.add_argument("--batch-size", type=positive, metavar="N", help="prompts in a batch and a shard (default 32)")


def _add_kept(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--min-width", type=positive, metavar="N", help="candidates per depth (default 64)")
    group.add_argument(
        "--exact-budget",
        type=positive,
        metavar="N",
        help="the largest exact best-first tree (default 512)",
    )


def _add_additions(group: argparse._ArgumentGroup) -> None:
    what = group.add_mutually_exclusive_group()
    what.add_argument(
        "--add-channel",
        type=channel_checkpoint,
        metavar="NAME=CHECKPOINT[,KEY=N...]",
        help="a TreeFlash head, by previous (tokens of each depth that have a row, default 16), top_k (tokens of a "
        "row, default 16) and candidates (score the drafter's first N alone; default: the whole vocabulary); or a TAPS "
        "scorer, by beam (nodes of each depth) and extensions (candidates looked at below each; default: as trained)",
    )
    what.add_argument("--add-draft", type=named_checkpoint, metavar="NAME=CHECKPOINT", help="another drafter")
    group.add_argument(
        "--draft-set", metavar="NAME", help="the draft set that a channel extends, where the trace holds more than one"
    )


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(not_negative, text.split(",")))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"expected layer numbers such as 2,10,18,36; got {shown(text)}") from error


def _devices(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"expected devices such as cuda:0,cuda:1; got {text!r}")
    return found


def channel_checkpoint(text: str) -> tuple[str, str, dict[str, int]]:
    """Name, checkpoint and settings of ``NAME=CHECKPOINT,key=value``.

    Raises:
        ArgumentTypeError: it is none, or a setting is unknown, there twice, or no number.
    """
    named, *typed = text.split(",")
    settings: dict[str, int] = {}
    for one in typed:
        key, _, value = one.partition("=")
        if key not in _SETTINGS:
            asked = named_or_listed(key, _SETTINGS, f"expected {', '.join(_SETTINGS)}")
            raise argparse.ArgumentTypeError(f"a channel has no setting {shown(key)}{asked}")
        if key in settings:
            raise argparse.ArgumentTypeError(f"the setting {key} of a channel is there twice; leave one out")
        settings[key] = positive(value)
    return *named_checkpoint(named), settings


def run(options: argparse.Namespace) -> int:
    """Record, and say where the trace is; or say what a recording would be."""
    if options.trace is not None:
        return _add(options)
    for option in ("add_channel", "add_draft", "draft_set"):
        if getattr(options, option) is not None:
            raise UsageError(f"{_typed(option)} adds to a finished trace; name it with --trace, in place of a text")
    if options.out is None:
        raise UsageError("the following arguments are required: --out; see `simlab record --help`")
    return _record(options)


def _add(options: argparse.Namespace) -> int:
    """Add to a trace, and say how it is replayed; or say what that would take."""
    if options.add_channel is None and options.add_draft is None:
        raise UsageError("--trace names what is added to; say what with --add-channel or --add-draft NAME=CHECKPOINT")
    _check_no_use(options)
    with needing_models("record"):
        from simlab.real_runner.record.additions.add import add  # noqa: PLC0415 - loads torch
        from simlab.real_runner.record.additions.dry_run import (  # noqa: PLC0415 - loads torch
            foresee_addition,
            measure_addition,
        )
    wanted = _addition(options)
    if options.dry_run is not None:
        print(foresee_addition(wanted) if options.dry_run == _CONFIGS else measure_addition(wanted))
        return 0
    keep(f"finished shards are in {options.trace}: add --resume to go on")
    add(wanted)
    place, name = shlex.quote(options.trace), wanted.name
    if options.add_channel is not None:
        print(f"Added: the channel {name} of {options.trace}; `simlab inspect {place}` checks it.")
    else:
        print(f"Added: the draft set {name} of {options.trace}")
        print(f"Replay it with `simlab replay --trace {place} --draft {name} -p ddtree:budget=16/32/64`.")
    return 0


def _addition(options: argparse.Namespace) -> "ChannelOptions | DraftOptions":
    """What is to be added, checked as far as options go."""
    from simlab.studies.record import channel_options, draft_options  # noqa: PLC0415 - loads torch

    running = {
        "target": options.target,
        "dtype": options.dtype,
        "device": options.device[0],
        "device_map": options.device_map,
        "resume": options.resume,
    }
    if options.add_channel is not None:
        name, checkpoint, settings = options.add_channel
        return channel_options(
            options.trace, name, checkpoint, settings, draft=options.draft, draft_set=options.draft_set, **running
        )
    name, checkpoint = options.add_draft
    return draft_options(
        options.trace,
        name,
        checkpoint,
        tap_offset=options.tap_offset,
        block=options.block,
        min_width=value_or(options.min_width, 64),
        exact_budget=value_or(options.exact_budget, 512),
        **running,
    )


def _check_no_use(options: argparse.Namespace) -> None:
    """Refuse what can change nothing about texts that are there, or about this kind of addition."""
    names = [*_OF_TEXTS, *(_OF_DRAFTS if options.add_channel is not None else ("draft", "draft_set"))]
    given = [_typed(name) for name in names if getattr(options, name) not in (None, ())]
    if given:
        what = "--add-channel" if options.add_channel is not None else "--add-draft"
        raise UsageError(f"{', '.join(given)} can change nothing about {what}; leave it out")
    if len(options.device) > 1:
        raise UsageError(f"an addition runs on one device; give --device {options.device[0]}")


def _typed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _record(options: argparse.Namespace) -> int:
    answers = AnswerOptions(
        options.temperature,
        options.top_p,
        options.top_k,
        options.seed,
        options.max_new_tokens,
        options.chat_template_kwargs,
    )
    answers.check_text_from(options.text_from)
    with needing_models("record"):
        from simlab.real_runner.record.dry_run import dry_run  # noqa: PLC0415 - loads torch
        from simlab.real_runner.record.static_estimate import foresee  # noqa: PLC0415 - loads torch
        from simlab.studies.record import (  # noqa: PLC0415 - loads torch
            record_options,
            record_part,
            record_with,
            recording_speed,
        )
    wanted = record_options(
        value_or(options.target, TARGET),
        value_or(options.draft, DRAFTER),
        out=options.out,
        prompts=options.prompts,
        completions=options.completions,
        text_from=options.text_from,
        hidden_states=options.hidden_states,
        hidden_layers=options.hidden_layers,
        tap_offset=options.tap_offset,
        block=options.block,
        limit=options.limit,
        resume=options.resume,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
        max_new_tokens=options.max_new_tokens,
        chat_template_kwargs=options.chat_template_kwargs,
        dtype=value_or(options.dtype, "float32"),
        device=options.device,
        device_map=options.device_map,
        ray=options.ray,
        workers=options.workers,
        gpus_per_worker=options.gpus_per_worker,
        batch_size=value_or(options.batch_size, 32),
        min_width=value_or(options.min_width, 64),
        exact_budget=value_or(options.exact_budget, 512),
        shard=options.shard,
    )
    if options.dry_run is not None:
        if options.shard is not None:
            raise UsageError("--dry-run foresees a whole recording; leave out --shard")
        print(foresee(wanted) if options.dry_run == _CONFIGS else dry_run(wanted))
        return 0
    keep(f"finished batches are in {options.out}: add --resume to go on")
    if options.shard is not None:
        return _tell_part(options.out, options.shard, record_part(wanted))
    trace = record_with(wanted)
    speed = recording_speed(options.out)
    print(f"Recorded: {options.out}{f' ({speed})' if speed else ''}")
    kinds = {("chain" if one.is_chain else "drafter", one.root_seen) for one in trace.manifest.draft_sets.values()}
    policies = _TO_REPLAY.get(kinds.pop(), _OF_DRAFTER) if len(kinds) == 1 else _OF_DRAFTER
    print(f"Replay it with `simlab replay --trace {shlex.quote(str(options.out))} {policies}`.")
    return 0


def _tell_part(out: Path, part: Part, missing: Sequence[int]) -> int:
    """Say what a part of a recording lacks to be a trace, and how it becomes one."""
    place = shlex.quote(str(out))
    if missing:
        print(f"Recorded: part {part} in {out}; it lacks {len(missing):,} batches of other parts.")
        print("When all are recorded, in folders of their own: `simlab merge FOLDER FOLDER ... --out TRACE`.")
    else:
        print(f"Recorded: part {part}, and with it all of {out}; see `simlab inspect {place}`.")
    return 0
