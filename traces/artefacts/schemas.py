"""The JSON Schemas (draft 2020-12) of a trace's manifest, of cost files, and of what `simlab optimize` chose.

They are for those who write such files without simlab, or check them elsewhere. simlab's own readers do not use them; a
test holds both to the same files, whole and damaged.
"""

import json
from importlib.resources import files

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
