"""What a confirmation runs: models, policies and recorded texts, seen to fit each other."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.channels.needs import channels_made, check_channels
from simlab.errors import ModelError, TraceError, UsageError, did_you_mean
from simlab.ids import VERSION
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy, is_plain_decoding
from simlab.real_runner.attention.batch_invariant import FixedShape, fixed_shape, rows_for
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.confirm.groups import ResampledUnit, TextGroup, groups_of, units_of
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.decoding.decode import check_runs
from simlab.real_runner.decoding.drafting import check_passes
from simlab.real_runner.execution.executions import AUTO, EAGER
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models, check_device, load_models
from simlab.real_runner.networks.adapter.noise import Noise, noise_of
from simlab.real_runner.networks.drafter import find_drafter
from simlab.real_runner.networks.loading import load_producer
from simlab.real_runner.networks.producer import AnyProducer
from simlab.real_runner.profile.machine import library_versions, machine_of, system_name
from simlab.real_runner.profile.rounds import SETTING, first_difference, setting_of
from simlab.real_runner.tap_offset import parse_tap_offset, settle_tap_offset
from simlab.real_runner.targets.hub_files import at_revision
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import check_needs
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.format.documents import Json
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import ChannelInfo, DraftSet
from simlab.traces.reader import Trace
from simlab.tree import DraftTree

# The producers of a confirmation's channels: the networks that a trace names, where they are now.


def with_producers(models: Models, options: ConfirmOptions, trace: Trace, policies: Sequence[NamedPolicy]) -> Models:
    """The models, and what makes the channels that the policies read.

    Args:
        models: the trace's own.
        options: where checkpoints are now.
        trace: holds the channels; see `simlab.sequence_replay.check_needs`.
        policies: that run.
    """
    names = channels_made(policy.policy for policy in policies)
    for name in options.channels:
        if name not in names:
            read = did_you_mean(name, names) or f"; they read {', '.join(names) or 'none'}"
            raise UsageError(f"no policy reads the channel {name}{read}; leave --channel {name}=CHECKPOINT out")
    recorded = trace.manifest.channels
    channels = {name: _producer(models, options, trace, name, recorded[name]) for name in names}
    return replace(models, channels=channels)


def _producer(models: Models, options: ConfirmOptions, trace: Trace, name: str, info: ChannelInfo) -> AnyProducer:
    path = _place_of(options, name, info)
    digest = checkpoint_digest(path)
    if digest != info.producer.digest:
        raise TraceError(
            f"the channel {name} of {trace.location} was recorded with {info.producer.name} (sha256 "
            f"{info.producer.digest[:12]}), and {path} has the sha256 {digest[:12]}; give that checkpoint with "
            f"--channel {name}=CHECKPOINT, or record a channel with this one"
        )
    stage, target = None if info.extends is None else models.first_stage, models.target
    made = load_producer(path, info.settings, target.dtype, stage, checkpoint_digest(models.draft_folder))
    return made(stage, target)


def _place_of(options: ConfirmOptions, name: str, info: ChannelInfo) -> Path:
    """Where the checkpoint of a channel is."""
    if name in options.channels:
        return find_drafter(options.channels[name]).folder
    try:
        return find_drafter(at_revision(info.producer.name, info.producer.revision)).folder
    except ModelError as error:
        raise ModelError(
            f"{error}; the trace names the network of the channel {name} so, and --channel {name}=CHECKPOINT says "
            "where it is now"
        ) from error


# Whether fixed shapes are enough on this machine: is a row the same wherever and beside whatever it stands?


MOST_SHAPES = 4
"""As many shapes of passes are tried before a run."""


def check_shapes_agree(models: Models, prompts: Sequence[Ints], max_new_tokens: int) -> None:
    """`check_rows_agree` on a prompt of each shape that passes will have; of many on four, from short to long texts.

    Args:
        models: with fixed rows.
        prompts: int32 token ids of each.
        max_new_tokens: that may follow each of them.
    """
    of_shape = {fixed_shape(models.fixed_rows, len(ids), max_new_tokens).num_tokens: ids for ids in prompts}
    shapes = sorted(of_shape)
    for index in np.linspace(0, len(shapes) - 1, min(len(shapes), MOST_SHAPES)).round().astype(int).tolist():
        check_rows_agree(models, of_shape[shapes[index]], max_new_tokens)


def check_rows_agree(models: Models, token_ids: Ints, max_new_tokens: int) -> None:
    """Hold a tree of one depth, read in one pass, against its tokens read one by one, and against itself backwards.

    It is a test on one text, not a proof: kernels are chosen by shape, and those of this text are the ones tested.

    Args:
        models: with fixed rows.
        token_ids: int32, of a prompt.
        max_new_tokens: that may follow it.
    """
    num_rows = models.fixed_rows
    worst = _worst_difference(models.target, fixed_shape(num_rows, len(token_ids), max_new_tokens), token_ids)
    if worst != 0:
        kind = str(models.target.dtype).removeprefix("torch.")
        raise ModelError(
            f"in {kind}, with {torch.get_num_threads()} threads on {models.target.device}, logits depend on the "
            f"row of a token among {num_rows} (by {worst:.2g}), so a fixed shape makes no texts identical here; try "
            "another --dtype, other --threads or another budget"
        )


@torch.inference_mode()
def _worst_difference(target: Target, shape: FixedShape, token_ids: Ints) -> float:
    """The largest between logits that must be equal; NaN where one is no number."""
    cache, position = BufferCache(target, shape.num_tokens + shape.num_rows), len(token_ids) - 1
    ids = torch.from_numpy(token_ids.astype(np.int64))[None]
    target.states(ids, cache)
    num = min(shape.num_rows - 1, target.vocab_size)
    tokens = ((np.arange(num) + int(token_ids[0])) % target.vocab_size).astype(np.int32)
    root = int(token_ids[-1])
    forwards = _logits(target, shape, cache, _star(root, tokens), position)
    backwards = _logits(target, shape, cache, _star(root, tokens[::-1]), position)
    apart = [(forwards[0] - backwards[0]).abs().max(), (forwards[1:] - backwards[1:].flip(0)).abs().max()]
    alone = _logits(target, shape, cache, DraftTree.root_only(root), position, kept=1)
    apart.append((alone[0] - forwards[0]).abs().max())
    for index in {0, num // 2, num - 1}:
        read = _logits(target, shape, cache, DraftTree.root_only(int(tokens[index])), position + 1)
        apart.append((read[0] - forwards[1 + index]).abs().max())
    return float(torch.stack(apart).max())


def _star(root: int, tokens: Ints) -> DraftTree:
    """Every token a child of the root."""
    parents = np.zeros(len(tokens) + 1, np.int32)
    parents[0] = -1
    return DraftTree(np.concatenate([[root], tokens]).astype(np.int32), parents)


def _logits(
    target: Target, shape: FixedShape, cache: BufferCache, tree: DraftTree, position: int, kept: int = 0
) -> Tensor:
    """float32 ``[N + 1, V]``; the cache keeps that many tokens of the pass."""
    cache.shorten(position)
    ids, positions, fixed = shape.tree_pass(tree, position, target.heads_per_group, target.dtype, target.device)
    states = target.states(ids, cache, None, positions, fixed=fixed)[0]
    cache.shorten(position + kept)
    return target.logits(states)[: tree.num_nodes]


@dataclass(frozen=True, slots=True, eq=False)
class ConfirmSetup:
    """Everything that is run.

    Attributes:
        trace: whose prompts are run; its sampling, stop ids and limit of new tokens hold.
        draft: the draft set of the trace that these models made.
        models: with the stop ids of the trace.
        policies: one of them is plain decoding.
        records: the sequences of the trace that are run, in its order.
        load_s: seconds that loading the models took.
    """

    options: ConfirmOptions
    trace: Trace
    draft: str
    models: Models
    policies: tuple[NamedPolicy, ...]
    records: tuple[SequenceRecord, ...]
    load_s: float = 0.0

    @property
    def audits_itself(self) -> bool:
        """Whether the audit needs no second target: the run is in float32, eager and on the same device."""
        run = self.options
        return (run.dtype, run.execution) == ("float32", EAGER) and run.audit_device in (None, run.device)

    @property
    def manifest(self) -> Manifest:
        """The manifest of the trace."""
        return self.trace.manifest

    @property
    def draft_set(self) -> DraftSet:
        """The draft set of the trace that is confirmed."""
        return self.manifest.draft_sets[self.draft]

    @property
    def sampling(self) -> Sampling:
        """With which the trace was recorded."""
        return self.manifest.sampling

    @property
    def plain_id(self) -> str:
        """The id of plain decoding."""
        return next(policy.policy_id for policy in self.policies if is_plain_decoding(policy.policy))

    @property
    def is_reference(self) -> bool:
        """Whether run and trace are both float32, so that rows can be held against rows."""
        return self.options.dtype == self.manifest.dtype == "float32"

    @property
    def groups(self) -> tuple[TextGroup, ...]:
        """The records in groups that are served from start to end, where several texts run at a time."""
        return groups_of(self.records, self.options.batch)

    @property
    def units(self) -> dict[int, ResampledUnit]:
        """The prompt or the group that each sequence is run whole with, by its place in the trace."""
        return units_of(self.records, self.options.batch)

    def key(self) -> Json:
        """All that a resumed run must share with the one that it goes on with."""
        digests = {name: self.manifest.channels[name].producer.digest for name in self.models.channels}
        return {
            "--trace": self.trace.text_id,
            "--target": self.manifest.target.digest,
            "--draft": self.trace.draft_ids[self.draft],
            "--policy": [policy.label for policy in self.policies],
            "--dtype": self.options.dtype,
            "--device": machine_of(self.options.device, self.models.target.placement),
            **({} if self.options.execution == EAGER else {"--execution": self.options.execution}),
            "--limit": self.options.limit,
            **({} if self.trace.within is None else {"texts within the contexts of --cost": len(self.records)}),
            "--repeats": self.options.repeats,
            **({} if self.options.batch == 1 else {"--batch": self.options.batch}),
            **({"--channel": digests} if digests else {}),
            **({"--batch-invariant": f"{self.models.fixed_rows} rows"} if self.options.batch_invariant else {}),
            "threads": torch.get_num_threads(),
            "versions": {"simlab": VERSION, **library_versions()},
            "policy ids": [policy.policy_id for policy in self.policies],
        }

    def price_difference(self, file: CostFile) -> str | None:
        """In what a cost file was measured otherwise than this run, in words that follow "measured with"; or None."""
        options, drafter = self.options, self.draft_set.model.name
        now = setting_of(self.models, drafter, options.dtype, options.device, self.sampling)
        return first_difference(file, replace(now, batch=options.batch), SETTING)


def machine_difference(options: ConfirmOptions, file: CostFile) -> str | None:
    """As `ConfirmSetup.price_difference`, as far as it is known before any model is loaded; None: nothing so far."""
    check_device(options.device)
    now = replace(
        file,
        # How a target is spread over several devices is known when it is loaded.
        device=file.device if options.device_map else machine_of(options.device, ""),
        threads=options.threads or torch.get_num_threads(),
        system=system_name(),
        dtype=options.dtype,
        execution=options.execution,
        batch=options.batch,
        versions=library_versions(),
    )
    return first_difference(file, now, SETTING)


def check_trace(trace: Trace, policies: Sequence[NamedPolicy]) -> None:
    """Refuse, before any model is loaded, a trace or a policy with which there is nothing to confirm."""
    if trace.manifest.gt_mode != "generated":
        raise TraceError(
            f"the texts of {trace.location} were made elsewhere, so the target will write others; to confirm, record "
            "what it writes itself: `simlab record --prompts FILE`"
        )
    for named in policies:
        if named.policy.needs.made:
            check_channels(named.policy, trace.holds(_extended(trace, named.policy)))


def _extended(trace: Trace, policy: AnyPolicy) -> str:
    """The draft set that the first of a policy's channels extends which extends one, or the first one."""
    infos = [trace.manifest.channels.get(need.name) for need in policy.needs.made]
    extended = [info.extends for info in infos if info is not None and info.extends is not None]
    return next(iter([*extended, *trace.manifest.draft_sets]))


def load_setup(
    options: ConfirmOptions, trace: Trace, policies: Sequence[NamedPolicy], records: Sequence[SequenceRecord]
) -> ConfirmSetup:
    """Load the models and see that they, the trace, the policies and the prompts fit each other.

    Args:
        options: the models' names, and how they run.
        trace: a finished one of generated texts; see `check_trace`.
        policies: one of them is plain decoding.
        records: of the trace, at least one.

    Raises:
        ModelError: the models cannot be loaded, do not fit each other, or a text may outrun the target's
            positions; or rows of a fixed shape are not computed alike on this machine.
        TraceError: they are not the models of the trace.
        MissingChannelError: the trace does not hold what a policy reads, or it cannot be made as the policies run.
    """
    manifest = trace.manifest
    for named in policies:
        check_passes(named.policy, options.execution, options.batch)
    if options.audit_device not in (None, AUTO):
        check_device(options.audit_device)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    begun = time.monotonic()
    models = load_models(
        options.target or at_revision(manifest.target.name, manifest.target.revision),
        options.draft or _only_draft(trace),
        options.dtype,
        options.device,
        parse_tap_offset(options.tap_offset),
        options.execution,
        options.device_map,
        *_as_recorded(trace, options.draft),
    )
    load_s = time.monotonic() - begun
    _check_target(trace, models.target)
    if options.batch > 1:
        # Batches have the drafter's pass of blocks; what drafts without one is refused here, before anything runs.
        _ = models.block_drafter
    settle_tap_offset(models, options.tap_offset, [(record.prompt.token_ids, record.text) for record in records])
    draft = _draft_set_of(trace, models)
    models = replace(models, target=replace(models.target, stop_token_ids=manifest.stop_token_ids))
    draft_set = manifest.draft_sets[draft]
    _settle_taps(models, options, draft_set)
    if options.batch_invariant:
        rows = rows_for([named.policy for named in policies], models.drafter.config.depth)
        models = replace(models, fixed_rows=rows)
    for named in policies:
        check_needs(named.policy, trace.holds(draft))
    models = with_producers(models, options, trace, policies)
    for named in policies:
        for record in records:
            check_runs(models, named.policy, record.prompt, manifest.max_new_tokens)
    if options.batch_invariant:
        check_shapes_agree(models, [record.prompt.token_ids for record in records], manifest.max_new_tokens)
    return ConfirmSetup(
        options=options,
        trace=trace,
        draft=draft,
        models=models,
        policies=tuple(policies),
        records=tuple(records),
        load_s=load_s,
    )


def _settle_taps(models: Models, options: ConfirmOptions, draft_set: DraftSet) -> None:
    """Read the layers that were read when the trace was recorded."""
    if draft_set.tap_offset is None or draft_set.tap_offset == models.block_drafter.config.tap_offset:
        return
    config = models.block_drafter.config
    if options.tap_offset is not None:
        raise TraceError(
            f"the trace was recorded with --tap-offset {draft_set.tap_offset}, this run would have "
            f"{config.tap_offset}; leave --tap-offset out, or record a trace with it"
        )
    models.block_drafter.config = config.with_tap_offset(draft_set.tap_offset)


def _only_draft(trace: Trace) -> str:
    """The name of the drafter, where the trace has a single one."""
    sets = list(trace.manifest.draft_sets.values())
    if len(sets) != 1:
        names = ", ".join(draft_set.model.name for draft_set in sets) or "none"
        raise TraceError(f"{trace.location} was recorded with {len(sets)} drafters ({names}); choose one with --draft")
    return at_revision(sets[0].model.name, sets[0].model.revision)


def _as_recorded(trace: Trace, draft: str | None) -> tuple[int | None, Noise | None]:
    """Slots of the recorded block, and the noise in place of masks; None: no one draft set says it."""
    sets = list(trace.manifest.draft_sets.values())
    if len(sets) > 1 and draft is not None:
        digest = checkpoint_digest(find_drafter(draft).folder)
        sets = [draft_set for draft_set in sets if draft_set.model.digest == digest]
    return (sets[0].block_size, noise_of(sets[0].noise)) if len(sets) == 1 else (None, None)


def _check_target(trace: Trace, target: Target) -> None:
    recorded = trace.manifest.target
    if target.digest != recorded.digest:
        raise TraceError(
            f"{trace.location} was recorded with the target {recorded.name} (digest {recorded.digest[:12]}); "
            f"{target.name} has digest {target.digest[:12]}; give the same target, or record a trace with this one"
        )


def _draft_set_of(trace: Trace, models: Models) -> str:
    """The draft set that a drafter made."""
    folder, config = models.draft_folder, models.drafter.config
    digest = checkpoint_digest(folder)
    for name, draft_set in trace.manifest.draft_sets.items():
        same = (draft_set.model.digest, draft_set.block_size, draft_set.depth) == (
            digest,
            config.block_size,
            config.depth,
        )
        if same and noise_of(draft_set.noise) == config.noise:
            return name
    recorded = ", ".join(
        f"{draft_set.model.name} (digest {draft_set.model.digest[:12]}, block {draft_set.block_size})"
        for draft_set in trace.manifest.draft_sets.values()
    )
    raise TraceError(
        f"{trace.location} was recorded with the drafter {recorded}; the one in {folder} has digest {digest[:12]} and "
        f"block {config.block_size}; give the same drafter, or record a trace with this one"
    )
