"""``manifest.json``: what was recorded, from which models, how, and what the trace holds."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simlab.errors import TraceError, enumerated
from simlab.limits import MOST_COUNT
from simlab.sampling.choice import Sampling
from simlab.traces.fetching.fetched import fetched_text
from simlab.traces.format.documents import Json, JsonFields, check_digest, check_version, value_of, with_digest
from simlab.traces.format.files import (
    FORMAT_VERSION,
    MANIFEST,
    SEQUENCES,
    TOKEN_TEXTS,
    UNFINISHED,
    file_sha256,
    local_folder,
    read_text,
)
from simlab.traces.format.manifest_entries import (
    MOST_TOKENS,
    ChannelInfo,
    DraftSet,
    ModelInfo,
    as_json,
    check_base,
    check_name,
)
from simlab.untrusted.json_text import parse_json

FORMAT = "simlab-trace"
GT_MODES = ("generated", "given")

_OF_A_FILE = (
    "7e0b8f35ca7f836d92d824d9e3db5747c22d9a1e2753ccf2ec9af24a8614e979",  # by transformers 5.23
    "464c75d5fda9fca72328317f3ed2fad9d64be5eb638581628b5c9301258ebdb1",  # 5.17
)
_BUILT_IN = "ea15d0469de9aeebf4b0eae2cc6828ab39bbaffa3bf98cfd408afe3ede469a4d"


def same_tokenizer(digest: str, other: str) -> bool:
    """Whether two digests are of one tokenizer.

    Files of before tokenizers were known by their content have digests of the files that transformers wrote; those of
    the built-in target's tokenizer are known, and the packaged files have one of them.
    """
    return digest == other or {digest, other} <= {_BUILT_IN, *_OF_A_FILE}


@dataclass(frozen=True, slots=True)
class DumpedInfo:
    """The hidden states that a serving engine dumped, from which laws and drafts were computed.

    Attributes:
        layers: those of each file; k is the state after the first k layers.
        dtype: of the files.
        digest: of their bytes, in the order of the texts; None in older traces.
    """

    layers: tuple[int, ...]
    dtype: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedInfo:
    """What an engine wrote of its own rounds, of which the trace was made; the target was not run beside it.

    Attributes:
        engine: as the file names it.
        lacks: what a recording has and the file does not, in words; none of it is in the trace.
    """

    engine: str
    lacks: tuple[str, ...]

    def __post_init__(self) -> None:
        if not (self.engine and self.lacks):
            raise ValueError("imported must name the engine, and what its file lacks")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file of the trace, to find damage before it is read."""

    num_bytes: int
    sha256: str


def file_info(path: Path) -> FileInfo:
    """What the manifest says of a file that was just written."""
    return FileInfo(path.stat().st_size, file_sha256(path))


@dataclass(frozen=True, slots=True)
class TraceContents:
    """What a finished trace holds.

    Attributes:
        shards: the number of sequences in each shard.
        files: every file but the manifest and ``recording.json``.
        channel_ids: by the name of the channel.
    """

    text_id: str
    draft_ids: Mapping[str, str]
    shards: tuple[int, ...]
    files: Mapping[str, FileInfo]
    channel_ids: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(0 <= shard <= MOST_COUNT for shard in self.shards):
            raise ValueError(f"shards must be numbers of sequences from 0 to {MOST_COUNT:,}")

    def to_json(self) -> Json:
        """The entry in the manifest; without channels as it was before there were any."""
        return {key: value for key, value in as_json(self).items() if key != "channel_ids" or value}


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a recording that is known before it starts, and its contents at the end.

    Attributes:
        prompts_digest: of what was asked: rendered first prompts and later user messages.
        gt_mode: ``generated`` by the target under ``sampling``, or ``given`` text, teacher-forced.
        vocab_size: of the target.
        versions: of the libraries that computed the numbers.
        batch_size: of the recorder; None where it is not known.
        hidden_states: None where the target ran in the recorder.
        imported: None where simlab recorded; else there are no rows of the target (``tokens-NNNN.parquet``).
        channels: what was added to the finished trace beside draft sets.
        contents: None until the recording is finished.
    """

    target: ModelInfo
    vocab_size: int
    tokenizer_digest: str
    chat_template_digest: str
    prompts_digest: str
    chat_template_kwargs: Mapping[str, object]
    sampling: Sampling
    stop_token_ids: tuple[int, ...]
    max_new_tokens: int
    gt_mode: str
    dtype: str
    attention: str
    batch_size: int | None
    device: str
    versions: Mapping[str, str]
    draft_sets: Mapping[str, DraftSet]
    hidden_states: DumpedInfo | None = None
    imported: ImportedInfo | None = None
    channels: Mapping[str, ChannelInfo] = field(default_factory=dict)
    contents: TraceContents | None = field(default=None)

    def __post_init__(self) -> None:
        if not 1 <= self.vocab_size <= MOST_TOKENS:
            raise ValueError(f"vocab_size must be from 1 to {MOST_TOKENS:,}; got {self.vocab_size}")
        for name in ("max_new_tokens", "batch_size"):
            value = getattr(self, name)
            if not (value is None or 1 <= value <= MOST_COUNT):
                raise ValueError(f"{name} must be from 1 to {MOST_COUNT:,}; got {value}")
        if not all(0 <= token_id <= MOST_COUNT for token_id in self.stop_token_ids):
            raise ValueError(f"stop_token_ids must be from 0 to {MOST_COUNT:,}")
        if self.contents is not None and set(self.contents.draft_ids) != set(self.draft_sets):
            raise ValueError("draft_ids must be of the draft_sets, one of each")
        if self.gt_mode not in GT_MODES:
            raise ValueError(f"gt_mode must be one of {GT_MODES}; got {self.gt_mode!r}")
        for kind, names in (("draft set", self.draft_sets), ("channel", self.channels)):
            for name in names:
                check_name(kind, name)
        self._check_channels()
        self._check_files()

    def _check_files(self) -> None:
        """A listed name is read, fetched, sent and deleted by, so only those that the sets and shards call for pass."""
        files = {} if self.contents is None else self.contents.files
        strange = next((name for name in files if not self._is_called_for(name)), None)
        if strange is not None:
            raise ValueError(f"files lists {strange[:100]!r}, which is no file of its draft sets, channels and shards")

    def _is_called_for(self, name: str) -> bool:
        match = re.fullmatch(r"(tokens|draft|channel)(?:-(.+))?-([0-9]{4,8})\.parquet", name)
        if match is None:
            return name in (SEQUENCES, TOKEN_TEXTS)
        kind, of, shard = match.groups()
        laws = (None,) if self.imported is None else ()
        known = {"tokens": laws, "draft": self.draft_sets, "channel": self.channels}[kind]
        return of in known and shard == f"{int(shard):04d}" and int(shard) < len(self.held().shards)

    def _check_channels(self) -> None:
        contents = self.contents
        if contents is None:
            return
        if set(contents.channel_ids) != set(self.channels):
            raise ValueError("channel_ids must be of the channels, one of each")
        for name, info in self.channels.items():
            if info.extends is not None and contents.draft_ids.get(info.extends) != info.extends_id:
                raise ValueError(f"the channel {name} extends the draft set {info.extends} with another id")
            if info.extends is not None:
                check_base(name, info, self.draft_sets[info.extends])

    @property
    def text_origin(self) -> str:
        """Who made the text, in words; of an imported trace also what it lacks."""
        if self.imported is not None:
            return f"imported from {self.imported.engine}, without {enumerated(self.imported.lacks)}"
        return "generated by the target" if self.gt_mode == "generated" else "made elsewhere"

    def check_recorded(self, location: str | Path) -> None:
        """Refuse an imported trace where models would go on from it: nobody can tell whose texts these are."""
        if self.imported is not None:
            raise TraceError(
                f"{location} was imported from {self.imported.engine}, and no digest says of which models it is, so "
                "nothing can be added to it; record its texts with the models: `simlab record --completions FILE`"
            )

    def held(self) -> TraceContents:
        """The contents of a finished trace."""
        if self.contents is None:
            raise ValueError("this recording is not finished, so it has no contents yet")
        return self.contents

    def to_json(self) -> Json:
        """The JSON value of ``manifest.json``; keys in the order of the fields."""
        sampling = {name: getattr(self.sampling, name) for name in ("temperature", "top_p", "top_k", "seed")}
        draft_sets = {name: draft.to_json() for name, draft in self.draft_sets.items()}
        channels = {name: channel.to_json() for name, channel in self.channels.items()}
        contents = None if self.contents is None else self.contents.to_json()
        made = {"sampling": sampling, "draft_sets": draft_sets, "channels": channels, "contents": contents}
        values = {"format": FORMAT, "format_version": FORMAT_VERSION, **as_json(self), **made}
        optional = ("hidden_states", "imported", "channels")
        return {key: value for key, value in values.items() if key not in optional or value}

    def to_bytes(self) -> bytes:
        """The bytes of the file ``manifest.json``."""
        return (json.dumps(with_digest(self.to_json()), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_manifest(location: str | Path) -> Manifest:
    """The manifest of a finished trace.

    Raises:
        TraceError: there is none, it is not simlab's, newer than this simlab, or damaged.
    """
    _check_location(location)
    text = read_text(location, MANIFEST) if local_folder(location) is not None else fetched_text(location, MANIFEST)
    manifest = manifest_from_text(text, f"{MANIFEST} in {location}", location)
    if manifest.contents is None:
        raise TraceError(f"{MANIFEST} in {location} lists no contents: it is damaged. Copy it again, or record again.")
    return manifest


def manifest_text(location: str | Path, manifest: Manifest) -> str:
    """The text of the manifest, as it was read from a place."""
    text = read_text(location, MANIFEST) if local_folder(location) is not None else fetched_text(location, MANIFEST)
    if manifest_from_text(text, f"{MANIFEST} in {location}", location) != manifest:
        raise TraceError(f"{MANIFEST} in {location} was changed since the trace was opened; run again.")
    return text


def _check_location(location: str | Path) -> None:
    folder = local_folder(location)
    if folder is None or (folder / MANIFEST).is_file():
        return
    if not folder.exists():
        raise TraceError(f"expected a trace folder at {location}; there is nothing. Check the path.")
    if not folder.is_dir():
        raise TraceError(f"expected a trace folder; {location} is a file. Give the folder that `simlab record` wrote.")
    if (folder / UNFINISHED).is_dir():
        raise TraceError(
            f"the recording in {location} is not finished; finish it with `simlab record ... --resume`, or put its "
            "parts together with `simlab merge`."
        )
    raise TraceError(f"{location or '.'} holds no {MANIFEST}, so it is no trace; give one that `simlab record` wrote.")


def manifest_from_text(text: str, where: str, location: str | Path) -> Manifest:
    """A manifest out of the text of its file.

    Args:
        text: of the file.
        where: what it is called in messages.
        location: the folder or address of the trace.
    """
    try:
        values = parse_json(text)
    except ValueError as error:
        raise TraceError(f"{where} is not JSON ({error}): it is damaged. Copy it again, or record again.") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise TraceError(f"{where} is not of a simlab trace; give the folder that `simlab record` wrote.")
    fields = JsonFields(values, where)
    check_version(fields, FORMAT_VERSION, "`simlab record --out DIR` writes one")
    try:
        manifest = value_of(Manifest, fields, channels=_channels(fields))
    except ValueError as error:
        raise TraceError(f"{where}: {error}. Copy the file again.") from error
    check_digest(fields, location)
    return manifest


def _channels(fields: JsonFields) -> dict[str, ChannelInfo]:
    """The channels of a trace; older files have none."""
    entries = fields.inners("channels") if "channels" in fields.values else {}
    return {name: value_of(ChannelInfo, entry, positions=_positions(entry)) for name, entry in entries.items()}


def _positions(entry: JsonFields) -> str | dict[str, object]:
    is_object = isinstance(entry.values.get("positions"), dict)
    return dict(entry.inner("positions").values) if is_object else entry.text("positions")
