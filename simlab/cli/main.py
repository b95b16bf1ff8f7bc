"""The command line: ``simlab COMMAND``. One table of commands; only the module of the one that is typed is loaded."""

import argparse
import contextlib
import gc
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from traceback import format_exception
from typing import IO, Any, cast

from simlab.cli import interruption
from simlab.cli.parser import Parser, add_command, add_options, made_options, renamed_command
from simlab.errors import USER_CODE, SimlabError, UsageError, as_usage_error, describe_error, needing_models, user_file
from simlab.ids import VERSION
from simlab.options import check_written, written
from simlab.untrusted.visible import VisibleOutput, hide_secrets, visible

FAILED = 1
"""The exit code of a command that says no: a text is not the target's, a live server differs."""

PERSON_CAN_FIX = 2
BUG = 70
"""The exit code of a mistake in simlab itself, as sysexits.h has it."""

READER_LEFT = 141

_MOST_SAID = 2000
"""Characters of a message."""

_NEW_OBJECTS = 10_000
"""So many new objects before garbage is looked for; Python's own number is 700, or 2000."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a kind of a command.

    Attributes:
        summary: its line in the list.
        options: its class of options, ``module:Class``. Of the class, ``DETAILS`` is the help below the summary, and
            ``RESUME`` what an interrupted command leaves; fields in braces.
        run: a study, ``module:function``; or a function from options to an exit code, which prints by itself.
        models: whether it needs the packages that run models.
        json: whether its result has a JSON value, which ``--json`` prints.
    """

    summary: str
    options: str
    run: str
    models: bool = False
    json: bool = True


_STUDIES = "simlab.studies"


def _study(module: str, options: str, run: str, summary: str, json: bool = True) -> Command:
    """A study whose options stand in its own module."""
    return Command(summary, f"{_STUDIES}.{module}:{options}", f"{_STUDIES}.{module}:{run}", json=json)


def _trained(options: str, summary: str) -> Command:
    """A network that is trained."""
    where = f"simlab.real_runner.train.options:{options}"
    return Command(summary, where, "simlab.cli.train:run", models=True, json=False)


COMMANDS: dict[str, Command] = {
    "demo": _study(
        "demo.demo",
        "DemoOptions",
        "demo",
        "Run every step once: record, profile, replay, choose, confirm, report.",
        json=False,
    ),
    "prompts": _study(
        "prompts.prompts",
        "PromptsOptions",
        "prompts",
        "Make a prompt file of a benchmark; or say how many prompts a difference takes.",
    ),
    "record": Command(
        "Record a drafter and a target on real text.",
        "simlab.real_runner.record.options:RecordOptions",
        "simlab.cli.record:run",
        models=True,
        json=False,
    ),
    "replay": _study(
        "replay.replay",
        "ReplayOptions",
        "replay",
        "Replay policies on a recorded trace: exact rounds, estimated tokens/s.",
    ),
    "merge": _study("merge", "MergeOptions", "merge", "Put several result files into one."),
    "compare": _study(
        "compare", "CompareOptions", "compare", "Compare two results on the same prompts, with paired tests."
    ),
    "optimize": Command(
        "Choose a policy and its settings on dev prompts; report it on other prompts.",
        f"{_STUDIES}.optimize.options:OptimizeOptions",
        "simlab.cli.optimize:run",
    ),
    "profile": Command(
        "Measure the latency of each stage on this machine.",
        f"{_STUDIES}.profile.options:ProfileRequest",
        "simlab.cli.profile:run",
        models=True,
    ),
    "import": Command(
        "Read what was measured elsewhere: timings, engines' tables, candidates, counts of engines and benchmarks.",
        f"{_STUDIES}.engines.import_options:ImportOptions",
        f"{_STUDIES}.engines.import_files:import_files",
    ),
    "advise": _study(
        "engines.advise",
        "AdviseOptions",
        "advise",
        "Draft nothing, a chain or a tree at each batch size: gains, and engines' settings.",
    ),
    "confirm": Command(
        "Run policies on the real models, and compare with the prediction.",
        f"{_STUDIES}.confirm.request:ConfirmRequest",
        f"{_STUDIES}.confirm.confirm:confirm",
        models=True,
    ),
    "crosscheck": _study(
        "engines.crosscheck",
        "CrosscheckOptions",
        "crosscheck",
        "Does a live serving engine do what a trace predicts?",
    ),
    "report": Command(
        "Make one self-contained HTML file of results.",
        f"{_STUDIES}.report.report:ReportOptions",
        "simlab.cli.report:run",
        json=False,
    ),
    "plot": _study("plot", "PlotOptions", "plot", "Draw one picture of results: SVG, PDF, PNG or HTML."),
    "policies": _study(
        "policies", "PoliciesOptions", "list_policies", "List the policies, their settings and their sources."
    ),
    "inspect": _study(
        "inspect.inspect",
        "InspectOptions",
        "inspect",
        "Show what a trace, checkpoint, cost file, fitted table or result file holds.",
    ),
    "export": Command(
        "Export policies and results for engines, papers and tests.",
        f"{_STUDIES}.export.export:ExportOptions",
        "simlab.cli.export:run",
        json=False,
    ),
    "completion": Command(
        "Print a script that lets the shell complete commands and options.",
        "simlab.cli.completion:CompletionOptions",
        "simlab.cli.completion:run",
        json=False,
    ),
}
"""Each command by its name; those that have kinds are in `KINDS`."""

KINDS: dict[str, tuple[str, dict[str, Command]]] = {
    "train": (
        "Train a drafter for a target, or fit what policies read.",
        {
            "dflash": _trained("TrainOptions", "Train a block-diffusion drafter."),
            "treeflash": _trained("HeadOptions", "Train a first-order head for a drafter."),
            "dflash2": _trained("SelectorOptions", "Train a selector of DFlash 2 for a drafter."),
            "taps": _trained("ScorerOptions", "Train a scorer of draft trees for a drafter."),
            "eagle3": _trained("Eagle3Options", "Train an EAGLE-3 head, which needs no drafter."),
            "router": _trained("RouterOptions", "Train what chooses among the policies of a router."),
            "self": _trained("SelfOptions", "Train an adapter with which a target drafts for itself."),
            "calibration": _study(
                "fit_tables", "CalibrationOptions", "fit_calibration", "Calibrate the probabilities of a drafter."
            ),
            "ranks": _study(
                "fit_tables", "RankOptions", "fit_ranks", "Count how often a drafter's candidate of each rank is right."
            ),
            "price": _study(
                "fit_tables",
                "PriceOptions",
                "fit_price",
                "Find the rate at which a policy should exchange seconds for tokens.",
            ),
            "ngram": _study("fit_ngram", "NgramOptions", "fit_ngram", "Count a 3-gram of the target's texts."),
        },
    ),
    "study": (
        "Answer a question of research on recorded traces.",
        {
            "curves": _study(
                "curves",
                "CurvesOptions",
                "curves",
                "Is expected throughput unimodal in the tree budget? What do early-stopping rules lose?",
            ),
            "scoring": _study(
                "scoring",
                "ScoringOptions",
                "scoring",
                "Are the drafter's probabilities calibrated along tree paths?",
            ),
            "engine-rules": _study(
                "engines.rules",
                "EngineRulesOptions",
                "engine_rules",
                "Replay how vLLM and SGLang cut chains: what an oracle, fresh confidences or trees would add.",
            ),
            "reproduce": Command(
                "Reproduce a published figure: theirs, ours, the difference.",
                f"{_STUDIES}.reproduce.options:ReproduceOptions",
                f"{_STUDIES}.reproduce.reproduce:reproduce",
            ),
            "field": Command(
                "Compare every system of the field: same target, prompts and machine, run and replayed.",
                f"{_STUDIES}.field.options:FieldOptions",
                f"{_STUDIES}.field.field:field",
                models=True,
            ),
        },
    ),
}
"""Commands that have kinds: the summary, and each kind by its name."""


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
    interruption.set_resume_hint("")
    for word in typed:
        hide_secrets(word)
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
            code = _run_alone(typed)
            replaced = sys.stdout is not output
            output.flush()
        if replaced:
            raise SimlabError("a policy file or a package put something else in place of the standard output")
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
        return _unexpected(error, typed)


def _run_alone(typed: list[str]) -> int:
    """Run the command; an error in code of the user's is theirs, and nothing that is loaded ends the program."""
    options = parser_for(*typed[:2]).read(typed)
    try:
        code: int = options.run(options)
    except SimlabError:
        raise
    except BaseException as error:
        path = user_file(error)
        if interruption.has_come() or (path is None and not isinstance(error, SystemExit)):
            raise
        culprit = "a package that it uses" if path is None else f"the policy file {path}"
        description = describe_error(error)
        if isinstance(error, Exception):
            raise SimlabError(f"{culprit} failed: {description}") from error
        raise SimlabError(
            f"{culprit} ended the program ({description}) in the middle of the command; a policy raises an error "
            "instead"
        ) from error
    return code


def run_command(name: str, command: Command, typed: Mapping[str, Any]) -> int:
    """Run a command under what was typed, print its result, and give back the exit code."""
    kind = named(command.options)
    with as_usage_error():
        options = made_options(kind, typed)
    check_written(options)
    for _, how, path in written(options):
        if how.example:
            path.parent.mkdir(parents=True, exist_ok=True)
    interruption.set_resume_hint(_resume_hint(options))
    if command.models:
        with needing_models(name):
            function = named(command.run)
    else:
        function = named(command.run)
    result = getattr(function, "run", function)(options)
    if isinstance(result, int):
        return result
    if typed.get("json"):
        print(json.dumps(result.to_json(), indent=1, allow_nan=False))
    else:
        print(result.text())
        for _, how, path in written(options):
            if how.writes:
                print(f"{how.writes}: {path}")
    return FAILED if getattr(result, "has_failed", False) else 0


def named(where: str) -> Any:  # noqa: ANN401 - a class or a function
    """What a ``module:name`` of the table stands for."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def _resume_hint(options: object) -> str:
    """What an interrupted command leaves, in words; empty where that is nothing."""
    hint: str = getattr(options, "RESUME", "")
    names = [name for name in vars(options) if f"{{{name}}}" in hint]
    if any(getattr(options, name) is None for name in names):
        return ""
    return hint.format(**{name: getattr(options, name) for name in names})


def _unexpected(error: BaseException, typed: Sequence[str]) -> int:
    """Say that an error is a bug, and keep what is needed to find it."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000))  # a policy file may have set it
    about = f"simlab {VERSION}, Python {sys.version}\n{shlex.join(typed)}\n\n"
    path = _kept("".join((about, *format_exception(error))))
    if any(name.startswith(USER_CODE) for name in sys.modules):
        # Its code can change anything in this process: limits, streams, other modules.
        return _refuse(
            f"the policy file or simlab failed: {describe_error(error)}. See whether the command works without the "
            f"file; the traceback is {path}"
        )
    _refuse(
        f"this is a bug in simlab, not a mistake of yours: {describe_error(error)}. Please report it with the command "
        f"and the traceback {path}; nothing that was finished is lost"
    )
    return BUG


def _kept(report: str) -> str:
    """Write a report to a file, or else to stderr; where it is, in words."""
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix="simlab-bug-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(visible(report))
        return f"in {name}"
    print(visible(report), file=sys.stderr)
    return "above"


def parser_for(*words: str) -> Parser:
    """The parser of the whole command line, in which this command has its options and the others their line.

    Args:
        words: the first two that were typed, names of a command and a kind or not; the modules of these are imported.

    Raises:
        UsageError: the command has another name now.
    """
    if words and (sentence := renamed_command(words[0])):
        raise UsageError(f"{sentence}; see `simlab --help`")
    return _parser(words)


def whole_parser() -> Parser:
    """The parser of the whole command line, in which every command has its options; all modules are imported."""
    return _parser((*COMMANDS, *KINDS, *(kind for _, kinds in KINDS.values() for kind in kinds)))


def _parser(loaded: Sequence[str]) -> Parser:
    """The parser in which these commands and kinds have their options."""
    parser = Parser(
        prog="simlab",
        description="An offline simulator for speculative decoding. Record drafter and target once; replay any "
        "draft-tree policy exactly; predict tokens/s; validate on the real models.",
        epilog="`simlab COMMAND --help` says more about a command; docs/reference/glossary.md explains the words.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=VERSION, help="print the version of simlab")
    commands = parser.add_commands("commands", "COMMAND", "command")
    for command_name, command in COMMANDS.items():
        _add(commands, command_name, command, command_name in loaded)
    for command_name, (summary, kinds) in KINDS.items():
        own = add_command(commands, command_name, summary)
        if command_name in loaded:
            listed = own.add_commands("kinds", "KIND", "kind")
            for kind_name, kind in kinds.items():
                _add(listed, kind_name, kind, kind_name in loaded)
    add_command(commands, "version", "Print the version of simlab.").set_defaults(run=_print_version)
    helper = add_command(commands, "help", "Show what a command does, and its options.")
    names = (*COMMANDS, *KINDS)
    helper.add_argument("about", nargs="?", metavar="COMMAND", choices=names, help="without it, the list")
    helper.add_argument("kind", nargs="?", metavar="KIND", help="of a command that has kinds, such as train dflash")
    helper.set_defaults(run=_print_help)
    return parser


def _add(commands: Any, name: str, command: Command, is_loaded: bool) -> None:  # noqa: ANN401 - argparse's own action
    """Add a command or kind: its line, and its options where it is the one that is typed."""
    if not is_loaded:
        add_command(commands, name, command.summary)
        return
    kind = named(command.options)
    parser = add_command(commands, name, command.summary, kind.DETAILS)
    add_options(parser, kind)
    if command.json:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(typed: argparse.Namespace) -> int:
        line = shlex.join(["simlab", *typed.typed])
        return run_command(name, command, {**vars(typed), "command_line": line})

    parser.set_defaults(run=run)


def _print_help(options: argparse.Namespace) -> int:
    words = [word for word in (options.about, options.kind) if word is not None]
    with contextlib.suppress(SystemExit):
        parser_for(*words).read([*words, "--help"])
    return 0


def _print_version(_options: argparse.Namespace) -> int:
    print(VERSION)
    return 0


def _refuse(message: str, to_type: Sequence[str] = ()) -> int:
    message = visible(" ".join(message.splitlines()))
    if len(message) > _MOST_SAID:
        # A library's reason may quote a whole file; what to do stands at the end.
        message = f"{message[: _MOST_SAID // 2]} ... {message[-_MOST_SAID // 2 :]}"
    if not interruption.has_come():
        print("\n  ".join((f"simlab: {message}", *map(visible, to_type))), file=sys.stderr)
    return PERSON_CAN_FIX
