"""What kind of file something is, by what it says of itself; the names of files that come with simlab."""

import json
from importlib.resources import files
from pathlib import Path

from simlab.errors import TraceError
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts import ngram as ngram_file
from simlab.traces.artefacts import table as table_file
from simlab.traces.format.documents import Json, JsonFields, json_fields
from simlab.traces.format.files import column_names
from simlab.traces.format.tables import table_facts
from simlab.untrusted.json_text import file_bytes, open_file, parse_json, typed_path

# What a model's ``config.json`` says, from a folder of weights or from what comes with simlab.


CONFIG = "config.json"

PACKAGED = Path(str(files("simlab.traces"))) / "data" / "models"
"""Where the sizes of the models lie that simlab ships traces or prices of, each with the digest of its weights."""

_ADVICE = "name the folder of the target's weights, or its config.json"


def read_model_config(path: str | Path) -> Json:
    """The configuration in a file, or in the ``config.json`` of a folder.

    Raises:
        TraceError: there is none, or it is no JSON object.
    """
    file = Path(path) / CONFIG if Path(path).is_dir() else Path(path)
    try:
        values = parse_json(file_bytes(file))
    except FileNotFoundError as error:
        raise TraceError(f"expected a model's configuration at {file}; there is none; {_ADVICE}.") from error
    except OSError as error:
        raise TraceError(f"{file} could not be read ({error.strerror or error}); {_ADVICE}.") from error
    except ValueError as error:
        raise TraceError(f"{file} is not JSON ({error}), so it is no model's configuration; {_ADVICE}.") from error
    if not isinstance(values, dict):
        raise TraceError(f"{file} is no model's configuration; {_ADVICE}.")
    return values


def find_packaged_config(digest: str) -> Json | None:
    """The sizes of the model with these weights, by the names of ``config.json``; None where simlab ships none."""
    for path in sorted(PACKAGED.glob("*.json")):
        model = JsonFields(read_model_config(path), path.name)
        if model.text("digest") == digest:
            return dict(model.inner("config").values)
    return None


# The JSON Schemas (draft 2020-12) of a trace's manifest, of cost files, and of what `simlab optimize` chose.
#
# They are for those who write such files without simlab, or check them elsewhere. simlab's own readers do not use
# them; a test holds both to the same files, whole and damaged.


SCHEMAS = ("manifest", "cost", "optimum")
"""The kinds of files that have a schema."""


def read_schema(kind: str) -> dict[str, object]:
    """The JSON Schema of one kind of file, as the JSON value that any validator takes.

    Args:
        kind: one of `SCHEMAS`.

    Raises:
        ValueError: it is none of these.

    >>> read_schema("cost")["title"]
    'simlab cost file'
    """
    if kind not in SCHEMAS:
        raise ValueError(f"expected the schema of one of {', '.join(SCHEMAS)}; got {kind!r}")
    text = files("simlab.traces").joinpath("data", "schemas", f"{kind}.schema.json").read_text(encoding="utf-8")
    schema: dict[str, object] = json.loads(text)  # noqa: TID251 - simlab's own file
    return schema


_PARQUET = b"PAR1"
_MOST_BYTES = 100_000_000
"""Files of JSON are smaller; weights, which are not read to see what they are, are larger."""


def format_of(path: Path) -> str | None:
    """The ``format`` that a JSON object or the metadata of a Parquet file names.

    Returns:
        None where none is named: results, files of others, and what is there in parts.

    Raises:
        TraceError: it is there and cannot be read, as a pipe, or a file of another user.
    """
    try:
        with open_file(path) as file:
            is_parquet = file.read(len(_PARQUET)) == _PARQUET
        if not is_parquet and path.stat().st_size > _MOST_BYTES:
            return None
        facts = table_facts(path) if is_parquet else json_fields(file_bytes(path), str(path))
    except (FileNotFoundError, IsADirectoryError, ValueError, TraceError):
        return None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
    named = facts.values.get("format")
    return named if isinstance(named, str) else None


def looks_like_results(path: Path) -> bool:
    """Whether a ``.parquet`` file has the columns that tell result rows from others, or cannot be read at all."""
    try:
        columns = column_names(path)
    except TraceError:
        return path.suffix == ".parquet"
    return {"policy_id", "committed", "kind"} <= set(columns)


def find_file(name: str) -> Path:
    """A path as it was typed, or the file that comes with simlab under this name where there is nothing else."""
    path = typed_path(name)
    return path if path.exists() else packaged_files().get(name, path)


def packaged_files() -> dict[str, Path]:
    """The files that come with simlab, traces apart, by their names."""
    costs = [*cost_file.packaged_cost_files(), *cost_file.example_cost_files()]
    kinds = (costs, table_file.packaged_table_files(), ngram_file.packaged_ngram_files())
    return {file.stem: file for files in kinds for file in files}
