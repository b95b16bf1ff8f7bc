"""The golden record: what every command prints and writes on the packaged data, held against commit 8a8bb01.

    python tests/whole/golden_record.py                  # in this checkout: what differs from the record
    python tests/whole/golden_record.py --keep before    # and keep the outputs, for diff

``tests/golden/commands.json`` has each command, its exit code, and digests of its output and files, as they were before
the redesign of decisions 11 and 12. A command that is spelled otherwise since has both spellings; ``--before`` is for a
checkout of that commit (PYTHONPATH). The recording needs the built-in target. It takes about eight minutes on two
cores.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import simlab

ROOT = Path(simlab.__file__).parents[1]
RECORD = Path(__file__).parents[1] / "golden" / "commands.json"

FILES_WITH_TIMES = ("recording.json",)
COMMANDS_WITH_TIMES = ("record",)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def outcome(typed: str, work: Path, keep: Path | None, name: str) -> dict[str, object]:
    """Run a command in a folder: its exit code, and digests of its output and of the files that it made."""
    before = {path for path in work.rglob("*") if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "simlab", *shlex.split(typed)],
        cwd=work,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "120", "PYTHONPATH": str(ROOT)},
        check=False,
    )
    text = done.stdout.replace(str(work), "WORK").replace(str(ROOT), "ROOT")
    with contextlib.suppress(ValueError):  # a table is no JSON
        text = json.dumps(json.loads(text), indent=1)
    if keep is not None:
        (keep / f"{name}.out").write_text(text, encoding="utf-8")
    made = sorted(path for path in work.rglob("*") if path.is_file() and path not in before)
    files = {
        str(path.relative_to(work)): "not compared" if path.name in FILES_WITH_TIMES else _digest(path.read_bytes())
        for path in made
    }
    printed = "not compared" if name in COMMANDS_WITH_TIMES else _digest(text.encode())
    return {"exit": done.returncode, "stdout": printed, "files": files}


def main() -> None:
    """Run all commands, and print the names of those whose outcome is another than recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True, exist_ok=True)
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    work = Path(tempfile.mkdtemp())
    for name, kept in recorded.items():
        typed = kept.pop("typed_before"), kept.pop("typed")
        found = outcome(typed[not chosen.before], work, chosen.keep, name)
        print(name, "equal" if found == kept else f"DIFFERS: {found}, recorded {kept}", flush=True)


if __name__ == "__main__":
    main()
