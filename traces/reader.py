"""Opening a trace, from a folder or an address, and streaming it shard by shard."""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl

from simlab.channels import KINDS, TARGET, ChannelRows
from simlab.channels.needs import RecordedChannel, TraceCapabilities
from simlab.errors import MissingChannelError, TraceError, enumerated, named_or_listed
from simlab.recorded import DraftRows, RecordedSequence, RecordedTexts
from simlab.traces.channels.columns import ChannelColumns
from simlab.traces.channels.shards import read_channel_columns, read_channel_rows
from simlab.traces.decoded import decoded_bytes, decoded_rows, kept_draft_rows, work_ahead
from simlab.traces.fetching.store import fetched_ahead
from simlab.traces.format.checks import check_texts
from simlab.traces.format.files import (
    SEQUENCES,
    channel_file,
    draft_file,
    local_folder,
    tokens_file,
    unreadable,
)
from simlab.traces.format.frames import SequenceRecord, TokenRows, parts_of, spans
from simlab.traces.format.manifest import Manifest, read_manifest
from simlab.traces.format.manifest_entries import ALL
from simlab.traces.format.schema import sequences_schema
from simlab.traces.format.shards import (
    Shard,
    check_holds,
    checked_file,
    read_records,
    read_sequences,
    read_target_law,
    read_token_rows,
)
from simlab.traces.format.token_texts import read_token_texts
from simlab.traces.parquet.sizes import MOST_LISTED, check_size
from simlab.untrusted.visible import visible_html

_CANDIDATE_BYTES = 8
_MOST_AHEAD_BYTES = 1 << 27
"""Shards whose candidates take more together are not read ahead; one that is decoded takes three times as much."""
SAMPLE, EVERY_CHANNEL = "sample", "smollm2-135m-every-channel"
"""The traces that come with simlab, by name: one to compare policies on, and a few short texts with a draft set or a
channel for every policy."""
PACKAGED_TRACES = (SAMPLE, EVERY_CHANNEL)
_DATA = Path(str(files("simlab.traces"))) / "data"
_SCANNED: list[Path] = []
"""Files that polars reads whenever it is asked to: what was fetched of them is kept until this process ends."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """A finished trace. Texts are in memory; every other row is read when it is asked for.

    A few shards are decoded at a time, in threads, ahead of whoever replays them; one of them however large it is.

    Attributes:
        location: a folder or an address.
        manifest: what was recorded, and how.
        texts: all texts, in order.
        within: the indices of those that a study looks at; None: all.
        left_out: why it looks at no others, in a sentence; empty where it does.
    """

    location: str
    manifest: Manifest
    texts: tuple[SequenceRecord, ...]
    within: frozenset[int] | None = None
    left_out: str = ""

    @property
    def text_id(self) -> str:
        """The id of the texts and the target's rows."""
        return self.manifest.held().text_id

    @property
    def draft_ids(self) -> Mapping[str, str]:
        """The id of each draft set, by name."""
        return self.manifest.held().draft_ids

    @property
    def channel_ids(self) -> Mapping[str, str]:
        """The id of each channel, by name."""
        return self.manifest.held().channel_ids

    @property
    def sequence_counts(self) -> Mapping[str, int]:
        """How many sequences there are, by the id of the texts, as result files say it."""
        return {self.text_id: len(self.texts)}

    def __repr__(self) -> str:
        return f"Trace({self.location!r}, text {self.text_id}, {len(self.texts)} sequences)"

    def _repr_html_(self) -> str:
        manifest = self.manifest
        prompts = {(record.prompt.dataset, record.prompt.prompt_id) for record in self.texts}
        num_tokens = sum(len(record.text) for record in self.texts)
        datasets = ", ".join(sorted({record.prompt.dataset for record in self.texts}))
        facts = {
            "trace": f"{self.location} (text {self.text_id})",
            "target": f"{manifest.target.label}, {manifest.dtype}, temperature {manifest.sampling.temperature:g}",
            "texts": f"{len(self.texts)} sequences of {len(prompts)} prompts ({datasets}), {num_tokens:,} tokens",
        }
        for name, draft_set in manifest.draft_sets.items():
            facts[f"draft set {name}"] = (
                f"{draft_set.model.name}, block {draft_set.block_size} ({draft_set.depth} drafted ahead), at least "
                f"{draft_set.min_width} candidates a depth, exact up to budget {draft_set.exact_budget}"
            )
        for name, channel in self.manifest.channels.items():
            facts[f"channel {name}"] = f"{channel.kind} of {channel.producer.name}"
        rows = "".join(
            f"<tr><th>{visible_html(key)}</th><td>{visible_html(value)}</td></tr>" for key, value in facts.items()
        )
        return f"<table>{rows}</table>"

    @property
    def label(self) -> str:
        """Where it is, for a reader."""
        name = next((name for name in PACKAGED_TRACES if Path(self.location) == _DATA / name), None)
        return self.location if name is None else f"the packaged trace{'' if name == SAMPLE else f' {name}'}"

    @property
    def is_illustration(self) -> bool:
        """Whether it is the packaged trace that shows that each policy runs, and is too small to compare them."""
        return Path(self.location) == _DATA / EVERY_CHANNEL

    def sequences(self) -> Sequence[SequenceRecord]:
        """All texts in order, without token rows and drafts; of a trace of which some are left out the others."""
        within = self.within
        return self.texts if within is None else tuple(record for record in self.texts if record.index in within)

    def draft_name(self, name: str | None = None) -> str:
        """The draft set of that name, or the only one."""
        names = list(self.manifest.draft_sets)
        if name is not None and name not in names:
            listed = f"it holds {', '.join(names) or 'none'}"
            raise TraceError(f"{self.location} holds no draft set {name!r}{named_or_listed(name, names, listed)}")
        if name is None and len(names) != 1:
            raise TraceError(f"{self.location} holds {len(names)} draft sets ({', '.join(names) or 'none'}); name one.")
        return name if name is not None else names[0]

    def holds(self, draft: str) -> TraceCapabilities:
        """What there is for a replay of a draft set; `simlab.sequence_replay.check_needs` takes it."""
        draft_set = self.manifest.draft_sets[draft]
        channels = {
            name: RecordedChannel(info.kind, info.extends, info.settings, info.positions == ALL)
            for name, info in self.manifest.channels.items()
        }
        imported = self.manifest.imported
        from_engine = "" if imported is None else imported.engine
        return TraceCapabilities(
            draft_set.exact_budget,
            draft_set.min_width,
            channels,
            draft,
            self.location,
            draft_set.root_seen,
            from_engine,
        )

    def recorded(
        self, draft: str | None = None, indices: Collection[int] | None = None, channels: Sequence[str] = ()
    ) -> Iterator[RecordedSequence]:
        """What a replay reads, in the order of the trace.

        Args:
            draft: the draft set whose rows to read; None: texts only.
            indices: the sequences to read; None: all.
            channels: those to read beside the draft set.
        """
        wanted = self._wanted(indices)
        if draft is None:
            yield from (record.recorded() for record in self.texts if record.index in wanted)
            return
        for texts in self.recorded_texts(draft, wanted, channels=channels):
            yield from texts.sequences

    def recorded_texts(
        self,
        draft: str,
        indices: Collection[int] | None = None,
        most_roots: int = 1 << 40,
        channels: Sequence[str] = (),
    ) -> Iterator[RecordedTexts]:
        """What a replay reads, several texts at a time; their rows are not copied.

        Args:
            draft: the draft set whose rows to read.
            indices: the sequences to read; None: all.
            most_roots: texts that have more together come one after the other.
            channels: those to read beside it; of these the target's own law is read from the rows of the target.

        Raises:
            MissingChannelError: there is no such channel, or this simlab does not read its kind.
        """
        wanted, name = self._wanted(indices), self.draft_name(draft)
        for channel in channels:
            self._check_is_read(channel)
        draft_set = self.manifest.draft_sets[name]
        root_bytes = _CANDIDATE_BYTES * draft_set.depth * draft_set.min_width
        # From an address the files of a shard are fetched by the thread that reads it, ahead of those before it.
        shards = ((shard, sum(shard.num_roots) * root_bytes) for shard in self._shards(wanted))

        def read(shard: Shard) -> tuple[Sequence[SequenceRecord], DraftRows, _Beside]:
            rows = kept_draft_rows(shard, name)
            if draft_set.candidates_only:
                rows = replace(rows, entropies=None)
            by_channel = {channel: self._channel_rows(channel, shard, name, rows) for channel in channels}
            return shard.texts, rows, _Beside(by_channel)

        for texts, rows, beside in work_ahead(shards, read, _MOST_AHEAD_BYTES):
            firsts = np.cumsum([0, *(len(record.text) - 1 for record in texts)]).tolist()
            starts, begin = rows.starts(), 0
            while begin < len(texts):
                end = begin
                while end < len(texts) and texts[end].index in wanted:
                    if end > begin and firsts[end + 1] - firsts[begin] > most_roots:
                        break
                    end += 1
                if end > begin:
                    parts = zip(texts[begin:end], firsts[begin:end], firsts[begin + 1 :], strict=False)
                    sequences = [
                        replace(record.recorded(), rows=rows.part(at, to, starts), channels=beside.part(at, to))
                        for record, at, to in parts
                    ]
                    together = rows.part(firsts[begin], firsts[end], starts)
                    yield RecordedTexts(tuple(sequences), together, beside.part(firsts[begin], firsts[end]))
                begin = max(end, begin + 1)

    def runs(self, indices: Collection[int], most_roots: int = 1 << 40) -> Iterator[tuple[int, ...]]:
        """Sequences of one shard each, in order: what is read together.

        Args:
            indices: the sequences.
            most_roots: in a run of more than one.
        """
        for shard in self._shards(self._wanted(indices)):
            run: list[int] = []
            roots = 0
            for record in shard.texts:
                if record.index not in indices:
                    continue
                if run and roots + len(record.text) - 1 > most_roots:
                    yield tuple(run)
                    run, roots = [], 0
                run.append(record.index)
                roots += len(record.text) - 1
            if run:
                yield tuple(run)

    def _check_is_read(self, channel: str) -> None:
        info = self.manifest.channels.get(channel)
        if channel == TARGET:
            return
        if info is None:
            names = list(self.manifest.channels)
            listed = f"it holds {', '.join(names) or 'none'}"
            raise MissingChannelError(
                f"{self.location} holds no channel {channel!r}{named_or_listed(channel, names, listed)}; record it: "
                f"`simlab record --trace {shlex.quote(self.location)} --add-channel {channel}=CHECKPOINT`"
            )
        if not info.is_read:
            raise MissingChannelError(
                f"the channel {channel} in {self.location} is of the kind {info.kind!r} at positions {info.positions}; "
                f"this simlab reads {enumerated(KINDS)} at all positions"
            )

    def _channel_rows(self, channel: str, shard: Shard, draft: str, rows: DraftRows) -> ChannelRows:
        if channel == TARGET:
            return read_target_law(shard)
        return read_channel_rows(shard, channel, rows if self.manifest.channels[channel].extends == draft else None)

    def token_rows(self, indices: Collection[int] | None = None) -> Iterator[tuple[int, TokenRows]]:
        """The target's rows, each with the index of its sequence."""
        wanted = self._wanted(indices)
        for shard in self._shards(wanted, tokens_file):
            for record, part in zip(shard.texts, read_token_rows(shard), strict=True):
                if record.index in wanted:
                    yield record.index, part

    def records(self, drafts: Sequence[str] = (), indices: Collection[int] | None = None) -> Iterator[SequenceRecord]:
        """Everything recorded: texts, the target's rows, all columns of the named draft sets."""
        wanted = self._wanted(indices)
        names = [self.draft_name(name) for name in drafts]
        laws = [tokens_file] if self.manifest.imported is None else []
        for shard in self._shards(wanted, *laws, *(partial(draft_file, name) for name in names)):
            for record in read_records(shard, names):
                if record.index in wanted:
                    yield record

    def channel_columns(self, name: str) -> Iterator[tuple[RecordedSequence, ChannelColumns]]:
        """All columns of a channel, each with its text and the rows of the draft set that the channel extends."""
        self._check_is_read(name)
        extends = self.manifest.channels[name].extends
        files = [partial(channel_file, name), *([] if extends is None else [partial(draft_file, extends)])]
        for shard in self._shards(self._wanted(None), *files):
            rows = None if extends is None else kept_draft_rows(shard, extends)
            parts = [None] * len(shard.texts) if rows is None else list(parts_of(rows, shard.num_roots))
            for record, part, columns in zip(shard.texts, parts, read_channel_columns(shard, name, rows), strict=True):
                yield replace(record.recorded(), rows=part), columns

    def scan(self, table: str) -> pl.LazyFrame:
        """A checked file set for polars: ``sequences``, ``tokens``, or the name of a draft set."""
        num_shards = len(self.manifest.held().shards)
        if table == "sequences":
            names = [SEQUENCES]
        elif table == "tokens":
            names = [tokens_file(shard) for shard in range(num_shards)]
        else:
            names = [draft_file(self.draft_name(table), shard) for shard in range(num_shards)]
        paths = [checked_file(self.location, self.manifest, name) for name in names]
        _SCANNED.extend(paths)
        for path in paths:
            try:
                check_size(path)
            except (OSError, ValueError) as error:
                raise unreadable(self.location, path.name, error) from error
        return pl.scan_parquet(paths, glob=False)

    def token_texts(self) -> Mapping[int, bytes] | None:
        """The bytes of each token, by id, where the trace has them; see `simlab.traces.format.token_texts`."""
        return read_token_texts(self.location, self.manifest)

    def decoded_rows(self, draft: str) -> Iterator[DraftRows | None]:
        """The rows of each text that are kept decoded; None where none are, and none are made."""
        for shard in self._shards(self._wanted(None)):
            rows = decoded_rows(shard, draft)
            yield from [None] * len(shard.texts) if rows is None else parts_of(rows, shard.num_roots)

    def decoded_bytes(self, draft: str) -> int:
        """Bytes of a draft set's rows that are kept decoded, in files that are no part of the trace.

        Raises:
            TraceError: a file of the draft set is missing.
        """
        return sum(decoded_bytes(shard, draft) for shard in self._shards(self._wanted(None)))

    def _wanted(self, indices: Collection[int] | None) -> frozenset[int]:
        if indices is None and self.within is not None:
            return self.within
        everything = frozenset(range(len(self.texts)))
        wanted = everything if indices is None else frozenset(indices)
        if not wanted <= everything:
            raise ValueError(f"the trace has sequences 0 ... {len(self.texts) - 1}; got {sorted(wanted - everything)}")
        return wanted

    def _shards(self, wanted: frozenset[int], *files: Callable[[int], str]) -> Iterator[Shard]:
        """Each shard that holds a wanted sequence, with all its texts.

        From an address its files, named by ``files``, are here then, and those of the next shards are being fetched.
        """
        every = enumerate(spans(self.manifest.held().shards))
        shards = [Shard(self.location, self.manifest, number, self.texts[at:end]) for number, (at, end) in every]
        chosen = [shard for shard in shards if any(record.index in wanted for record in shard.texts)]
        if local_folder(self.location) is not None:
            return iter(chosen)
        fetch = partial(checked_file, self.location, self.manifest)
        return fetched_ahead(chosen, lambda shard: [partial(fetch, name(shard.number)) for name in files])


class _Beside:
    """The channels of a shard, of which parts are taken."""

    def __init__(self, rows: Mapping[str, ChannelRows]) -> None:
        self._rows = {name: (row, row.starts()) for name, row in rows.items()}

    def part(self, first: int, last: int) -> Mapping[str, ChannelRows]:
        """From one root up to another, without copying."""
        return {name: rows.part(first, last, starts) for name, (rows, starts) in self._rows.items()}


def open_trace(location: str | Path) -> Trace:
    """A trace in a folder, or at an address: ``https://...``, ``hf://datasets/OWNER/NAME``, or what fsspec reads.

    Or a trace that comes with simlab, by its name, where no folder of that name is there. From an address each file is
    fetched when it is first read, checked against the manifest, and kept in the cache.

    Raises:
        TraceError: there is no finished trace of a format that this simlab reads.
    """
    if str(location) in PACKAGED_TRACES and not Path(location).exists():
        location = packaged_trace(str(location))
    manifest = read_manifest(location)
    path = checked_file(location, manifest, SEQUENCES)
    num = sum(manifest.held().shards)
    check_holds(location, SEQUENCES, sequences_schema(), num, num * MOST_LISTED, path)
    texts = read_sequences(location, path=path)
    indices = [record.index for record in texts]
    if len(indices) != num or indices != list(range(num)):
        raise TraceError(
            f"{SEQUENCES} in {location}: expected sequences 0 ... {num - 1}; found {len(indices)} "
            "others. The file is of another trace; copy it again, or record again."
        )
    check_texts(texts, manifest, f"{SEQUENCES} in {location}")
    return Trace(str(location), manifest, tuple(texts))


def packaged_trace(name: str = SAMPLE) -> Path:
    """The folder of a trace that is shipped with simlab.

    Args:
        name: `SAMPLE` or `EVERY_CHANNEL`.

    Raises:
        TraceError: this installation does not hold it.
    """
    folder = _DATA / name
    if not folder.is_dir():
        raise TraceError(f"the packaged trace is missing from {folder}; install simlab again, or give --trace.")
    return folder
