"""A recording: what a drafter proposed and a target said, at every position of real text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from simlab.errors import TraceError, at_the_door
from simlab.real_runner.record.additions.add import ChannelOptions, DraftOptions, add
from simlab.real_runner.record.manifests import EAGLE3
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record as write_recording
from simlab.studies.inputs.models import DRAFTER, TARGET, AnswerOptions
from simlab.traces.format.json_fields import json_fields
from simlab.traces.parts import missing_shards
from simlab.traces.reader import Trace, open_trace
from simlab.workers.parts import Part


def record(
    target: str = TARGET,
    draft: str = DRAFTER,
    *,
    out: str | Path,
    prompts: str | Path | None = None,
    completions: str | Path | None = None,
    text_from: str | Path | None = None,
    hidden_states: str | Path | None = None,
    hidden_layers: Sequence[int] = (),
    tap_offset: str | None = None,
    block: int | None = None,
    limit: int | None = None,
    resume: bool = False,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int | None = None,
    max_new_tokens: int | None = None,
    chat_template_kwargs: Mapping[str, object] | None = None,
    dtype: str = "float32",
    device: str | Sequence[str] = "cpu",
    device_map: str | None = None,
    ray: str | None = None,
    workers: int | None = None,
    gpus_per_worker: int | None = None,
    batch_size: int = 32,
    min_width: int = 64,
    exact_budget: int = 512,
) -> Trace:
    """Record a drafter and a target on real text, and open the trace.

    One of ``prompts``, ``completions`` and ``text_from`` says where the text comes from.

    Args:
        target: a name, folder or Hub id.
        draft: a name, folder, file of weights or Hub id; of a drafter, of an EAGLE-3 head, or of an adapter of
            the target. The draft set of a head is its own chain, and its trees are added as the channel ``eagle3``;
            that of an adapter is what the target says at its own masks.
        out: the folder of the new trace.
        prompts: a file of prompts, which the target answers.
        completions: a file of prompts with answers that were made elsewhere.
        text_from: a trace whose text is taken, for another drafter.
        hidden_states: a folder of the target's hidden states along ``completions``, as vLLM dumped them.
        hidden_layers: the layers that these are of.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`; None: as the drafter's format has it.
        block: slots of the drafter's block, the root's counted, as an engine runs it; None: as the checkpoint has it.
        limit: the first so many prompts only.
        resume: go on where an interrupted recording stopped.
        temperature: of answers to ``prompts``; None: 0, which takes the likeliest token.
        top_p: likewise; None: 1, no cut.
        top_k: likewise; None: 0, no cut.
        seed: likewise; None: 0.
        max_new_tokens: of an answer; None: 256.
        chat_template_kwargs: arguments of the tokenizer's chat template; None: none.
        dtype: of the models' arithmetic.
        device: as torch names it; of several, each gets a worker of a local Ray and some of the batches.
        device_map: ``auto`` spreads a target over devices that is too large for one.
        ray: ``local``, or the address of a Ray cluster, whose workers record.
        workers: of Ray; None: as many as it has room for.
        gpus_per_worker: over how many ``device_map`` spreads the target of a worker; None: 1.
        batch_size: prompts in a batch and a shard.
        min_width: candidates that are kept at each depth, at least.
        exact_budget: the largest tree of the best-first order that a replay builds exactly.

    Raises:
        SimlabError: options do not fit each other, or models, text or folder cannot be used; what was finished stays.
    """
    options = record_options(
        target,
        draft,
        out=out,
        prompts=prompts,
        completions=completions,
        text_from=text_from,
        hidden_states=hidden_states,
        hidden_layers=hidden_layers,
        tap_offset=tap_offset,
        block=block,
        limit=limit,
        resume=resume,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        max_new_tokens=max_new_tokens,
        chat_template_kwargs=chat_template_kwargs,
        dtype=dtype,
        device=device,
        device_map=device_map,
        ray=ray,
        workers=workers,
        gpus_per_worker=gpus_per_worker,
        batch_size=batch_size,
        min_width=min_width,
        exact_budget=exact_budget,
    )
    return record_with(options)


def record_options(
    target: str = TARGET,
    draft: str = DRAFTER,
    *,
    out: str | Path,
    prompts: str | Path | None = None,
    completions: str | Path | None = None,
    text_from: str | Path | None = None,
    hidden_states: str | Path | None = None,
    hidden_layers: Sequence[int] = (),
    tap_offset: str | None = None,
    block: int | None = None,
    limit: int | None = None,
    resume: bool = False,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int | None = None,
    max_new_tokens: int | None = None,
    chat_template_kwargs: Mapping[str, object] | None = None,
    dtype: str = "float32",
    device: str | Sequence[str] = "cpu",
    device_map: str | None = None,
    ray: str | None = None,
    workers: int | None = None,
    gpus_per_worker: int | None = None,
    batch_size: int = 32,
    min_width: int = 64,
    exact_budget: int = 512,
    shard: Part | None = None,
) -> RecordOptions:
    """Check what is to be recorded; `record` explains the arguments, and ``shard`` is the part that is recorded.

    What this gives back goes to `record_with`, with a ``shard`` to `record_part`, to
    `simlab.real_runner.record.static_estimate.foresee` or to `simlab.real_runner.record.dry_run.dry_run`.

    Raises:
        UsageError: a value is out of its range, or can change nothing.
    """
    answers = AnswerOptions(temperature, top_p, top_k, seed, max_new_tokens, chat_template_kwargs)
    answers.check_text_from(text_from)
    first, *others = [device] if isinstance(device, str) else device
    with at_the_door():
        return RecordOptions(
            target=target,
            draft=draft,
            out=Path(out),
            prompts=None if prompts is None else Path(prompts),
            completions=None if completions is None else Path(completions),
            hidden_states=None if hidden_states is None else Path(hidden_states),
            hidden_layers=tuple(hidden_layers),
            text_from=None if text_from is None else str(text_from),
            limit=limit,
            resume=resume,
            temperature=answers.sampling.temperature,
            top_p=answers.sampling.top_p,
            top_k=answers.sampling.top_k,
            seed=answers.sampling.seed,
            max_new_tokens=answers.longest,
            chat_template_kwargs=answers.template_kwargs,
            dtype=dtype,
            device=first,
            more_devices=tuple(others),
            device_map=device_map,
            ray=ray,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            batch_size=batch_size,
            min_width=min_width,
            exact_budget=exact_budget,
            tap_offset=tap_offset,
            block=block,
            part=shard,
        )


def record_part(options: RecordOptions) -> list[int]:
    """Record one part of the shards, for one of several machines.

    The trace is finished where the folder then holds all parts; else `simlab.merge` does that. The trees of an EAGLE-3
    head are added to the finished trace, with `add_channel`.

    Returns:
        The shards that the folder still lacks.

    Raises:
        SimlabError: models, text or folder cannot be used; what was finished stays.
    """
    return missing_shards(write_recording(options))


def record_with(options: RecordOptions) -> Trace:
    """Record under options that were checked, and open the trace.

    With an EAGLE-3 head as the drafter its trees are added as a channel, where the target runs here.

    Raises:
        SimlabError: models, text or folder cannot be used; what was finished stays.
    """
    trace = open_trace(write_recording(options))
    has_trees = EAGLE3 in trace.manifest.channels or trace.manifest.hidden_states is not None
    if EAGLE3 not in trace.manifest.draft_sets or has_trees:
        return trace
    return add_channel(
        options.out,
        EAGLE3,
        options.draft,
        target=options.target,
        device=options.device,
        device_map=options.device_map,
        resume=options.resume,
    )


def add_channel(
    trace: str | Path,
    name: str,
    checkpoint: str,
    settings: Mapping[str, int] | None = None,
    *,
    draft: str | None = None,
    draft_set: str | None = None,
    target: str | None = None,
    dtype: str | None = None,
    device: str = "cpu",
    device_map: str | None = None,
    resume: bool = False,
) -> Trace:
    """Add what a TreeFlash head or a TAPS scorer says along the texts of a finished trace, as a channel.

    Args:
        trace: its folder.
        name: of the channel.
        checkpoint: of the head or scorer: a name, folder, file of weights or Hub id.
        settings: how far it reaches. Of a head: ``previous``, tokens of each depth that have a row below them (16);
            ``top_k``, tokens of a row (16); ``candidates``, to score the drafter's own first candidates of a depth
            alone (the whole vocabulary, as published). Of a scorer: ``beam`` and ``extensions`` (those it was trained
            for).
        draft: the drafter below it; None: as the trace names it.
        draft_set: what that drafter recorded; None: the only draft set.
        target: None: as the trace names it.
        dtype: of the models' arithmetic; None: that of the trace.
        device: as torch names it.
        device_map: ``auto`` spreads a target over devices that is too large for one.
        resume: go on where an interrupted addition stopped.

    Returns:
        The trace with the channel.

    Raises:
        SimlabError: trace or models cannot be used, or do not fit each other; what was finished stays.
    """
    return add(
        channel_options(
            trace,
            name,
            checkpoint,
            settings,
            draft=draft,
            draft_set=draft_set,
            target=target,
            dtype=dtype,
            device=device,
            device_map=device_map,
            resume=resume,
        )
    )


def channel_options(
    trace: str | Path,
    name: str,
    checkpoint: str,
    settings: Mapping[str, int] | None = None,
    *,
    draft: str | None = None,
    draft_set: str | None = None,
    target: str | None = None,
    dtype: str | None = None,
    device: str = "cpu",
    device_map: str | None = None,
    resume: bool = False,
) -> ChannelOptions:
    """Check what is to be added; `add_channel` explains the arguments.

    Raises:
        UsageError: a value is out of its range.
    """
    with at_the_door():
        return ChannelOptions(
            str(trace),
            name,
            checkpoint,
            target,
            dtype,
            device,
            device_map,
            resume,
            dict(settings or {}),
            draft,
            draft_set,
        )


def add_draft(
    trace: str | Path,
    name: str,
    checkpoint: str,
    *,
    target: str | None = None,
    tap_offset: str | None = None,
    block: int | None = None,
    device: str = "cpu",
    device_map: str | None = None,
    min_width: int = 64,
    exact_budget: int = 512,
    resume: bool = False,
) -> Trace:
    """Add what another drafter proposes along the texts of a finished trace, as a draft set; the trace with it.

    Its models run in the trace's dtype.

    Args:
        trace: its folder.
        name: of the draft set.
        checkpoint: of the drafter: a name, folder, file of weights or Hub id.
        target: None: as the trace names it.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`; None: as the drafter's format has it.
        block: slots of the drafter's block, the root's counted, as an engine runs it; None: as the checkpoint has it.
        device: as torch names it.
        device_map: ``auto`` spreads a target over devices that is too large for one.
        min_width: candidates that are kept at each depth, at least.
        exact_budget: the largest tree of the best-first order that a replay builds exactly.
        resume: go on where an interrupted addition stopped.

    Raises:
        SimlabError: trace or models cannot be used, or do not fit each other; what was finished stays.
    """
    return add(
        draft_options(
            trace,
            name,
            checkpoint,
            target=target,
            tap_offset=tap_offset,
            block=block,
            device=device,
            device_map=device_map,
            min_width=min_width,
            exact_budget=exact_budget,
            resume=resume,
        )
    )


def draft_options(
    trace: str | Path,
    name: str,
    checkpoint: str,
    *,
    target: str | None = None,
    dtype: str | None = None,
    tap_offset: str | None = None,
    block: int | None = None,
    device: str = "cpu",
    device_map: str | None = None,
    min_width: int = 64,
    exact_budget: int = 512,
    resume: bool = False,
) -> DraftOptions:
    """Check what is to be added; `add_draft` explains the arguments.

    Raises:
        UsageError: a value is out of its range.
    """
    with at_the_door():
        return DraftOptions(
            str(trace),
            name,
            checkpoint,
            target,
            dtype,
            device,
            device_map,
            resume,
            min_width,
            exact_budget,
            tap_offset,
            block,
        )


def recording_speed(folder: Path) -> str:
    """How fast the last run of a recording was, in words, as its ``recording.json`` says; empty where there is none."""
    path = folder / "recording.json"
    if not path.is_file():
        return ""
    try:
        run = json_fields(path.read_bytes(), str(path))
        positions, seconds, rate = run.integer("positions"), run.number("seconds"), run.number("positions_per_s")
    except (ValueError, TraceError):
        # It is outside every id and read by people only.
        return ""
    return f"{positions:,} positions in {seconds:,.0f} s, {rate:,.0f} positions/s"
