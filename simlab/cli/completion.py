"""``simlab completion``: commands and options completed by the shell."""

import argparse
from importlib.resources import files

from simlab.cli.parser import Parser

SHELLS = ("bash", "zsh")

DETAILS = """The script is printed; it goes where the shell finds it. For bash, in this shell alone or for good:

  eval "$(simlab completion bash)"
  simlab completion bash > ~/.local/share/bash-completion/completions/simlab

For zsh, into a folder of $fpath:

  simlab completion zsh > ~/.zfunc/_simlab"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(options: argparse.Namespace) -> int:
    """Print the script; it is made beforehand, by ``make completion``, so that no command has to be loaded."""
    script = files("simlab").joinpath("data", "completion", f"simlab.{options.shell}")
    print(script.read_text(encoding="utf-8"), end="")
    return 0
