"""The command line: ``simlab COMMAND``."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import cast

from simlab import (
    command_compare,
    command_confirm,
    command_curves,
    command_demo,
    command_export,
    command_import_cost,
    command_inspect,
    command_optimize,
    command_policies,
    command_profile,
    command_record,
    command_replay,
    command_report,
    command_reproduce,
    command_scoring,
    command_sparse,
    command_train,
    command_version,
)
from simlab.command_line import Parser
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
