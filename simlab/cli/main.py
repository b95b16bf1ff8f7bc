"""The command line: ``simlab COMMAND``. One table of commands; only the module of the one that is typed is loaded."""

import argparse
import contextlib
import gc
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import IO, cast

from simlab.cli import interruption
from simlab.cli.parser import Parser, add_command
from simlab.errors import SimlabError
from simlab.untrusted.user_code import USER_MODULE, told, user_file_of
from simlab.untrusted.visible import VisibleOutput, visible

PERSON_CAN_FIX = 2
BUG = 70
"""The exit code of a mistake in simlab itself, as sysexits.h has it."""

READER_LEFT = 141

_MOST_SAID = 2000
"""Characters of a message."""

_NEW_OBJECTS = 10_000
"""So many new objects before garbage is looked for; Python's own number is 700, or 2000."""

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("simlab.cli.demo", "Run every step once: record, profile, replay, choose, confirm, report."),
    "prompts": ("simlab.cli.prompts", "Make a prompt file of GSM8K, MBPP, HumanEval or MT-bench, dev or test."),
    "record": ("simlab.cli.record", "Record a drafter and a target on real text."),
    "replay": ("simlab.cli.replay", "Replay policies on a recorded trace: exact rounds, estimated tokens/s."),
    "merge": ("simlab.cli.merge", "Put several result files into one."),
    "compare": ("simlab.cli.compare", "Compare two results on the same prompts, with paired tests."),
    "optimize": (
        "simlab.cli.optimize",
        "Choose a policy and its settings on dev prompts; report it on other prompts.",
    ),
    "profile": ("simlab.cli.profile", "Measure the latency of each stage on this machine."),
    "import-cost": ("simlab.cli.import_cost", "Make a cost file from latencies measured elsewhere."),
    "advise": ("simlab.cli.advise", "Chain, tree or neither at each batch size: verdicts, and where they turn."),
    "curves": (
        "simlab.cli.curves",
        "Is expected throughput unimodal in the tree budget? What do early-stopping rules lose?",
    ),
    "scoring": (
        "simlab.cli.scoring",
        "Are the drafter's probabilities calibrated along tree paths?",
    ),
    "reproduce": ("simlab.cli.reproduce", "Reproduce a published figure: theirs, ours, the difference."),
    "engine-rules": (
        "simlab.cli.engine_rules",
        "Replay how vLLM and SGLang cut chains: what hindsight, fresh confidences or trees would add.",
    ),
    "confirm": ("simlab.cli.confirm", "Run policies on the real models, and compare with the prediction."),
    "field": (
        "simlab.cli.field",
        "Hold every system side by side: same target, prompts and machine, run and replayed.",
    ),
    "crosscheck": ("simlab.cli.crosscheck", "Does a live serving engine do what a trace foretells?"),
    "import-metrics": (
        "simlab.cli.import_metrics",
        "Compare what an engine or a benchmark counted with a trace: the same, or other traffic?",
    ),
    "report": ("simlab.cli.report", "Make one self-contained HTML file of results."),
    "train": ("simlab.cli.training.train", "Train a drafter for a target, or fit what policies read."),
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

    0: done. 2: something a person can put right, said in one sentence. 70: a bug in simlab. 130: interrupted.

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
        output = cast(IO[str], VisibleOutput(sys.stdout))
        with contextlib.redirect_stdout(output):
            options = parser_for(*typed[:1]).read(typed)
            code = _run_alone(options)
            replaced = sys.stdout is not output
            output.flush()
        if replaced:
            raise SimlabError("a policy file or a package put something else in the place of the standard output")
        return code
    except SimlabError as error:
        return _refuse(str(error), getattr(error, "__notes__", ()))
    except BrokenPipeError:
        # The reader of the output has gone; nothing may be written to it any more, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")
    except MemoryError:
        return _refuse("the memory of this machine is not enough for that; take fewer texts, policies or threads")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is; polars' panics are no `Exception`
        return _unforeseen(error, typed)


def _run_alone(options: argparse.Namespace) -> int:
    """Run the command; an error in code of the user's is theirs, and nothing that is loaded ends the program.

    Raises:
        SimlabError: a policy file failed, or something called for the end of the program.
    """
    try:
        code: int = options.run(options)
    except SimlabError:
        raise
    except BaseException as error:
        place = user_file_of(error)
        if interruption.has_come() or (place is None and not isinstance(error, SystemExit)):
            raise
        culprit = "a package that it uses" if place is None else f"the policy file {place}"
        said = told(error)
        if isinstance(error, Exception):
            raise SimlabError(f"{culprit} failed: {said}") from error
        raise SimlabError(
            f"{culprit} ended the program ({said}) in the middle of the command; a policy raises an error instead"
        ) from error
    return code


def _unforeseen(error: BaseException, typed: Sequence[str]) -> int:
    """Say that an error is a bug, and keep what is needed to find it."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000))  # a policy file may have set it
    with tempfile.NamedTemporaryFile(
        "w", prefix="simlab-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(f"simlab {metadata.version('simlab')}, Python {sys.version}\n{shlex.join(typed)}\n\n")
        traceback.print_exception(error, file=file)
    if any(name.startswith(USER_MODULE) for name in sys.modules):
        # Its code can change anything in this process: limits, streams, other modules.
        return _refuse(
            f"the policy file or simlab failed: {told(error)}. See whether the command works without the file; the "
            f"traceback is in {file.name}"
        )
    _refuse(
        f"this is a bug in simlab, not a mistake of yours: {told(error)}. Please report it with the file {file.name}, "
        "which has the command and the traceback; nothing that was finished is lost"
    )
    return BUG


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


def _print_help(options: argparse.Namespace) -> int:
    words = [word for word in (options.about, options.kind) if word is not None]
    with contextlib.suppress(SystemExit):
        parser_for(*words).read([*words, "--help"])
    return 0


def _print_version(_options: argparse.Namespace) -> int:
    print(metadata.version("simlab"))
    return 0


class _PrintVersion(argparse.Action):
    """Print the version and leave; it is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, options: argparse.Namespace, *_: object) -> None:
        parser.exit(_print_version(options))


def _refuse(message: str, to_type: Sequence[str] = ()) -> int:
    message = " ".join(message.splitlines())
    if len(message) > _MOST_SAID:
        # A library's reason may quote a whole file; what to do stands at the end.
        message = f"{message[: _MOST_SAID // 2]} ... {message[-_MOST_SAID // 2 :]}"
    if not interruption.has_come():
        print("\n  ".join(visible(line) for line in (f"simlab: {message}", *to_type)), file=sys.stderr)
    return PERSON_CAN_FIX
