"""Files that somebody changed and signed again, so that only their content can tell."""

import json
from pathlib import Path
from typing import Any

from simlab.traces.format.documents import DIGEST, with_digest


def signed(values: object) -> object:
    """A JSON object under a digest that fits; whatever else it is, as it is."""
    return with_digest(values) if isinstance(values, dict) else values


def changed_and_signed(path: Path, **changes: object) -> None:
    """Change some keys of a JSON file, and sign it again; a key that becomes None is taken out."""
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) | changes
    kept = {key: value for key, value in values.items() if value is not None or key not in changes}
    path.write_text(json.dumps(with_digest(kept)), encoding="utf-8")


def is_signed(values: object) -> bool:
    """Whether an object has something under ``digest`` that could be one."""
    digest = values.get(DIGEST) if isinstance(values, dict) else None
    return isinstance(digest, str) and len(digest) == 64
