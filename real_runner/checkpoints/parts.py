"""The parts of a checkpoint: a drafter, a network beside a drafter or a target, or drafter and head.

The loaders and `simlab inspect` take them apart and check them here; nothing here needs torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from simlab.errors import ModelError
from simlab.real_runner.adapters.config import AdapterConfig
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.layouts import layout_of
from simlab.real_runner.checkpoints.networks.adapter import adapter_from_json
from simlab.real_runner.checkpoints.networks.eagle3 import eagle3_from_json
from simlab.real_runner.checkpoints.networks.router import router_from_json
from simlab.real_runner.checkpoints.networks.taps import ScorerConfig, scorer_from_json
from simlab.real_runner.checkpoints.networks.treeflash import HEAD_PREFIX, HeadConfig, head_from_json, is_head_alone
from simlab.real_runner.checkpoints.weights import (
    StoredTensor,
    check_adapter_weights,
    check_eagle3_weights,
    check_head_weights,
    check_router_weights,
    check_weights,
)
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.eagle3_config import Eagle3Config
from simlab.real_runner.heads.router.config import RouterConfig

Tensors = Mapping[str, StoredTensor]


AnyHead: TypeAlias = HeadConfig | ScorerConfig | Eagle3Config | AdapterConfig | RouterConfig
"""What a checkpoint may hold that is no drafter."""


@dataclass(frozen=True, slots=True)
class CheckpointParts:
    """What a checkpoint consists of.

    Attributes:
        drafter: None where it is a head alone.
        drafter_tensors: by the names that DFlash has for them.
        head: or a scorer, an adapter of a target or a router's network; None where it is a drafter alone.
        head_tensors: by the names within the head.
    """

    drafter: DFlashConfig | None
    drafter_tensors: Tensors
    head: AnyHead | None
    head_tensors: Tensors

    def check(self, place: object) -> None:
        """Refuse parts that cannot be built of these tensors."""
        if self.drafter is not None:
            check_weights(self.drafter, self.drafter_tensors, place)
        if self.head is not None:
            if isinstance(self.head, Eagle3Config):
                check_eagle3_weights(self.head, self.head_tensors, place)
            elif isinstance(self.head, AdapterConfig):
                check_adapter_weights(self.head, self.head_tensors, place)
            elif isinstance(self.head, RouterConfig):
                check_router_weights(self.head, self.head_tensors, place)
            else:
                check_head_weights(self.head, self.head_tensors, place)


def parts_of(fields: Fields, tensors: Tensors) -> CheckpointParts:
    """Take a checkpoint apart.

    Args:
        fields: of its ``config.json``.
        tensors: by the names in its files.
    """
    eagle3 = eagle3_from_json(fields)
    alone = scorer_from_json(fields) or adapter_from_json(fields) or router_from_json(fields)
    if alone is not None:
        return CheckpointParts(None, {}, alone, tensors)
    if eagle3 is not None:
        # Some releases number the only layer.
        renamed = {re.sub(r"^layers\.0\.", "midlayer.", name): one for name, one in tensors.items()}
        return CheckpointParts(None, {}, eagle3, renamed)
    layout, head = layout_of(fields), head_from_json(fields)
    drafter = None if is_head_alone(fields) else layout.reads(fields)
    in_head = {name for name in tensors if head is not None and name.startswith(HEAD_PREFIX)}
    prefix = layout.prefix if drafter is not None else HEAD_PREFIX
    others = [name for name in tensors if name not in in_head]
    if foreign := [name for name in others if drafter is None or not name.startswith(prefix)]:
        raise ModelError(
            f"this checkpoint holds {foreign[0]}, where its layout has names that begin with {prefix}; fetch or train "
            "it again"
        )
    return CheckpointParts(
        drafter,
        {name.removeprefix(prefix): tensors[name] for name in others},
        head,
        {name.removeprefix(HEAD_PREFIX): tensors[name] for name in tensors if name in in_head},
    )
