"""A trace that is published: on a hub, in a bucket, in a folder; what is sent, and what is not."""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from commands import output_of, refusal_of
from depth import some
from file_server import serving_files
from hub_server import TOKEN, Hub, Said, run_commands, serving
from planted_traces import rows_of
from signed_files import signed
from synthetic_traces import DRAFT, SyntheticChannels, write_synthetic_trace

from simlab.cli.main import main
from simlab.errors import SimlabError, TraceError, UsageError
from simlab.traces.publication import publication, trace_card
from simlab.traces.reader import open_trace

HERE = "hf://datasets/org/traces"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with channels, and what else may lie in its folder."""
    found = write_synthetic_trace(tmp_path_factory.mktemp("p") / "trace", length=20, channels=SyntheticChannels())
    for name in ("derived-0000.arrow", ".manifest.json.lock", "notes.txt", ".sequences.parquet.part"):
        (found / name).write_text("not of the trace")
    return found


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serving() as made:
        made.uploads = tmp_path / "uploads"
        yield made


def sent(hub: Hub, tmp_path: Path, folder: Path, *more: str, to: str = HERE, token: str | None = TOKEN) -> Said:
    command = ["export", "--push", to, "--trace", str(folder), *more]
    return run_commands(hub.address, tmp_path / "home", [command], token=token)[0]


def own_files(folder: Path) -> set[str]:
    return {*json.loads((folder / "manifest.json").read_text())["contents"]["files"], "manifest.json"}


def names_at(hub: Hub, repository: str = "org/traces", revision: str = "main") -> set[str]:
    at = hub.files[hub.commits[repository][revision]]
    return {str(path.relative_to(at)) for path in at.rglob("*") if path.is_file()}


def test_a_trace_comes_back_from_the_hub(
    hub: Hub, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = sent(hub, tmp_path, folder, "--license", "apache-2.0")
    assert said.code == 0, said.err
    assert re.fullmatch(rf"\d+ files, [\d,]+ bytes: {HERE}\n", said.out)
    assert names_at(hub) == own_files(folder) | {"README.md"}
    assert hub.private == {"org/traces": True}
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    found = open_trace(HERE)
    assert found.text_id == open_trace(folder).text_id
    assert rows_of(found) == rows_of(open_trace(folder))


@pytest.mark.thorough
def test_a_dry_run_asks_nobody(hub: Hub, tmp_path: Path, folder: Path) -> None:
    said = sent(hub, tmp_path, folder, "--dry-run", token=None)
    assert said.code == 0
    assert hub.asked == []
    listed = set(re.findall(r"^(\S+) +[\d,]+ bytes$", said.out, re.MULTILINE))
    assert listed == own_files(folder) | {"README.md", "together"}
    assert f"to {HERE}: private if it is made now" in said.out
    assert trace_card(open_trace(folder), HERE).rstrip() in said.out
    assert said.err == "\nNothing was sent.\n"


@pytest.mark.parametrize("token", some([None, "hf_may_read"]))
def test_who_may_not_write_is_told_how_to(hub: Hub, tmp_path: Path, folder: Path, token: str | None) -> None:
    said = sent(hub, tmp_path, folder, token=token)
    assert said.code == 2
    assert "no permission, the hub answered 401; log in with `hf auth login`" in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert hub.commits == {}


@pytest.mark.thorough
def test_no_network_is_one_sentence(tmp_path: Path, folder: Path) -> None:
    command = ["export", "--push", HERE, "--trace", str(folder)]
    (said,) = run_commands("http://127.0.0.1:9", tmp_path / "home", [command], token=TOKEN)
    assert said.code == 2
    assert f"nothing was sent to {HERE} (" in said.err
    (said,) = run_commands("http://127.0.0.1:9", tmp_path / "home", [command], offline=True)
    assert said.code == 2
    assert "while HF_HUB_OFFLINE is set" in said.err


def test_a_damaged_trace_is_not_sent(hub: Hub, tmp_path: Path) -> None:
    folder = write_synthetic_trace(tmp_path / "damaged", length=20)
    path = folder / f"draft-{DRAFT}-0000.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    said = sent(hub, tmp_path, folder)
    assert said.code == 2
    assert "its sha256 is not the manifest's" in said.err
    assert hub.asked == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("hf://org/name", "is sent to a dataset repository"),
        ("hf://spaces/org/name", "is sent to a dataset repository"),
        ("hf://datasets/org", "no address on the hub"),
    ],
)
def test_what_is_no_dataset_repository(folder: Path, address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        publication(open_trace(folder), address)


def test_a_folder_gets_the_files(tmp_path: Path, folder: Path) -> None:
    pytest.importorskip("fsspec")
    out = tmp_path / "a" / "b"
    assert main(["export", "--push", str(out), "--trace", str(folder)]) == 0
    assert {path.name for path in out.iterdir()} == own_files(folder) | {"README.md"}
    assert rows_of(open_trace(out)) == rows_of(open_trace(folder))
    output_of("inspect", out)
    assert "holds a trace already" in refusal_of("export", "--push", out, "--trace", folder)


def test_what_is_not_installed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    for scheme, needed in (("abfss", "adlfs"), ("S3A", r'"simlab\[s3\]"'), ("memory", "fsspec")):
        with pytest.raises(SimlabError, match=f"pip install {needed}$"):
            publication(open_trace(folder), f"{scheme}://bucket/trace").send()


@pytest.mark.thorough
def test_what_was_cut_off_is_no_trace(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    put, left = type(memory).put_file, [3]

    def cutting(self: object, *more: object, **named: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise ConnectionError("cut")
        put(self, *more, **named)

    monkeypatch.setattr(type(memory), "put_file", cutting)
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    made = publication(open_trace(folder), "memory://published/trace")
    with pytest.raises(SimlabError, match=r"could not be sent to memory://published/trace \(cut\)"):
        made.send()
    with pytest.raises(TraceError, match="no such file"):
        open_trace("memory://published/trace")
    assert made.send() == "memory://published/trace"
    assert rows_of(open_trace("memory://published/trace")) == rows_of(open_trace(folder))
    memory.rm("/published", recursive=True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--push", HERE), "--push sends the trace of --trace DIR"),
        (("--push", HERE, "--trace", "T", "-p", "chain"), "--policy is read with --format"),
        (("--push", HERE, "--trace", "T", "--out", "x"), "--out is read with --format"),
        (("--push", HERE, "--trace", "nothing"), "there is nothing"),
        (("--push", "some/folder", "--trace", "T", "--public"), "--public is for repositories on the hub"),
        (("--format", "vllm", "--public"), "--public is read with --push"),
        (("--format", "vllm", "--push", HERE), "not allowed with"),
        ((), "one of the arguments --format --push is required"),
    ],
)
def test_options_that_do_not_fit(typed: tuple[str, ...], said: str, folder: Path) -> None:
    assert said in refusal_of("export", *(str(folder) if word == "T" else word for word in typed))


def front_matter(card: str) -> dict[str, object]:
    """The values above a card; each line's is JSON."""
    head = card.split("---\n")[1]
    return {line.partition(": ")[0]: json.loads(line.partition(": ")[2]) for line in head.splitlines()}


def test_the_card_says_what_the_trace_is(folder: Path) -> None:
    trace = open_trace(folder)
    card = trace_card(trace, HERE, "mit")
    values = front_matter(card)
    assert values["license"] == "mit"
    assert "speculative-decoding" in str(values["tags"])
    assert trace.manifest.target.name in str(values["models"])
    for config in values["configs"]:  # type: ignore[attr-defined]
        assert pl.scan_parquet(folder / config["data_files"]).collect().height > 0
    names = {config["config_name"] for config in values["configs"]}  # type: ignore[attr-defined]
    assert names == {"sequences", "tokens", f"draft-{DRAFT}", *(f"channel-{name}" for name in trace.manifest.channels)}
    for said in (trace.text_id, trace.draft_ids[DRAFT], trace.manifest.target.digest, f"simlab replay --trace {HERE}"):
        assert said in card
    lines = [line for line in card.partition("## Texts")[2].splitlines() if line.startswith("|")]
    rows = [line.strip("| ").split(" | ") for line in lines[2:]]
    assert sum(int(row[2]) for row in rows) == len(trace.texts)
    assert sum(int(row[3].replace(",", "")) for row in rows) == sum(len(text.text) for text in trace.texts)
    assert front_matter(trace_card(trace, HERE))["license"] == "unknown"


def test_names_of_others_are_nothing_but_text(folder: Path) -> None:
    trace = open_trace(folder)
    evil = 'a"\n---\nlicense: mit\n| <script>|`x`'
    model = replace(trace.manifest.target, name=evil)
    card = trace_card(replace(trace, manifest=replace(trace.manifest, target=model)), HERE)
    assert front_matter(card)["license"] == "unknown"
    assert evil in front_matter(card)["models"]  # type: ignore[operator]
    body = card.split("---\n", 2)[2]
    assert "<script>" not in body
    rows = [line for line in body.splitlines() if line.startswith("| target")]
    assert len(rows) == 1


def test_nothing_outside_the_destination_is_written_for_a_forged_name(tmp_path: Path, folder: Path) -> None:
    """Neither where the trace is a folder nor where it is served."""
    forged = Path(shutil.copytree(folder, tmp_path / "forged"))
    victim, content = tmp_path / "victim.txt", b"of the forger"
    (tmp_path / "a").mkdir()
    victim.write_bytes(content)
    manifest = json.loads((forged / "manifest.json").read_text())
    entry = {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["contents"]["files"]["../victim.txt"] = entry
    (forged / "manifest.json").write_text(json.dumps(signed(manifest)))
    before = set(tmp_path.rglob("*"))
    said = refusal_of("export", "--push", str(tmp_path / "a" / "b"), "--trace", str(forged))
    assert "is no file of its draft sets, channels and shards" in said
    with serving_files(forged) as server:
        said = refusal_of("export", "--push", str(tmp_path / "a" / "b"), "--trace", server.address)
    assert "is no file of its draft sets, channels and shards" in said
    assert set(tmp_path.rglob("*")) == before
    assert victim.read_bytes() == content
