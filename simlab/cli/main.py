"""The command line: ``simlab COMMAND``. One table of commands; only the module of the one that is typed is loaded."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import NoReturn

from simlab.cli import interruption
from simlab.cli.parser import Parser, add_command
from simlab.errors import SimlabError

PERSON_CAN_FIX = 2
READER_LEFT = 141

_NEW_OBJECTS = 10_000
"""So many new objects before garbage is looked for; Python's own number is 700, or 2000."""

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("simlab.cli.demo", "Run every step once: record, profile, replay, choose, confirm, report."),
    "prompts": ("simlab.cli.prompts", "Make a prompt file of GSM8K, MBPP, HumanEval or MT-bench, dev or test."),
    "record": ("simlab.cli.record", "Record a drafter and a target on real text."),
    "replay": ("simlab.cli.replay", "Replay policies on a recorded trace: exact rounds, estimated tokens/s."),
    "compare": ("simlab.cli.compare", "Compare two results on the same prompts, with paired tests."),
    "optimize": (
        "simlab.cli.optimize",
        "Choose a policy and its settings on dev prompts; report it on other prompts.",
    ),
    "profile": ("simlab.cli.profile", "Measure the latency of each stage on this machine."),
    "import-cost": ("simlab.cli.import_cost", "Make a cost file from latencies measured elsewhere."),
    "curves": (
        "simlab.cli.curves",
        "Is expected throughput unimodal in the tree budget? What do early-stopping rules lose?",
    ),
    "scoring": (
        "simlab.cli.scoring",
        "Are the drafter's probabilities calibrated along tree paths?",
    ),
    "sparse": ("simlab.cli.sparse", "What would a server's log of one policy's rounds predict for other policies?"),
    "reproduce": ("simlab.cli.reproduce", "Reproduce a published figure: theirs, ours, the difference."),
    "confirm": ("simlab.cli.confirm", "Run policies on the real models, and compare with the prediction."),
    "report": ("simlab.cli.report", "Make one self-contained HTML file of results."),
    "train": ("simlab.cli.train", "Train a drafter for a target, or fit what policies read."),
    "policies": ("simlab.cli.policies", "List the policies, their settings and their sources."),
    "inspect": ("simlab.cli.inspect", "Show what a trace, checkpoint, cost file, fitted table or result file holds."),
    "export": ("simlab.cli.export", "Export policies and results for engines, papers and tests."),
    "completion": ("simlab.cli.completion", "Print a script that lets the shell complete commands and options."),
}
"""Each command: its module, and its summary in a sentence.

A module of a command has ``DETAILS`` (the help below the summary), ``add_arguments(parser)``, and ``run(options)``,
which gives back the exit code.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give back its exit code.

    0: done. 2: something a person can put right, said in one sentence. 130: interrupted.

    Args:
        arguments: what is typed; None: what this process was started with, which then ends with the command.
    """
    if arguments is not None:
        return _run(list(arguments))
    interruption.begin()
    # numba and polars make half a million objects that stay. To look through them for garbage, again and again while
    # they are made and once more at the end, takes a third of a short command's time.
    first = gc.get_threshold()[0]
    gc.set_threshold(_NEW_OBJECTS)
    try:
        code = _run(sys.argv[1:])
        if interruption.has_come():
            interruption.leave()
        return code
    finally:
        gc.set_threshold(first)
        gc.freeze()


def _run(typed: list[str]) -> int:
    """Run one command and give back its exit code, as `main` does; after an interruption whatever else was raised."""
    interruption.keep("")
    try:
        code = _outcome(typed)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or interruption.has_come():
            return interruption.interrupted()
        raise
    return interruption.interrupted() if interruption.has_come() else code


def _outcome(typed: list[str]) -> int:
    """Run one command and give back its exit code; what a person can put right is said in one sentence."""
    try:
        options = parser_for(*typed[:1]).read(typed)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except SimlabError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        # The reader of the output has gone; nothing may be written to it any more, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")


def parser_for(*loaded: str) -> Parser:
    """The parser of the whole command line, in which these commands have their options and the others their line.

    Args:
        loaded: names of commands; their modules are imported. What is no command is left to the parser to refuse.
    """
    parser = Parser(
        prog="simlab",
        description="An offline simulator for speculative decoding. Record drafter and target once; replay any "
        "draft-tree policy exactly; predict tokens/s; validate on the real models.",
        epilog="`simlab COMMAND --help` says more about a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version of simlab")
    commands = parser.add_commands("commands", "COMMAND", "command")
    for name, (module_name, summary) in COMMANDS.items():
        if name not in loaded:
            add_command(commands, name, summary)
            continue
        module = import_module(module_name)
        command = add_command(commands, name, summary, module.DETAILS)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    add_command(commands, "version", "Print the version of simlab.").set_defaults(run=_print_version)
    helper = add_command(commands, "help", "Show what a command does, and its options.")
    helper.add_argument("about", nargs="?", metavar="COMMAND", choices=tuple(COMMANDS), help="without it, the list")
    helper.add_argument("kind", nargs="?", metavar="KIND", help="of a command that has kinds, such as train dflash")
    helper.set_defaults(run=_print_help)
    return parser


def _print_help(options: argparse.Namespace) -> NoReturn:
    words = [word for word in (options.about, options.kind) if word is not None]
    parser_for(*words).read([*words, "--help"])
    raise AssertionError("argparse leaves when it has printed the help")


def _print_version(_options: argparse.Namespace) -> int:
    print(metadata.version("simlab"))
    return 0


class _PrintVersion(argparse.Action):
    """Print the version and leave; it is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, options: argparse.Namespace, *_: object) -> None:
        parser.exit(_print_version(options))


def _refuse(message: str) -> int:
    if not interruption.has_come():
        print(f"simlab: {message}", file=sys.stderr)
    return PERSON_CAN_FIX
