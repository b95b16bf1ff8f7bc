"""``simlab record``: what a drafter proposed and a target said, at every position of real text."""

import argparse
import shlex
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.model_options import add_device_map, add_dtype, add_sampling, add_tap_offset
from simlab.cli.options import add_limit
from simlab.cli.parser import Parser, not_negative, positive
from simlab.errors import needing_models
from simlab.limits.typed_numbers import shown
from simlab.studies.inputs.models import DRAFTER, TARGET, AnswerOptions

_CONFIGS, _SAMPLE = "configs", "sample"

DETAILS = """The text comes from one of --prompts (the target answers them), --completions (text made
elsewhere) and --text-from (the text of another trace, for another drafter). With --hidden-states
the target's layers do not run: they ran in a serving engine that dumped them. Target and drafter
are a name that comes with simlab, a folder, or an id on the Hugging Face Hub such as Qwen/Qwen3-4B.

  simlab record --target smollm2-135m --draft dflash-smollm2-135m --prompts prompts.jsonl --out runs/mine
  simlab record --target Qwen/Qwen3-8B --draft z-lab/Qwen3-8B-DFlash-b16 --completions served.jsonl \\
    --hidden-states dumped --hidden-layers 2,10,18,26,34,36 --out runs/served
  simlab replay --trace runs/mine -p ddtree:budget=16/32/64"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--target", default=TARGET, metavar="T", help=f"a folder, or a Hub id (default {TARGET})")
    parser.add_argument(
        "--draft",
        default=DRAFTER,
        metavar="D",
        help=f"a folder, a *.safetensors file, or a Hub id (default {DRAFTER})",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, metavar="FILE", help="JSONL: turns, messages, ShareGPT, or prompt")
    source.add_argument("--completions", type=Path, metavar="FILE", help="JSONL of prompts with their answers")
    source.add_argument("--text-from", metavar="TRACE", help="a trace whose text to take")
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
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the new trace")
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


def _add_running(group: argparse._ArgumentGroup) -> None:
    add_dtype(group)
    group.add_argument(
        "--device",
        type=_devices,
        default=("cpu",),
        metavar="NAME[,NAME...]",
        help="cpu, cuda, cuda:1, ...; of several, each gets a process and some of the batches (default cpu)",
    )
    add_device_map(group)
    group.add_argument(
        "--batch-size", type=positive, default=32, metavar="N", help="prompts in a batch and a shard (default 32)"
    )


def _add_kept(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--min-width", type=positive, default=64, metavar="N", help="candidates per depth (default 64)")
    group.add_argument(
        "--exact-budget",
        type=positive,
        default=512,
        metavar="N",
        help="the largest exact best-first tree (default 512)",
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


def run(options: argparse.Namespace) -> int:
    """Record, and say where the trace is; or say what a recording would be."""
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
        from simlab.studies.record import record_options, record_with, recording_speed  # noqa: PLC0415 - loads torch
    wanted = record_options(
        options.target,
        options.draft,
        out=options.out,
        prompts=options.prompts,
        completions=options.completions,
        text_from=options.text_from,
        hidden_states=options.hidden_states,
        hidden_layers=options.hidden_layers,
        tap_offset=options.tap_offset,
        limit=options.limit,
        resume=options.resume,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
        max_new_tokens=options.max_new_tokens,
        chat_template_kwargs=options.chat_template_kwargs,
        dtype=options.dtype,
        device=options.device,
        device_map=options.device_map,
        batch_size=options.batch_size,
        min_width=options.min_width,
        exact_budget=options.exact_budget,
    )
    if options.dry_run is not None:
        print(foresee(wanted) if options.dry_run == _CONFIGS else dry_run(wanted))
        return 0
    keep(f"finished batches are in {options.out}: add --resume to go on")
    record_with(wanted)
    speed = recording_speed(options.out)
    print(f"Recorded: {options.out}{f' ({speed})' if speed else ''}")
    print(f"Replay it with `simlab replay --trace {shlex.quote(str(options.out))} -p ddtree:budget=16/32/64`.")
    return 0
