"""``simlab train`` of networks: what was trained, and where it is."""

from importlib import import_module

from simlab.errors import as_usage_error
from simlab.real_runner.train.options import (
    Eagle3Options,
    HeadOptions,
    NetworkOptions,
    RouterOptions,
    ScorerOptions,
    SelfOptions,
    TrainOptions,
)

_TRAIN = "simlab.real_runner.train"

_TRAINED: dict[type, tuple[str, str, str]] = {
    TrainOptions: (f"{_TRAIN}.train", "train", "drafter"),
    HeadOptions: (f"{_TRAIN}.networks.treeflash", "train_head", "head"),
    ScorerOptions: (f"{_TRAIN}.networks.taps", "train_scorer", "scorer"),
    Eagle3Options: (f"{_TRAIN}.networks.eagle3", "train_eagle3", "head"),
    RouterOptions: (f"{_TRAIN}.networks.router", "train_router", "network"),
    SelfOptions: (f"{_TRAIN}.networks.adapter", "train_self", "adapter"),
}
"""By the options: the module and function that train, and what comes out."""


def run(options: TrainOptions | NetworkOptions | RouterOptions) -> int:
    """Train, and say where the result is."""
    module, function, made = _TRAINED[type(options)]
    with as_usage_error():
        print(f"The {made} is in {getattr(import_module(module), function)(options)}")
    return 0
