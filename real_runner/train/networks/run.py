"""A training run of a network that is no drafter: from text to a checkpoint, in a folder that can be taken up again."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from simlab.errors import PromptError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.checkpoints.files import write_json, write_text
from simlab.real_runner.drafters.dense import check_fit
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import find_drafter, load_drafter
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.model_card import (
    ROWS_OF_CURVE,
    data_section,
    percent,
    plan_section,
    table,
    thinned,
)
from simlab.real_runner.train.options import AttachedNetworkOptions, NetworkOptions
from simlab.real_runner.train.plan import TrainingPlan
from simlab.real_runner.train.setup import TRACKED_FILES, check_start, store_of, tracked_settings
from simlab.real_runner.train.state import STATE, load_state, save_state
from simlab.real_runner.train.text import FeatureStore, TrainingBatch
from simlab.real_runner.train.trainer import (
    CurvePoint,
    HeldOut,
    Trainer,
    note_evaluation,
    row_of,
    train_through,
    training_dtype,
)
from simlab.traces.format.lock import exclusive_lock
from simlab.tracking.tracker import check_trackers, tracking

# The model card of a network that is no drafter, in Markdown.


@dataclass(frozen=True, slots=True)
class NetworkWords:
    """What the card of one kind of network says.

    Attributes:
        kind: such as ``head``.
        what: it is, with its source, in words that follow an article.
        command: that trains it.
        does: a sentence.
        sizes: by name.
        borrowed: a sentence on what is the drafter's or the target's.
        before: what its first figures are called.
        start: what it says before the first step.
        asked: what its cross-entropies are of.
    """

    kind: str
    what: str
    command: str
    does: str
    sizes: Mapping[str, int]
    borrowed: str
    before: str
    start: str
    asked: str


def _network_card(run: "_Run") -> str:
    """The card, a function of the run alone."""
    options, words, curve = run.options, run.learner.described(), run.curve
    held = {point.step: point.held_out for point in curve if point.held_out is not None}
    depth, best_step = len(held[0].agreement), curve[best_of(curve)].step
    whose, base = f"`{options.target}`", "target"
    rows: list[tuple[object, object]] = [("depths", depth), *words.sizes.items()]
    if run.drafter is not None:
        whose, base = f"the drafter `{run.drafter[0]}` of {whose}", "drafter"
        rows.insert(0, ("drafter, sha256 of its files", run.drafter[1]))
    num_parameters = sum(parameter.numel() for parameter in run.learner.network.parameters())
    rows.append(("own parameters", f"{num_parameters:,}"))
    plan = asdict(options.plan) | run.learner.settings() | {"patience": options.patience}
    losses = [
        (point.step, "" if point.loss is None else f"{point.loss:.3f}", f"{held[point.step].loss:.3f}")
        for point in thinned(curve, ROWS_OF_CURVE)
    ]
    named = {words.before: held[0], f"with the {words.kind}": held[best_step]}
    head = ("held-out texts", *range(1, depth + 1))
    entropies = [(name, *(f"{value:.3f}" for value in scores.cross_entropy)) for name, scores in named.items()]
    agreement = [(name, *map(percent, scores.agreement)) for name, scores in named.items()]
    parts = [
        f"# {options.out.resolve().name}",
        f"{words.what} for {whose}, trained with `{words.command}`. {words.does} The {base} itself was not changed.",
        f"## {words.kind.capitalize()}",
        table(("", ""), rows),
        words.borrowed,
        data_section(options.texts, len(run.texts.usable), run.texts.num_text_tokens, plan, curve, depth),
        f"{len(run.held_out.usable):,} further texts were held out.",
        plan_section(words.start, plan),
        "## Curve",
        table(("step", "loss", "held-out loss"), losses),
        f"The checkpoint has the weights of step {best_step}, where the held-out loss was lowest.",
        "## By depth",
        f"Cross-entropy of {words.asked}; nats.",
        table(head, entropies),
        "Share of these where the most probable one is the true one.",
        table(head, agreement),
    ]
    return "\n\n".join(parts) + "\n"


Scored: TypeAlias = tuple[Tensor, ...]
"""What a network says at N roots, D deep: cross-entropies, float ``[N, D]``, nats; bool ``[N, D]``, whether the most
probable token is the true one; bool ``[N, D]``, what counts; then whatever its loss takes besides."""


SomeNetwork = TypeVar("SomeNetwork", bound=nn.Module)


class Learner(ABC, Generic[SomeNetwork]):
    """A network and what it learns: a function of plan and step, and of the network's weights."""

    def __init__(
        self, network: SomeNetwork, target: Target, store: FeatureStore, plan: TrainingPlan, block_size: int
    ) -> None:
        """Hold on to what a step needs.

        Args:
            network: whose weights learn.
            target: that does not.
            store: the texts that are learnt from.
            plan: of the run.
            block_size: tokens that are looked at from a root on.
        """
        self.network, self.target, self.store, self.plan, self.block_size = network, target, store, plan, block_size

    def __call__(self, step: int) -> Tensor:
        """The loss of the step's batch, a scalar."""
        plan = self.plan
        batch = self.store.batch(step, plan.seed, plan.num_sequences, plan.num_roots, self.block_size)
        return self.loss(self.scored(self.network, batch, step))

    @torch.no_grad()
    def held_out(self, store: FeatureStore) -> HeldOut:
        """The network on other texts, at the same roots each time, with its weights as they will be shipped."""
        plan, fixed = self.plan, self.shipped()
        batches = store.fixed_batches(plan.seed, plan.num_sequences, plan.num_roots, self.block_size)
        scored = tuple(map(torch.cat, zip(*(self.scored(fixed, batch, None) for batch in batches), strict=True)))
        entropies, right, counts, *_ = scored
        counted = counts.sum(0).clamp(min=1)
        means = (entropies * counts).sum(0) / counted, (right & counts).sum(0) / counted
        rounded = (tuple(round(value, 4) for value in mean.tolist()) for mean in means)
        return HeldOut(round(self.held_out_loss(fixed, store, scored), 6), *rounded)

    def shipped(self) -> SomeNetwork:
        """A copy of the network whose weights are rounded as its checkpoint has them."""
        return copy.deepcopy(self.network).to(torch.bfloat16).float().eval()

    def held_out_loss(self, fixed: SomeNetwork, store: FeatureStore, scored: Scored) -> float:
        """The loss on other texts, of which everything is scored."""
        return float(self.loss(scored))

    @abstractmethod
    def scored(self, network: SomeNetwork, batch: TrainingBatch, step: int | None) -> Scored:
        """What a network says at the roots of a batch: that of a step, or None: of texts that are held out."""

    @abstractmethod
    def loss(self, scored: Scored) -> Tensor:
        """A scalar, of what was scored."""

    @abstractmethod
    def settings(self) -> dict[str, object]:
        """What must agree, beside the plan, when the run is taken up again."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the checkpoint as it is now."""

    @abstractmethod
    def described(self) -> NetworkWords:
        """What the card says of it."""


AnyLearner: TypeAlias = Learner[Any]


@dataclass(frozen=True, slots=True)
class Start:
    """What a run needs of its models before it has read its texts.

    Attributes:
        taps: the target's layers whose states are read.
        begun: from the texts that are learnt from to a network at its start.
        drafter: beside which it works, its name or folder and the digest of its checkpoint; None: beside none.
    """

    taps: tuple[int, ...]
    begun: Callable[[FeatureStore], AnyLearner]
    drafter: tuple[str, str] | None = None


Begun = Callable[[str, DFlashDrafter, Target, FeatureStore], AnyLearner]
"""From a drafter's digest, it in the target's dtype, the target, and the texts that are learnt from, to a network."""


def beside_drafter(options: AttachedNetworkOptions, begun: Begun) -> Callable[[Target], Start]:
    """The start of a network that works beside a drafter."""

    def start(target: Target) -> Start:
        folder = find_drafter(options.draft).folder
        drafter = load_drafter(folder, target.dtype, options.device)
        check_fit(target, drafter)
        digest, taps = checkpoint_digest(folder), drafter.config.target_layer_ids
        return Start(taps, lambda store: begun(digest, drafter, target, store), (options.draft, digest))

    return start


def train_network(options: NetworkOptions, start: Callable[[Target], Start]) -> Path:
    """Train a network; the checkpoint of its best step, its card, its state and its curve are in the folder.

    Args:
        options: of the run.
        start: from the target to what the run begins with.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """
    check_trackers(options.track)
    with exclusive_lock(options.out / STATE):
        check_start(options.out, options.texts.files, options.device, options.resume)
        return _Run(options, start).finished()


def best_of(curve: Sequence[CurvePoint]) -> int:
    """Place of the point whose weights are kept: the lowest held-out loss, of equal ones the first."""
    losses = [point.held_out.loss for point in curve if point.held_out is not None]
    return losses.index(min(losses))


class _Run:
    """Models, texts and trainer of one run, and its curve so far."""

    def __init__(self, options: NetworkOptions, start: Callable[[Target], Start]) -> None:
        self.options = options
        target = load_target(options.target, training_dtype(options.device), options.device)
        begins = start(target)
        self.drafter, self.target = begins.drafter, target
        self.texts, self.held_out = _split(
            store_of(options.out, options.texts, options.plan.seed, target, begins.taps), options.held_out
        )
        torch.manual_seed(options.plan.seed)
        self.learner = begins.begun(self.texts)
        self.trainer = Trainer(self.learner.network, self.learner, options.plan, self._settings(str(target.dtype)))
        self.curve = load_state(self.trainer, options.out) if (options.out / STATE).exists() else list[CurvePoint]()

    def _settings(self, dtype: str) -> dict[str, object]:
        stop = {"held_out": self.options.held_out, "patience": self.options.patience}
        beside = {} if self.drafter is None else {"extends": self.drafter[1]}
        return {"head": {**beside, **self.learner.settings(), **stop}, "dtype": dtype}

    def finished(self) -> Path:
        """Train to the end, or until nothing gets better, and describe the result."""
        options, trainer = self.options, self.trainer
        job = self.learner.described().command.removeprefix("simlab ")
        with tracking(options.track, job, self._tracked_settings) as tracker:
            if not self.curve:
                # The start, beside a drafter that drafter itself, is measured and saved too.
                note_evaluation(self._evaluate(None), trainer, tracker)
            self._keep_if_best()
            train_through(trainer, options.out, options.eval_every, self._evaluate, tracker, self._is_over)
            write_json(options.out / "curve.json", [row_of(point) for point in self.curve])
            write_text(options.out / "README.md", _network_card(self))
            tracker.results({"best": row_of(self.curve[best_of(self.curve)])})
            tracker.files(*(options.out / name for name in TRACKED_FILES))
        return options.out

    def _tracked_settings(self) -> dict[str, object]:
        return tracked_settings(self.options, self.target, self.trainer.settings)

    def _evaluate(self, loss: float | None) -> Mapping[str, float]:
        held_out = self.learner.held_out(self.held_out)
        self.curve.append(CurvePoint(self.trainer.step, loss, {}, held_out))
        save_state(self.trainer, self.curve, self.options.out)
        self._keep_if_best()
        write_json(self.options.out / "curve.json", [row_of(point) for point in self.curve])
        return {"held_out": held_out.loss}

    def _keep_if_best(self) -> None:
        """Write the checkpoint, unless an earlier step's is the one to keep."""
        if self.curve[best_of(self.curve)].step == self.trainer.step:
            self.learner.save(self.options.out)

    def _is_over(self) -> bool:
        return 0 < self.options.patience < len(self.curve) - best_of(self.curve)


def _split(store: FeatureStore, share: float) -> tuple[FeatureStore, FeatureStore]:
    if len(store.usable) < 2:
        raise PromptError(
            "only one text can be learnt from, and one must be held out to choose the step that is kept; give more "
            "texts"
        )
    texts, held_out = store.split(share)
    if not texts.usable:
        raise PromptError(
            f"with a held-out share of {share} none of {len(store.usable)} texts is left to learn from; give more "
            "texts or a smaller --held-out"
        )
    return texts, held_out
