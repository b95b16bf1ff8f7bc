"""A trace at an address is read shard by shard: ahead of its use, within a limit, and on from where it was cut."""

import hashlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, serving_files
from planted_traces import rows_of
from synthetic_traces import DRAFT, SyntheticChannels, write_synthetic_trace

from simlab.errors import TraceError
from simlab.traces.fetching import fetched, store
from simlab.traces.fetching.fetched import fetched_file
from simlab.traces.fetching.store import ITEMS_AHEAD, THREADS, held, make_room
from simlab.traces.format.files import draft_file
from simlab.traces.reader import Trace, open_trace

SEQUENCES, SHARDS = 12, 9
NAME = draft_file(DRAFT, 0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing that the person who runs the tests has set."""
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SIMLAB_CACHE_SIZE", raising=False)
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetched, "PAUSE_S", 0.01)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of many shards, with a channel."""
    folder = tmp_path_factory.mktemp("root")
    write_synthetic_trace(
        folder / "trace", num_sequences=SEQUENCES, length=20, prompts_per_shard=1, channels=SyntheticChannels()
    )
    return folder


@pytest.fixture
def served(root: Path) -> Iterator[FileServer]:
    with serving_files(root) as made:
        made.ranges = True
        yield made


def files_in(cache: Path) -> dict[str, int]:
    """Sizes of the traces' files in the cache by name, parts included."""
    hidden = (".lock", ".checked")
    return {
        path.name: path.stat().st_size for path in cache.rglob("*") if path.is_file() and not path.name.endswith(hidden)
    }


def shard_of(trace: Trace, index: int) -> int:
    """The shard in which a sequence is."""
    ends = itertools.accumulate(trace.manifest.held().shards)
    return next(shard for shard, end in enumerate(ends) if index < end)


def part_of(cache: Path, content: bytes) -> Path:
    return cache / "traces" / hashlib.sha256(content).hexdigest() / f".{NAME}.part"


def fetch(served: FileServer, name: str = NAME) -> Path:
    content = (served.root / "trace" / name).read_bytes()
    return fetched_file(f"{served.address}/trace", name, len(content), hashlib.sha256(content).hexdigest())


def eventually(kind: str, wanted: int, served: FileServer) -> int:
    """How many files of a kind were asked for, once it is as many as wanted or time is up, and a moment later."""
    until = time.monotonic() + 20
    while len({path for path in served.asked if kind in path}) < wanted and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)
    return len({path for path in served.asked if kind in path})


def test_what_is_read_is_what_lies_there(served: FileServer, cache: Path) -> None:
    assert rows_of(open_trace(f"{served.address}/trace")) == rows_of(open_trace(served.root / "trace"))
    assert set(files_in(cache)) == {"sequences.parquet", *(draft_file(DRAFT, shard) for shard in range(SHARDS))}
    assert all(served.times_asked(draft_file(DRAFT, shard)) == 1 for shard in range(SHARDS))


def test_only_the_shards_of_the_wanted_texts_are_fetched(served: FileServer, cache: Path) -> None:
    trace = open_trace(f"{served.address}/trace")
    assert [sequence.index for sequence in trace.recorded(DRAFT, [3, 9])] == [3, 9]
    wanted = {draft_file(DRAFT, shard_of(trace, index)) for index in (3, 9)}
    assert set(files_in(cache)) == {"sequences.parquet", *wanted}


def test_a_channel_is_fetched_with_the_drafts(served: FileServer, cache: Path) -> None:
    trace = open_trace(f"{served.address}/trace")
    (name,) = list(trace.manifest.channels)[:1]
    assert len(list(trace.recorded(DRAFT, [0], [name]))) == 1
    assert f"channel-{name}-0000.parquet" in files_in(cache)
    assert not any(one.startswith("tokens-") for one in files_in(cache))


def test_the_next_shards_are_fetched_while_one_is_read_and_no_more(served: FileServer) -> None:
    """Drafts are fetched by the threads that read ahead, the target's rows ahead of whoever reads them."""
    trace = open_trace(f"{served.address}/trace")
    for kind, reading, ahead in (
        ("draft-", (sequence.index for sequence in trace.recorded(DRAFT)), min(os.cpu_count() or 1, 4)),
        ("tokens-", (index for index, _ in trace.token_rows()), ITEMS_AHEAD),
    ):
        assert shard_of(trace, next(reading)) == 0
        assert eventually(kind, 1 + ahead, served) == 1 + ahead
        while shard_of(trace, next(reading)) == 0:
            pass
        assert eventually(kind, 2 + ahead, served) == 2 + ahead
        reading.close()
        assert eventually(kind, 2 + ahead, served) == 2 + ahead


def test_a_shard_that_cannot_be_had_is_said_when_its_turn_comes(served: FileServer) -> None:
    served.moved[draft_file(DRAFT, 2)] = "/nowhere"
    trace = open_trace(f"{served.address}/trace")
    reading, found = trace.recorded(DRAFT), set[int]()
    with pytest.raises(TraceError, match=r"draft-.*-0002.*there is no such file: the server answered 404"):
        found.update(shard_of(trace, sequence.index) for sequence in reading)
    assert found == {0, 1}


def test_a_cut_download_goes_on_where_it_was_cut(served: FileServer, cache: Path) -> None:
    served.cut_once[NAME] = 1000
    assert fetch(served).read_bytes() == (served.root / "trace" / NAME).read_bytes()
    assert served.starts == [0, 1000]
    assert set(files_in(cache)) == {NAME}


def test_a_server_that_sends_a_byte_a_connection_is_left(
    served: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched, "PATIENCE_S", 0.2)
    monkeypatch.setattr(fetched, "PAUSE_S", 0.02)
    served.cut_after[NAME] = 1
    with pytest.raises(TraceError, match="less than 1000 bytes a second came"):
        fetch(served)
    # What came is kept for another run.
    assert 2 <= files_in(cache)[f".{NAME}.part"] == served.times_asked(NAME)


@pytest.mark.parametrize("left", ["other", "longer", "whole", "empty"])
def test_what_an_earlier_fetch_left_can_be_anything(served: FileServer, cache: Path, left: str) -> None:
    content = (served.root / "trace" / NAME).read_bytes()
    part = part_of(cache, content)
    part.parent.mkdir(parents=True)
    kinds = {"other": bytes(1000), "longer": content + b"more", "whole": content, "empty": b""}
    part.write_bytes(kinds[left])
    assert fetch(served).read_bytes() == content
    assert served.starts == {"other": [1000, 0], "longer": [0], "whole": [], "empty": [0]}[left]


def test_what_came_is_kept_when_the_network_is_gone(served: FileServer, cache: Path) -> None:
    content = (served.root / "trace" / NAME).read_bytes()
    served.cut_after[NAME] = 700
    served.ranges = False
    with pytest.raises(TraceError, match="was cut after 700 of"):
        fetch(served)
    assert part_of(cache, content).read_bytes() == content[:700]
    served.ranges = True
    served.cut_after.clear()
    assert fetch(served).read_bytes() == content
    assert served.starts[-1] == 700


def test_a_wrong_file_leaves_nothing(served: FileServer, cache: Path) -> None:
    content = (served.root / "trace" / NAME).read_bytes()
    with pytest.raises(TraceError, match="its sha256 is not the manifest's"):
        fetched_file(f"{served.address}/trace", NAME, len(content), "0" * 64)
    assert files_in(cache) == {}


def test_the_cache_is_bounded(served: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (served.root / "trace" / NAME).stat().st_size
    limit = 5 * size
    monkeypatch.setenv("SIMLAB_CACHE_SIZE", str(limit))
    trace, most = open_trace(f"{served.address}/trace"), 0
    for sequence in trace.recorded(DRAFT):
        sizes = files_in(cache)
        assert draft_file(DRAFT, shard_of(trace, sequence.index)) in sizes
        most = max(most, sum(sizes.values()))
    assert size < most <= limit + THREADS * size
    make_room(0)
    assert sum(files_in(cache).values()) <= limit
    assert draft_file(DRAFT, SHARDS - 1) in files_in(cache)
    assert NAME not in files_in(cache)
    assert rows_of(trace) == rows_of(open_trace(served.root / "trace"))


def kept_file(cache: Path, name: str, used_s: int) -> Path:
    """A file of 100 bytes in the cache that was last wanted at a time."""
    path = cache / "traces" / (name * 64) / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(100))
    held(path)
    os.utime(path.parent / store._READING, (used_s, used_s))
    return path


def test_what_is_in_use_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMLAB_CACHE_SIZE", "0")
    old, new = kept_file(cache, "a", 1000), kept_file(cache, "b", 2000)
    reader = held(old)
    make_room(0)
    assert old.exists()
    assert not new.exists()
    del reader
    make_room(0)
    assert not old.exists()


_HOLD = """
import sys
from pathlib import Path
from simlab.traces.fetching.store import held
one = held(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.thorough
def test_what_another_process_uses_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMLAB_CACHE_SIZE", "0")
    path = kept_file(cache, "a", 1000)
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        make_room(0)
        assert path.exists()
        other.communicate("", timeout=60)
    make_room(0)
    assert not path.exists()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{address}/nothing", "there is no such file: the server answered 404"),
        ("http://127.0.0.1:9/trace", "Connection refused"),
        ("http://nothing.invalid/trace", r"\[Errno"),
    ],
)
def test_each_failure_is_one_sentence(served: FileServer, place: str, said: str) -> None:
    with pytest.raises(TraceError, match=said) as caught:
        open_trace(place.format(address=served.address))
    assert "\n" not in str(caught.value)


_PEAK = """
import json, resource, sys
from simlab.traces.reader import open_trace
trace, peaks = open_trace(sys.argv[1]), []
for one in trace.recorded("synthetic"):
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(json.dumps(peaks))
"""


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """32 shards: what the last ones take is what the first ones took."""
    write_synthetic_trace(tmp_path / "large", num_sequences=32, length=400, prompts_per_shard=1)
    total = sum(path.stat().st_size for path in (tmp_path / "large").iterdir())
    with serving_files(tmp_path) as large:
        command = [sys.executable, "-c", _PEAK, f"{large.address}/large"]
        peaks = json.loads(subprocess.check_output(command, text=True, timeout=240))
    assert peaks[-1] - peaks[7] < total / 4
