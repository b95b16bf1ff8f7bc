"""A training run of a network that is no drafter: from text to a checkpoint, in a folder that can be taken up again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from simlab.errors import PromptError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.checkpoints.files import write_json, write_text
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import check_fit, find_drafter, load_drafter
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.model_card import (
    ROWS_OF_CURVE,
    TrainingData,
    data_section,
    percent,
    plan_section,
    table,
    thinned,
)
from simlab.real_runner.train.options import BesideDrafterOptions, NetworkOptions
from simlab.real_runner.train.setup import TRACKED_FILES, check_start, store_of, tracked_settings, training_data
from simlab.real_runner.train.state import STATE, load_state, save_state
from simlab.real_runner.train.text import FeatureStore
from simlab.real_runner.train.trainer import (
    CurvePoint,
    HeldOut,
    Trainer,
    note_evaluation,
    row_of,
    train_through,
    training_dtype,
)
from simlab.traces.format.alone import writing_alone
from simlab.tracking.tracker import check_trackers, tracking

# The model card of a network that is no drafter: facts in, Markdown out.


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


@dataclass(frozen=True, slots=True)
class NamedDrafter:
    """The drafter that a network belongs to.

    Attributes:
        name: or folder, as a person gave it.
        digest: of its checkpoint.
    """

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """Everything that the card says.

    Attributes:
        drafter: None: it works without one.
        data: without the texts that were held out.
        plan: settings of the run by name; may be nested once.
        curve: with held-out scores.
        best_step: whose weights the checkpoint has.
        words: on networks of its kind.
    """

    name: str
    target: str
    drafter: NamedDrafter | None
    num_parameters: int
    data: TrainingData
    num_held_out: int
    plan: Mapping[str, object]
    curve: tuple[CurvePoint, ...]
    best_step: int
    words: NetworkWords


def network_card(facts: NetworkFacts) -> str:
    """The card, a function of the facts alone."""
    parts = [
        f"# {facts.name}",
        _summary(facts),
        _network(facts),
        data_section(facts.data, facts.plan, facts.curve, _depth(facts)),
        f"{facts.num_held_out:,} further texts were held out.",
        plan_section(facts.words.start, facts.plan),
        _curve(facts),
        _depths(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(facts: NetworkFacts) -> str:
    words, drafter = facts.words, facts.drafter
    whose, kept = f"`{facts.target}`", "target"
    if drafter is not None:
        whose, kept = f"the drafter `{drafter.name}` of {whose}", "drafter"
    return f"{words.what} for {whose}, trained with `{words.command}`. {words.does} The {kept} itself was not changed."


def _network(facts: NetworkFacts) -> str:
    rows: list[tuple[object, object]] = [
        *([] if facts.drafter is None else [("drafter, sha256 of its files", facts.drafter.digest)]),
        ("depths", _depth(facts)),
        *facts.words.sizes.items(),
        ("own parameters", f"{facts.num_parameters:,}"),
    ]
    return f"## {facts.words.kind.capitalize()}\n\n{table(('', ''), rows)}\n\n{facts.words.borrowed}"


def _depth(facts: NetworkFacts) -> int:
    return len(_held(facts)[0][1].agreement)


def _held(facts: NetworkFacts) -> list[tuple[CurvePoint, HeldOut]]:
    return [(point, point.held_out) for point in facts.curve if point.held_out is not None]


def _curve(facts: NetworkFacts) -> str:
    losses = {point.step: held.loss for point, held in _held(facts)}
    rows = [
        (point.step, "" if point.loss is None else f"{point.loss:.3f}", f"{losses[point.step]:.3f}")
        for point in thinned(facts.curve, ROWS_OF_CURVE)
    ]
    return (
        f"## Curve\n\n{table(('step', 'loss', 'held-out loss'), rows)}\n\nThe checkpoint has the weights of step "
        f"{facts.best_step}, where the held-out loss was lowest."
    )


def _depths(facts: NetworkFacts) -> str:
    scores = {point.step: held for point, held in _held(facts)}
    named = {facts.words.before: scores[0], f"with the {facts.words.kind}": scores[facts.best_step]}
    head = ("held-out texts", *range(1, _depth(facts) + 1))
    entropies = [(name, *(f"{value:.3f}" for value in one.cross_entropy)) for name, one in named.items()]
    agreement = [(name, *map(percent, one.agreement)) for name, one in named.items()]
    return (
        f"## By depth\n\nCross-entropy of {facts.words.asked}; nats.\n\n{table(head, entropies)}\n\nShare of these "
        f"where the most probable one is the true one.\n\n{table(head, agreement)}"
    )


class Learner(Protocol):
    """A network and what it learns."""

    @property
    def network(self) -> nn.Module:
        """The network whose weights learn."""
        ...

    def __call__(self, step: int) -> Tensor:
        """The loss of a step, a scalar: a function of plan and step, and of the network's weights."""
        ...

    def held_out(self, store: FeatureStore) -> HeldOut:
        """The network on other texts, at the same roots each time, with its weights as they will be shipped."""
        ...

    def settings(self) -> dict[str, object]:
        """What must agree, beside the plan, when the run is taken up again."""
        ...

    def save(self, folder: Path) -> None:
        """Write the checkpoint as it is now."""
        ...

    def described(self) -> NetworkWords:
        """What the card says of it."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """What a run needs of its models before it has read its texts.

    Attributes:
        taps: the target's layers whose states are read.
        begun: from the texts that are learnt from to a network at its start.
        drafter: beside which it works; None: beside none.
    """

    taps: tuple[int, ...]
    begun: Callable[[FeatureStore], Learner]
    drafter: NamedDrafter | None = None


Begun = Callable[[NamedDrafter, DFlashDrafter, Target, FeatureStore], Learner]
"""From a drafter, it in the target's dtype, the target, and the texts that are learnt from, to a network."""


def beside_drafter(options: BesideDrafterOptions, begun: Begun) -> Callable[[Target], Start]:
    """The start of a network that works beside a drafter."""

    def start(target: Target) -> Start:
        folder = find_drafter(options.draft).folder
        drafter = load_drafter(folder, target.dtype, options.device)
        check_fit(target, drafter)
        named = NamedDrafter(options.draft, checkpoint_digest(folder))
        return Start(drafter.config.target_layer_ids, lambda store: begun(named, drafter, target, store), named)

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
    with writing_alone(options.out / STATE):
        check_start(options.out, options.texts.files, options.device, options.resume)
        return _Run(options, start).finished()


@dataclass(frozen=True, slots=True)
class Best:
    """The evaluation whose weights are kept: the lowest held-out loss, of equal ones the first.

    Attributes:
        step: of it.
        num_since: evaluations behind it.
    """

    step: int
    num_since: int


def held_out_of(loss: float, entropies: Tensor, right: Tensor, counts: Tensor) -> HeldOut:
    """The scores of a network, by depth, over what counts.

    Args:
        loss: as in training.
        entropies: float ``[N, D]``, nats.
        right: bool ``[N, D]``, whether the most probable token is the true one.
        counts: bool ``[N, D]``.
    """
    counted = counts.sum(0).clamp(min=1)
    means = (entropies * counts).sum(0) / counted, (right & counts).sum(0) / counted
    return HeldOut(round(loss, 6), *(tuple(round(value, 4) for value in mean.tolist()) for mean in means))


def best_of(curve: Sequence[CurvePoint]) -> Best:
    """The best point of a curve of held-out losses."""
    losses = [point.held_out.loss for point in curve if point.held_out is not None]
    place = losses.index(min(losses))
    return Best(curve[place].step, len(losses) - 1 - place)


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
        beside = {} if self.drafter is None else {"extends": self.drafter.digest}
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
            write_text(options.out / "README.md", network_card(self._facts()))
            best = best_of(self.curve).step
            tracker.results({"best": next(row_of(point) for point in self.curve if point.step == best)})
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
        if best_of(self.curve).step == self.trainer.step:
            self.learner.save(self.options.out)

    def _is_over(self) -> bool:
        return 0 < self.options.patience <= best_of(self.curve).num_since

    def _facts(self) -> NetworkFacts:
        options = self.options
        return NetworkFacts(
            name=options.out.resolve().name,
            target=options.target,
            drafter=self.drafter,
            num_parameters=sum(parameter.numel() for parameter in self.learner.network.parameters()),
            data=training_data(options.texts, self.texts),
            num_held_out=len(self.held_out.usable),
            plan=asdict(options.plan) | self.learner.settings() | {"patience": options.patience},
            curve=tuple(self.curve),
            best_step=best_of(self.curve).step,
            words=self.learner.described(),
        )


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
