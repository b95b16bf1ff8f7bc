"""Files that somebody changed and signed again, so that only their content can tell."""

from simlab.traces.format.documents import DIGEST, with_digest


def signed(values: object) -> object:
    """A JSON object under a digest that fits; whatever else it is, as it is."""
    return with_digest(values) if isinstance(values, dict) else values


def is_signed(values: object) -> bool:
    """Whether an object has something under ``digest`` that could be one."""
    digest = values.get(DIGEST) if isinstance(values, dict) else None
    return isinstance(digest, str) and len(digest) == 64
