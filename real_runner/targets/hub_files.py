"""Files of models and data sets: which hold weights, what is fetched from the Hugging Face Hub, at which revision.

Weights are fetched as safetensors only; code and pickles of a repository are not even asked for.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from simlab.errors import ModelError, TraceError
from simlab.traces.format.documents import json_fields
from simlab.untrusted.json_text import file_bytes, open_file

CONFIG = "config.json"
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DATASET = "dataset"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter, as PEFT names them."""
BESIDE_DRAFTERS = ("*/*.json", ADAPTER_CONFIG)
"""What shows that something lies beside a drafter that changes it, see the checks of checkpoints."""
SMALL_FILES = ("*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja")
_ID = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where the files of a model lie: a folder, or of a drafter also the one file with weights.

    ``revision``: the commit they are of; empty where they are not the hub's.
    """

    folder: Path
    revision: str


def every_tensor(_name: str) -> bool:
    """Whether a tensor is needed: each one, where a checkpoint is needed whole."""
    return True


def is_hub_id(name: str) -> bool:
    """Whether a name has the form ``ORG/NAME`` or ``ORG/NAME@REVISION``."""
    return _ID.fullmatch(name) is not None


def repository_of(name: str) -> str:
    """A hub id without its revision; another name as it is."""
    match = _ID.fullmatch(name)
    return name if match is None or Path(name).exists() else match["repository"]


def at_revision(name: str, revision: str) -> str:
    """A hub id that will always fetch the same files.

    Args:
        name: of a model that was loaded.
        revision: of its files; empty where they were not the hub's.
    """
    return f"{repository_of(name)}@{revision}" if revision else name


def fetch(kind: str, name: str, patterns: Sequence[str]) -> ModelFiles:
    """Fetch some files of a repository, or find them in the cache.

    Args:
        kind: what it is, ``target``, ``drafter`` or ``dataset``.
        name: ``ORG/NAME`` or ``ORG/NAME@REVISION``; a branch, a tag or a commit.
        patterns: names of files, ``*`` for anything.

    Raises:
        ModelError: it is no hub id, or the files cannot be had; says why.
    """
    # Replay reads names of repositories here, where the packages that run models may not be installed.
    from huggingface_hub import HfApi, constants, snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    match = _ID.fullmatch(name)
    if match is None:
        raise ModelError(f"{name!r} is neither a folder here nor of the form ORG/NAME or ORG/NAME@REVISION")
    repository, revision = match["repository"], match["revision"]
    repo_type = DATASET if kind == DATASET else "model"
    # The base of all failures on the way, of whichever HTTP library huggingface_hub was built on.
    transport = cast(type[Exception], HfHubHTTPError.__bases__[0])
    refused: Exception | None = None
    try:
        try:
            # Asked first and once: where nobody answers, the downloading functions would wait for minutes.
            seconds = constants.HF_HUB_ETAG_TIMEOUT
            HfApi().repo_info(repository, revision=revision, repo_type=repo_type, timeout=seconds)
        except (OSError, transport) as error:
            refused = error
        found_at = snapshot_download(
            repository,
            revision=revision,
            repo_type=repo_type,
            allow_patterns=list(patterns),
            local_files_only=refused is not None,
        )
    except (OSError, ValueError, transport) as error:
        first = refused or error.__cause__
        is_known = isinstance(error, LocalEntryNotFoundError) and isinstance(first, OSError | transport)
        cause = cast(Exception, first) if is_known else error
        here = "file" if kind == DATASET else "folder"
        problem = f"the {kind} {name!r} could not be fetched: there is no such {here} here, and "
        raise ModelError(problem + _reason(cause, repo_type, repository, revision)) from error
    return ModelFiles(Path(found_at), Path(found_at).name)


def fetch_model(kind: str, name: str, is_needed: Callable[[str], bool] = every_tensor) -> ModelFiles:
    """Fetch a target, with its tokenizer, or a drafter: configuration, and the weights that its index lists.

    Args:
        kind: ``target`` or ``drafter``.
        name: a hub id.
        is_needed: by the name of a tensor, where not all are.

    Raises:
        ModelError: see `fetch`; or the repository has no safetensors.
    """
    beside = SMALL_FILES if kind == "target" else (CONFIG, INDEX, *BESIDE_DRAFTERS)
    small = fetch(kind, name, beside)
    alone = not (small.folder / CONFIG).is_file() and (small.folder / ADAPTER_CONFIG).is_file()
    weights = [ADAPTER_WEIGHTS] if alone and kind != "target" else weight_names(small.folder, is_needed)
    whole = fetch(kind, at_revision(name, small.revision), [*beside, *weights])
    missing = [weight for weight in weights if not (whole.folder / weight).is_file()]
    if missing:
        raise ModelError(
            f"the {kind} {name!r} has no {missing[0]} on the hub; simlab reads weights from safetensors only, so "
            "choose a repository or a revision that has them"
        )
    return whole


def weight_names(folder: Path, is_needed: Callable[[str], bool] = every_tensor) -> list[str]:
    """The files with weights that transformers would read: one, or those of the index."""
    index = folder / INDEX
    if (folder / WHOLE).is_file() or not index.is_file():
        return [WHOLE]
    try:
        placed = json_fields(file_bytes(index), str(index)).texts("weight_map")
    except (OSError, ValueError, TraceError) as error:
        raise ModelError(f"{index} is no index of weights; fetch the checkpoint again") from error
    names = sorted({file for tensor, file in placed.items() if is_needed(tensor)})
    if not all(_is_file_beside(name) for name in names):
        raise ModelError(f"{index} lists files that are no safetensors beside it; choose another checkpoint")
    return names


def _is_file_beside(name: str) -> bool:
    """Whether a name is that of a safetensors file in the same folder."""
    is_plain = name.isprintable() and not {"/", "\\"} & set(name) and len(name.encode()) < 256
    return is_plain and name.endswith(".safetensors")


def files_digest(paths: Sequence[Path]) -> str:
    """sha256 over the contents of the files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with open_file(path) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _reason(error: Exception, repo_type: str, repository: str, revision: str | None) -> str:
    """Why files could not be had, and what to do, in words that follow "and"."""
    # As in `fetch`.
    from huggingface_hub import constants, errors  # noqa: PLC0415

    hub = constants.ENDPOINT
    login = "log in with `hf auth login` or set HF_TOKEN"
    if isinstance(error, errors.GatedRepoError):
        page = f"{hub}/datasets/{repository}" if repo_type == DATASET else f"{hub}/{repository}"
        return f"{hub} lets only some read it: ask for access at {page}, then {login}"
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    # The hub says 401 of what is not there as well as of what is private.
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return (
            f"{hub} has no {repo_type} of that name that you may read; check the spelling, or {login} if it is private"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"the repository has no revision {revision!r}"
    if isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        return "the cache has not all of its files; unset HF_HUB_OFFLINE to fetch them"
    if status is not None:
        return f"{hub} answered {status}; try again later, or {login}"
    if isinstance(error, errors.HFValidationError):
        return "the hub knows no ids of that form; expected ORG/NAME or ORG/NAME@REVISION"
    if isinstance(error, OSError) and error.strerror:
        return f"the files could not be written ({error.strerror})"
    return f"{hub} does not answer ({type(error).__name__}); check the network, or give a folder"
