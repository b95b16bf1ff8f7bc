"""A trace made of candidates that another engine wrote: what the file says, and nothing beside it."""

import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.channels import TRANSITIONS, TransitionRows
from simlab.draft import Prompt
from simlab.errors import TraceError
from simlab.grid import LOWEST, to_grid
from simlab.ids import content_id
from simlab.sampling.choice import Sampling
from simlab.traces.adder import add_channel
from simlab.traces.artefacts.candidates import (
    ALL_ROOTS,
    BEHIND_CHAIN,
    OVER_VOCABULARY,
    CandidateDump,
    DumpedText,
    DumpHeader,
)
from simlab.traces.channels.columns import TransitionColumns
from simlab.traces.format.checks import find_problem
from simlab.traces.format.frames import DraftColumns, SequenceRecord
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.format.manifest import ImportedInfo, Manifest
from simlab.traces.format.manifest_entries import BASE_RANK, ChannelInfo, DraftSet, ModelInfo
from simlab.traces.reader import Trace, open_trace
from simlab.traces.writer import TraceWriter, check_output_folder

LACKS = (
    "the target's distributions",
    "the drafter's entropies",
    "ranks of tokens that are no candidates",
    "digests of the models and of the tokenizer",
)

DRAFT = "imported"
"""The name of the draft set."""

_NOT_STATED = "not stated"
_TEXTS_A_SHARD = 64


def why_no_trace(dump: CandidateDump) -> str | None:
    """Why a replay of such a file would claim what it cannot know, in a sentence; None where it would not."""
    header = dump.header
    if not dump.has_texts:
        return "it has no lines of texts, so what the target said at other roots and in other trees is not known"
    if header.roots != ALL_ROOTS:
        return "it has rows at visited roots alone, and another policy would begin its rounds at other roots"
    if header.normalised != OVER_VOCABULARY:
        return (
            "its log-probs are normalised over the listed candidates, so those of different depths cannot be weighed "
            "against each other"
        )
    if header.temperature != 0:
        stated = "is not stated" if header.temperature is None else f"is {header.temperature:g}"
        return f"its temperature {stated}: unless it is 0 an engine accepts tokens by chance, which no text tells"
    return None


def write_imported_trace(folder: Path, dump: CandidateDump) -> Trace:
    """Write a trace of a file of candidates. Until it is whole nothing stands at the folder.

    Args:
        folder: of the trace; it must not be there, or be empty.
        dump: of which `why_no_trace` says nothing.

    Raises:
        TraceError: the texts and rounds contradict each other, or the folder is taken or cannot be written.
        InUseError: another simlab writes there.
    """
    check_output_folder(folder, resume=False)
    try:
        manifest, records = manifest_of(dump), _records(dump)
    except ValueError as error:
        raise TraceError(f"{dump.path}: {error}. Have {dump.header.engine} write it again.") from error
    for record, text in records:
        problem = find_problem(record, manifest)
        if problem is not None:
            raise TraceError(f"{text.where}: {problem}. Have {dump.header.engine} write it again.")
    with exclusive_lock(folder):
        # What a killed import left; nobody else writes there while the lock is held.
        for path in folder.parent.iterdir():
            if re.fullmatch(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{12}}\.part", path.name):
                shutil.rmtree(path, ignore_errors=True)
        beside = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")
        try:
            try:
                _write(beside, manifest, records, dump.header)
                beside.rename(folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        except OSError as error:
            raise TraceError(
                f"{folder} cannot be written ({error.strerror or error}); choose another --out."
            ) from error
    return open_trace(folder)


Pairs = Sequence[tuple[SequenceRecord, DumpedText]]


def _write(folder: Path, manifest: Manifest, records: Pairs, header: DumpHeader) -> None:
    shards = [records[at : at + _TEXTS_A_SHARD] for at in range(0, len(records), _TEXTS_A_SHARD)]
    writer = TraceWriter(folder, manifest, len(shards), resume=False)
    for shard, part in enumerate(shards):
        writer.write(shard, [record for record, _ in part])
    writer.finish({"imported_from": header.engine})
    texts = [text for _, text in records]
    if any(round_.pairs is not None for text in texts for round_ in text.rounds):
        base = (DRAFT, open_trace(folder).draft_ids[DRAFT])
        settings = {"depth": header.depth, "previous": header.top_k, "top_k": header.top_k, "order": BASE_RANK}
        info = ChannelInfo(TRANSITIONS, _model(header.drafter, header), *base, settings, _NOT_STATED)
        add_channel(folder, TRANSITIONS, info, lambda recorded: _transitions(texts[recorded.index], header))


def manifest_of(dump: CandidateDump) -> Manifest:
    """What is known before the trace is written; what nobody stated is said to be so."""
    header = dump.header
    texts = [text.token_ids for text in dump.texts if text.token_ids is not None]
    stops = [text.token_ids[-1] for text in dump.texts if text.token_ids is not None and text.stop == "stop"]
    width = min(int(round_.counts.min()) for text in dump.texts for round_ in text.rounds)
    draft_set = DraftSet(
        model=_model(header.drafter, header),
        block_size=header.block,
        depth=header.depth,
        min_width=width,
        exact_budget=width,
        vocab_size=header.vocab_size,
        mask_token_id=None,
        is_chain=header.behind == BEHIND_CHAIN,
        root_seen=header.root_seen,
        noise=header.noise or "",
        candidates_only=True,
    )
    return Manifest(
        target=_model(header.target, header),
        vocab_size=header.vocab_size,
        tokenizer_digest=_NOT_STATED,
        chat_template_digest=_NOT_STATED,
        prompts_digest=_NOT_STATED,
        chat_template_kwargs={},
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0),
        stop_token_ids=tuple(sorted(set(map(int, stops)))),
        max_new_tokens=max(map(len, texts)),
        gt_mode="given",
        dtype=_NOT_STATED,
        attention=_NOT_STATED,
        batch_size=None,
        device=_NOT_STATED,
        versions={},
        draft_sets={DRAFT: draft_set},
        imported=ImportedInfo(header.engine, LACKS),
    )


def _model(name: str, header: DumpHeader) -> ModelInfo:
    """A model by its name alone; its digest is none, so that it is never taken for a model that was read."""
    return ModelInfo(name, "", f"unstated by {header.engine}: {name}")


def _records(dump: CandidateDump) -> Pairs:
    """The texts as records; those of one prompt stand together, as a trace has them: turns, and samples of each."""
    by_prompt = dict[str, dict[str, list[DumpedText]]]()
    for text in dump.texts:
        asked = content_id(text.prompt_ids.tolist())
        by_prompt.setdefault(f"{text.dataset}-{text.prompt or asked}", {}).setdefault(asked, []).append(text)
    entries = [
        (Prompt(identity, text.dataset, turn, sample, text.prompt_ids), text)
        for identity, turns in by_prompt.items()
        for turn, texts in enumerate(turns.values())
        for sample, text in enumerate(texts)
    ]
    return [(_record(index, *entry, dump.header), entry[1]) for index, entry in enumerate(entries)]


def _record(index: int, prompt: Prompt, text: DumpedText, header: DumpHeader) -> SequenceRecord:
    assert text.token_ids is not None
    roots = len(text.token_ids) - 1
    if len(text.rounds) != roots:
        missing = next(t for t in range(roots) if t >= len(text.rounds) or text.rounds[t].root != t)
        raise TraceError(
            f"{text.where}: the header says roots 'all', and the text has {len(text.rounds)} of {roots}; root "
            f"{missing} is missing. Write it, or 'visited'."
        )
    return SequenceRecord(
        index=index,
        prompt=prompt,
        seed=0,
        text=text.token_ids,
        stop_reason=text.stop,
        drafts={DRAFT: _columns(text, header.depth)},
    )


def _columns(text: DumpedText, depth: int) -> DraftColumns:
    assert text.token_ids is not None
    rounds, num = text.rounds, len(text.rounds)
    if not rounds:
        return DraftColumns.empty(depth)
    counts = np.stack([round_.counts for round_ in rounds])
    ids, log_probs = (np.concatenate([getattr(round_, name) for round_ in rounds]) for name in ("ids", "log_probs"))
    ahead = np.arange(num)[:, None] + np.arange(1, depth + 1)
    truth = text.token_ids[np.minimum(ahead, num)]
    starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    hits = np.flatnonzero(ids == np.repeat(truth.ravel(), counts.ravel()))
    cells = np.searchsorted(starts, hits, side="right") - 1
    ranks, true_log_probs = np.full(num * depth, -1, np.int32), np.zeros(num * depth, np.float32)
    ranks[cells], true_log_probs[cells] = hits - starts[cells], log_probs[hits]
    return DraftColumns(
        context_length=(len(text.prompt_ids) + np.arange(num)).astype(np.int32),
        counts=counts,
        ids=ids,
        log_probs=log_probs,
        outside_log_mass=np.stack([round_.outside for round_ in rounds]),
        entropy=np.full((num, depth), np.nan, np.float32),
        true_rank=ranks.reshape(num, depth),
        true_log_prob=true_log_probs.reshape(num, depth),
        valid=ahead <= num,
    )


def _transitions(text: DumpedText, header: DumpHeader) -> TransitionColumns:
    """The pairs of a text, in the order of a channel: rows below the candidates, each the most probable first."""
    top_k = header.top_k
    nothing = np.empty((0, top_k))
    parts: list[tuple[Ints, Ints, Floats]] = [
        (np.empty(0, np.int32), nothing.astype(np.int32), nothing.astype(np.float32))
    ]
    for round_ in text.rounds:
        if round_.pairs is None:
            raise TraceError(
                f"{round_.where}: 'pairs' is missing, which other rounds have; write it at each, or at none."
            )
        listed = round_.ids.reshape(header.depth, top_k)
        beside = np.concatenate([listed[:1], np.repeat(listed[1:], top_k, axis=0)])
        scores = to_grid(round_.pairs)
        order = np.lexsort((beside, -scores), axis=1)
        ids, log_probs = np.take_along_axis(beside, order, axis=1), np.take_along_axis(scores, order, axis=1)
        parts.append((listed[:-1].ravel(), ids, log_probs))
    previous, ids, log_probs = (np.concatenate(column) for column in zip(*parts, strict=True))
    num_rows = np.full((len(text.rounds), header.depth), top_k, np.int32)
    num_rows[:, 0] = 1
    outside = np.maximum(1 - np.exp(log_probs.astype(np.float64)).sum(axis=1), np.exp(LOWEST))
    columns = TransitionRows(num_rows, previous, ids, log_probs)
    return TransitionColumns(columns, np.log(outside).clip(LOWEST, 0).astype(np.float32))
