"""``simlab train dflash``: from text to a drafter, in one folder that can be taken up again."""

import copy
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch

from simlab.real_runner.checkpoints.files import save_drafter, write_json, write_text
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.curve import CurvePoint, DevScore, row_of
from simlab.real_runner.train.data import FeatureStore
from simlab.real_runner.train.dev_score import dev_score
from simlab.real_runner.train.dflash import DrafterLoss
from simlab.real_runner.train.model_card import CardFacts, model_card
from simlab.real_runner.train.options import TrainOptions
from simlab.real_runner.train.setup import (
    TRACKED_FILES,
    check_start,
    dev_stores,
    drafter_of,
    start_from_earlier,
    start_of,
    store_of,
    tracked_settings,
    training_data,
)
from simlab.real_runner.train.state import STATE, load_state, save_state
from simlab.real_runner.train.trainer import Trainer, note_evaluation, train_through, training_dtype
from simlab.traces.format.alone import writing_alone
from simlab.tracking.tracker import check_trackers, tracking

__all__ = ["TrainOptions", "scores_of", "train"]


def train(options: TrainOptions) -> Path:
    """Train a drafter; the checkpoint, its card, its state and its curve are in the folder.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """
    check_trackers(options.track)
    with writing_alone(options.out / STATE):
        check_start(options.out, options.texts.files + options.dev, options.device, options.resume)
        return _trained(options)


def _trained(options: TrainOptions) -> Path:
    target = load_target(options.target, training_dtype(options.device), options.device)
    start = start_of(options, target)
    config = start.config if isinstance(start, DFlashDrafter) else start
    store = store_of(options.out, options.texts, options.plan.seed, target, config.target_layer_ids)
    dev = dev_stores(options, target, config)
    drafter = drafter_of(options, target, start, store)
    settings = {"config": config_to_json(drafter.config), "dtype": str(target.dtype), **_filled(options)}
    loss = DrafterLoss(drafter, target, store, options.plan, options.variable_prefix)
    trainer = Trainer(drafter, loss, options.plan, settings)
    if (options.out / STATE).exists():
        curve = load_state(trainer, options.out)
    else:
        curve = []
        start_from_earlier(options, trainer)

    def evaluate(loss: float | None) -> Mapping[str, float]:
        curve.append(CurvePoint(trainer.step, loss, scores_of(drafter, target, dev)))
        save_state(trainer, curve, options.out)
        save_drafter(drafter, options.out)
        write_json(options.out / "curve.json", [row_of(point) for point in curve])
        return {name: score.acceptance_length for name, score in curve[-1].dev.items()}

    with tracking(options.track, "train dflash", lambda: tracked_settings(options, target, settings)) as tracker:
        if not curve:
            # The start is scored and saved too: whatever is wrong with scoring or disk shows at once.
            note_evaluation(evaluate(None), trainer, tracker)
        train_through(trainer, options.out, options.eval_every, evaluate, tracker)
        save_drafter(drafter, options.out)
        write_json(options.out / "curve.json", [row_of(point) for point in curve])
        write_text(options.out / "README.md", model_card(_facts(options, drafter, store, curve)))
        tracker.results({"final": row_of(curve[-1])})
        tracker.files(*(options.out / name for name in TRACKED_FILES))
    return options.out


def scores_of(drafter: DFlashDrafter, target: Target, dev: Mapping[str, FeatureStore]) -> dict[str, DevScore]:
    """The drafter on every dev set, with its weights rounded as they will be shipped."""
    fixed = copy.deepcopy(drafter).to(torch.bfloat16).to(target.dtype).eval()
    return {name: dev_score(fixed, target, store, name) for name, store in dev.items()}


def _filled(options: TrainOptions) -> dict[str, object]:
    """How slots are filled, where they are: earlier runs do not say it."""
    return {} if options.variable_prefix is None else {"variable_prefix": options.variable_prefix}


def _facts(options: TrainOptions, drafter: DFlashDrafter, store: FeatureStore, curve: list[CurvePoint]) -> CardFacts:
    return CardFacts(
        name=options.out.resolve().name,
        target=options.target,
        init=options.init,
        config=drafter.config,
        num_parameters=sum(parameter.numel() for parameter in drafter.parameters()),
        data=training_data(options.texts, store),
        plan=asdict(options.plan) | _filled(options),
        curve=tuple(curve),
    )
