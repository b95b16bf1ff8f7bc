"""``simlab train dflash``: from text to a drafter, in one folder that can be taken up again."""

import copy
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from simlab.errors import ModelError, PromptError
from simlab.ids import content_id
from simlab.real_runner.dev_score import dev_score
from simlab.real_runner.dflash import DFlashDrafter
from simlab.real_runner.dflash_config import DFlashConfig
from simlab.real_runner.dflash_files import find_drafter, load_drafter, save_drafter, write_json
from simlab.real_runner.features import TrainingText, read_features
from simlab.real_runner.initialise import config_for, from_target
from simlab.real_runner.models import check_device, check_fit
from simlab.real_runner.target import Target, load_target
from simlab.real_runner.train_dflash import Trainer, TrainingPlan
from simlab.real_runner.training_data import FeatureStore
from simlab.real_runner.training_state import STATE, load_state, save_state
from simlab.real_runner.training_text import given_texts, own_texts, shuffled
from simlab.sampling import Sampling


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """A training run: its text, the drafter's sizes, the plan, and where it is kept.

    Attributes:
        text: texts as token ids (Parquet) or completions (JSONL); or None,
        prompts: then the target answers these prompts first.
        dev: prompt files whose answers the run is scored on as it goes, never trained on.
        init: ``target`` starts from the target's last layers, ``random`` from nothing, anything
            else is a drafter's name or folder.
        mask_token: text of the token that stands for "not yet known".
        max_tokens: longer sequences are cut.
    """

    target: str
    out: Path
    plan: TrainingPlan
    text: Path | None = None
    prompts: Path | None = None
    dev: tuple[Path, ...] = ()
    dev_limit: int = 48
    block_size: int = 8
    num_layers: int = 2
    taps: tuple[int, ...] | None = None
    mask_token: str | None = None
    init: str = "target"
    temperature: float = 0.0
    max_new_tokens: int = 256
    limit: int | None = None
    max_tokens: int = 640
    eval_every: int = 500
    resume: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        if (self.text is None) == (self.prompts is None):
            raise ValueError("exactly one of text and prompts must be given")
        if self.eval_every < 1:
            raise ValueError(f"eval_every must be at least 1; got {self.eval_every}")


def train(options: TrainOptions) -> Path:
    """Train a drafter; the checkpoint, its state and its curve are in the folder.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """
    check_device(options.device)
    if (options.out / STATE).exists() and not options.resume:
        raise ModelError(f"{options.out} holds a training run; add --resume to go on with it, or choose another --out")
    target = load_target(options.target, torch.bfloat16, options.device)
    start = _start(options, target)
    config = start.config if isinstance(start, DFlashDrafter) else start
    store = _store(options, target, config)
    dev = _dev_stores(options, target, config)
    trainer = Trainer(_drafter(options, target, start, store), target, store, options.plan)
    curve: list[dict[str, object]] = []
    if options.resume and (options.out / STATE).exists():
        curve = load_state(trainer, options.out)
    _train(options, trainer, dev, curve)
    return options.out


def _train(
    options: TrainOptions, trainer: Trainer, dev: Mapping[str, FeatureStore], curve: list[dict[str, object]]
) -> None:
    steps = options.plan.steps
    with tqdm(total=steps, initial=trainer.step, unit="step", desc="training") as bar:
        while trainer.step < steps:
            started, before = time.perf_counter(), trainer.step
            loss = trainer.run(min(steps, before - before % options.eval_every + options.eval_every))
            bar.update(trainer.step - before)
            seconds = time.perf_counter() - started
            scores = scores_of(trainer.drafter, trainer.target, dev)
            curve.append({"step": trainer.step, "loss": round(loss, 6), "dev": scores})
            _note_time(options.out, trainer.step, trainer.step - before, seconds)
            save_state(trainer, curve, options.out)
            bar.set_postfix({name: score["acceptance_length"] for name, score in scores.items()})
    save_drafter(trainer.drafter, options.out)
    write_json(options.out / "curve.json", curve)


def scores_of(drafter: DFlashDrafter, target: Target, dev: Mapping[str, FeatureStore]) -> dict[str, dict[str, object]]:
    """The drafter on every dev set, in the dtype it will be shipped in."""
    fixed = copy.deepcopy(drafter).to(target.dtype).eval()
    scores = {name: dev_score(fixed, target, store) for name, store in dev.items()}
    return {
        name: {"acceptance_length": round(s.acceptance_length, 4), "agreement": list(s.agreement)}
        for name, s in scores.items()
    }


def _note_time(folder: Path, step: int, num_steps: int, seconds: float) -> None:
    """Timings live outside the state, which must not depend on the machine's speed."""
    with (folder / "timing.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "num_steps": num_steps, "seconds": round(seconds, 2)}) + "\n")


def _start(options: TrainOptions, target: Target) -> DFlashDrafter | DFlashConfig:
    """The drafter to go on from, or the sizes of a new one."""
    if options.init not in ("target", "random"):
        drafter = load_drafter(find_drafter(options.init).folder, torch.float32, options.device).requires_grad_(True)
        check_fit(target, drafter)
        return drafter
    taps = options.taps or spread_taps(len(target.layers))
    return config_for(target, options.block_size, options.num_layers, taps, _mask_token_id(options, target))


def _drafter(
    options: TrainOptions, target: Target, start: DFlashDrafter | DFlashConfig, store: FeatureStore
) -> DFlashDrafter:
    if isinstance(start, DFlashDrafter):
        return start
    torch.manual_seed(options.plan.seed)
    if options.init == "random":
        return DFlashDrafter(start).to(options.device)
    sample = store.batch(0, options.plan.seed, 4, 1, 1).tokens.clamp(min=0)
    return from_target(start, target, sample).to(options.device)


def spread_taps(num_layers: int, count: int = 5) -> tuple[int, ...]:
    """Layers 1 to L - 3, evenly spaced: where released drafters tap their targets."""
    last = max(num_layers - 3, 1)
    return tuple(sorted({round(1 + i * (last - 1) / (count - 1)) for i in range(count)}))


def _mask_token_id(options: TrainOptions, target: Target) -> int:
    if options.mask_token is not None:
        token = target.tokenizer.convert_tokens_to_ids(options.mask_token)
        if not isinstance(token, int) or target.tokenizer.convert_ids_to_tokens(token) != options.mask_token:
            raise ModelError(f"the target's vocabulary has no token {options.mask_token!r}; name one that it has")
        return token
    ends = set(target.stop_token_ids)
    spare = [token for token in target.tokenizer.all_special_ids if token not in ends]
    added = [token for token in target.tokenizer.added_tokens_decoder if token not in ends]
    candidates = sorted(token for token in {*spare, *added} if token < target.vocab_size)
    return candidates[-1] if candidates else target.vocab_size - 1


def _store(options: TrainOptions, target: Target, config: DFlashConfig) -> FeatureStore:
    if options.text is not None:
        texts = given_texts(options.text, target)[: options.limit]
    else:
        assert options.prompts is not None
        sampling = Sampling(options.temperature, 0, 1.0, options.plan.seed)
        texts = own_texts(
            options.prompts, target, sampling, options.max_new_tokens, options.out / "text", options.limit
        )
    return _read(shuffled(texts, options.plan.seed), options, target, config, options.out / "features")


def _dev_stores(options: TrainOptions, target: Target, config: DFlashConfig) -> dict[str, FeatureStore]:
    stores = {}
    for path in options.dev:
        folder = options.out / f"dev-{path.stem}"
        texts = own_texts(path, target, Sampling(0.0, 0, 1.0, 0), 128, folder, options.dev_limit)
        stores[path.stem] = _read(texts, options, target, config, folder)
    return stores


def _read(
    texts: list[TrainingText], options: TrainOptions, target: Target, config: DFlashConfig, folder: Path
) -> FeatureStore:
    """The features of the texts; a folder of other texts, taps or weights is refused."""
    source = {
        "target": target.digest,
        "taps": list(config.target_layer_ids),
        "max_tokens": options.max_tokens,
        "texts": content_id([[list(text.prompt_ids), list(text.text_ids)] for text in texts]),
    }
    note = folder / "source.json"
    if note.is_file() and json.loads(note.read_text(encoding="utf-8")) != source:
        raise ModelError(
            f"{folder} holds hidden states of other texts, layers or weights; delete it, or choose another --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(note, source)
    read_features(texts, target, config.target_layer_ids, folder, options.max_tokens)
    store = FeatureStore(folder)
    if not store.usable:
        raise PromptError("no text has two tokens or more, so there is nothing to learn from; give longer texts")
    return store
