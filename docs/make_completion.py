"""The completion scripts that come with simlab: `make completion`. They are made of the parser of all commands."""

from importlib.resources import files
from pathlib import Path

import shtab

from simlab.cli.completion import SHELLS
from simlab.cli.main import whole_parser

FOLDER = Path(str(files("simlab"))) / "data" / "completion"


def completion_script(shell: str) -> str:
    """The script of one shell."""
    script: str = shtab.complete(whole_parser(), shell=shell)
    return script.rstrip("\n") + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in SHELLS:
        (FOLDER / f"simlab.{name}").write_text(completion_script(name), encoding="utf-8")
