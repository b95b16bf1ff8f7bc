"""Proving a trace whole: every file, every invariant, every id."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from simlab.arrays import Longs
from simlab.channels import POOL, FeatureRows, PoolRows
from simlab.channels.rows import EXACT_NODES, MOST_EXACT
from simlab.errors import TraceError
from simlab.recorded import DraftRows
from simlab.traces.channels.checks import find_channel_problem
from simlab.traces.channels.columns import channel_digest, channel_id
from simlab.traces.decoded import FOLDER
from simlab.traces.format.checks import find_problem
from simlab.traces.format.files import channel_file
from simlab.traces.format.frames import DraftColumns, SequenceRecord, draft_digest, draft_id, text_digest, text_id
from simlab.traces.format.shards import checked_file
from simlab.traces.reader import Trace, open_trace


@dataclass(slots=True)
class _DraftTally:
    """Sums over the sequences read so far."""

    firsts: Longs
    chances: Longs
    digests: list[str] = field(default_factory=list)
    num_rows: int = 0
    num_candidates: int = 0

    def add(self, draft: DraftColumns) -> None:
        self.digests.append(draft_digest(draft))
        self.num_rows += len(draft.counts)
        self.num_candidates += len(draft.ids)
        self.firsts += ((draft.true_rank == 0) & draft.valid).sum(axis=0)
        self.chances += draft.valid.sum(axis=0)

    def first_share(self) -> tuple[float, ...]:
        return tuple(float(share) for share in self.firsts / np.maximum(self.chances, 1))


def _nothing(_record: SequenceRecord) -> None:
    """What somebody does with a sequence who does not look."""


def check_trace(location: str | Path, on_record: Callable[[SequenceRecord], object] = _nothing) -> dict[str, Any]:
    """Read all of a trace and prove it whole.

    Args:
        location: a folder or an address, as in ``open_trace``.
        on_record: called with each sequence once it was checked.

    Returns:
        What it holds, as ``simlab inspect --json`` has it. Datasets stand in the order of first appearance; ``bytes``
        are of all files that the manifest lists. Of a draft set, ``num_candidates`` are the kept ones over all rows and
        depths, ``true_first_share`` is per depth how often rank 0 was the true token, and ``decoded_bytes`` are of the
        rows that are kept decoded for replays, and are no part of the trace. Of a channel, ``num_rows`` are the roots
        that have a row, and ``num_scored`` the tokens that are scored over all rows: candidates of transitions, nodes
        of pools; where ``was_read`` is False, of a kind that this simlab does not read, its files were compared with
        the manifest alone.
    """
    trace = open_trace(location)
    zeros = {name: np.zeros(draft_set.depth, np.int64) for name, draft_set in trace.manifest.draft_sets.items()}
    tallies = {name: _DraftTally(zero, zero.copy()) for name, zero in zeros.items()}
    text_digests = []
    decoded = {name: trace.decoded_rows(name) for name in tallies}
    for record in trace.records(list(tallies)):
        problem = find_problem(record, trace.manifest)
        if problem is not None:
            raise TraceError(f"{location}: {problem}. The trace is damaged; copy it again, or record again.")
        text_digests.append(text_digest(record))
        for name, tally in tallies.items():
            tally.add(record.drafts[name])
            _check_decoded(location, name, record.drafts[name].rows(), next(decoded[name]))
        on_record(record)
    _compare(location, "text_id", trace.text_id, text_id(text_digests))
    for name, tally in tallies.items():
        producer = trace.manifest.draft_sets[name].model.digest
        _compare(location, f"id of {name}", trace.draft_ids.get(name), draft_id(trace.text_id, producer, tally.digests))
    channels = {name: _checked_channel(trace, name) for name in trace.manifest.channels}
    trace.token_texts()
    return _report(trace, tallies, channels)


def _check_decoded(location: str | Path, draft: str, rows: DraftRows, decoded: DraftRows | None) -> None:
    """Refuse rows kept decoded that are not those of the files: replays would read them."""
    if decoded is not None and any(
        not np.array_equal(getattr(rows, entry.name), getattr(decoded, entry.name), equal_nan=True)
        for entry in fields(rows)
    ):
        raise TraceError(
            f"{location}: the rows of the draft set {draft} that are kept decoded are not those of its files; delete "
            f"{FOLDER} in the folder of the trace (or in the cache), and replays decode them anew."
        )


def _checked_channel(trace: Trace, name: str) -> dict[str, Any]:
    manifest, info = trace.manifest, trace.manifest.channels[name]
    written, num_bytes = trace.channel_ids[name], 0
    for shard in range(len(manifest.held().shards)):
        num_bytes += checked_file(trace.location, manifest, channel_file(name, shard)).stat().st_size
    if not info.is_read:
        return _channel_json(info.kind, written, 0, 0, num_bytes, was_read=False)
    digests: list[str] = []
    num_rows, num_scored, exact = 0, 0, MOST_EXACT
    for recorded, columns in trace.channel_columns(name):
        problem = find_channel_problem(recorded, columns, info, manifest)
        if problem is not None:
            raise TraceError(
                f"{trace.location}, channel {name}: {problem}. The trace is damaged; copy it again, or record again."
            )
        digests.append(channel_digest(columns))
        num_rows += len(columns.rows)
        num_scored += (rows.values if isinstance(rows := columns.rows, FeatureRows) else rows.log_probs).size
        if isinstance(columns.rows, PoolRows):
            exact = min(exact, columns.rows.exact_nodes(info.setting("depth")))
    if info.kind == POOL and info.setting(EXACT_NODES, -1) != exact:
        raise TraceError(
            f"{trace.location}: the pools of {name} are exact up to {exact} nodes; the manifest says "
            f"{info.settings.get(EXACT_NODES, 'nothing')}. Copy the trace again, or record again."
        )
    _compare(trace.location, f"id of {name}", written, channel_id(trace.text_id, info, digests))
    return _channel_json(info.kind, written, num_rows, num_scored, num_bytes, was_read=True)


def _channel_json(
    kind: str, written: str, num_rows: int, num_scored: int, num_bytes: int, *, was_read: bool
) -> dict[str, Any]:
    return {
        "kind": kind,
        "channel_id": written,
        "num_rows": num_rows,
        "num_scored": num_scored,
        "num_bytes": num_bytes,
        "was_read": was_read,
        "bytes_per_row": num_bytes / num_rows if num_rows else 0.0,
    }


def _compare(location: str | Path, name: str, written: str | None, computed: str) -> None:
    if written != computed:
        raise TraceError(
            f"{location}: the {name} of its content is {computed}; the manifest says {written}. "
            "Files of two traces were mixed, or one was changed; copy the trace again, or record again."
        )


def _report(trace: Trace, tallies: Mapping[str, _DraftTally], channels: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    texts, tokens = trace.sequences(), Counter[str]()
    for record in texts:
        tokens[record.prompt.dataset] += len(record.text)
    return {
        "path": trace.location,
        "whole": True,
        "text_id": trace.text_id,
        "prompts": len({(record.prompt.dataset, record.prompt.prompt_id) for record in texts}),
        "sequences": len(texts),
        "tokens": sum(tokens.values()),
        "stopped": sum(record.stop_reason == "stop" for record in texts),
        "bytes": _num_bytes(trace, ""),
        "sequences_by_dataset": dict(Counter(record.prompt.dataset for record in texts)),
        "tokens_by_dataset": dict(tokens),
        "drafts": {name: _draft_json(trace, name, tally) for name, tally in tallies.items()},
        "channels": channels,
        "manifest": trace.manifest.to_json(),
    }


def _draft_json(trace: Trace, name: str, tally: _DraftTally) -> dict[str, Any]:
    num_bytes = _num_bytes(trace, f"draft-{name}-")
    return {
        "draft_id": trace.draft_ids[name],
        "num_rows": tally.num_rows,
        "num_candidates": tally.num_candidates,
        "num_bytes": num_bytes,
        "true_first_share": tally.first_share(),
        "decoded_bytes": trace.decoded_bytes(name),
        "bytes_per_row": num_bytes / tally.num_rows if tally.num_rows else 0.0,
    }


def _num_bytes(trace: Trace, prefix: str) -> int:
    return sum(info.num_bytes for name, info in trace.manifest.held().files.items() if name.startswith(prefix))
