"""Addresses of traces on the web: where each file is asked for, and who else may answer.

``hf://`` is read as huggingface_hub reads it, with its settings ``HF_ENDPOINT``, ``HF_TOKEN`` and ``HF_HOME``.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from simlab.errors import TraceError
from simlab.untrusted.visible import SAFE_IN_QUERY, hide_secrets

REDIRECT_HOSTS = "SIMLAB_REDIRECT_HOSTS"
"""The environment variable of further hosts that may answer: ``host``, ``host:port`` or ``.domain``, with commas."""

_HUB_HOSTS = ("huggingface.co", ".huggingface.co", "hf.co", ".hf.co")
_HUB = re.compile(
    r"(?P<kind>datasets/|spaces/|(?!(?:datasets|spaces|buckets)/))(?P<repository>[\w.-]+/[\w.-]+)"
    r"(@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?(/(?P<folder>.*))?",
    re.ASCII,
)
_PORTS = {"http": 80, "https": 443}
_PACKAGES = {"s3": '"simlab[s3]"', "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}
_KEPT = "/%!$&'()*+,;=:@~"
"""Signs of an address that are not written as ``%..``."""


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file on the web.

    Attributes:
        token: shown to the address's own host alone.
        others: hosts that it may be on as well.
    """

    url: str
    token: str = field(default="", repr=False)
    others: tuple[str, ...] = ()

    def may_be_at(self, url: str, before: str) -> bool:
        """Whether a redirect may be followed: to the same host, or one that is allowed, and never from https to http.

        Args:
            url: where it leads.
            before: where it was met.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or (parts.scheme == "http" and urlsplit(before).scheme == "https"):
            return False
        named = (host.strip() for host in os.environ.get(REDIRECT_HOSTS, "").split(","))
        return self.is_own(url) or any(_is_named(parts, host) for host in (*self.others, *named) if host)

    def is_own(self, url: str) -> bool:
        """Whether an address is on the same host and port, or goes from http to https there."""
        ours, theirs = urlsplit(self.url), urlsplit(url)
        ports = (_port(ours), _port(theirs))
        return ours.hostname == theirs.hostname and (ports[0] == ports[1] or ports == (80, 443))


def packages_for(location: str | Path) -> str:
    """What brings fsspec and what it needs for an address, as ``pip install`` takes it."""
    scheme = str(location).partition("://")[0].lower()
    return _PACKAGES.get("s3" if scheme == "s3a" else scheme, "fsspec")


def address(location: str | Path, name: str) -> str:
    """A file of the trace at an address, as it is named in messages."""
    path, mark, query = str(location).partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def web_file(location: str | Path, name: str) -> WebFile | None:
    """Where a file of the trace at an address is asked for; None: not by http."""
    scheme, _, rest = str(location).partition("://")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise TraceError(
            f"{location} is no address; expected a folder, or https://..., hf://datasets/OWNER/NAME, s3://..."
        )
    if scheme.lower() == "hf":
        return _hub_file(f"hf://{rest}", name)
    return _http_file(str(location), name) if scheme.lower() in _PORTS else None


def _http_file(location: str, name: str) -> WebFile:
    hide_secrets(location)
    try:
        parts = urlsplit(location)
        port = parts.port
    except ValueError as error:
        raise TraceError(f"{location} is no address ({error}); check it") from error
    if parts.username is not None or parts.password is not None:
        raise TraceError(
            f"the address at {parts.hostname} must be given without a user and password, since results name it; "
            "download the folder and open it there"
        )
    if not parts.hostname:
        raise TraceError(f"{location} names no host; expected an address such as https://example.org/trace")
    host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
    at = host if port is None else f"{host}:{port}"
    path = quote(parts.path.rstrip("/"), safe=_KEPT)
    query = f"?{quote(parts.query, safe=SAFE_IN_QUERY)}" if parts.query else ""
    return WebFile(f"{parts.scheme}://{at}{path}/{name}{query}")


def hub_address(location: str) -> tuple[str, str, str, str]:
    """What an ``hf://`` address names.

    Returns:
        The kind, ``datasets``, ``spaces``, or empty: models; owner and name of the repository; branch, tag or commit;
        and the folder in the repository, empty: its root.

    Raises:
        TraceError: it is no such address.
    """
    match = _HUB.fullmatch(location.partition("://")[2])
    if match is None:
        raise TraceError(f"{location} is no address on the hub; expected hf://datasets/OWNER/NAME[@REVISION][/FOLDER]")
    folder = (match["folder"] or "").strip("/")
    return match["kind"].rstrip("/"), match["repository"], unquote(match["revision"] or "main"), folder


def hub_endpoint() -> str:
    """The hub that is asked."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def check_online(location: str) -> None:
    """Ask no hub where huggingface_hub is told to ask none."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise TraceError(f"{location} is not asked for while HF_HUB_OFFLINE is set; unset it, or give a folder")


def _hub_file(location: str, name: str) -> WebFile:
    kind, repository, revision, folder = hub_address(location)
    check_online(location)
    kind = f"{kind}/" if kind else ""
    folder = quote(folder, safe=_KEPT)
    url = f"{hub_endpoint()}/{kind}{repository}/resolve/{quote(revision, safe='')}/{folder}".rstrip("/")
    return WebFile(f"{url}/{name}", _hub_token(), _HUB_HOSTS)


def _hub_token() -> str:
    """The login at the hub, where huggingface_hub looks for it; empty where there is none."""
    for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if os.environ.get(variable, "").strip():
            return os.environ[variable].strip()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    path = Path(os.environ.get("HF_TOKEN_PATH") or Path(home) / "token").expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _port(parts: SplitResult) -> int | None:
    return parts.port or _PORTS.get(parts.scheme)


def _is_named(parts: SplitResult, named: str) -> bool:
    """Whether an address is on a host of that name; a name without a port is of the usual ones."""
    host, _, port = named.partition(":")
    if _port(parts) != (int(port) if port.isdecimal() else _PORTS[parts.scheme]):
        return False
    host_name = parts.hostname or ""
    return host_name.endswith(host) if host.startswith(".") else host_name == host
