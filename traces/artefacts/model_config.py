"""What a model's ``config.json`` says, from a folder of weights or from what comes with simlab."""

from importlib.resources import files
from pathlib import Path

from simlab.errors import TraceError
from simlab.traces.format.documents import Json, JsonFields
from simlab.untrusted.json_text import parse_json

CONFIG = "config.json"

PACKAGED = Path(str(files("simlab.traces"))) / "data" / "models"
"""Where the sizes of the models lie that simlab ships traces or prices of, each with the digest of its weights."""

_ADVICE = "name the folder of the target's weights, or its config.json"


def read_model_config(path: str | Path) -> Json:
    """The configuration in a file, or in the ``config.json`` of a folder.

    Raises:
        TraceError: there is none, or it is no JSON object.
    """
    place = Path(path) / CONFIG if Path(path).is_dir() else Path(path)
    try:
        values = parse_json(place.read_bytes())
    except FileNotFoundError as error:
        raise TraceError(f"expected a model's configuration at {place}; there is none; {_ADVICE}.") from error
    except OSError as error:
        raise TraceError(f"{place} could not be read ({error.strerror or error}); {_ADVICE}.") from error
    except ValueError as error:
        raise TraceError(f"{place} is not JSON ({error}), so it is no model's configuration; {_ADVICE}.") from error
    if not isinstance(values, dict):
        raise TraceError(f"{place} is no model's configuration; {_ADVICE}.")
    return values


def find_packaged_config(digest: str) -> Json | None:
    """The sizes of the model with these weights, by the names of ``config.json``; None where simlab ships none."""
    for path in sorted(PACKAGED.glob("*.json")):
        model = JsonFields(read_model_config(path), path.name)
        if model.text("digest") == digest:
            return dict(model.inner("config").values)
    return None
