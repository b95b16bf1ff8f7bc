"""What is sent when a trace is published, where it goes, and who may see it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from simlab.errors import UsageError
from simlab.traces.format.files import MANIFEST
from simlab.traces.format.manifest import manifest_text
from simlab.traces.format.shards import checked_file
from simlab.traces.publishing.card import UNKNOWN, trace_card
from simlab.traces.publishing.hub import HubRepository, hub_repository
from simlab.traces.publishing.storage import Storage
from simlab.traces.reader import Trace

CARD = "README.md"
"""The file of the card."""


class Place(Protocol):
    """Where a trace can be published."""

    def described(self) -> str:
        """Name the place, and who may see what is there, in a line."""
        ...

    def send(self, files: Mapping[str, Path], texts: Mapping[str, str]) -> str:
        """Send files and short texts by their names there, all at once or the manifest last; returns the address.

        Raises:
            SimlabError: it cannot be sent; what is there can not be taken for a finished trace.
        """
        ...


@dataclass(frozen=True, slots=True)
class Publication:
    """A trace on its way.

    Attributes:
        trace: which is sent.
        place: to which.
        card: its text.
    """

    trace: Trace
    place: Place
    card: str

    def sizes(self) -> dict[str, int]:
        """The bytes of each file that is sent, by its name."""
        files = {name: one.num_bytes for name, one in self.trace.manifest.held().files.items()}
        texts = {name: len(text.encode()) for name, text in self._texts().items()}
        return dict(sorted((files | texts).items()))

    def text(self) -> str:
        """Say what would be sent, with the card."""
        sizes = self.sizes()
        width = max(map(len, sizes))
        lines = [f"{self.trace.place} (text {self.trace.text_id})", f"to {self.place.described()}", ""]
        lines += [f"{name.ljust(width)}  {size:>15,} bytes" for name, size in sizes.items()]
        lines += [
            f"{'together'.ljust(width)}  {sum(sizes.values()):>15,} bytes",
            "",
            f"{CARD}:",
            "",
            self.card.rstrip(),
        ]
        return "\n".join(lines)

    def send(self) -> str:
        """Check every file against its digest, and send all; returns the address."""
        names = list(self.trace.manifest.held().files)
        paths = {name: checked_file(self.trace.place, self.trace.manifest, name) for name in names}
        return self.place.send(paths, self._texts())

    def _texts(self) -> dict[str, str]:
        return {CARD: self.card, MANIFEST: manifest_text(self.trace.place, self.trace.manifest)}


def publication(trace: Trace, address: str, licence: str | None = None, public: bool = False) -> Publication:
    """Put together what is sent; nothing is asked or sent yet.

    Args:
        trace: which is published.
        address: ``hf://datasets/OWNER/NAME[@REVISION][/FOLDER]``, what fsspec writes such as ``s3://...``, or a folder.
        licence: of the texts, as the hub names it; None: nobody said.
        public: whether everybody may see a repository that is made for it.

    Raises:
        UsageError: it is no such address, or says nothing about who may see it.
    """
    place: HubRepository | Storage
    if address.lower().startswith("hf://"):
        place = hub_repository(address, public)
    elif public:
        raise UsageError(f"--public is for repositories on the hub; who may read {address} is settled there")
    else:
        place = Storage(address)
    return Publication(trace, place, trace_card(trace, address, licence or UNKNOWN))
