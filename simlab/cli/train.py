"""``simlab train`` of networks: what was trained, and where it is."""

from importlib import import_module

from simlab.errors import as_usage_error
from simlab.real_runner.train.options import NetworkOptions, RouterOptions, TrainOptions


def run(options: TrainOptions | NetworkOptions | RouterOptions) -> int:
    """Train, and say where the result is."""
    module, function, made = options.TRAINED_BY
    train = getattr(import_module(f"simlab.real_runner.train.{module}"), function)
    with as_usage_error():
        print(f"The {made} is in {train(options)}")
    return 0
