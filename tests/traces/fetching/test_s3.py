"""A trace in a bucket, ``s3://``, through s3fs: against moto's server on this machine."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from commands import output_of
from planted_traces import rows_of
from synthetic_traces import DRAFT, write_synthetic_trace

from simlab.errors import TraceError
from simlab.traces.fetching import fetched
from simlab.traces.reader import open_trace

# An empty store of buckets on this machine, moto's, which s3fs is told to ask.


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


s3fs = pytest.importorskip("s3fs")

NAME = f"draft-{DRAFT}-0000.parquet"
BUCKET = "s3://bucket/some/trace"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("s3") / "trace", length=20)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """A store with the trace in a bucket; its address."""
    with bucket_server() as address:
        bucket = s3fs.S3FileSystem(skip_instance_cache=True)
        bucket.mkdir("bucket")
        bucket.put(f"{folder}/", "bucket/some/trace/", recursive=True)
        yield address


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str) -> Path:
    """An empty cache, and the store."""
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetched, "PAUSE_S", 0.01)
    ask_store(monkeypatch, server)
    return tmp_path / "cache"


def told(place: str) -> str:
    with pytest.raises(TraceError) as caught:
        rows_of(open_trace(place))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_bucket_is_read_as_a_folder_is(folder: Path, cache: Path) -> None:
    assert rows_of(open_trace(BUCKET)) == rows_of(open_trace(folder))
    kept = {path.name for path in cache.rglob("*.parquet")}
    assert kept == {path.name for path in folder.glob("*.parquet") if not path.name.startswith("tokens-")}


@pytest.mark.thorough
def test_a_replay_of_a_bucket(folder: Path) -> None:
    asked = ("-p", "chain", "--json", "--threads", "1")
    places = (BUCKET, f"{BUCKET}/", str(folder))
    found = [output_of("replay", "--trace", place, *asked).replace(place, "HERE") for place in places]
    assert found[0] == found[1] == found[2]


def test_a_download_goes_on_where_it_was_cut(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (folder / NAME).read_bytes()
    read, left, starts = s3fs.core.S3File._fetch_range, [1], list[int]()
    monkeypatch.setattr(fetched, "_CHUNK_BYTES", 10_000)
    monkeypatch.setattr(fetched, "_BLOCK_BYTES", 10_000)

    def cutting(self: object, start: int, end: int) -> bytes:
        starts.append(start)
        if len(starts) > 1 and left:
            left.pop()
            raise ConnectionError("cut")
        return bytes(read(self, start, end))

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", cutting)
    found = fetched.fetched_file(BUCKET, NAME, len(content), hashlib.sha256(content).hexdigest())
    assert found.read_bytes() == content
    assert starts[0] == 0
    assert starts.count(0) == 1
    assert starts[1] == starts[2] > 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://bucket/other", "there is no such file"),
        ("s3://no-bucket/trace", "there is no such file"),
    ],
)
def test_what_is_not_there_is_one_sentence(place: str, said: str) -> None:
    assert said in told(place)


@pytest.mark.thorough
def test_no_permission_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(s3fs.S3FileSystem, "open", refused)
    assert "(no permission: Access Denied)" in told(BUCKET)


def test_no_credentials_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert "redentials" in told(BUCKET)
