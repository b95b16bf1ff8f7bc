"""Which network a checkpoint holds that makes a channel: the one place that decides and loads it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch

from simlab.channels import BRANCHES, TRANSITIONS
from simlab.channels.rows import EXACT_NODES, WHOLE_CHAIN
from simlab.errors import ModelError, named_or_listed
from simlab.policy import MADE_WITH
from simlab.real_runner.adapters.masked import OwnDrafter
from simlab.real_runner.checkpoints.contents import checkpoint_digest, config_file, read_fields
from simlab.real_runner.checkpoints.files import load_drafter, load_head, load_scorer
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.layouts import read_config
from simlab.real_runner.checkpoints.networks.adapter import is_adapter
from simlab.real_runner.checkpoints.networks.eagle3 import is_eagle3
from simlab.real_runner.checkpoints.networks.eagle3_files import load_eagle3
from simlab.real_runner.checkpoints.networks.router import is_router, router_from_json
from simlab.real_runner.checkpoints.networks.router_files import load_router
from simlab.real_runner.checkpoints.networks.taps import is_scorer, scorer_from_json
from simlab.real_runner.checkpoints.networks.treeflash import head_from_json
from simlab.real_runner.drafters.config import check_sizes
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.heads.eagle3.pool import Eagle3Reach, eagle3_producer
from simlab.real_runner.heads.path_pool import PathProducer, PathReach
from simlab.real_runner.heads.producer import Producer, Reach, RootProducer, StagedProducer, TextProducer
from simlab.real_runner.heads.redrafts import RedraftProducer, RedraftReach
from simlab.real_runner.heads.router.config import RouterConfig
from simlab.real_runner.heads.router.network import RouterProducer
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.taps_pool import PoolReach
from simlab.real_runner.heads.taps_rows import TapsProducer
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.targets.model import Target

WithModels = Callable[[DFlashDrafter, Target], Producer | StagedProducer]
"""From a drafter and a target, on the device where they run, to the producer there."""

WithTarget = Callable[[Target], TextProducer | RootProducer]
"""Likewise, of a network that needs no drafter."""

ReachAlone: TypeAlias = Eagle3Reach | RouterConfig
"""What the channel of a network holds that needs no drafter."""

_OF_DRAFTERS = ("depth", "order", EXACT_NODES)
"""Settings in a manifest that a network does not choose."""


def load_text_producer(place: Path, settings: Mapping[str, object], dtype: torch.dtype) -> WithTarget:
    """The network of a checkpoint that needs no drafter, which waits for its target.

    Args:
        place: as `load_drafter` takes it.
        settings: as typed behind the checkpoint, or as a manifest has them.
        dtype: in which it runs.

    Raises:
        ModelError: the checkpoint is damaged, or the settings are not its own; the second also where the head was made
            for another target.
    """
    fields = read_fields(config_file(place))
    if is_router(fields):
        router_reach(fields, settings)
        network = load_router(place)
        return lambda target: RouterProducer(network.to(target.device), target)
    head, reach = load_eagle3(place, dtype), eagle3_reach(settings)
    return lambda target: eagle3_producer(head.to(target.device), target, reach)


def load_producer(
    place: Path, settings: Mapping[str, object], drafter: DFlashDrafter, digest: str, dtype: torch.dtype
) -> WithModels:
    """The network of a checkpoint, which waits for its models: it is checked before a large target is loaded.

    Args:
        place: as `load_drafter` takes it.
        settings: as typed behind the checkpoint, or as a manifest has them.
        drafter: which the network goes on from, on any device.
        digest: `checkpoint_digest` of that drafter's checkpoint.
        dtype: in which it runs.

    Raises:
        ModelError: there is no such network, it belongs to another drafter, or the settings are not its own.
    """
    fields, own_digest = read_fields(config_file(place)), checkpoint_digest(place)
    if is_drafter_alone(fields) and makes_redrafts(settings, own_digest == digest):
        second, redrafted = load_drafter(place, dtype), redraft_reach(fields, settings)
        redrafted.lengths(drafter.config.depth)
        return lambda its, target: _redraft_producer(second, its, target, redrafted, own_digest == digest)
    if is_drafter_alone(fields):
        check_own_rows(str(place), settings, own_digest == digest)
        paths = path_reach(settings)
        return lambda its, target: PathProducer(its, target, paths)
    if is_scorer(fields):
        scorer, pools = load_scorer(place, drafter, digest)[0], scorer_reach(fields, settings)
        return lambda its, target: TapsProducer(scorer.to(target.device), its, target, pools)
    head, reach = load_head(place, drafter, digest, dtype), head_reach(settings)
    return lambda its, target: TreeFlashProducer(head.to(target.device), its, target, reach)


def producer_on(
    place: Path,
    settings: Mapping[str, object],
    stage: DFlashDrafter | OwnDrafter,
    target: Target,
    digest: str,
    dtype: torch.dtype,
) -> Producer | StagedProducer:
    """The network of a checkpoint on models that are loaded: on a drafter, or on the target's own masks.

    Args:
        place: as `load_drafter` takes it.
        settings: as typed behind the checkpoint, or as a manifest has them.
        stage: which the network goes on from.
        target: of it.
        digest: `checkpoint_digest` of the drafter's or the adapter's checkpoint.
        dtype: in which it runs.
    """
    if isinstance(stage, DFlashDrafter):
        return load_producer(place, settings, stage, digest, dtype)(stage, target)
    fields = read_fields(config_file(place))
    if is_scorer(fields) or is_drafter_alone(fields):
        raise ModelError(
            f"on the own masks of {target.name} a first-order head goes on alone, and {place} is another network; give "
            "a head of `simlab train treeflash --draft ADAPTER`, or a draft set of a DFlash drafter"
        )
    head, reach = load_head(place, stage, digest, dtype), head_reach(settings)
    return TreeFlashProducer(head.to(target.device), stage, target, reach)


def makes_redrafts(settings: Mapping[str, object], is_base: bool) -> bool:
    """Whether a drafter's checkpoint redrafts behind a chain, and does not make pools of its own paths.

    Another drafter than the draft set's redrafts, unless a ``beam`` is set. The same one makes pools, unless
    a setting says that it redrafts: ``branches``, whose number is not read, since all beginnings of the chain are
    recorded; ``block``, for one that is longer than its own; or ``whole``, for the branch behind the whole chain alone.

    Args:
        settings: as typed behind the checkpoint, or as a manifest has them.
        is_base: whether it is the draft set's own drafter, whose chain it is.
    """
    said = any(key in settings for key in ("branches", "block", WHOLE_CHAIN))
    return "beam" not in settings and (said or not is_base)


def check_own_rows(checkpoint: str, settings: Mapping[str, object], is_base: bool) -> None:
    """Refuse a drafter's checkpoint that would go on from the rows of another drafter, as no pool of paths does.

    Args:
        checkpoint: as it was typed.
        settings: likewise.
        is_base: whether it is the draft set's own drafter.
    """
    if "beam" in settings and not is_base:
        raise ModelError(
            f"{checkpoint} is a drafter, which goes on from its own rows alone where a beam is set, and the draft set "
            f"here is of another; add its rows first, `simlab record --trace DIR --add-draft NAME={checkpoint}`, and "
            "choose them with --draft-set NAME, or leave beam out: then it redrafts behind the chain of the other"
        )


def reach_of(fields: Fields, settings: Mapping[str, object], is_base: bool) -> Reach | ReachAlone:
    """How far a channel of a checkpoint reaches, without loading it.

    Args:
        fields: of its ``config.json``.
        settings: as typed behind the checkpoint, or as a manifest has them; what is not there is as its kind has it.
        is_base: whether it is the checkpoint of the drafter that it goes on from.
    """
    if is_adapter(fields):
        raise ModelError(
            "an adapter of the target makes no channel; what it drafts is a draft set, `simlab record --trace DIR "
            "--add-draft self=CHECKPOINT`"
        )
    if is_eagle3(fields):
        return eagle3_reach(settings)
    if is_router(fields):
        return router_reach(fields, settings)
    if is_drafter_alone(fields):
        is_second = makes_redrafts(settings, is_base)
        return redraft_reach(fields, settings) if is_second else path_reach(settings)
    return scorer_reach(fields, settings) if is_scorer(fields) else head_reach(settings)


def is_drafter_alone(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a drafter with no network beside it: it makes pools of its own paths."""
    others = is_eagle3(fields) or is_router(fields) or is_scorer(fields)
    return not others and head_from_json(fields) is None


def path_reach(settings: Mapping[str, object]) -> PathReach:
    """The reach of a drafter that is run again behind its paths."""
    try:
        return PathReach(**_own("a drafter that goes on from its own rows", settings, ("beam", "top_k")))
    except ValueError as error:
        raise ModelError(str(error)) from error


def redraft_reach(fields: Fields, settings: Mapping[str, object]) -> RedraftReach:
    """The reach of a second drafter."""
    config, block = read_config(fields), settings.get("block")
    depth = config.with_block(block).depth if isinstance(block, int) else config.depth
    own = _own("a drafter that redrafts behind a chain", settings, MADE_WITH[BRANCHES])
    own.pop("branches", None)
    try:
        return RedraftReach(depth, **own)
    except ValueError as error:
        raise ModelError(str(error)) from error


def _redraft_producer(
    second: DFlashDrafter, first: DFlashDrafter, target: Target, reach: RedraftReach, is_first: bool
) -> RedraftProducer:
    """A second drafter, on the device where its target begins.

    One that is the first itself reads the layers of the target that the first does, however these are numbered.
    """
    config = first.config.with_block(second.config.block_size) if is_first else second.config
    config = config if reach.block is None else config.with_block(reach.block)
    second.config = config
    check_sizes(config, target.name, target.num_layers, target.embedding.embedding_dim, target.vocab_size)
    num_tokens = config.draft_vocab_size or config.vocab_size
    if reach.top_k > num_tokens:
        raise ModelError(
            f"the second drafter was asked for {reach.top_k} tokens a row, and has {num_tokens}; give a smaller top_k"
        )
    return RedraftProducer(second.to(target.device), target, first.config.depth, reach)


def needs_no_drafter(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a network that reads the target alone."""
    return is_eagle3(fields) or is_router(fields)


def router_reach(fields: Fields, settings: Mapping[str, object]) -> RouterConfig:
    """What a router's network says, which no setting changes."""
    config = router_from_json(fields)
    assert config is not None
    for key, value in settings.items():
        if config.settings.get(key) != value:
            raise ModelError(
                f"a router's network has no settings, and says as much as it was trained for; leave {key} out"
            )
    return config


def eagle3_reach(settings: Mapping[str, object]) -> Eagle3Reach:
    """The reach of an EAGLE-3 head."""
    try:
        return Eagle3Reach(**_own("an EAGLE-3 head", settings, ("beam", "top_k", "steps")))
    except ValueError as error:
        raise ModelError(str(error)) from error


def head_reach(settings: Mapping[str, object]) -> HeadReach:
    """The reach of a TreeFlash head."""
    try:
        return HeadReach(**_own("a TreeFlash head", settings, MADE_WITH[TRANSITIONS]))
    except ValueError as error:
        raise ModelError(str(error)) from error


def scorer_reach(fields: Fields, settings: Mapping[str, object]) -> PoolReach:
    """The reach of a TAPS scorer: that of the pools that it was trained on, but for what the settings say."""
    config = scorer_from_json(fields)
    assert config is not None
    try:
        return replace(config.reach, **_own("a TAPS scorer", settings, ("beam", "extensions")))
    except ValueError as error:
        raise ModelError(str(error)) from error


def _own(what: str, settings: Mapping[str, object], names: Sequence[str]) -> dict[str, int]:
    """Those of the settings that a network of this kind chooses."""
    own = {key: value for key, value in settings.items() if key not in _OF_DRAFTERS}
    for key in own:
        if key not in names:
            asked = named_or_listed(key, names, f"expected {', '.join(names)}")
            raise ModelError(f"{what} has no setting {key}{asked}")
    return {key: value for key, value in own.items() if isinstance(value, int)}
