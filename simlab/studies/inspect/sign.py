"""Signing a file that was edited by hand: simlab checks what it can, and writes the digest of what it says."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from simlab.errors import SimlabError, UsageError
from simlab.studies.inspect.inspect import Inspection, inspect
from simlab.traces.artefacts import confirmation, cost, optimum, table
from simlab.traces.artefacts.kinds import format_of, looks_like_results
from simlab.traces.format.documents import Json, in_lines, json_fields, with_digest
from simlab.traces.format.files import MANIFEST, local_folder, write_beside
from simlab.traces.format.tables import read_columns, table_facts
from simlab.traces.results.files import FORMAT, noted_part, write_results
from simlab.traces.results.rows import ADDED, results_schema
from simlab.untrusted.json_text import file_bytes

SIGNABLE = "the folder of a trace, a cost file, a fitted table, a choice, the summary of a confirmation, or results"

_LISTS = {cost.FORMAT: "samples", table.FORMAT: "values", optimum.FORMAT: "", confirmation.FORMAT: ""}
"""The formats of JSON, each with the list in which every entry has a line of its own; empty: there is none."""

_VOUCHED = (
    "Signed. Every value can stand where it stands, and the file has the digest of them all: later changes are found.\n"
    "That the values are true, you vouch for."
)


def sign(path: str, progress: bool | None = None) -> Inspection:
    """Sign a file of simlab's that was edited by hand, or is of an older simlab; it is checked before.

    Args:
        path: of the file, or the folder of a trace.
        progress: whether a bar is shown; None: on a terminal.
    """
    location = local_folder(path)
    if location is None or not location.exists():
        raise UsageError(f"there is nothing at {path} that could be signed; expected {SIGNABLE}")
    if location.is_dir():
        inspection = _signed_trace(location, path, progress)
    else:
        kind = format_of(location)
        if kind not in (*_LISTS, FORMAT) and not (kind is None and looks_like_results(location)):
            raise UsageError(f"{path} is of no kind that can be signed; expected {SIGNABLE}")
        inspection = _signed_file(location, path, kind)
    lines = f"{inspection.lines}\n\n{_VOUCHED}" if inspection.lines else _VOUCHED
    return Inspection({**inspection.value, "path": path, "signed": True}, lines)


def _signed_file(location: Path, path: str, kind: str | None) -> Inspection:
    with TemporaryDirectory(dir=location.parent, prefix=f".{location.name}.") as beside:
        copy = Path(beside) / location.name
        try:
            _write(location, copy, kind)
            inspection = _checked(copy)
        except SimlabError as error:
            raise type(error)(str(error).replace(str(copy), path)) from error
        content = copy.read_bytes()
    write_beside(location, lambda file: file.write(content))
    return Inspection(inspection.value, inspection.lines.replace(str(copy), path))


def _checked(copy: Path) -> Inspection:
    """A signed copy as it is read; that of a confirmation is read by the report alone."""
    if format_of(copy) == confirmation.FORMAT:
        confirmed = confirmation.read_confirmation(copy)
        return Inspection({"kind": "confirmation"}, f"{confirmed.heading}\n\n{confirmed.verdict}")
    return inspect(str(copy))


def _signed_trace(folder: Path, path: str, progress: bool | None) -> Inspection:
    """Prove a trace whole under the manifest that it would have, and write that."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise UsageError(f"{path} holds no {MANIFEST}, so it is no trace; expected {SIGNABLE}")
    content = (json.dumps(with_digest(_values(manifest)), indent=2, ensure_ascii=False) + "\n").encode()
    with TemporaryDirectory(prefix="simlab-sign-") as beside:
        for file in folder.iterdir():
            if file.name != MANIFEST:
                (Path(beside) / file.name).symlink_to(file)
        (Path(beside) / MANIFEST).write_bytes(content)
        try:
            inspection = inspect(beside, progress)
        except SimlabError as error:
            raise type(error)(str(error).replace(beside, path)) from error
    write_beside(manifest, lambda file: file.write(content))
    return Inspection(inspection.value, inspection.lines.replace(beside, path))


def _values(path: Path) -> Json:
    try:
        return dict(json_fields(file_bytes(path), str(path)).values)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not JSON of simlab ({error}), so there is nothing to sign") from error


def _write(source: Path, path: Path, kind: str | None) -> None:
    """Write what a file says with its digest, as simlab writes files of its kind."""
    if kind in _LISTS:
        value, rows = with_digest(_values(source)), _LISTS[kind]
        text = in_lines(value, rows) if rows else json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
        return
    facts = table_facts(source)
    known = facts.inner("sequences") if "sequences" in facts.values else None
    sequences = {} if known is None else {text_id: known.integer(text_id) for text_id in known.values}
    rows_of_results, _ = read_columns(source, results_schema(), ADDED)
    write_results(path, rows_of_results, sequences, noted_part(facts))
