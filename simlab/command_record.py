"""``simlab record``: what a drafter proposed and a target said, at every position of real text."""

import argparse
import sys
from pathlib import Path
from typing import Any

from simlab.command_line import Parser, UsageError, add_command, at_the_door, needing_models, not_negative, positive

_NO_CHANCE = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0}

_DETAILS = """The text comes from one of --prompts (the target answers them), --completions (text made
elsewhere) and --text-from (the text of another trace, for another drafter). Target and drafter
are a name that comes with simlab, a folder, or an id on the Hugging Face Hub such as Qwen/Qwen3-4B.

  simlab record --target smollm2-135m --draft dflash-smollm2-135m --prompts prompts.jsonl --out runs/mine
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
        help="a folder, or a Hub id (default dflash-smollm2-135m)",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, metavar="FILE", help="JSONL: turns, messages, ShareGPT, or prompt")
    source.add_argument("--completions", type=Path, metavar="FILE", help="JSONL of prompts with their answers")
    source.add_argument("--text-from", metavar="TRACE", help="a trace whose text to take")
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


def _template_kwargs(text: str) -> dict[str, object]:
    with needing_models("record"):
        from simlab.real_runner.prompts import parse_template_kwargs
    return parse_template_kwargs(text)


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="default float32")
    group.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, ... (default cpu)")
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
    check_sampling(typed)
    with needing_models("record"):
        from simlab.real_runner.dry_run import dry_run
        from simlab.real_runner.options import RecordOptions
        from simlab.real_runner.record import record
    with at_the_door():
        chosen = RecordOptions(**{name: typed[name] for name in typed if name not in ("run", "command", "dry_run")})
    if options.dry_run:
        print(dry_run(chosen))
        return 0
    try:
        folder = record(chosen)
    except KeyboardInterrupt:
        print(f"\nsimlab: interrupted; finished batches are in {chosen.out}: add --resume to go on", file=sys.stderr)
        raise
    print(f"Recorded: {folder}\nReplay it with `simlab replay --trace {folder} -p ddtree:budget=16/32/64`.")
    return 0


def check_sampling(typed: dict[str, Any]) -> None:
    """Refuse wrong sampling before the packages that run models are imported, which takes seconds.

    Args:
        typed: the options that were given, by name.

    Raises:
        UsageError: a value is out of its range, or can change nothing.
    """
    from simlab.sampling import Sampling

    given = [name for name in (*_NO_CHANCE, "max_new_tokens", "chat_template_kwargs") if name in typed]
    if given and "text_from" in typed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"--text-from takes texts as they were made, where {names} can change nothing; leave it out")
    with at_the_door():
        Sampling(**{name: typed.get(name, default) for name, default in _NO_CHANCE.items()})
