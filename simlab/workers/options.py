"""Options of commands whose work can be spread over processes and machines."""

from simlab.options import option
from simlab.workers.parts import Part, parse_part


def ray_option(group: str = "") -> str | None:
    """``--ray``: the workers of a Ray."""
    said = "work on a local Ray, or on that of a cluster (HOST:PORT; on one of its machines: auto)"
    return option(None, said, "local|ADDRESS", group=group)


def workers_option(group: str = "") -> int | None:
    """``--workers``: how many."""
    return option(None, "workers of --ray (default: as many as it has room for)", "N", group=group)


def shard_option(said: str, group: str) -> str | Part | None:
    """``--shard I/N``: one part of the work, for one of several machines.

    Args:
        said: its help; `simlab merge` is said behind it.
        group: the heading.
    """
    return option(None, f"{said}; `simlab merge` puts them together", "I/N", read=parse_part, group=group)
