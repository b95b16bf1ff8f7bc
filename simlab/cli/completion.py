"""``simlab completion``: commands and options completed by the shell."""

from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar

from simlab.options import option

SHELLS = ("bash", "zsh")


@dataclass(frozen=True)
class CompletionOptions:
    """The shell that a script is wanted for."""

    DETAILS: ClassVar = """\
The script is printed; it goes where the shell finds it. For bash, in this shell alone or for good:

  eval "$(simlab completion bash)"
  simlab completion bash > ~/.local/share/bash-completion/completions/simlab

For zsh, into a folder of $fpath:

  simlab completion zsh > ~/.zfunc/_simlab"""

    shell: str = option(..., "which shell", choices=SHELLS, positional=True)


def run(options: CompletionOptions) -> int:
    """Print the script; it is made beforehand, by ``make completion``, so that no command has to be loaded."""
    script = files("simlab").joinpath("data", "completion", f"simlab.{options.shell}")
    print(script.read_text(encoding="utf-8"), end="")
    return 0
