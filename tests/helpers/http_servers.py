"""What servers on this machine have in common: they begin and end with a block, and write no log."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is none of ours; anything else is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _say_nothing(*_: object) -> None:
    pass


@contextlib.contextmanager
def answering(handler: type[BaseHTTPRequestHandler], **known: object) -> Iterator[str]:
    """Answer with a handler that has these attributes until the block ends; gives the address."""
    server = _Server(("127.0.0.1", 0), type("_Bound", (handler,), {"log_message": _say_nothing, **known}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
