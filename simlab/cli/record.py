"""``simlab record``: what a drafter proposed and a target said, at every position of real text."""

import argparse
import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from simlab.cli.parser import Parser, add_command, not_negative, positive
from simlab.errors import UsageError, at_the_door, needing_models

_NO_CHANCE = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0}

_DETAILS = """The text comes from one of --prompts (the target answers them), --completions (text made
elsewhere) and --text-from (the text of another trace, for another drafter). With --hidden-states
the target's layers do not run: they ran in a serving engine that dumped them. Target and drafter
are a name that comes with simlab, a folder, or an id on the Hugging Face Hub such as Qwen/Qwen3-4B.

  simlab record --target smollm2-135m --draft dflash-smollm2-135m --prompts prompts.jsonl --out runs/mine
  simlab record --target Qwen/Qwen3-8B --draft z-lab/Qwen3-8B-DFlash-b16 --completions served.jsonl \\
    --hidden-states dumped --hidden-layers 2,10,18,26,34,36 --out runs/served
  simlab replay --trace runs/mine -p ddtree:budget=16/32/64"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "record", "Record a drafter and a target on real text.", _DETAILS)
    parser.add_argument(
        "--target", default="smollm2-135m", metavar="T", help="a folder, or a Hub id (default smollm2-135m)"
    )
    parser.add_argument(
        "--draft",
        default="dflash-smollm2-135m",
        metavar="D",
        help="a folder, a *.safetensors file, or a Hub id (default dflash-smollm2-135m)",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, metavar="FILE", help="JSONL: turns, messages, ShareGPT, or prompt")
    source.add_argument("--completions", type=Path, metavar="FILE", help="JSONL of prompts with their answers")
    source.add_argument("--text-from", metavar="TRACE", help="a trace whose text to take")
    parser.add_argument(
        "--hidden-states", type=Path, metavar="DIR", help="hidden states that vLLM dumped along --completions"
    )
    parser.add_argument(
        "--hidden-layers", type=_layers, metavar="K,K,...", help="which: its eagle_aux_hidden_state_layer_ids"
    )
    add_tap_offset(parser, "as its format has it")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the new trace")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted recording stopped")
    parser.add_argument("--dry-run", action="store_true", help="print the first prompt, size and time; record nothing")
    add_sampling(parser.add_argument_group("sampling"))
    _add_running(parser.add_argument_group("running"))
    _add_kept(parser.add_argument_group("what is kept"))
    parser.set_defaults(run=_run)


def add_sampling(group: argparse._ArgumentGroup) -> None:
    """Add the options of text that the target is to write; not given, they are None."""
    group.add_argument("--temperature", type=float, metavar="X", help="0 takes the likeliest (default 0)")
    group.add_argument("--top-p", type=float, metavar="X", help="1 for no cut (default 1)")
    group.add_argument("--top-k", type=not_negative, metavar="N", help="0 for no cut (default 0)")
    group.add_argument("--seed", type=not_negative, metavar="N", help="default 0")
    group.add_argument("--max-new-tokens", type=positive, metavar="N", help="per answer (default 256)")
    group.add_argument(
        "--chat-template-kwargs",
        type=_template_kwargs,
        metavar="JSON",
        help="such as '{\"enable_thinking\": false}'",
    )


def add_tap_offset(group: argparse._ActionsContainer, default: str) -> None:
    """Add the option that says how a drafter's checkpoint numbers the target's layers; not given, it is None.

    Args:
        group: of options.
        default: what holds then, in words.
    """
    from simlab.real_runner.checkpoints.layouts import tap_offset_help

    group.add_argument(
        "--tap-offset",
        choices=("auto", "0", "1"),
        help=f"how the drafter numbers the target's layers: {tap_offset_help()}, auto finds out by trying both "
        f"(default: {default})",
    )


def add_execution(group: argparse._ActionsContainer) -> None:
    """Add the option that says how the models' operations are started; not given, it is None."""
    from simlab.real_runner.execution.executions import EXECUTIONS, execution_help

    group.add_argument("--execution", choices=tuple(EXECUTIONS), help=execution_help())


def _layers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"expected layer numbers such as 2,10,18,36; got {text!r}")
    return tuple(map(int, text.split(",")))


def _devices(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"expected devices such as cuda:0,cuda:1; got {text!r}")
    return found


def _template_kwargs(text: str) -> dict[str, object]:
    with needing_models("record"):
        from simlab.real_runner.record.options import parse_template_kwargs
    return parse_template_kwargs(text)


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="default float32")
    group.add_argument(
        "--device",
        type=_devices,
        default=("cpu",),
        metavar="NAME[,NAME...]",
        help="cpu, cuda, cuda:1, ...; of several, each gets a process and some of the batches (default cpu)",
    )
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


def _run(options: argparse.Namespace) -> int:
    typed = {name: value for name, value in vars(options).items() if value is not None}
    typed["device"], typed["more_devices"] = options.device[0], options.device[1:]
    check_sampling(typed)
    with needing_models("record"):
        from simlab.real_runner.record.dry_run import dry_run
        from simlab.real_runner.record.options import RecordOptions
        from simlab.real_runner.record.record import record
    known = {entry.name for entry in fields(RecordOptions)}
    with at_the_door():
        chosen = RecordOptions(**{name: typed[name] for name in typed if name in known})
    if options.dry_run:
        print(dry_run(chosen))
        return 0
    try:
        folder = record(chosen)
    except KeyboardInterrupt:
        print(f"\nsimlab: interrupted; finished batches are in {chosen.out}: add --resume to go on", file=sys.stderr)
        raise
    print(f"Recorded: {folder}{_speed(folder)}")
    print(f"Replay it with `simlab replay --trace {folder} -p ddtree:budget=16/32/64`.")
    return 0


def _speed(folder: Path) -> str:
    """How fast the last run was, as its ``recording.json`` says."""
    path = folder / "recording.json"
    if not path.is_file():
        return ""
    said = json.loads(path.read_text(encoding="utf-8"))
    speed = f"{said['positions']:,} positions in {said['seconds']:,.0f} s, {said['positions_per_s']:,.0f} positions/s"
    return f" ({speed})"


def check_sampling(typed: dict[str, Any]) -> None:
    """Refuse wrong sampling before the packages that run models are imported, which takes seconds.

    Args:
        typed: the options that were given, by name.

    Raises:
        UsageError: a value is out of its range, or can change nothing.
    """
    from simlab.sampling.choice import Sampling

    given = [name for name in (*_NO_CHANCE, "max_new_tokens", "chat_template_kwargs") if name in typed]
    if given and "text_from" in typed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"--text-from takes texts as they were made, where {names} can change nothing; leave it out")
    with at_the_door():
        Sampling(**{name: typed.get(name, default) for name, default in _NO_CHANCE.items()})
