"""The command line: ``simlab COMMAND``."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import cast

from simlab.cli import compare as command_compare
from simlab.cli import confirm as command_confirm
from simlab.cli import curves as command_curves
from simlab.cli import demo as command_demo
from simlab.cli import export as command_export
from simlab.cli import import_cost as command_import_cost
from simlab.cli import inspect as command_inspect
from simlab.cli import optimize as command_optimize
from simlab.cli import policies as command_policies
from simlab.cli import profile as command_profile
from simlab.cli import record as command_record
from simlab.cli import replay as command_replay
from simlab.cli import report as command_report
from simlab.cli import reproduce as command_reproduce
from simlab.cli import scoring as command_scoring
from simlab.cli import sparse as command_sparse
from simlab.cli import train as command_train
from simlab.cli import version as command_version
from simlab.cli.parser import Parser
from simlab.errors import SimlabError

PERSON_CAN_FIX = 2
INTERRUPTED = 130
READER_LEFT = 141

_COMMANDS = (
    command_demo,
    command_record,
    command_replay,
    command_compare,
    command_optimize,
    command_profile,
    command_import_cost,
    command_curves,
    command_scoring,
    command_sparse,
    command_reproduce,
    command_confirm,
    command_report,
    command_train,
    command_policies,
    command_inspect,
    command_export,
    command_version,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give back its exit code.

    0: done. 2: something a person can put right, said in one sentence. 130: interrupted.
    """
    try:
        typed = sys.argv[1:] if arguments is None else arguments
        options = _parser().parse_args(typed)
        if hasattr(options, "typed"):
            options.typed = tuple(typed)
        run = cast(Callable[[object], int], options.run)
        code = run(options)
        sys.stdout.flush()
        return code
    except SimlabError as error:
        return _refused(str(error))
    except BrokenPipeError:
        # The reader of the output has gone; nothing may be written to it any more, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refused(f"{where}{error.strerror or error}")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED


def _parser() -> Parser:
    parser = Parser(
        prog="simlab",
        description="Record speculative decoding with diffusion drafters once, "
        "replay it exactly under any draft-tree policy.",
        epilog="`simlab COMMAND --help` says more about a command.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser


def _refused(message: str) -> int:
    print(f"simlab: {message}", file=sys.stderr)
    return PERSON_CAN_FIX


if __name__ == "__main__":
    sys.exit(main())
