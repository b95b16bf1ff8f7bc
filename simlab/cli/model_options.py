"""Options of the commands that run models, each declared once."""

import argparse

from simlab.cli.options import Options
from simlab.cli.parser import not_negative, positive, seed, threads
from simlab.limits.typed_numbers import shown
from simlab.real_runner.checkpoints.layouts import tap_offset_help
from simlab.real_runner.execution.executions import AUTO, EXECUTIONS, execution_help
from simlab.real_runner.record.options import parse_template_kwargs

DTYPES = ("float32", "bfloat16", "float16")


def named_checkpoint(text: str) -> tuple[str, str]:
    """Name and checkpoint of ``NAME=CHECKPOINT``.

    Raises:
        ArgumentTypeError: it is none.
    """
    name, equals, checkpoint = text.partition("=")
    if not (name and equals and checkpoint):
        raise argparse.ArgumentTypeError(f"expected NAME=CHECKPOINT, such as treeflash=runs/head; got {shown(text)}")
    return name, checkpoint


def add_dtype(parser: Options, default: str | None = "float32", explained: str = "float32") -> None:
    """Add ``--dtype`` of the models' arithmetic.

    Args:
        parser: to which it is added.
        default: what it is where it is not given.
        explained: the default in words.
    """
    parser.add_argument("--dtype", choices=DTYPES, default=default, help=f"dtype of the models (default {explained})")


def add_device(parser: Options, default: str | None = "cpu") -> None:
    """Add ``--device`` that models run on."""
    parser.add_argument("--device", default=default, metavar="NAME", help="cpu, cuda, cuda:1, ... (default cpu)")


def add_device_map(parser: Options) -> None:
    """Add ``--device-map``, which spreads a target over devices; not given, it is None."""
    parser.add_argument(
        "--device-map",
        choices=(AUTO,),
        help="auto: a target too large for one device is spread over all GPUs and, where these are full, the "
        "machine's memory",
    )


def add_model_threads(parser: Options) -> None:
    """Add ``--threads`` of running models."""
    parser.add_argument("--threads", type=threads, metavar="N", help="CPU threads (default: as torch chooses)")


def add_tap_offset(parser: Options, default: str) -> None:
    """Add the option that says how a drafter's checkpoint numbers the target's layers; not given, it is None.

    Args:
        parser: to which it is added.
        default: what holds then, in words.
    """
    parser.add_argument(
        "--tap-offset",
        choices=("auto", "0", "1"),
        help=f"how the drafter numbers the target's layers: {tap_offset_help()}, auto finds out by trying both "
        f"(default: {default})",
    )


def add_block(parser: Options) -> None:
    """Add ``--block``, slots of the drafter's block; not given, it is None."""
    parser.add_argument(
        "--block",
        type=block,
        metavar="N",
        help="slots of the drafter's block, the root's counted, as an engine runs it: vLLM's num_speculative_tokens "
        "plus 1, SGLang's speculative-num-draft-tokens (default: as the checkpoint has it)",
    )


def block(text: str) -> int:
    """A number of slots, at least 2.

    Raises:
        ArgumentTypeError: it is none.
    """
    found = positive(text)
    if found < 2:
        raise argparse.ArgumentTypeError(f"a block has at least 2 slots, the root's counted; got {shown(text)}")
    return found


def add_law(parser: Options) -> None:
    """Add temperature, top-p and top-k; not given, they are None."""
    parser.add_argument("--temperature", type=float, metavar="X", help="sampling temperature; 0: greedy (default 0)")
    parser.add_argument("--top-p", type=float, metavar="X", help="top-p (nucleus) sampling; 1: off (default 1)")
    parser.add_argument("--top-k", type=not_negative, metavar="N", help="top-k sampling; 0: off (default 0)")


def add_sampling(parser: Options) -> None:
    """Add the options of text that the target is to write; not given, they are None."""
    add_law(parser)
    parser.add_argument("--seed", type=seed, metavar="N", help="random seed (default 0)")
    parser.add_argument(
        "--max-new-tokens", type=positive, metavar="N", help="new tokens per answer, at most (default 256)"
    )
    parser.add_argument(
        "--chat-template-kwargs",
        type=parse_template_kwargs,
        metavar="JSON",
        help="such as '{\"enable_thinking\": false}'",
    )


def add_execution(parser: Options) -> None:
    """Add ``--execution``, which says how the models' operations are started; not given, it is None."""
    parser.add_argument("--execution", choices=tuple(EXECUTIONS), help=execution_help())
