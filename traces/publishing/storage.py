"""A trace in a bucket or a folder, through fsspec: file by file, and the manifest, which makes it a trace, last."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from simlab.errors import SimlabError, UsageError, reason_of
from simlab.traces.format.files import MANIFEST, write_beside

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem  # an extra of its own, which nothing else here needs

_INSTALL = {"s3": '"simlab[s3]"', "s3a": '"simlab[s3]"', "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder that fsspec writes: ``s3://BUCKET/PREFIX``, or a path on this machine.

    Attributes:
        address: as it was typed.
    """

    address: str

    def described(self) -> str:
        """Name the place, in a line."""
        return f"{self.address}: whoever may read there"

    def send(self, files: Mapping[str, Path], texts: Mapping[str, str]) -> str:
        """Send file by file, the manifest last; returns the address."""
        with _explained(self.address):
            import fsspec  # noqa: PLC0415 - an extra of its own

            system, root = fsspec.core.url_to_fs(self.address)
            root = root.rstrip("/")
            if system.exists(f"{root}/{MANIFEST}"):
                raise UsageError(f"{self.address} holds a trace already; name another place, or remove it first")
            system.makedirs(root, exist_ok=True)
            for name, path in tqdm(files.items(), desc="sending", unit="file", delay=2):
                system.put_file(str(path), f"{root}/{name}")
            for name in sorted(texts, key=lambda name: name == MANIFEST):
                _write(system, f"{root}/{name}", texts[name].encode())
        return self.address


def _write(system: "AbstractFileSystem", path: str, content: bytes) -> None:
    """Write a short file at once: a bucket does so by itself."""
    if "file" in system.protocol:
        write_beside(Path(path), lambda file: file.write(content))
    else:
        system.pipe_file(path, content)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Say in one sentence why it could not be sent; each kind of storage has its own failures."""
    try:
        yield
    except SimlabError:
        raise
    except ImportError as error:
        install = _INSTALL.get(address.partition("://")[0].lower(), "fsspec")
        raise SimlabError(f"{address} needs packages that are not installed: pip install {install}") from error
    except Exception as error:
        raise SimlabError(
            f"the trace could not be sent to {address} ({reason_of(error)[:200]}); what is there is no trace yet, and "
            "the same command sends it anew"
        ) from error
