"""The folder of a field: what it was asked for, which steps are done, and how long each took."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simlab.errors import TraceError, UsageError
from simlab.studies.inputs.progress import announce
from simlab.traces.format.documents import json_fields
from simlab.traces.format.files import write_beside
from simlab.untrusted.json_text import parse_json

STEPS = "steps.json"
"""The file that says which steps are done."""


@dataclass(frozen=True, slots=True)
class FieldFolder:
    """Steps that leave something in a folder, each done once.

    Attributes:
        path: of the folder.
        asked: what the field is of, as JSON has it; a folder that was begun for something else is refused.
        seconds: of each step that is done.
    """

    path: Path
    asked: Mapping[str, object]
    seconds: dict[str, float]

    def once(self, step: str, title: str, work: Callable[[], object], again: bool = False) -> None:
        """Do a step, unless an earlier run finished it; what it leaves is written before this is noted.

        Args:
            step: its name, by which its seconds are kept.
            title: what is said when it begins.
            work: what it does.
            again: do it even so; its seconds are added to the earlier ones.
        """
        if step in self.seconds and not again:
            return
        announce(title)
        begun = time.perf_counter()
        work()
        self.seconds[step] = round(self.seconds.get(step, 0.0) + time.perf_counter() - begun, 1)
        text = json.dumps({"asked": self.asked, "seconds": self.seconds}, indent=1) + "\n"
        write_beside(self.path / STEPS, lambda file: file.write(text.encode()))


def open_folder(path: Path, asked: Mapping[str, object]) -> FieldFolder:
    """The folder of a field, new or begun.

    Raises:
        UsageError: it holds a field of something else, or its file of steps is damaged.
    """
    path.mkdir(parents=True, exist_ok=True)
    steps = path / STEPS
    if not steps.exists():
        return FieldFolder(path, asked, {})
    try:
        found = json_fields(steps.read_bytes(), str(steps))
        before, seconds = found.inner("asked").values, found.inner("seconds")
        done = {name: seconds.number(name) for name in seconds.values}
    except (OSError, ValueError, TraceError) as error:
        raise UsageError(f"{steps} cannot be read: {error}; give another --out, or remove {path}") from error
    wanted = parse_json(json.dumps(asked))
    assert isinstance(wanted, dict)
    differing = [key for key in {**wanted, **before} if wanted.get(key) != before.get(key)]
    if differing:
        raise UsageError(f"{path} was begun with other {', '.join(differing)}; ask for the same, or give another --out")
    return FieldFolder(path, asked, done)
