"""What commands print, write and draw of recorded data is what was kept: no figure, sentence or look changes unseen.

A file of `tests/golden/outputs` is a session: commands that are run in one folder, in order, each followed by what it
printed and by what is in the files that it wrote; pages as words and as what their figures are drawn from. The commands
of `refused.txt` are refused, each in one sentence, but for the first ones, which make what the others are given. Where
a change is meant, or a command was added at the end of a file, `make golden` writes them anew, and the difference is
read before it is committed.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from commands import ran
from kept_outputs import first_difference, lines_of, printed_lines
from made_up_confirmation import write_confirmation
from places import GOLDEN, REPOSITORY, TESTS

OUTPUTS = GOLDEN / "outputs"

WIDTH = "100"
"""Columns of the terminal."""

COMMAND = "$ simlab "
"""How a line begins that is a command of a session."""

REFUSED = "refused"
"""The session of commands that are refused."""


@contextmanager
def session_folder(parent: Path) -> Iterator[Path]:
    """Run in a folder in which data have short names, with nothing in the cache: both may be told in outputs."""
    folder, before = parent / "session", Path.cwd()
    folder.mkdir()
    (folder / "engines").symlink_to(TESTS / "data" / "engines")
    (folder / "checkpoints").symlink_to(REPOSITORY / "real_runner" / "data")
    (folder / "costs").symlink_to(REPOSITORY / "traces" / "data" / "costs")
    os.chdir(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SIMLAB_CACHE", str(parent / "cache"))
            patch.setenv("COLUMNS", WIDTH)
            yield folder
    finally:
        os.chdir(before)


def outputs_of(kept: list[str], parent: Path, is_refused: bool) -> list[str]:
    """What the commands of a kept session print today, and what is in the files that they write."""
    lines: list[str] = []
    commands = [line for line in kept if line.startswith(COMMAND)]
    with session_folder(parent) as folder:
        if any("confirmed" in command for command in commands):
            lines += ["A run that was made up, confirmed:", *printed_lines(write_confirmation(folder / "confirmed"))]
        for command in commands:
            before = set(folder.rglob("*"))
            code, out, err = ran(*shlex.split(command.removeprefix(COMMAND)))
            written = sorted(path for path in set(folder.rglob("*")) - before if path.is_file())
            lines.append(command)
            if is_refused:
                assert code in (0, 2), f"{command}\n{err}"
                assert code == 0 or (out, err.count("\n"), written) == ("", 1, []), f"{command}\n{err}"
                lines += printed_lines(err) if code else []
                continue
            assert code < 2, f"{command}\n{err}"
            lines += printed_lines(out)
            for path in written:
                lines += [f"== {path.relative_to(folder)}", *lines_of(path)]
    return lines


@pytest.mark.parametrize("session", sorted(OUTPUTS.glob("*.txt")), ids=lambda path: path.stem)
def test_outputs_are_those_that_were_kept(session: Path, tmp_path: Path) -> None:
    kept = session.read_text(encoding="utf-8").splitlines()
    difference = first_difference(outputs_of(kept, tmp_path, session.stem == REFUSED), kept)
    assert not difference, f"{session.name}, {difference}\nIf it is meant: `make golden`"


def main() -> None:
    """Write what the commands of each session print and write today."""
    for session in sorted(OUTPUTS.glob("*.txt")):
        kept = session.read_text(encoding="utf-8").splitlines()
        with TemporaryDirectory() as folder:
            lines = outputs_of(kept, Path(folder), session.stem == REFUSED)
        if first_difference(lines, kept):
            session.write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(f"{session.name}: {len(lines):,} lines")


if __name__ == "__main__":
    main()
