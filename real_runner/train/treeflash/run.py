"""``simlab train treeflash``: from text and a drafter to a head, in one folder that can be taken up again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from simlab.errors import PromptError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.checkpoints.files import find_drafter, load_drafter, save_head, write_json, write_text
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.models import check_fit
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.train.curve import CurvePoint, row_of
from simlab.real_runner.train.data import FeatureStore
from simlab.real_runner.train.options import HeadOptions
from simlab.real_runner.train.setup import check_start, store_of, training_data
from simlab.real_runner.train.state import STATE, load_state, save_state
from simlab.real_runner.train.trainer import Trainer, train_through, training_dtype
from simlab.real_runner.train.treeflash.card import HeadFacts, head_card
from simlab.real_runner.train.treeflash.loss import HeadLoss
from simlab.traces.format.alone import writing_alone


def train_head(options: HeadOptions) -> Path:
    """Train a head; the checkpoint of its best step, its card, its state and its curve are in the folder.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """
    with writing_alone(options.out / STATE):
        check_start(options.out, options.texts.files, options.device, options.resume)
        return _Run(options).finished()


@dataclass(frozen=True, slots=True)
class Best:
    """The evaluation whose weights are kept: the lowest held-out loss, of equal ones the first.

    Attributes:
        step: of it.
        num_since: evaluations behind it.
    """

    step: int
    num_since: int


def best_of(curve: Sequence[CurvePoint]) -> Best:
    """The best point of a curve of held-out losses."""
    losses = [point.held_out.loss for point in curve if point.held_out is not None]
    place = losses.index(min(losses))
    return Best(curve[place].step, len(losses) - 1 - place)


class _Run:
    """Models, texts and trainer of one run, and its curve so far."""

    def __init__(self, options: HeadOptions) -> None:
        self.options = options
        target = load_target(options.target, training_dtype(options.device), options.device)
        folder = find_drafter(options.draft).folder
        drafter = load_drafter(folder, target.dtype, options.device)
        check_fit(target, drafter)
        self.config, self.digest = drafter.config, checkpoint_digest(folder)
        self.texts, self.held_out = _split(
            store_of(options.out, options.texts, options.plan.seed, target, self.config), options.held_out
        )
        torch.manual_seed(options.plan.seed)
        inner_size = options.inner_size or self.config.intermediate_size
        self.head = TreeFlashHead(self.config.hidden_size, inner_size, options.dropout).to(target.device)
        self.loss = HeadLoss(self.head, drafter, target, self.texts, options.plan)
        self.trainer = Trainer(self.head, self.loss, options.plan, self._settings(str(target.dtype)))
        self.curve = load_state(self.trainer, options.out) if (options.out / STATE).exists() else list[CurvePoint]()

    def _settings(self, dtype: str) -> dict[str, object]:
        """What must agree, beside the plan, when the run is taken up again."""
        chosen = {"inner_size": self.head.inner_size, "dropout": self.options.dropout}
        stop = {"held_out": self.options.held_out, "patience": self.options.patience}
        return {"head": {"extends": self.digest, **chosen, **stop}, "dtype": dtype}

    def finished(self) -> Path:
        """Train to the end, or until nothing gets better, and describe the result."""
        options, trainer = self.options, self.trainer
        if not self.curve:
            # The start, which is the drafter itself, is measured and saved too.
            self._evaluate(None)
        self._keep_if_best()
        train_through(trainer, options.out, options.eval_every, self._evaluate, self._is_over)
        write_json(options.out / "curve.json", [row_of(point) for point in self.curve])
        write_text(options.out / "README.md", head_card(self._facts()))
        return options.out

    def _evaluate(self, loss: float | None) -> Mapping[str, float]:
        held_out = self.loss.held_out(self.held_out)
        self.curve.append(CurvePoint(self.trainer.step, loss, {}, held_out))
        save_state(self.trainer, self.curve, self.options.out)
        self._keep_if_best()
        write_json(self.options.out / "curve.json", [row_of(point) for point in self.curve])
        return {"held_out": held_out.loss}

    def _keep_if_best(self) -> None:
        """Write the checkpoint, unless an earlier step's is the one to keep."""
        if best_of(self.curve).step == self.trainer.step:
            save_head(self.head, self.options.out, self.digest)

    def _is_over(self) -> bool:
        return 0 < self.options.patience <= best_of(self.curve).num_since

    def _facts(self) -> HeadFacts:
        options = self.options
        return HeadFacts(
            name=options.out.resolve().name,
            target=options.target,
            draft=options.draft,
            digest=self.digest,
            depth=self.config.depth,
            inner_size=self.head.inner_size,
            num_parameters=sum(parameter.numel() for parameter in self.head.parameters()),
            data=training_data(options.texts, self.texts),
            num_held_out=len(self.held_out.usable),
            plan=asdict(options.plan) | {"dropout": options.dropout, "patience": options.patience},
            curve=tuple(self.curve),
            best_step=best_of(self.curve).step,
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
