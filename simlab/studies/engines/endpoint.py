"""Talking to one server over HTTP: nothing is sent anywhere else, and nothing is waited for beyond a limit."""

import json
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from simlab.analysis.engines.answers import EngineError
from simlab.analysis.engines.json_values import Json, parsed_object

_MOST_BYTES = 1 << 26
_CHUNK_BYTES = 1 << 16
_FACTS_S = 30.0
"""So long a server may take to tell of itself."""


class Endpoint:
    """The address of a server.

    Redirects are not followed, and proxies of the environment are not used.
    """

    def __init__(self, address: str, time_limit_s: float, key: str | None = None) -> None:
        """Take an address such as ``http://127.0.0.1:8000``; ``/v1`` at its end is left out.

        Args:
            address: see above.
            time_limit_s: for the whole of one answer.
            key: that is sent along; it is never shown.
        """
        try:
            parts = urlsplit(address if "://" in address else f"http://{address}")
            port = parts.port
        except ValueError as error:
            raise EngineError(_no_address(address)) from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise EngineError(_no_address(address))
        self.host, self.is_safe, self.port = parts.hostname, parts.scheme == "https", port
        self.path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        self.time_limit_s, self._key = time_limit_s, key
        shown = f"{self.host}:{port}" if port else self.host
        self.address = f"{parts.scheme}://{shown}{self.path}"

    def text(self, path: str) -> str | None:
        """The text at a path; None: the server has nothing there."""
        status, content = self._sent("GET", path, None, min(self.time_limit_s, _FACTS_S), path)
        if status != 200:
            if status in (401, 403):
                raise EngineError(self._refused(path, status, content))
            return None
        return content.decode(errors="replace")

    def facts(self, path: str) -> Json | None:
        """The JSON object at a path; None: there is nothing, or something else."""
        found = self.text(path)
        if found is None or not found.lstrip().startswith("{"):
            return None
        return parsed_object(found, f"what {self.address}{path} answers")

    def answer(self, path: str, body: Json, where: str) -> Json:
        """What the server answers to a request.

        Args:
            path: to which it is sent.
            body: that is sent.
            where: what the answer is called in messages.
        """
        status, content = self._sent("POST", path, json.dumps(body).encode(), self.time_limit_s, where)
        if status != 200:
            raise EngineError(self._refused(where, status, content))
        return parsed_object(content, where)

    def _sent(self, method: str, path: str, body: bytes | None, limit_s: float, where: str) -> tuple[int, bytes]:
        begun = time.monotonic()
        connection = self._connection(limit_s)
        try:
            headers = {"User-Agent": "simlab", "Accept-Encoding": "identity", "Connection": "close"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            connection.request(method, f"{self.path}{path}", body, headers)
            answer = connection.getresponse()
            return answer.status, self._whole(connection, answer, begun + limit_s, where)
        except TimeoutError as error:
            raise EngineError(
                f"{self.address} did not finish {where} within {limit_s:g} seconds; it hangs or is slow: look at its "
                "log, or give it longer with --time-limit"
            ) from error
        except (OSError, HTTPException) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineError(
                f"{self.address} could not be asked for {where} ({reason[0][:200]}); check that the server runs there"
            ) from error
        finally:
            connection.close()

    def _connection(self, limit_s: float) -> HTTPConnection:
        if self.is_safe:
            return HTTPSConnection(self.host, self.port, timeout=limit_s, context=ssl.create_default_context())
        return HTTPConnection(self.host, self.port, timeout=limit_s)

    def _whole(self, connection: HTTPConnection, answer: HTTPResponse, deadline: float, where: str) -> bytes:
        """All of an answer; each piece may take no longer than what is left."""
        pieces, received = list[bytes](), 0
        said = answer.headers.get("Content-Length", "")
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if connection.sock is not None:
                connection.sock.settimeout(left)
            piece = answer.read1(_CHUNK_BYTES)
            if not piece:
                break
            pieces.append(piece)
            received += len(piece)
            if received > _MOST_BYTES:
                raise EngineError(f"{where} from {self.address} is larger than {_MOST_BYTES >> 20} MiB")
        if said.isdecimal() and received < int(said):
            raise EngineError(
                f"{self.address} cut {where} off after {received:,} of {int(said):,} bytes; look at its log"
            )
        return b"".join(pieces)

    def _refused(self, where: str, status: int, content: bytes) -> str:
        said = " ".join(content.decode(errors="replace").split())[:200]
        begin = f"{self.address} answered {status} to {where}"
        if status in (401, 403):
            return f"{begin}; name the environment variable that holds its key with --key-variable"
        if 300 <= status < 400:
            return f"{begin}: it sends on elsewhere, which is not followed; give the address of the server itself"
        return f"{begin}: {said}" if said else begin


def _no_address(address: str) -> str:
    return f"expected the address of a server such as http://127.0.0.1:8000; got {address[:100]!r}"
