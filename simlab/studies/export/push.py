"""A trace that is published: what ``simlab export --push`` sends."""

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
    """
    return publication(opened(trace), place, license_id, public)
