"""``simlab train dflash``: from text to a drafter, in one folder that can be taken up again."""

import copy
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from tqdm import tqdm

from simlab.errors import ModelError, PromptError
from simlab.real_runner.checkpoints.files import save_drafter, write_json, write_text
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.models import check_device, settle_device
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.curve import CurvePoint, DevScore, row_of
from simlab.real_runner.train.data import FeatureStore
from simlab.real_runner.train.dev_score import dev_score
from simlab.real_runner.train.dflash import Trainer, training_dtype
from simlab.real_runner.train.model_card import CardFacts, TrainingData, model_card
from simlab.real_runner.train.options import TrainOptions
from simlab.real_runner.train.setup import dev_stores, drafter_of, start_from_earlier, start_of, store_of
from simlab.real_runner.train.state import STATE, load_state, save_state
from simlab.traces.format.alone import writing_alone

__all__ = ["TrainOptions", "scores_of", "train"]


def train(options: TrainOptions) -> Path:
    """Train a drafter; the checkpoint, its card, its state and its curve are in the folder.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """
    with writing_alone(options.out / STATE):
        _check(options)
        return _trained(options)


def _trained(options: TrainOptions) -> Path:
    target = load_target(options.target, training_dtype(options.device), options.device)
    start = start_of(options, target)
    config = start.config if isinstance(start, DFlashDrafter) else start
    store = store_of(options, target, config)
    dev = dev_stores(options, target, config)
    trainer = Trainer(drafter_of(options, target, start, store), target, store, options.plan)
    if (options.out / STATE).exists():
        curve = load_state(trainer, options.out)
    else:
        curve = []
        start_from_earlier(options, trainer)
    _train(options, trainer, dev, curve)
    save_drafter(trainer.drafter, options.out)
    write_json(options.out / "curve.json", [row_of(point) for point in curve])
    write_text(options.out / "README.md", model_card(_facts(options, trainer, store, curve)))
    return options.out


def _check(options: TrainOptions) -> None:
    """Refuse at once what would be refused after minutes."""
    check_device(options.device)
    settle_device(options.device)
    for path in (options.text, options.prompts, *options.dev):
        if path is not None and not path.is_file():
            raise PromptError(f"there is no file {path}; expected texts or prompts")
    if (options.out / STATE).exists() and not options.resume:
        raise ModelError(f"{options.out} holds a training run; add --resume to go on with it, or choose another --out")


def _train(options: TrainOptions, trainer: Trainer, dev: Mapping[str, FeatureStore], curve: list[CurvePoint]) -> None:
    steps, every = options.plan.steps, options.eval_every
    with tqdm(total=steps, initial=trainer.step, unit="step", desc="training") as bar:
        if not curve:
            # The start is scored and saved too: whatever is wrong with scoring or disk shows at once.
            _note(options.out, trainer, dev, curve, None)
        while trainer.step < steps:
            started, before = time.perf_counter(), trainer.step
            loss = trainer.run(min(steps, before - before % every + every), bar.update)
            _note_time(options.out, trainer.step, trainer.step - before, time.perf_counter() - started)
            _note(options.out, trainer, dev, curve, round(loss, 6))
            bar.set_postfix({name: score.acceptance_length for name, score in curve[-1].dev.items()})


def _note(
    folder: Path, trainer: Trainer, dev: Mapping[str, FeatureStore], curve: list[CurvePoint], loss: float | None
) -> None:
    curve.append(CurvePoint(trainer.step, loss, scores_of(trainer.drafter, trainer.target, dev)))
    save_state(trainer, curve, folder)
    save_drafter(trainer.drafter, folder)
    write_json(folder / "curve.json", [row_of(point) for point in curve])


def scores_of(drafter: DFlashDrafter, target: Target, dev: Mapping[str, FeatureStore]) -> dict[str, DevScore]:
    """The drafter on every dev set, with its weights rounded as they will be shipped."""
    fixed = copy.deepcopy(drafter).to(torch.bfloat16).to(target.dtype).eval()
    return {name: dev_score(fixed, target, store, name) for name, store in dev.items()}


def _note_time(folder: Path, step: int, num_steps: int, seconds: float) -> None:
    """Timings live outside the state, which must not depend on the machine's speed."""
    with (folder / "timing.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "num_steps": num_steps, "seconds": round(seconds, 2)}) + "\n")


def _facts(options: TrainOptions, trainer: Trainer, store: FeatureStore, curve: list[CurvePoint]) -> CardFacts:
    source = options.text or options.prompts
    assert source is not None
    return CardFacts(
        name=options.out.resolve().name,
        target=options.target,
        init=options.init,
        config=trainer.drafter.config,
        num_parameters=sum(parameter.numel() for parameter in trainer.drafter.parameters()),
        data=TrainingData(source.name, len(store.usable), store.num_text_tokens, own_answers=options.text is None),
        plan=asdict(options.plan),
        curve=tuple(curve),
    )
