"""The steps of a training run, whatever is trained: optimiser, learning rate, and evaluations between them."""

import json
import math
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn
from tqdm import tqdm

from simlab.errors import ModelError
from simlab.real_runner.train.plan import TrainingPlan
from simlab.real_runner.train.text import FeatureStore
from simlab.traces.format.documents import JsonFields
from simlab.tracking.tracker import Tracker

# What a training run has measured so far, point by point.


@dataclass(frozen=True, slots=True)
class DevScore:
    """How well the drafter does on one dev set.

    Attributes:
        acceptance_length: of the chain, bonus token counted, pooled over rounds.
        agreement: per depth, share of roots where the most probable token is the target's.
    """

    acceptance_length: float
    agreement: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well a head does on texts that it does not learn from, the token above known.

    Attributes:
        loss: as in training.
        cross_entropy: per depth, of the true tokens that the loss is taken over; nats.
        agreement: per depth, share of these where the most probable token is the true one.
    """

    loss: float
    cross_entropy: tuple[float, ...]
    agreement: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The run at one step.

    Attributes:
        loss: mean over the steps since the point before; None before the first step.
        dev: score by the name of the dev set.
        held_out: None where no texts are held out.
    """

    step: int
    loss: float | None
    dev: Mapping[str, DevScore]
    held_out: HeldOut | None = None


def row_of(point: CurvePoint) -> dict[str, object]:
    """The point in JSON."""
    return {name: value for name, value in asdict(point).items() if name != "held_out" or value is not None}


def point_of(row: JsonFields) -> CurvePoint:
    """The point that a row stands for."""
    loss = None if row.values.get("loss") is None else row.number("loss")
    dev = {
        name: DevScore(score.number("acceptance_length"), score.numbers("agreement"))
        for name, score in row.inners("dev").items()
    }
    held_out = None
    if "held_out" in row.values:
        held = row.inner("held_out")
        held_out = HeldOut(held.number("loss"), held.numbers("cross_entropy"), held.numbers("agreement"))
    return CurvePoint(row.integer("step"), loss, dev, held_out)


class Trainer:
    """One run: what is trained, its optimiser, and the step it has reached.

    Attributes:
        trained: the weights that learn, float32.
        settings: what must agree, beside the plan, when the run is taken up again; JSON.
    """

    def __init__(
        self,
        trained: nn.Module,
        loss_at: Callable[[int], Tensor],
        plan: TrainingPlan,
        settings: Mapping[str, object],
    ) -> None:
        """Begin at step 0.

        Args:
            trained: see the class.
            loss_at: the loss of a step, a function of the step and of the weights alone.
            plan: of the run.
            settings: see the class.
        """
        self.trained, self.plan, self.settings = trained.float().train(), plan, settings
        self._loss_at = loss_at
        self.optimiser = torch.optim.AdamW(
            trained.parameters(), lr=plan.learning_rate, betas=(0.9, 0.95), weight_decay=plan.weight_decay
        )
        self.step = 0

    def run(self, until: int, on_step: Callable[[float], object] = lambda _: None) -> float:
        """Train up to a step; the mean loss of the steps taken. Each step's own is told to ``on_step``."""
        losses = []
        for step in range(self.step, until):
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate(self.plan, step)
            loss = self._loss_at(step)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.trained.parameters(), 1.0)
            self.optimiser.step()
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                raise ModelError(f"the loss of step {step + 1} is {losses[-1]}; start over with a lower learning rate")
            self.step = step + 1
            on_step(losses[-1])
        return sum(losses) / max(1, len(losses))


def train_through(
    trainer: Trainer,
    folder: Path,
    every: int,
    evaluate: Callable[[float | None], Mapping[str, float]],
    tracker: Tracker,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Train to the last step of the plan, with an evaluation every so many steps.

    Args:
        trainer: of a run that begins, or of one that was taken up again behind an evaluation.
        folder: of the run, which gets the seconds.
        every: steps between evaluations.
        evaluate: is told the mean loss since the evaluation before; saves, and says what the bar shows.
        tracker: gets the loss of each step, and what each evaluation says.
        is_over: whether to end before the last step; asked after each evaluation.
    """
    with tqdm(total=trainer.plan.steps, initial=trainer.step, unit="step", desc="training", disable=None) as bar:
        while trainer.step < trainer.plan.steps and not is_over():
            started, before = time.perf_counter(), trainer.step
            until = min(trainer.plan.steps, before - before % every + every)
            loss = trainer.run(until, lambda loss: note_step(loss, trainer, bar, tracker))
            _note_time(folder, trainer.step, trainer.step - before, time.perf_counter() - started)
            figures = evaluate(round(loss, 6))
            bar.set_postfix(figures)
            note_evaluation(figures, trainer, tracker)


def note_step(loss: float, trainer: Trainer, bar: "tqdm[NoReturn]", tracker: Tracker) -> None:
    """Show that a step was taken, and track its loss."""
    bar.update()
    tracker.numbers({"loss": loss, "learning_rate": learning_rate(trainer.plan, trainer.step - 1)}, trainer.step)


def note_evaluation(figures: Mapping[str, float], trainer: Trainer, tracker: Tracker) -> None:
    """Track what an evaluation found at the step that was reached."""
    tracker.numbers({f"evaluation/{name}": value for name, value in figures.items()}, trainer.step)


def _note_time(folder: Path, step: int, num_steps: int, seconds: float) -> None:
    """Timings live outside the state, which must not depend on the machine's speed."""
    with (folder / "timing.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "num_steps": num_steps, "seconds": round(seconds, 2)}) + "\n")


def commonest(store: FeatureStore, vocab_size: int, count: int) -> Tensor:
    """int64, rising: the commonest tokens of the texts, on the CPU; all of them where ``count`` is 0."""
    if count == 0 or count >= vocab_size:
        return torch.arange(vocab_size)
    return store.token_counts(vocab_size).sort(descending=True, stable=True).indices[:count].sort().values


def indices_of(kept: Tensor, vocab_size: int) -> Tensor:
    """int64 ``[V]``: where each token stands among those kept; -1: nowhere."""
    index = torch.full((vocab_size,), -1)
    index[kept] = torch.arange(len(kept))
    return index


def training_dtype(device: str) -> torch.dtype:
    """What the target runs in, and the drafter's matrix products: bfloat16 where the hardware has it, else float32."""
    if torch.device(device).type == "cuda":
        has = torch.cuda.is_bf16_supported(including_emulation=False)
    elif platform.machine().lower() in ("aarch64", "arm64"):
        has = torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    else:
        # AMX comes with AVX512-BF16; oneDNN's own answer is also yes where it would emulate.
        has = torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if has else torch.float32


def learning_rate(plan: TrainingPlan, step: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    if step < plan.warmup_steps:
        return plan.learning_rate * (step + 1) / plan.warmup_steps
    share = (step - plan.warmup_steps) / max(1, plan.steps - plan.warmup_steps)
    return plan.learning_rate * 0.5 * (1 + math.cos(math.pi * share))
