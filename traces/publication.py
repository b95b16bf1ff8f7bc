"""What is sent when a trace is published, where it goes, and who may see it."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from simlab.errors import SimlabError, TraceError, UsageError, reason_of
from simlab.traces.fetching.addresses import check_online, hub_address, hub_endpoint, packages_for
from simlab.traces.format.files import MANIFEST, SEQUENCES, write_beside
from simlab.traces.format.manifest import manifest_text
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.format.shards import checked_file
from simlab.traces.reader import Trace

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from huggingface_hub import HfApi

# A trace in a bucket or a folder, through fsspec: file by file, and the manifest, which makes it a trace, last.


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder that fsspec writes: ``s3://BUCKET/PREFIX``, or a path on this machine.

    Attributes:
        address: as it was typed.
    """

    address: str

    def described(self) -> str:
        """Name the place, and who may see what is there, in a line."""
        return f"{self.address}: whoever may read there"

    def send(self, files: Mapping[str, Path], texts: Mapping[str, str]) -> str:
        """Send files and short texts by their names there, the manifest last; returns the address.

        Raises:
            SimlabError: it cannot be sent; what is there cannot be taken for a finished trace.
        """
        with _explained(self.address):
            import fsspec  # noqa: PLC0415 - an extra of its own

            system, root = fsspec.core.url_to_fs(self.address)
            root = root.rstrip("/")
            if system.exists(f"{root}/{MANIFEST}"):
                raise UsageError(f"{self.address} holds a trace already; name another place, or remove it first")
            system.makedirs(root, exist_ok=True)
            for name, path in tqdm(files.items(), desc="sending", unit="file", delay=2, disable=None):
                system.put_file(str(path), f"{root}/{name}")
            for name in sorted(texts, key=lambda name: name == MANIFEST):
                _write(system, f"{root}/{name}", texts[name].encode())
        return self.address


def _write(system: "AbstractFileSystem", path: str, content: bytes) -> None:
    """Write a short file at once: a bucket does so by itself."""
    if "file" in system.protocol:
        write_beside(Path(path), lambda file: file.write(content))
    else:
        system.pipe_file(path, content)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Say in one sentence why it could not be sent; each kind of storage has its own failures."""
    try:
        yield
    except SimlabError:
        raise
    except ImportError as error:
        install = packages_for(address)
        raise SimlabError(f"{address} needs packages that are not installed: pip install {install}") from error
    except Exception as error:
        raise SimlabError(
            f"the trace could not be sent to {address} ({reason_of(error)[:200]}); what is there is no trace yet, and "
            "the same command sends it anew"
        ) from error


# A trace in a dataset repository of the Hugging Face Hub: one commit, so that it is there whole or not at all.


_WRITING = "log in with `hf auth login`, or set HF_TOKEN to a token that may write there"
_REFUSED = (401, 403)


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A folder of a dataset repository.

    Attributes:
        address: as it was typed.
        repository: owner and name.
        revision: the branch that gets the commit.
        folder: empty: the root.
        public: whether everybody may see the repository if it is made now.
    """

    address: str
    repository: str
    revision: str
    folder: str
    public: bool

    def described(self) -> str:
        """Name the repository, and who may see it."""
        seen = "public" if self.public else "private"
        return f"{self.address}: {seen} if it is made now, in one commit on {self.revision}, at {hub_endpoint()}"

    def send(self, files: Mapping[str, Path], texts: Mapping[str, str]) -> str:
        """Send all in one commit; returns the address."""
        check_online(self.address)
        with _hub_reason(self.address):
            from huggingface_hub import CommitOperationAdd, HfApi  # noqa: PLC0415 - an extra of its own

            api = HfApi(endpoint=hub_endpoint(), library_name="simlab")
            self._make(api)
            before = f"{self.folder}/" if self.folder else ""
            operations = [CommitOperationAdd(f"{before}{name}", str(path)) for name, path in files.items()]
            operations += [CommitOperationAdd(f"{before}{name}", text.encode()) for name, text in texts.items()]
            api.create_commit(
                self.repository,
                operations,
                commit_message="A trace of simlab",
                repo_type="dataset",
                revision=self.revision,
            )
        return self.address

    def _make(self, api: "HfApi") -> None:
        """Make the repository, unless it is there and as private as it is to be."""
        api.create_repo(self.repository, repo_type="dataset", private=not self.public, exist_ok=True)
        if not self.public and not api.dataset_info(self.repository).private:
            raise UsageError(
                f"{self.address} is there already and everybody can see it; add --public to send the trace there, or "
                "name another repository"
            )
        if self.revision != "main":
            api.create_branch(self.repository, branch=self.revision, repo_type="dataset", exist_ok=True)


def hub_repository(address: str, public: bool) -> HubRepository:
    """The repository that an address names."""
    try:
        kind, repository, revision, folder = hub_address(address)
    except TraceError as error:
        raise UsageError(str(error)) from error
    if kind != "datasets":
        raise UsageError(f"a trace is sent to a dataset repository, hf://datasets/OWNER/NAME; got {address}")
    return HubRepository(address, repository, revision, folder, public)


@contextmanager
def _hub_reason(address: str) -> Iterator[None]:
    """Say in one sentence why nothing could be sent."""
    try:
        yield
    except SimlabError:
        raise
    except ModuleNotFoundError as error:
        raise SimlabError(
            f"{address} is sent with the package {error.name}, which is not installed; install it with: "
            'pip install "simlab[hub]"'
        ) from error
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        refused = f"no permission, the hub answered {code}; {_WRITING}"
        is_refused = code in _REFUSED or type(error).__name__ == "LocalTokenNotFoundError"
        reason = refused if is_refused else reason_of(error)[:200]
        raise SimlabError(f"nothing was sent to {address} ({reason}); the same command tries again") from error


# The card of a published trace: Markdown, below YAML that the Hugging Face Hub reads.


TAGS = ("speculative-decoding", "simlab", "simlab-trace")
UNKNOWN = "unknown"
"""The hub's word for a licence that nobody named."""

_WHAT = (
    "A dense trace of speculative decoding, recorded with simlab: at every position of real text, what the drafter "
    "proposes and what the target says. From it every draft-tree policy is replayed exactly, without the models."
)
_HOW = (
    "Only the files that are read are fetched, shard by shard, and each is checked against the digests in "
    "`manifest.json`."
)


def trace_card(trace: Trace, address: str, licence: str = UNKNOWN) -> str:
    """What a trace is, how it was made, and how it is read.

    Args:
        trace: which is published.
        address: at which it will be.
        licence: as the hub names it, such as ``apache-2.0``.
    """
    name = address.rstrip("/").rsplit("/", 1)[-1].partition("@")[0]
    parts = [
        _front_matter(trace, name, licence),
        f"# {_cell(name)}",
        _WHAT,
        "## Reading it",
        f"```sh\npip install simlab\nsimlab replay --trace {shlex.quote(address)} -p chain\n```",
        f"```python\nimport simlab\n\ntrace = simlab.open_trace({json.dumps(address)})\n```",
        _HOW,
        "## Models",
        _table(
            ("", "name", "revision", "sha256"),
            [(what, info.name, info.revision or "", info.digest) for what, info in _model_ids(trace)],
        ),
        "## Contents",
        _table(("what", "value"), _contents(trace)),
        "## Texts",
        _table(("dataset", "prompts", "sequences", "tokens"), _texts(trace)),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(trace: Trace, name: str, licence: str) -> str:
    """YAML whose values are JSON, which is YAML, so that no name can be anything but a text."""
    files = trace.manifest.held().files
    sets = {"sequences": SEQUENCES, "tokens": "tokens-*.parquet"}
    sets |= {f"draft-{config}": f"draft-{config}-*.parquet" for config in trace.manifest.draft_sets}
    sets |= {f"channel-{channel}": f"channel-{channel}-*.parquet" for channel in trace.manifest.channels}
    present = {
        config: pattern for config, pattern in sets.items() if any(file.startswith(pattern[:-9]) for file in files)
    }
    values = {
        "license": licence,
        "pretty_name": name,
        "tags": TAGS,
        "models": sorted({model.name for _, model in _model_ids(trace)}),
        "size_categories": [_size_category(sum(len(text.text) - 1 for text in trace.texts))],
        "configs": [{"config_name": config, "data_files": pattern} for config, pattern in present.items()],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---"])


def _size_category(num_rows: int) -> str:
    """The hub's word for a number of rows."""
    steps = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M")]
    return next((word for most, word in steps if num_rows < most), "10M<n<100M" if num_rows < 10**8 else "100M<n<1B")


def _model_ids(trace: Trace) -> list[tuple[str, ModelInfo]]:
    """The models of a trace, each with what it was there for."""
    manifest = trace.manifest
    drafters = [(f"drafter of {name}", draft_set.model) for name, draft_set in manifest.draft_sets.items()]
    producers = [(f"channel {name}", channel.producer) for name, channel in manifest.channels.items()]
    return [("target", manifest.target), *drafters, *producers]


def _contents(trace: Trace) -> list[tuple[str, object]]:
    manifest, held = trace.manifest, trace.manifest.held()
    sampling, num_bytes = manifest.sampling, sum(file.num_bytes for file in held.files.values())
    size = f"{len(held.files) + 1} files, {num_bytes / 1e6:,.1f} MB, {len(held.shards)} shards"
    rows: list[tuple[str, object]] = [
        ("trace format", f"simlab-trace, {size}"),
        ("text", f"{held.text_id}, dtype {manifest.dtype}"),
        ("sampling", f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, top-k {sampling.top_k}"),
    ]
    for name, draft_set in manifest.draft_sets.items():
        description = (
            f"{held.draft_ids[name]}, block {draft_set.block_size}, at least {draft_set.min_width} candidates a depth"
        )
        rows.append((f"draft set {name}", f"{description}, exact up to budget {draft_set.exact_budget}"))
    rows += [
        (f"channel {name}", f"{held.channel_ids[name]}, {channel.kind}") for name, channel in manifest.channels.items()
    ]
    rows.append(("recorded with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())))
    return rows


def _texts(trace: Trace) -> list[tuple[object, ...]]:
    prompts: dict[str, set[str]] = {}
    sequences, tokens = Counter[str](), Counter[str]()
    for text in trace.texts:
        prompts.setdefault(text.prompt.dataset, set()).add(text.prompt.prompt_id)
        sequences[text.prompt.dataset] += 1
        tokens[text.prompt.dataset] += len(text.text)
    return [(name, len(prompts[name]), sequences[name], f"{tokens[name]:,}") for name in prompts]


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    """A value in one line of Markdown, in which others' names mean nothing."""
    text = "".join(sign if sign.isprintable() else " " for sign in str(value))
    signs: Mapping[str, str] = {"|": "\\|", "<": "&lt;", "&": "&amp;", "`": "\\`", "[": "\\[", "*": "\\*"}
    return "".join(signs.get(sign, sign) for sign in text)


CARD = "README.md"
"""The file of the card."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A trace on its way.

    Attributes:
        trace: which is sent.
        location: to which.
        card: its text.
    """

    trace: Trace
    location: HubRepository | Storage
    card: str

    def sizes(self) -> dict[str, int]:
        """The bytes of each file that is sent, by its name."""
        files = {name: file.num_bytes for name, file in self.trace.manifest.held().files.items()}
        texts = {name: len(text.encode()) for name, text in self._texts().items()}
        return dict(sorted((files | texts).items()))

    def text(self) -> str:
        """Say what would be sent, with the card."""
        sizes = self.sizes()
        width = max(map(len, sizes))
        lines = [f"{self.trace.location} (text {self.trace.text_id})", f"to {self.location.described()}", ""]
        lines += [f"{name.ljust(width)}  {size:>15,} bytes" for name, size in sizes.items()]
        lines += [
            f"{'together'.ljust(width)}  {sum(sizes.values()):>15,} bytes",
            "",
            f"{CARD}:",
            "",
            self.card.rstrip(),
        ]
        return "\n".join(lines)

    def send(self) -> str:
        """Check every file against its digest, and send all; returns the address."""
        names = list(self.trace.manifest.held().files)
        paths = {name: checked_file(self.trace.location, self.trace.manifest, name) for name in names}
        return self.location.send(paths, self._texts())

    def _texts(self) -> dict[str, str]:
        return {CARD: self.card, MANIFEST: manifest_text(self.trace.location, self.trace.manifest)}


def publication(trace: Trace, address: str, licence: str | None = None, public: bool = False) -> Publication:
    """Put together what is sent; nothing is asked or sent yet.

    Args:
        trace: which is published.
        address: ``hf://datasets/OWNER/NAME[@REVISION][/FOLDER]``, what fsspec writes such as ``s3://...``, or a folder.
        licence: of the texts, as the hub names it; None: nobody said.
        public: whether everybody may see a repository that is made for it.

    Raises:
        UsageError: it is no such address, or says nothing about who may see it.
    """
    destination: HubRepository | Storage
    if address.lower().startswith("hf://"):
        destination = hub_repository(address, public)
    elif public:
        raise UsageError(f"--public is for repositories on the hub; who may read {address} is settled there")
    else:
        destination = Storage(address)
    return Publication(trace, destination, trace_card(trace, address, licence or UNKNOWN))
