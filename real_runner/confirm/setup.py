"""What a confirmation runs: models, policies and recorded texts, seen to fit each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata

import torch

from simlab.channels.needs import check_channels
from simlab.errors import TraceError
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy, is_plain_decoding
from simlab.real_runner.attention.batch_invariant import rows_for
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.confirm.batch_invariant_check import check_shapes_agree
from simlab.real_runner.confirm.groups import ResampledUnit, TextGroup, groups_of, units_of
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.producers import with_producers
from simlab.real_runner.decoding.decode import check_runs
from simlab.real_runner.decoding.drafting import check_passes
from simlab.real_runner.execution.executions import AUTO, EAGER
from simlab.real_runner.models import Models, check_device, load_models
from simlab.real_runner.profile.machine import library_versions, machine_of
from simlab.real_runner.profile.setting import SETTING, first_difference, setting_of
from simlab.real_runner.tap_offset import parse_tap_offset, settle_tap_offset
from simlab.real_runner.targets.hub_files import at_revision
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import check_needs
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.format.json_fields import Json
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.format.records import SequenceRecord
from simlab.traces.reader import Trace


@dataclass(frozen=True, slots=True, eq=False)
class ConfirmSetup:
    """Everything that is run.

    Attributes:
        trace: whose prompts are run; its sampling, stop ids and limit of new tokens hold.
        draft: the draft set of the trace that these models made.
        models: with the stop ids of the trace.
        policies: one of them is plain decoding.
        records: the sequences of the trace that are run, in its order.
    """

    options: ConfirmOptions
    trace: Trace
    draft: str
    models: Models
    policies: tuple[NamedPolicy, ...]
    records: tuple[SequenceRecord, ...]

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
        return next(one.policy_id for one in self.policies if is_plain_decoding(one.policy))

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
        return {
            "--trace": self.trace.text_id,
            "--target": self.manifest.target.digest,
            "--draft": self.trace.draft_ids[self.draft],
            "--policy": [one.label for one in self.policies],
            "--dtype": self.options.dtype,
            "--device": machine_of(self.options.device, self.models.target.placement),
            **({} if self.options.execution == EAGER else {"--execution": self.options.execution}),
            "--limit": self.options.limit,
            "--repeats": self.options.repeats,
            **({} if self.options.batch == 1 else {"--batch": self.options.batch}),
            **({"--channel": digests} if (digests := self._channel_digests()) else {}),
            **({"--batch-invariant": f"{self.models.fixed_rows} rows"} if self.options.batch_invariant else {}),
            "threads": torch.get_num_threads(),
            "versions": {"simlab": metadata.version("simlab"), **library_versions()},
            "policy ids": [one.policy_id for one in self.policies],
        }

    def _channel_digests(self) -> dict[str, object]:
        return {name: self.manifest.channels[name].producer.digest for name in self.models.channels}

    def price_difference(self, file: CostFile) -> str | None:
        """In what a cost file was measured otherwise than this run, in words that follow "measured with"; or None."""
        options, drafter = self.options, self.draft_set.model.name
        now = setting_of(self.models, drafter, options.dtype, options.device, self.sampling)
        return first_difference(file, replace(now, batch=options.batch), SETTING)


def check_trace(trace: Trace, policies: Sequence[NamedPolicy]) -> None:
    """Refuse, before any model is loaded, a trace or a policy with which there is nothing to confirm."""
    if trace.manifest.gt_mode != "generated":
        raise TraceError(
            f"the texts of {trace.place} were made elsewhere, so the target will write others; to confirm, record "
            "what it writes itself: `simlab record --prompts FILE`"
        )
    for named in policies:
        if named.policy.needs.made:
            check_channels(named.policy, trace.holds(_extended(trace, named.policy)))


def _extended(trace: Trace, policy: AnyPolicy) -> str:
    """The draft set that the first of a policy's channels extends which extends one, or the first one."""
    found = [trace.manifest.channels.get(need.name) for need in policy.needs.made]
    extended = [info.extends for info in found if info is not None and info.extends is not None]
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
    models = load_models(
        options.target or at_revision(manifest.target.name, manifest.target.revision),
        options.draft or _only_draft(trace),
        options.dtype,
        options.device,
        parse_tap_offset(options.tap_offset),
        options.execution,
        options.device_map,
        _only_block(trace),
    )
    _check_target(trace, models.target)
    if options.batch > 1:
        # Batches have the drafter's pass of blocks; what drafts without one is refused here, before anything runs.
        _ = models.block_drafter
    settle_tap_offset(models, options.tap_offset, [(record.prompt.token_ids, record.text) for record in records])
    draft = _draft_set_of(trace, models)
    models = replace(models, target=replace(models.target, stop_token_ids=manifest.stop_token_ids))
    kept = manifest.draft_sets[draft]
    _settle_taps(models, options, kept)
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
    )


def _settle_taps(models: Models, options: ConfirmOptions, kept: DraftSet) -> None:
    """Read the layers that were read when the trace was recorded."""
    if kept.tap_offset is None or kept.tap_offset == models.block_drafter.config.tap_offset:
        return
    config = models.block_drafter.config
    if options.tap_offset is not None:
        raise TraceError(
            f"the trace was recorded with --tap-offset {kept.tap_offset}, this run would have {config.tap_offset}; "
            "leave --tap-offset out, or record a trace with it"
        )
    models.block_drafter.config = config.with_tap_offset(kept.tap_offset)


def _only_draft(trace: Trace) -> str:
    """The name of the drafter, where the trace has a single one."""
    sets = list(trace.manifest.draft_sets.values())
    if len(sets) != 1:
        names = ", ".join(one.model.name for one in sets) or "none"
        raise TraceError(f"{trace.place} was recorded with {len(sets)} drafters ({names}); choose one with --draft")
    return at_revision(sets[0].model.name, sets[0].model.revision)


def _only_block(trace: Trace) -> int | None:
    """Slots of the recorded block; None: of several draft sets, whose checkpoints then say."""
    blocks = {one.block_size for one in trace.manifest.draft_sets.values()}
    return blocks.pop() if len(blocks) == 1 else None


def _check_target(trace: Trace, target: Target) -> None:
    recorded = trace.manifest.target
    if target.digest != recorded.digest:
        raise TraceError(
            f"{trace.place} was recorded with the target {recorded.name} (digest {recorded.digest[:12]}); "
            f"{target.name} has digest {target.digest[:12]}; give the same target, or record a trace with this one"
        )


def _draft_set_of(trace: Trace, models: Models) -> str:
    """The draft set that a drafter made."""
    folder, config = models.draft_folder, models.drafter.config
    digest = checkpoint_digest(folder)
    for name, kept in trace.manifest.draft_sets.items():
        if (kept.model.digest, kept.block_size, kept.depth) == (digest, config.block_size, config.depth):
            return name
    recorded = ", ".join(
        f"{kept.model.name} (digest {kept.model.digest[:12]}, block {kept.block_size})"
        for kept in trace.manifest.draft_sets.values()
    )
    raise TraceError(
        f"{trace.place} was recorded with the drafter {recorded}; the one in {folder} has digest {digest[:12]} and "
        f"block {config.block_size}; give the same drafter, or record a trace with this one"
    )
