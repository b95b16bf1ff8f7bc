"""A trace that is published: what ``simlab export --push`` sends."""

from collections.abc import Mapping

from simlab.errors import UsageError
from simlab.studies.inputs.trace import TraceSource, opened
from simlab.traces.publishing.publication import Publication, publication


def prepared(
    place: str, trace: TraceSource | None = None, license_id: str | None = None, public: bool = False
) -> Publication:
    """Put together what is sent; its ``text`` shows it, and its ``send`` sends it.

    Args:
        place: ``hf://datasets/OWNER/NAME[@REVISION][/FOLDER]``, ``s3://BUCKET/PREFIX``, or a folder.
        trace: a trace, or where one is; None: the sample that comes with simlab.
        license_id: of the texts, as the hub names it; None: unknown.
        public: whether everybody may see a repository that is made for it.

    Raises:
        SimlabError: there is no such trace, or it cannot be sent to such a place.
    """
    return publication(opened(trace), place, license_id, public)


def check_alone(others: Mapping[str, object]) -> None:
    """Refuse options that are about other exports.

    Args:
        others: values by the names of options; what was not given is None, False or empty.

    Raises:
        UsageError: one is given.
    """
    for name, value in others.items():
        if value not in (None, False, []):
            raise UsageError(f"--{name.replace('_', '-')} is read with --format, not with --push")
