"""What a training run begins with: a drafter to train, and hidden states to learn from."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from tqdm import tqdm

from simlab.errors import ModelError, PromptError
from simlab.ids import content_id, versions_of
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.dense import check_fit
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.models import check_device, settle_device
from simlab.real_runner.networks.drafter import find_drafter, load_drafter
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import TrainingText, read_features
from simlab.real_runner.train.options import NetworkOptions, RouterOptions, TrainOptions
from simlab.real_runner.train.plan import TextOptions
from simlab.real_runner.train.state import STATE, config_for, from_target, take_over
from simlab.real_runner.train.text import FeatureStore, claim, given_texts, own_texts, shuffled
from simlab.real_runner.train.trainer import Trainer
from simlab.sampling.choice import Sampling
from simlab.untrusted.visible import visible

_BLOCK_SIZE, _NUM_LAYERS, _NUM_TAPS = 8, 2, 5
_DEV_TOKENS = 128


def start_of(options: TrainOptions, target: Target) -> DFlashDrafter | DFlashConfig:
    """The drafter to go on from, or the sizes of a new one.

    Raises:
        ModelError: the drafter does not fit the target or the options, or the sizes do not fit the target.
    """
    if options.init not in ("target", "random"):
        return _earlier(options, target)
    taps = options.taps or spread_taps(len(target.layers))
    num_layers, block_size = options.num_layers or _NUM_LAYERS, options.block_size or _BLOCK_SIZE
    config = config_for(target, block_size, num_layers, taps, mask_token_id(options.mask_token, target))
    return config.as_causal_head() if options.causal else config


def _earlier(options: TrainOptions, target: Target) -> DFlashDrafter:
    """An earlier drafter; its weights serve any block size and any mask token."""
    drafter = load_drafter(find_drafter(options.init).folder, torch.float32, options.device).requires_grad_(True)
    check_fit(target, drafter)
    config = drafter.config
    own = ("an embedding or a head of its own",) if drafter.embed_tokens or drafter.lm_head else ()
    variants = replace(config, layer_views=()).variants if config.is_causal_head else config.variants
    if not_plain := (*variants, *own):
        raise ModelError(
            f"{options.init} has {', '.join(not_plain)}; simlab trains plain and causal DFlash drafters only"
        )
    given = {"draft layers": options.num_layers, "taps": options.taps}
    has = {"draft layers": config.num_hidden_layers, "taps": config.target_layer_ids}
    for what, wanted in given.items():
        if wanted is not None and wanted != has[what]:
            raise ModelError(f"{options.init} has {what} {has[what]}, which training cannot change to {wanted}")
    mask = config.mask_token_id if options.mask_token is None else mask_token_id(options.mask_token, target)
    config = config.as_causal_head() if options.causal else config
    drafter.config = replace(config, block_size=options.block_size or config.block_size, mask_token_id=mask)
    return drafter


def start_from_earlier(options: TrainOptions, trainer: Trainer) -> None:
    """Take over what an earlier run of simlab left beside its drafter, and say what there was."""
    if options.init in ("target", "random"):
        return
    folder = find_drafter(options.init).folder
    if (folder / STATE).is_file():
        take_over(trainer, folder)
        source = f"the float32 weights and the optimiser's moments of its {STATE}"
    else:
        source = f"the weights of its model.safetensors; it has no {STATE}, so the optimiser starts anew"
    tqdm.write(visible(f"Going on from {options.init}: {source}"), file=sys.stderr)


def drafter_of(
    options: TrainOptions, target: Target, start: DFlashDrafter | DFlashConfig, store: FeatureStore
) -> DFlashDrafter:
    """The drafter as it is before the first step."""
    if isinstance(start, DFlashDrafter):
        return start
    torch.manual_seed(options.plan.seed)
    if options.init == "random":
        return DFlashDrafter(start).to(options.device)
    sample = store.batch(0, options.plan.seed, 4, 1, 1).tokens.clamp(min=0)
    return from_target(start, target, sample).to(options.device)


def spread_taps(num_layers: int) -> tuple[int, ...]:
    """Layers 1 to L - 3, evenly spaced: where released drafters tap their targets."""
    count, last = _NUM_TAPS, max(num_layers - 3, 1)
    return tuple(sorted({min(round(1 + i * (last - 1) / (count - 1)), max(num_layers - 2, 0)) for i in range(count)}))


def mask_token_id(text: str | None, target: Target) -> int:
    """The id of the named token, else one that no text contains.

    First an id of the embedding that no token has; then the last special token that neither ends a
    text nor stands in the chat template.
    """
    if text is not None:
        token = target.tokenizer.convert_tokens_to_ids(text)
        if not isinstance(token, int) or target.tokenizer.convert_ids_to_tokens(token) != text:
            raise ModelError(f"the target's vocabulary has no token {text!r}; name one that it has")
        return token
    tokenizer = target.tokenizer
    unused = max(tokenizer.get_vocab().values()) + 1
    if unused < target.vocab_size:
        return unused
    template = str(tokenizer.chat_template or "")
    added = {token: info.content for token, info in tokenizer.added_tokens_decoder.items() if info.special}
    spare = [token for token, text in added.items() if token not in target.stop_token_ids and text not in template]
    if not spare:
        raise ModelError(f"{target.name} has no token that its texts do not contain; name one with --mask-token")
    return max(spare)


def check_start(out: Path, files: Sequence[Path], device: str, resume: bool) -> None:
    """Refuse at once what would be refused after minutes."""
    check_device(device)
    settle_device(device)
    for path in files:
        if not path.is_file():
            raise PromptError(f"there is no file {path}; expected texts or prompts")
    if (out / STATE).exists() and not resume:
        raise ModelError(f"{out} holds a training run; add --resume to go on with it, or choose another --out")


def store_of(out: Path, options: TextOptions, seed: int, target: Target, taps: Sequence[int]) -> FeatureStore:
    """The hidden states of the text to learn from: outputs of these layers of the target."""
    if options.text is not None:
        texts = given_texts(options.text, target, options.template_kwargs)[: options.limit]
    else:
        assert options.prompts is not None
        sampling = Sampling(options.temperature, 0, 1.0, seed)
        texts = own_texts(
            options.prompts,
            options.limit,
            options.template_kwargs,
            target,
            sampling,
            options.max_new_tokens,
            out / "text",
        )
    return _read(shuffled(texts, seed), out / "features", options.max_tokens, target, taps)


def dev_stores(options: TrainOptions, target: Target, config: DFlashConfig) -> dict[str, FeatureStore]:
    """The hidden states of the target's own answers to each dev file, by its stem."""
    stores = {}
    for path in options.dev:
        name = f"dev-{path.stem}"
        greedy, kwargs = Sampling(0.0, 0, 1.0, 0), options.texts.template_kwargs
        texts = own_texts(path, options.dev_limit, kwargs, target, greedy, _DEV_TOKENS, options.out / name)
        stores[path.stem] = _read(texts, options.out / name, options.texts.max_tokens, target, config.target_layer_ids)
    return stores


def _read(
    texts: list[TrainingText], folder: Path, max_tokens: int, target: Target, taps: Sequence[int]
) -> FeatureStore:
    source = {
        "target": target.digest,
        "dtype": str(target.dtype),
        "taps": list(taps),
        "max_tokens": max_tokens,
        "texts": content_id([[list(text.prompt_ids), list(text.text_ids)] for text in texts]),
    }
    claim(folder, "source.json", source, "hidden states of other texts, layers, weights or of another dtype")
    read_features(texts, target, taps, folder, max_tokens)
    store = FeatureStore(folder)
    if not store.usable:
        raise PromptError(
            f"no text has two tokens or more after its prompt and within --max-tokens {max_tokens}, so there "
            "is nothing to learn from or to score; give longer texts or raise --max-tokens"
        )
    return store


TRACKED_FILES = ("curve.json", "README.md", "config.json")
"""What trackers keep of a run's folder; weights stay where they are."""


def tracked_settings(
    options: TrainOptions | NetworkOptions | RouterOptions, target: Target, more: Mapping[str, object]
) -> dict[str, object]:
    """Everything that trackers are told of a run at its start: its settings, the target, versions.

    Args:
        options: of the run.
        target: which it is for.
        more: settings that were worked out.
    """
    asked = asdict(options)
    del asked["track"]
    versions = versions_of(("simlab", "torch", "transformers"))
    return asked | {"target_digest": target.digest, "run": dict(more), "versions": versions}
