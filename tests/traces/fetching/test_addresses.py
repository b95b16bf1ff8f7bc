"""A trace at an address: every file is checked against the manifest, kept, and refused where it does not fit."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, serving_files
from hub_server import serving
from synthetic_traces import DRAFT, write_synthetic_trace

from simlab.errors import TraceError
from simlab.traces.fetching import fetched as web
from simlab.traces.fetching.addresses import web_file
from simlab.traces.format.documents import with_digest
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace

NAME = "draft-synthetic-0000.parquet"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no login of the person who runs the tests."""
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FileServer]:
    write_synthetic_trace(tmp_path / "root" / "trace", length=20, prompts_per_shard=100)
    with serving_files(tmp_path / "root") as made:
        yield made


def read_all(place: str) -> None:
    """What a replay reads."""
    assert len(list(open_trace(place).recorded(DRAFT))) > 0


def told(place: str) -> str:
    """The sentence with which reading is refused."""
    with pytest.raises(TraceError) as caught:
        read_all(place)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def kept(cache: Path) -> dict[str, bytes]:
    """The files of traces in the cache by name, with their bytes; what is not whole counts too, decoded rows do not."""
    hidden = (".lock", ".checked")
    found = [path for path in (cache / "traces").glob("*/*") if path.is_file() and not path.name.endswith(hidden)]
    return {path.name: path.read_bytes() for path in found}


def change(served: FileServer, content: bytes, name: str = NAME) -> None:
    (served.root / "trace" / name).write_bytes(content)


def test_files_are_kept_whole_and_asked_for_once(served: FileServer, cache: Path) -> None:
    place = f"{served.address}/trace"
    read_all(place)
    content = (served.root / "trace" / NAME).read_bytes()
    assert kept(cache)[NAME] == content
    assert (cache / "traces" / hashlib.sha256(content).hexdigest() / NAME).is_file()
    read_all(place)
    assert check_trace(place)["text_id"] == open_trace(served.root / "trace").text_id
    assert served.times_asked(NAME) == 1
    assert served.times_asked("manifest.json") > 1


def test_only_what_is_read_is_fetched(served: FileServer, cache: Path) -> None:
    open_trace(f"{served.address}/trace")
    assert set(kept(cache)) == {"sequences.parquet"}


def test_the_rest_is_read_when_the_server_is_gone(tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "gone" / "trace", length=20, prompts_per_shard=100)
    with serving_files(tmp_path / "gone") as served:
        place = f"{served.address}/trace"
        read_all(place)
        trace = open_trace(place)
    assert len(list(trace.recorded(DRAFT))) > 0
    assert trace.scan(DRAFT).collect().height > 0
    assert "check the address and the network" in told(place)


@pytest.mark.parametrize("kept_share", [0.5, 0.999])
def test_a_shortened_file_is_refused(served: FileServer, cache: Path, kept_share: float) -> None:
    content = (served.root / "trace" / NAME).read_bytes()
    change(served, content[: int(len(content) * kept_share)])
    assert f"the manifest says {len(content)}" in told(f"{served.address}/trace")
    assert NAME not in kept(cache)
    change(served, content)
    read_all(f"{served.address}/trace")


def test_a_changed_byte_is_refused(served: FileServer, cache: Path) -> None:
    content = bytearray((served.root / "trace" / NAME).read_bytes())
    content[len(content) // 2] ^= 1
    change(served, bytes(content))
    assert "its sha256 is not the manifest's" in told(f"{served.address}/trace")
    assert NAME not in kept(cache)


@pytest.mark.parametrize("name", ["manifest.json", NAME])
def test_a_connection_that_is_cut_is_said(served: FileServer, cache: Path, name: str) -> None:
    served.cut_after[name] = 300
    assert "after 300 of" in told(f"{served.address}/trace")
    assert name not in kept(cache)
    served.cut_after.clear()
    read_all(f"{served.address}/trace")


def test_a_server_that_drips_is_left(served: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PATIENCE_S", 0.0)
    monkeypatch.setattr(web, "SLOWEST_BYTES_PER_S", 1 << 40)
    assert "less than" in told(f"{served.address}/trace")


def test_a_length_that_can_be_none_is_not_believed(served: FileServer) -> None:
    served.lengths[NAME] = "9" * 5000
    read_all(f"{served.address}/trace")


def test_a_file_that_moved_on_the_same_host_is_followed(served: FileServer) -> None:
    (served.root / "other").mkdir()
    (served.root / "trace" / NAME).rename(served.root / "other" / f"moved-{NAME}")
    served.moved[NAME] = f"/other/moved-{NAME}"
    read_all(f"{served.address}/trace")


def test_a_file_on_another_host_needs_leave(
    served: FileServer, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_files(served.root) as other:
        host = other.address.removeprefix("http://")
        served.moved[NAME] = f"{other.address}/trace/{NAME}"
        said = told(f"{served.address}/trace")
        assert f"sends on to {other.address}," in said
        assert "SIMLAB_REDIRECT_HOSTS" in said
        assert other.asked == []
        assert NAME not in kept(cache)
        monkeypatch.setenv("SIMLAB_REDIRECT_HOSTS", f"example.org, {host}")
        read_all(f"{served.address}/trace")
        assert other.asked == [f"/trace/{NAME}"]


@pytest.mark.parametrize(
    ("asked", "before", "where", "may"),
    [
        ("https://a.org/t", "https://a.org/t", "https://a.org/u", True),
        ("https://a.org/t", "https://a.org/t", "http://a.org/u", False),
        ("http://a.org/t", "https://a.org/t", "http://a.org/u", False),
        ("http://a.org/t", "http://a.org/t", "https://a.org/u", True),
        ("http://a.org:8080/t", "http://a.org:8080/t", "https://a.org/u", False),
        ("https://a.org/t", "https://a.org/t", "https://a.org:444/u", False),
        ("https://a.org/t", "https://a.org/t", "https://b.a.org/u", False),
        ("https://a.org/t", "https://a.org/t", "https://cdn.b.org/u", True),
        ("https://a.org/t", "https://a.org/t", "https://b.org/u", False),
        ("https://a.org/t", "https://a.org/t", "https://c.org:99/u", True),
        ("https://a.org/t", "https://a.org/t", "https://c.org/u", False),
        ("https://a.org/t", "https://a.org/t", "https://a.org@evil.org/u", False),
        ("hf://datasets/o/n", "https://huggingface.co/x", "https://cdn-lfs.hf.co/u", True),
        ("hf://datasets/o/n", "https://huggingface.co/x", "https://cas-bridge.xethub.hf.co/u", True),
        ("hf://datasets/o/n", "https://huggingface.co/x", "https://evil-hf.co/u", False),
        ("hf://datasets/o/n", "https://huggingface.co/x", "https://cdn-lfs.hf.co:444/u", False),
        ("https://a.org/t", "https://a.org/t", "https://cdn-lfs.hf.co/u", False),
    ],
)
def test_who_may_answer(monkeypatch: pytest.MonkeyPatch, asked: str, before: str, where: str, may: bool) -> None:
    monkeypatch.setenv("SIMLAB_REDIRECT_HOSTS", ".b.org,c.org:99")
    file = web_file(asked, NAME)
    assert file is not None
    assert file.may_be_at(where, before) == may


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("https://a.org/t/", "https://a.org/t/x"),
        ("https://a.org/t?key=1", "https://a.org/t/x?key=1"),
        ("HTTP://a.org:81/a b/[c]/%20", "http://a.org:81/a%20b/%5Bc%5D/%20/x"),
        ("hf://datasets/o/n", "https://huggingface.co/datasets/o/n/resolve/main/x"),
        ("hf://datasets/o/n@v1/a/b/", "https://huggingface.co/datasets/o/n/resolve/v1/a/b/x"),
        ("hf://datasets/o/n@refs/pr/3/a", "https://huggingface.co/datasets/o/n/resolve/refs%2Fpr%2F3/a/x"),
        ("hf://datasets/o/n@refs%2Fpr%2F3/a", "https://huggingface.co/datasets/o/n/resolve/refs%2Fpr%2F3/a/x"),
        ("hf://o/n", "https://huggingface.co/o/n/resolve/main/x"),
        ("hf://spaces/o/n", "https://huggingface.co/spaces/o/n/resolve/main/x"),
    ],
)
def test_where_a_file_is_asked_for(place: str, url: str) -> None:
    file = web_file(place, "x")
    assert file is not None
    assert file.url == url


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("hf://datasets/o", "expected hf://datasets/OWNER/NAME"),
        ("hf://buckets/o/n", "expected hf://datasets/OWNER/NAME"),
        ("https://", "names no host"),
        ("https://me:secret@a.org/t", "without a user and password"),
        ("https://a.org:port/t", "is no address"),
        ("a b://c", "is no address"),
        ("nothing-of-that-name://bucket/t", "could not be read"),
    ],
)
def test_an_address_that_cannot_be_one(place: str, said: str) -> None:
    sentence = told(place)
    assert said in sentence
    assert "secret" not in sentence


def test_a_digest_cannot_lead_out_of_the_cache(served: FileServer, tmp_path: Path) -> None:
    path = served.root / "trace" / "manifest.json"
    manifest = json.loads(path.read_text())
    for wrong in ("../../out", "", "A" * 64):
        manifest["contents"]["files"][NAME]["sha256"] = wrong
        path.write_text(json.dumps(with_digest(manifest)))
        assert "lists no sha256" in told(f"{served.address}/trace")
    assert not (tmp_path / "out").exists()


def test_a_file_changed_in_the_cache_is_fetched_again(
    served: FileServer, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_all(f"{served.address}/trace")
    (path,) = cache.rglob(NAME)
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    read_all(f"{served.address}/trace")
    assert path.read_bytes() == whole
    assert served.times_asked(NAME) == 2
    assert "is not as it was fetched; fetching it again" in capsys.readouterr().err


_READ = """
import sys
from simlab.traces.reader import open_trace
print(len(list(open_trace(sys.argv[1]).recorded("synthetic"))), flush=True)
"""


def reading(place: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", _READ, place], stdout=subprocess.PIPE, text=True)


@pytest.mark.thorough
def test_two_processes_fetch_a_file_once(served: FileServer, cache: Path) -> None:
    served.slow |= {NAME, "sequences.parquet"}
    found = [reading(f"{served.address}/trace") for _ in range(2)]
    said = [one.communicate(timeout=120)[0] for one in found]
    assert [one.returncode for one in found] == [0, 0]
    assert said[0] == said[1]
    assert served.times_asked(NAME) == 1
    assert kept(cache)[NAME] == (served.root / "trace" / NAME).read_bytes()


@pytest.mark.thorough
def test_a_killed_fetch_leaves_nothing_wrong(served: FileServer, cache: Path) -> None:
    content = (served.root / "trace" / NAME).read_bytes()
    change(served, content[:500])
    served.stalled.add(NAME)
    process = reading(f"{served.address}/trace")
    until = time.monotonic() + 60
    while not list(cache.rglob(f".{NAME}*")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert NAME not in kept(cache)
    served.stalled.clear()
    change(served, content)
    read_all(f"{served.address}/trace")
    assert set(kept(cache)) == {NAME, "sequences.parquet"}


def test_a_hub_is_asked_as_huggingface_hub_asks_it(
    served: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as hub:
        hub.add("org/traces", served.root)
        monkeypatch.setenv("HF_ENDPOINT", f"{hub.address}/")
        read_all("hf://datasets/org/traces/trace")
        read_all("hf://datasets/org/traces@main/trace/")
        assert hub.files_asked("org/traces") == {
            f"trace/{name}" for name in ("manifest.json", "sequences.parquet", NAME)
        }
        assert "set HF_TOKEN" in told("hf://datasets/org/private")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in told("hf://datasets/org/traces/trace")


def test_a_token_goes_to_the_hub_alone(served: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text("hf_stored\n")
    root = served.root / "datasets" / "o" / "n" / "resolve" / "main"
    root.parent.mkdir(parents=True)
    (served.root / "trace").rename(root)
    with serving_files(root) as other:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        monkeypatch.setenv("SIMLAB_REDIRECT_HOSTS", other.address.removeprefix("http://"))
        served.moved[NAME] = f"{other.address}/{NAME}"
        read_all("hf://datasets/o/n")
        assert set(served.tokens) == {"Bearer hf_stored"}
        assert other.tokens == [None]
        monkeypatch.setenv("HF_TOKEN", "hf_named")
        open_trace("hf://datasets/o/n")
        assert served.tokens[-1] == "Bearer hf_named"
        open_trace(f"{served.address}/datasets/o/n/resolve/main")
        assert served.tokens[-1] is None


def test_other_places_are_read_through_fsspec(served: FileServer, cache: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(served.root / "trace"), "/bucket/trace", recursive=True)
    read_all("memory://bucket/trace")
    assert kept(cache)[NAME] == (served.root / "trace" / NAME).read_bytes()
    memory.pipe(f"/bucket/trace/{NAME}", b"short")
    (path,) = cache.rglob(NAME)
    path.unlink()
    assert "the manifest says" in told("memory://bucket/trace")
