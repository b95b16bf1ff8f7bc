"""What a person chooses of a training run. Nothing here imports torch, so that the command line can read it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simlab.sampling.choice import Sampling

PATH, LAW = "path", "law"
LABELS = (PATH, LAW)
"""What a scorer of pools learns from: the text's own tokens, or the target's probabilities at all nodes."""


@dataclass(frozen=True, slots=True)
class LossWeights:
    """How much each intervention counts.

    Attributes:
        decay: depths over which a position's weight falls by e; 0 weighs all depths alike.
        focal: weight of the cross-entropy at the first depth whose most probable token is wrong.
        chain: reward per expected accepted token of the chain.
    """

    decay: float = 4.0
    focal: float = 0.3
    chain: float = 1.0

    def __post_init__(self) -> None:
        for name in ("decay", "focal", "chain"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"the loss weight {name} must not be negative; got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Everything that decides what a run computes.

    Attributes:
        steps: optimiser steps in all; the learning rate falls to zero over them.
        num_sequences: sequences a step.
        num_roots: random roots in each of them.
        head_tokens: the commonest tokens the loss is taken over; 0 takes the whole vocabulary.
    """

    steps: int
    seed: int = 0
    num_sequences: int = 4
    num_roots: int = 32
    learning_rate: float = 1e-3
    warmup_steps: int = 100
    weight_decay: float = 0.01
    head_tokens: int = 8192
    loss: LossWeights = LossWeights()

    def __post_init__(self) -> None:
        for name in ("steps", "num_sequences", "num_roots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.seed >= 2**63:
            raise ValueError(f"seed must be below 2**63; got {self.seed}")
        for name in ("seed", "warmup_steps", "weight_decay", "head_tokens"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"the learning rate must be above 0; got {self.learning_rate}")


@dataclass(frozen=True, slots=True)
class TextOptions:
    """The text that is learnt from.

    Attributes:
        text: texts as token ids (Parquet) or completions (JSONL); or None,
        prompts: then the target answers these prompts first.
        limit: the first texts only; None: all.
        max_tokens: longer sequences are cut.
        temperature: of generated text, and so on.
    """

    text: Path | None = None
    prompts: Path | None = None
    limit: int | None = None
    max_tokens: int = 640
    temperature: float = 0.0
    max_new_tokens: int = 256
    chat_template_kwargs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.text is None) == (self.prompts is None):
            raise ValueError("exactly one of text and prompts must be given")
        _check_positive(self, "max_new_tokens", "max_tokens")
        Sampling(self.temperature, 0, 1.0, 0)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of it."""
        return tuple(path for path in (self.text, self.prompts) if path is not None)


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """The run of a drafter: its text, its sizes, the plan, and where it is kept.

    Attributes:
        dev: prompt files whose answers the run is scored on as it goes, never trained on.
        init: ``target`` starts from the target's last layers, ``random`` from nothing, anything
            else is a drafter's name or folder; a folder's ``state.safetensors`` goes before its weights.
        block_size: None takes 8, or what the drafter that is started from has.
        num_layers: None takes 2, or what the drafter that is started from has.
        taps: None takes five layers, spread, or those of the drafter that is started from.
        mask_token: text of the token that stands for "not yet known"; None takes one that no text contains.
        causal: whether no slot of a block sees a later one: JetSpec's head; a causal one stays so.
        variable_prefix: blocks begin with l true tokens, l as likely as this number to the power l; None: with none.
        track: experiment trackers that get the run; see `simlab.tracking.tracker.TRACKERS`.
    """

    target: str
    out: Path
    plan: TrainingPlan
    texts: TextOptions
    dev: tuple[Path, ...] = ()
    dev_limit: int = 48
    block_size: int | None = None
    num_layers: int | None = None
    taps: tuple[int, ...] | None = None
    mask_token: str | None = None
    init: str = "target"
    causal: bool = False
    variable_prefix: float | None = None
    eval_every: int = 500
    resume: bool = False
    device: str = "cpu"
    track: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_positive(self, "dev_limit", "eval_every")
        if self.block_size is not None and self.block_size < 2:
            raise ValueError(f"the block size must be at least 2 (the root counts); got {self.block_size}")
        if self.variable_prefix is not None and not 0 < self.variable_prefix < math.inf:
            raise ValueError(f"the variable prefix must be above 0; got {self.variable_prefix}")
        stems = [path.stem for path in self.dev]
        if len(set(stems)) < len(stems):
            raise ValueError(f"dev files need different names; got {', '.join(stems)}")


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """The run of a network whose target stays as it is.

    Attributes:
        held_out: share of the texts that are not learnt from, and choose the step that is kept.
        patience: evaluations in a row without a better held-out loss that end the run; 0: none does.
        track: experiment trackers that get the run.
    """

    target: str
    out: Path
    plan: TrainingPlan
    texts: TextOptions
    held_out: float = 0.1
    patience: int = 5
    eval_every: int = 25
    resume: bool = False
    device: str = "cpu"
    track: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_positive(self, "eval_every")
        _check_early_end(self.held_out, self.patience)


@dataclass(frozen=True, slots=True)
class RouterOptions:
    """The run of a router's network, which learns from recordings.

    Attributes:
        traces: of training prompts, each with all that the routes read.
        routes: policies as they are typed.
        target: None: as the first trace names it.
        draft_set: whose candidates the routes read; None: the only one of a trace.
        inner_size: of the network.
        held_out: share of the texts that are not learnt from, and choose the step that is kept.
        patience: evaluations in a row without a better held-out loss that end the run; 0: none does.
        track: experiment trackers that get the run.
    """

    traces: tuple[str, ...]
    routes: tuple[str, ...]
    out: Path
    plan: TrainingPlan
    target: str | None = None
    draft_set: str | None = None
    inner_size: int = 128
    held_out: float = 0.2
    patience: int = 10
    eval_every: int = 20
    resume: bool = False
    device: str = "cpu"
    track: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_positive(self, "inner_size", "eval_every")
        _check_early_end(self.held_out, self.patience)
        if not self.traces or len(self.routes) < 2:
            raise ValueError("a router learns from one trace or more, for two routes or more with | between them")


@dataclass(frozen=True, slots=True)
class BesideDrafterOptions(NetworkOptions):
    """The run of a network on a drafter that stays as it is too.

    Attributes:
        draft: the drafter's name or folder.
    """

    draft: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class HeadOptions(BesideDrafterOptions):
    """The run of a first-order head.

    Attributes:
        inner_size: I, between the head's matrices; None takes the drafter's intermediate size.
        dropout: share of the head's inputs that a step leaves out.
    """

    inner_size: int | None = None
    dropout: float = 0.1

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        if self.inner_size is not None:
            _check_positive(self, "inner_size")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be from 0 to below 1; got {self.dropout}")


@dataclass(frozen=True, slots=True)
class ScorerOptions(BesideDrafterOptions):
    """The run of a TAPS scorer.

    Attributes:
        beam: nodes of each depth of the pools that it learns from.
        extensions: the drafter's candidates of the next depth that are looked at below each.
        reach_weight: of the loss on whole paths, beside that below single nodes.
        labels: one of `LABELS`.
        law_roots: roots in all at which the target is asked for its probabilities, as many of each text.
    """

    beam: int = 48
    extensions: int = 64
    reach_weight: float = 0.5
    labels: str = PATH
    law_roots: int = 4000

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        _check_positive(self, "beam", "extensions", "law_roots")
        if self.labels not in LABELS:
            raise ValueError(f"labels are {' or '.join(LABELS)}; got {self.labels}")
        if not 0 <= self.reach_weight < math.inf:
            raise ValueError(f"reach_weight must be at least 0; got {self.reach_weight}")


@dataclass(frozen=True, slots=True)
class Eagle3Options(NetworkOptions):
    """The run of an EAGLE-3 head; ``plan.head_tokens`` of the target's tokens are its own, 0: all.

    Attributes:
        passes: of the head below each root that it learns from.
        taps: layers of the target that it reads; None: those of the release.
    """

    passes: int = 7
    taps: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        _check_positive(self, "passes")


@dataclass(frozen=True, slots=True)
class SelfOptions(NetworkOptions):
    """The run of an adapter with which a target drafts for itself.

    Attributes:
        masks: k, the tokens that it drafts behind one.
        rank: of each change.
        consistency: weight of the squared distance to the states of the text's own rows.
    """

    masks: int = 4
    rank: int = 16
    consistency: float = 0.1

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        _check_positive(self, "masks", "rank")
        if not 0 <= self.consistency < math.inf:
            raise ValueError(f"consistency must be at least 0; got {self.consistency}")


def _check_early_end(held_out: float, patience: int) -> None:
    """Refuse a share of the texts, or a number of evaluations, that cannot be.

    Raises:
        ValueError: see above.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"the held-out share must be between 0 and 1; got {held_out}")
    if patience < 0:
        raise ValueError(f"patience must not be negative; got {patience}")


def _check_positive(options: object, *names: str) -> None:
    for name in names:
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1; got {getattr(options, name)}")
