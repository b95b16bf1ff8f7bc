"""What a person chooses of a training run. Nothing here imports torch, so that the command line can read it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from simlab.options import Option, count, nested, option
from simlab.real_runner.model_options import (
    DRAFTER,
    TARGET,
    device_option,
    layer_numbers,
)
from simlab.real_runner.train.plan import LossWeights, TextOptions, TrainingPlan, check_positive
from simlab.tracking.tracker import track_option

PATH, LAW = "path", "law"
LABELS = (PATH, LAW)
"""What a scorer of pools learns from: the text's own tokens, or the target's probabilities at all nodes."""


_DRAFTER_PLAN = TrainingPlan(steps=5000)
_DECAY_ALONE, _NO_LOSS = LossWeights(4.0, 0.0, 0.0), LossWeights(0.0, 0.0, 0.0)


def _patience(default: int) -> int:
    help_text = "evaluations in a row without a better held-out loss that end the run; 0: none"
    return option(default, help_text, "N", read=count(0), group="plan")


def _eval_every(default: int) -> int:
    return option(default, "steps between evaluations; each saves", "N", group="plan")


def _held_out(default: float) -> float:
    return option(default, "share of the texts that is not learnt from", "SHARE", group="plan")


def _routes(text: str) -> tuple[str, ...]:
    return tuple(route.strip() for route in text.split("|"))


UNIFORM = "uniform"
"""Noise of an adapter of UNO's kind: any tokens stand in place of masks."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Any run that trains for a target: where it is kept, and on what it runs."""

    TRAINED_BY: ClassVar[tuple[str, str, str]]
    """The module and the function that train, and what comes out."""
    RESUME: ClassVar = "the same command with --resume goes on with {out}"

    target: str = option(TARGET, "the model to draft for: a Hugging Face id, a folder, or smollm2-135m", "T")
    out: Path = option(..., "the folder of the run", "DIR", read=Path)
    resume: bool = option(False, "continue the run in --out")
    device: str = device_option(group="")
    track: Sequence[str] = track_option()


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """The run of a drafter: its text, its sizes, the plan, and where it is kept."""

    TRAINED_BY: ClassVar = ("train", "train", "drafter")
    DETAILS: ClassVar = """\
The text is a Parquet table of token ids (columns prompt_ids, text_ids), a JSONL file of prompts
with their answers, or, with --prompts, what the target itself answers.

  simlab train dflash --prompts prompts.jsonl --dev dev.jsonl --steps 5000 --out runs/drafter
  simlab train dflash --text text.parquet --init dflash-smollm2-135m --steps 5000 --out runs/longer

The run's folder holds the drafter (config.json, model.safetensors, README.md), its curve, and what
is needed to go on after an interruption: the same command with --resume continues from the last
evaluation, and ends with the same drafter as a run that was never interrupted. The text's hidden
states are kept there too: taps x hidden size x 2 bytes a token. They can be deleted afterwards.

--init FOLDER begins a new run, with its own schedule, where another ended: with the float32 weights
and the optimiser's moments of FOLDER/state.safetensors where there is one, else with the weights of
model.safetensors and a new optimiser. It says on stderr which.

  simlab train dflash --text text.parquet --init dflash-smollm2-135m --variable-prefix 0.8 --out runs/second
  simlab train dflash --text text.parquet --init dflash-smollm2-135m --causal --out runs/causal

The first is a second drafter for `d2sd`: it drafts behind tokens that are there already. The second is a
causal head: in a block no slot sees a later one, so that a depth goes on from the depths before."""
    dev: tuple[Path, ...] = option(
        (), "prompts to score on, never trained on; repeats", "FILE", read=Path, repeats=True
    )
    dev_limit: int = option(48, "prompts of each --dev", "N")
    texts: TextOptions = nested(TextOptions, "text")
    init: str = option(
        "target",
        "target (its last layers), random, or a drafter's name or folder; a folder's state.safetensors goes before "
        "its weights",
        "FROM",
        group="drafter",
    )
    block_size: int | None = option(None, "root included (default 8, or that of --init)", "N", group="drafter")
    num_layers: int | None = option(
        None, "draft layers (default 2, or those of --init)", "N", names="--layers", group="drafter"
    )
    taps: tuple[int, ...] | None = option(
        None,
        "target layers whose states are read (default: five, spread)",
        "I,J,...",
        read=layer_numbers,
        group="drafter",
    )
    causal: bool = option(
        False, "no slot of a block sees a later one: a causal head, as JetSpec has it", group="drafter"
    )
    mask_token: str | None = option(
        None, "a token of the target (default: one that no text contains)", "TEXT", group="drafter"
    )
    plan: TrainingPlan = nested(_DRAFTER_PLAN, "plan", without=("weight_decay",))
    eval_every: int = _eval_every(500)
    variable_prefix: float | None = option(
        None,
        "blocks begin with l true tokens, l as likely as X to the power l, and the loss with what comes behind; "
        "D2SD's second drafter learns so (try 0.8; default: with none)",
        "X",
        group="loss",
    )

    def __post_init__(self) -> None:
        check_positive(self, "dev_limit", "eval_every")
        if self.block_size is not None and self.block_size < 2:
            raise ValueError(f"the block size must be at least 2 (the root counts); got {self.block_size}")
        if self.variable_prefix is not None and not 0 < self.variable_prefix < math.inf:
            raise ValueError(f"the variable prefix must be above 0; got {self.variable_prefix}")
        stems = [path.stem for path in self.dev]
        if len(set(stems)) < len(stems):
            raise ValueError(f"dev files need different names; got {', '.join(stems)}")

    @property
    def filled(self) -> dict[str, object]:
        """How slots are filled, where they are: earlier runs do not say it."""
        return {} if self.variable_prefix is None else {"variable_prefix": self.variable_prefix}


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(RunOptions):
    """The run of a network whose target stays as it is."""

    texts: TextOptions = nested(TextOptions, "text")
    plan: TrainingPlan = nested(_DRAFTER_PLAN, "plan", without=("focal", "chain"))
    eval_every: int = _eval_every(25)
    held_out: float = _held_out(0.1)
    patience: int = _patience(5)

    def __post_init__(self) -> None:
        check_positive(self, "eval_every")
        _check_early_end(self.held_out, self.patience)


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """The run of a router's network, which learns from recordings."""

    TRAINED_BY: ClassVar = ("networks.router", "train_router", "network")
    DETAILS: ClassVar = """\
A router's network (after WhiFlash, arXiv 2606.07710) says of each root, before anything is drafted, how
many tokens a round by each route would bring: from the target's last state at the token before the root,
how sure it was, and the position. It learns from recordings of training prompts that hold all that the routes
read; what each route brings at every root stands there already.

  simlab record --prompts train.jsonl --out runs/train
  simlab record --trace runs/train --add-channel eagle3=eagle3-smollm2-135m,steps=7
  simlab train router --trace runs/train --routes "ddtree:budget=16|eagle3:budget=16,steps=3" --out runs/router
  simlab record --trace runs/mine --add-channel router=runs/router
  simlab replay --trace runs/mine -p 'router:routes="ddtree:budget=16|eagle3:budget=16,steps=3",by=network'

Some texts are held out: the checkpoint has the weights of the step at which the loss on them was lowest.
README.md in the folder says that loss beside those of each route's mean and of the entropy alone. What the
target says along the texts is kept in the folder; --resume continues it after an interruption."""
    RESUME: ClassVar = RunOptions.RESUME
    traces: tuple[str, ...] = option(
        ...,
        "a recording of training prompts, with all that the routes read; repeats",
        "DIR",
        names="--trace",
        repeats=True,
    )
    routes: tuple[str, ...] = option(..., "policies as they are typed, with | between them", "P|P", read=_routes)
    target: str | None = option(None, "a Hugging Face id or a folder (default: as the trace names it)", "T")
    draft_set: str | None = option(None, "whose candidates the routes read (default: the only one)", "NAME")
    out: Path = option(..., "the folder of the run", "DIR", read=Path)
    resume: bool = option(False, "continue the run in --out")
    device: str = device_option(group="")
    track: Sequence[str] = track_option()
    inner_size: int = option(128, "between the matrices of the network", "N")
    plan: TrainingPlan = nested(
        TrainingPlan(
            steps=2000,
            num_sequences=32,
            num_roots=16,
            learning_rate=1e-3,
            warmup_steps=20,
            weight_decay=0.1,
            head_tokens=0,
            loss=_NO_LOSS,
        ),
        "plan",
        without=("head_tokens", "decay", "focal", "chain"),
    )
    eval_every: int = _eval_every(20)
    held_out: float = _held_out(0.2)
    patience: int = _patience(10)

    def __post_init__(self) -> None:
        check_positive(self, "inner_size", "eval_every")
        _check_early_end(self.held_out, self.patience)
        if not self.traces or len(self.routes) < 2:
            raise ValueError("a router learns from one trace or more, for two routes or more with | between them")


@dataclass(frozen=True, kw_only=True)
class AttachedNetworkOptions(NetworkOptions):
    """The run of a network on a drafter that stays as it is too."""

    draft: str = option(DRAFTER, "the drafter: its name or folder", "D")


_HEAD_PLAN = TrainingPlan(
    steps=600,
    num_sequences=16,
    num_roots=16,
    warmup_steps=50,
    weight_decay=0.1,
    head_tokens=4096,
    loss=_DECAY_ALONE,
)


@dataclass(frozen=True, kw_only=True)
class HeadOptions(AttachedNetworkOptions):
    """The run of a first-order head."""

    TRAINED_BY: ClassVar = ("networks.treeflash", "train_head", "head")
    DETAILS: ClassVar = """\
A first-order head (TreeFlash, arXiv 2606.03819) says what a drafter thinks of a depth once the token
above it is known. It learns from the same kinds of text as a drafter does, and the drafter stays as it
is. Give text that the drafter was not trained on: on its own text a drafter is better than it will be.

  simlab train treeflash --prompts fresh.jsonl --out runs/head
  simlab train treeflash --text text.parquet --draft runs/drafter --steps 2000 --patience 0 --out runs/head

Some texts are held out. The checkpoint has the weights of the step at which the loss on them was
lowest, and the run ends early when it no longer falls. It belongs to this drafter: beside another
it is refused. --resume goes on after an interruption, as with a drafter."""
    inner_size: int | None = option(
        None, "I, between the head's matrices (default: the drafter's intermediate size)", "N", group="head"
    )
    dropout: float = option(0.1, "share of its inputs that a step omits", "X", group="head")
    plan: TrainingPlan = nested(
        _HEAD_PLAN,
        "plan",
        without=("focal", "chain"),
    )

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        if self.inner_size is not None:
            check_positive(self, "inner_size")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be from 0 to below 1; got {self.dropout}")


@dataclass(frozen=True, kw_only=True)
class ScorerOptions(AttachedNetworkOptions):
    """The run of a TAPS scorer."""

    TRAINED_BY: ClassVar = ("networks.taps", "train_scorer", "scorer")
    DETAILS: ClassVar = """\
A scorer (after TAPS, arXiv 2606.00487) says how probable a node of a draft tree is once its parent is right.
Its nodes are those of a beam over the drafter's candidates; the drafter stays as it is. It learns from
the same kinds of text as a head does, and from its own path: below each node that the text goes through,
which token came. With --labels law it learns what the target thinks of every node, as the release does.

  simlab train taps --prompts fresh.jsonl --out runs/scorer
  simlab train taps --prompts fresh.jsonl --labels law --law-roots 4000 --out runs/scorer
  simlab record --trace runs/mine --add-channel taps=runs/scorer

Some texts are held out. The checkpoint has the weights of the step at which the loss on them was
lowest, and the run ends early when it no longer falls. It belongs to this drafter: beside another
it is refused. --resume goes on after an interruption, as with a drafter."""
    beam: int = option(48, "nodes of each depth of the pools that it learns from", "N", group="pools")
    extensions: int = option(
        64, "the drafter's candidates of the next depth that are looked at below each", "N", group="pools"
    )
    plan: TrainingPlan = nested(
        TrainingPlan(
            steps=400,
            num_sequences=16,
            num_roots=16,
            learning_rate=3e-3,
            warmup_steps=20,
            weight_decay=1e-4,
            head_tokens=0,
            loss=_NO_LOSS,
        ),
        "plan",
        without=("head_tokens", "decay", "focal", "chain"),
    )
    reach_weight: float = option(0.5, "of the loss on whole paths, beside that below single nodes", "X", group="loss")
    labels: str = option(
        PATH,
        "path: the tokens of the text, below the nodes that it goes through; law: the target's probabilities at all "
        "nodes, as the release learns, a pass of the target for each pool",
        choices=LABELS,
        group="loss",
    )
    law_roots: int = option(
        4000, "with law: pools that the target is asked at, as many of each text", "N", group="loss"
    )

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        check_positive(self, "beam", "extensions", "law_roots")
        if self.labels not in LABELS:
            raise ValueError(f"labels are {' or '.join(LABELS)}; got {self.labels}")
        if not 0 <= self.reach_weight < math.inf:
            raise ValueError(f"reach_weight must be at least 0; got {self.reach_weight}")


@dataclass(frozen=True, kw_only=True)
class Eagle3Options(NetworkOptions):
    """The run of an EAGLE-3 head; ``plan.head_tokens`` of the target's tokens are its own, 0: all."""

    TRAINED_BY: ClassVar = ("networks.eagle3", "train_eagle3", "head")
    DETAILS: ClassVar = """\
An EAGLE-3 head (arXiv 2503.01840) goes on from the target's own states, token by token: what it needs is a
target, and no drafter. It learns below its own outputs, as many passes as --passes, from the same kinds
of text as a drafter does, what the target thinks of each next token.

  simlab train eagle3 --prompts prompts.jsonl --out runs/eagle3
  simlab record --trace runs/mine --add-channel eagle3=runs/eagle3
  simlab replay --trace runs/mine -p 'eagle3:budget=59,steps=7'

Some texts are held out. The checkpoint has the weights of the step at which the loss on them was
lowest. --resume goes on after an interruption."""
    taps: tuple[int, ...] | None = option(
        None,
        "target layers whose states are read (default: the release's)",
        "I,J,...",
        read=layer_numbers,
        group="head",
    )
    plan: TrainingPlan = nested(
        TrainingPlan(
            steps=5000,
            num_sequences=4,
            num_roots=64,
            learning_rate=1e-3,
            warmup_steps=100,
            weight_decay=0.01,
            head_tokens=8192,
            loss=_DECAY_ALONE,
        ),
        "plan",
        without=("focal", "chain"),
        otherwise={
            "head_tokens": Option(
                "its own tokens: the commonest of the text and those that end a text; 0: all of the target's",
                "N",
                count(0),
                ("--draft-vocab",),
                "head",
            )
        },
    )
    eval_every: int = _eval_every(250)
    patience: int = _patience(0)
    passes: int = option(7, "of the head below each root, each on the output of the one before", "N", group="loss")

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        check_positive(self, "passes")


@dataclass(frozen=True, kw_only=True)
class SelectorOptions(AttachedNetworkOptions):
    """The run of a selector of DFlash 2."""

    TRAINED_BY: ClassVar = ("networks.dflash2", "train_selector", "selector")
    DETAILS: ClassVar = """\
A selector of DFlash 2 scores a drafter's first candidates of a depth given the token at the depth above:
two codebooks of the vocabulary and a product with the drafter's state. It learns from the same kinds of
text as a first-order head does (train treeflash), and the drafter stays as it is.

  simlab train dflash2 --text text.parquet --rank 64 --top-k 16 --out runs/selector
  simlab record --trace runs/mine --add-channel dflash2=runs/selector

A released drafter has convolutions beside its selector, and both were trained together; this trains the
selector alone. Some texts are held out. --resume goes on after an interruption."""
    rank: int = option(64, "of its codebooks", "N", group="selector")
    top_k: int = option(16, "candidates of a depth that it chooses among", "N", group="selector")
    plan: TrainingPlan = nested(
        replace(_HEAD_PLAN, weight_decay=0.01),
        "plan",
        without=("focal", "chain"),
    )

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        check_positive(self, "rank", "top_k")


@dataclass(frozen=True, kw_only=True)
class SelfOptions(NetworkOptions):
    """The run of an adapter with which a target drafts for itself."""

    TRAINED_BY: ClassVar = ("networks.adapter", "train_self", "adapter")
    DETAILS: ClassVar = """\
With an adapter a target drafts for itself (after arXiv 2507.11851): some rows of a pass hold masks, and the
adapter, a low-rank change of every product, is felt at these alone. All other rows are the target's own,
bit for bit, so it writes what it writes without an adapter. It learns from the same kinds of text as a
drafter does; the target stays as it is. With --noise uniform it is one of UNO's kind (after arXiv 2609.04010):
any tokens stand in place of masks.

  simlab train self --text text.parquet --masks 4 --rank 16 --out runs/self

A step reads its texts anew: one text and many roots in it are what costs least on a CPU. Some texts are
held out. The checkpoint has the weights of the step at which the loss on them was lowest. --resume goes
on after an interruption. A first-order head on its masks: train treeflash --draft runs/self."""
    masks: int = option(4, "k, the tokens that are drafted behind a token", "N", group="adapter")
    rank: int = option(16, "of each change", "N", group="adapter")
    init: str | None = option(None, "an adapter of the same rank that it goes on from", "FOLDER", group="adapter")
    noise: str = option(
        "none", "tokens that stand in place of masks: any of the vocabulary", choices=("none", UNIFORM), group="adapter"
    )
    plan: TrainingPlan = nested(
        TrainingPlan(
            steps=3000,
            num_sequences=1,
            num_roots=32,
            learning_rate=1e-3,
            warmup_steps=50,
            weight_decay=0.01,
            head_tokens=4096,
            loss=_DECAY_ALONE,
        ),
        "plan",
        without=("focal", "chain"),
    )
    eval_every: int = _eval_every(100)
    held_out: float = _held_out(0.01)
    patience: int = _patience(0)
    consistency: float = option(
        0.1,
        "of the squared distance between a mask's state and that of the text's own row",
        "X",
        group="loss",
    )

    def __post_init__(self) -> None:
        NetworkOptions.__post_init__(self)
        check_positive(self, "masks", "rank")
        if not 0 <= self.consistency < math.inf:
            raise ValueError(f"consistency must be at least 0; got {self.consistency}")


def _check_early_end(held_out: float, patience: int) -> None:
    """Refuse a share of the texts, or a number of evaluations, that cannot be."""
    if not 0 < held_out < 1:
        raise ValueError(f"the held-out share must be between 0 and 1; got {held_out}")
    if patience < 0:
        raise ValueError(f"patience must not be negative; got {patience}")
