"""Real rounds and real steps, timed at one context length.

A stage alone would find its weights and its rows in caches that the other model empties in every real
round. So whole rounds of the real loop are run, one after the other along the target's own text, and
their stage seconds are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from simlab.arrays import Ints
from simlab.channels import BRANCHES
from simlab.channels.rows import WHOLE_CHAIN
from simlab.cost import StageSeconds, Visits
from simlab.draft import Draft, Prompt
from simlab.errors import CostError, ModelError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy, Asked, ChannelNeed, Needs, Stateless
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.decoding.plain import Clock, plain_decoding
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.models import Models
from simlab.real_runner.profile.machine import library_versions, machine_of, system_name
from simlab.real_runner.profile.options import ProfileOptions
from simlab.real_runner.targets.hub_files import repository_of
from simlab.sampling.choice import Sampling
from simlab.traces.artefacts.cost import MOST_DRAFTED, CostChannel, CostFile
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.tree import DraftTree

UNMEASURED = 1
"""Rounds before the measured ones of a visit: a policy of fixed budget follows rounds of its own shape."""

MEASURED_ROUNDS = 3
MEASURED_STEPS = 3

_TOKENS_APART = 97
"""Each text begins so many tokens further on in what is read, so that no two are alike."""

VISITS = Visits(MEASURED_ROUNDS, MEASURED_STEPS, paired=True)
"""What a visit to a cell brings."""


@dataclass(slots=True)
class TreesOfSize(Stateless):
    """Best-first trees of a size that is set from outside; 0 drafts, and verifies the root alone.

    The drafter gives as many candidates as the largest size reads, as it does for a policy that
    chooses its budget round by round. Channels are made, and trees do not depend on them.
    """

    num_drafted: int
    most: int
    channels: tuple[ChannelNeed, ...] = ()

    @property
    def needs(self) -> Needs:
        """Every candidate of the drafter, and the channels."""
        return Needs(top_k=None, channels=self.channels)

    @property
    def budget(self) -> int:
        """The largest size; at least 1, so that there are candidates."""
        return max(self.most, 1)

    def ask(self, draft: Draft, state: None = None) -> Asked:
        """As many branches as are timed: those behind the shortest beginnings, which have the most rows.

        Of a channel of the whole chain alone it is the one behind that.
        """
        whole = (draft.drafted().depth,)
        return {
            need.name: whole if WHOLE_CHAIN in dict(need.equal) else tuple(range(need.units))
            for need in self.channels
            if need.kind == BRANCHES
        }

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        """The tree of the size that was set."""
        if self.num_drafted == 0:
            return DraftTree.root_only(draft.root_token)
        return _tree_of(self.num_drafted).select(draft)


@cache
def _tree_of(num_drafted: int) -> DDTree:
    """Made once: what a policy does when it is made belongs to no round."""
    return DDTree(num_drafted)


class RoundTimer:
    """Rounds of texts with contexts of about one length."""

    def __init__(
        self,
        models: Models,
        most_drafted: int,
        token_ids: Ints,
        context: int,
        sampling: Sampling,
        clock: Clock,
        channels: tuple[ChannelNeed, ...] = (),
        batch: int = 1,
    ) -> None:
        """Read the texts before the rounds.

        Args:
            models: a target and a drafter that fits it, and what makes the channels.
            most_drafted: the largest number of drafted tokens of a text.
            token_ids: int32, at least ``context`` of them.
            context: tokens before the root, give or take a few.
            sampling: how the target chooses.
            clock: of the models' device.
            channels: that are made in every round.
            batch: texts at a time.
        """
        self._trees = TreesOfSize(0, most_drafted, channels)
        self._window = window_of(context)
        self._start, max_new_tokens = first_position(models, context)
        self._running = _begun(models, self._trees, token_ids, self._start, max_new_tokens, sampling, clock, batch)
        self._first_token = self._running.running[0].root

    @torch.inference_mode()
    def visit(self, num_drafted: int, num_unmeasured: int) -> list[StageSeconds]:
        """Seconds of ``MEASURED_ROUNDS`` rounds of one tree size in every text, after some that are not measured."""
        if max(len(text.text) for text in self._running.running) - 1 > self._window:
            self._running.rewind(self._start, self._first_token)
        self._trees.num_drafted = num_drafted
        rounds = [self._running.round() for _ in range(num_unmeasured + MEASURED_ROUNDS)]
        fewest = min(ran.round.num_drafted for of_visit in rounds for ran in of_visit)
        if fewest < num_drafted:
            raise ModelError(
                f"a tree of {num_drafted} drafted tokens was asked for, and the drafter's candidates fill {fewest}; "
                "give smaller --node-counts"
            )
        return [of_visit[0].seconds for of_visit in rounds[num_unmeasured:]]


class PlainStepTimer:
    """Steps of plain decoding at any of some contexts: of one text, or of several, a token of each in one pass."""

    def __init__(
        self, models: Models, token_ids: Ints, longest: int, sampling: Sampling, clock: Clock, batch: int = 1
    ) -> None:
        """Read the texts before the longest context; shorter ones are returned to."""
        most_steps = UNMEASURED + MEASURED_STEPS
        self._highest = models.target.longest_context - most_steps - 1
        self._step: Callable[[], float]
        if batch == 1:
            alone = plain_decoding(endless(models), _prompt(token_ids, longest), sampling, most_steps + 1, clock)
            self._first_token, self._rewind, self._step = alone.text.root, alone.rewind, alone.step
        else:
            begun = _begun(models, Autoregressive(), token_ids, longest, most_steps + 1, sampling, clock, batch)
            self._first_token, self._rewind = begun.running[0].root, begun.rewind
            self._step = lambda: begun.round()[0].seconds.total_s

    def visit(self, context: int, num_unmeasured: int) -> list[float]:
        """Seconds of ``MEASURED_STEPS`` steps about one context, after some that are not measured."""
        num_steps = num_unmeasured + MEASURED_STEPS
        start = max(1, min(context - num_steps // 2, self._highest))
        self._rewind(start, self._first_token)
        return [self._step() for _ in range(num_steps)][num_unmeasured:]


def check_grid(models: Models, longest: int, most_drafted: int) -> None:
    """Refuse before the work what cannot be run."""
    positions, depth = models.target.longest_context, models.drafter.config.depth
    needed = depth + 1 + max(longest, window_of(longest) + _reach(models))
    if needed > positions:
        raise ModelError(
            f"a context of {longest:,} and a draft of {depth} need {needed:,} positions, and "
            f"{models.target.reach}; give smaller --contexts"
        )
    width = min(models.target.vocab_size, most_drafted)
    fill = sum(width**level for level in range(1, depth + 1))
    if fill < most_drafted:
        raise ModelError(
            f"trees of {most_drafted:,} drafted tokens were asked for, and the drafter's candidates fill no more than "
            f"{fill:,}; give smaller --node-counts"
        )
    if most_drafted > MOST_DRAFTED:
        raise ModelError(
            f"trees of {most_drafted:,} drafted tokens were asked for, and prices go up to {MOST_DRAFTED:,}; give "
            "smaller --node-counts"
        )


def first_position(models: Models, context: int) -> tuple[int, int]:
    """Tokens to read before rounds about a context, and new tokens that the rounds may bring."""
    max_new_tokens = window_of(context) + _reach(models)
    highest = models.target.longest_context - models.drafter.config.depth - max_new_tokens
    return max(1, min(context - window_of(context), highest)), max_new_tokens


def window_of(context: int) -> int:
    """New tokens after which a visit goes back to the start; few beside the context."""
    return min(16, context // 8)


def _reach(models: Models) -> int:
    """New tokens that one visit may bring, token 0 and one to spare counted."""
    return (UNMEASURED + MEASURED_ROUNDS) * (models.drafter.config.depth + 1) + 2


def _begun(
    models: Models,
    policy: AnyPolicy,
    token_ids: Ints,
    length: int,
    max_new_tokens: int,
    sampling: Sampling,
    clock: Clock,
    batch: int,
) -> Speculation:
    """So many texts of one length, read."""
    running = Speculation(endless(models), policy, sampling, max_new_tokens, clock, batch, length)
    for number in range(batch):
        name = f"profile-{number}" if batch > 1 else "profile"
        running.add(_prompt(np.roll(token_ids, -number * _TOKENS_APART), length, name))
    return running


def _prompt(token_ids: Ints, length: int, name: str = "profile") -> Prompt:
    return Prompt(name, "profile", 0, 0, np.ascontiguousarray(token_ids[:length]))


def endless(models: Models) -> Models:
    """These models with a text that goes on after a stop token, whose rounds cost the same, beside other texts.

    Where passes are captured they have passes and buffers of their own.
    """
    graphs = models.graphs and GraphedModels(models.target, models.graphs.drafter, models.graphs.fused)
    return replace(models, target=replace(models.target, stop_token_ids=()), graphs=graphs)


# The setting of a cost file: what it says of the models and the machine, and whether another one says the same.


SETTING = (
    "device",
    "threads",
    "system",
    "target",
    "drafter",
    "block_size",
    "dtype",
    "attention",
    "execution",
    "batch",
    "temperature",
    "top_k",
    "top_p",
    "versions",
)
"""What every sample depends on."""

FUSED = "fused"
"""The attention of captured passes of fused layers, which take other kernels than the model's own."""

GRID = ("contexts", "node_counts", "visits")
"""Where samples are taken, and how."""

NO_CHANNELS: Mapping[str, CostChannel] = {}


def empty_file(options: ProfileOptions, models: Models, channels: Mapping[str, CostChannel] = NO_CHANNELS) -> CostFile:
    """A cost file of these models and channels on this machine, without samples."""
    setting = setting_of(models, options.draft, options.dtype, options.device, options.sampling)
    return replace(
        setting,
        contexts=options.contexts,
        node_counts=options.node_counts,
        repeats=options.repeats,
        batch=options.batch,
        visits=VISITS,
        channels=channels,
    )


def setting_of(models: Models, draft: str, dtype: str, device: str, sampling: Sampling) -> CostFile:
    """All that prices depend on, as a cost file of the least grid, without samples.

    Args:
        models: as they are run.
        draft: the drafter's name.
        dtype: of both.
        device: as torch names it.
        sampling: how the target chooses.
    """
    target = models.target
    is_fused = models.graphs is not None and models.graphs.fused.target is not None
    return CostFile(
        device=machine_of(device, target.placement),
        threads=torch.get_num_threads(),
        system=system_name(),
        target=target.info,
        drafter=ModelInfo(repository_of(draft), models.draft_revision, checkpoint_digest(models.draft_folder)),
        block_size=models.drafter.config.block_size,
        dtype=dtype,
        attention=FUSED if is_fused else str(target.model.config._attn_implementation),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        execution=models.execution,
        versions=library_versions(),
        contexts=(1,),
        node_counts=(0,),
        repeats=1,
    )


def check_same(path: Path, earlier: CostFile, now: CostFile) -> None:
    """Refuse to go on with a file whose samples were taken in another setting."""
    difference = first_difference(earlier, now, (*SETTING, *GRID))
    if difference is not None:
        raise CostError(
            f"{path} was measured with {difference}; samples of the two do not belong together: give another --out, "
            "or the options it was begun with"
        )


def first_difference(earlier: CostFile, now: CostFile, names: Sequence[str]) -> str | None:
    """The first of some settings in which two files differ, in words that follow "measured with"; or None."""
    for name in names:
        before, after = _shown(earlier, name), _shown(now, name)
        if before != after:
            return f"{name.replace('_', ' ')} {before}, and this run has {after}"
    return None


def _shown(file: CostFile, name: str) -> str:
    """A setting as text, by which it is compared: models by their digests, wherever they lie."""
    value = getattr(file, name)
    if isinstance(value, ModelInfo):
        return value.digest[:16]
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Visits):
        return f"of {value.rounds} rounds and {value.steps} steps{'' if value.paired else ', each at another time'}"
    if name == "versions":
        return ", ".join(f"{library} {version}" for library, version in sorted(file.versions.items()))
    return str(value)
