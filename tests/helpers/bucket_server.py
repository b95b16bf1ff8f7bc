"""An empty store of buckets on this machine, moto's, which s3fs is told to ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest


@contextmanager
def bucket_server() -> Iterator[str]:
    """A store that is asked within; its address."""
    s3fs, moto_server = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    running = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    address = f"http://{host}:{port}"
    # All of moto's servers in a process have the same buckets, those of another test file too.
    with urlopen(Request(f"{address}/moto-api/reset", method="POST")):
        pass
    try:
        with pytest.MonkeyPatch.context() as patch:
            ask_store(patch, address)
            yield address
    finally:
        running.stop()
        s3fs.S3FileSystem.clear_instance_cache()


def ask_store(patch: pytest.MonkeyPatch, address: str) -> None:
    """Ask this store, with credentials that mean nothing."""
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }
    for name, value in settings.items():
        patch.setenv(name, value)
