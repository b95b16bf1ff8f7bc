"""Which format a drafter's ``config.json`` has, and what it says."""

from collections.abc import Mapping

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.speculators import config_from_speculators, is_speculators, promised_depth
from simlab.real_runner.checkpoints.zlab import config_from_json
from simlab.real_runner.drafters.config import DFlashConfig

_OTHERS = {"DFlash2DraftModel": "its convolutions and its candidate selector", "DSparkDraftModel": "its Markov head"}


def read_config(fields: Mapping[str, object]) -> DFlashConfig:
    """A drafter's configuration, in either format.

    Raises:
        ModelError: it is of another kind of drafter, asks for a variant that this runner does not carry, or
            contradicts itself.
    """
    architectures = fields.get("architectures")
    for name in architectures if isinstance(architectures, list) else []:
        if name in _OTHERS and not is_speculators(fields):
            raise ModelError(f"this is a {name}; simlab has not {_OTHERS[name]}, and runs DFlash")
    if not is_speculators(fields):
        return config_from_json(fields)
    config = config_from_speculators(fields)
    promised = promised_depth(fields)
    if promised is not None and promised > config.depth:
        raise ModelError(
            f"the drafter's config.json promises {promised} drafted tokens, and block_size {config.block_size} with "
            f"sample_from_anchor={config.predicts_from_root} makes {config.depth}; its publisher must say which holds"
        )
    return config


def format_name(fields: Mapping[str, object]) -> str:
    """The format's name, for people."""
    return "speculators" if is_speculators(fields) else "z-lab"
