"""The parts of a checkpoint: a drafter, a network beside a drafter or a target, or drafter and head.

The loaders and `simlab inspect` take them apart and check them here; nothing here needs torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import config_file, stored_tensors
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.weights import check_weights
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.networks.known import layout_of, network_of, read_fields
from simlab.real_runner.networks.network import NetworkConfig, Tensors
from simlab.real_runner.networks.treeflash.config import is_head_alone

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class CheckpointParts:
    """What a checkpoint consists of.

    Attributes:
        drafter: None where it is a network alone.
        drafter_tensors: by the names that DFlash has for them.
        head: the network; None where it is a drafter alone.
        head_tensors: by the names within the network.
    """

    drafter: DFlashConfig | None
    drafter_tensors: Tensors
    head: NetworkConfig | None
    head_tensors: Tensors

    def check(self, place: object) -> None:
        """Refuse parts that cannot be built of these tensors."""
        if self.drafter is not None:
            check_weights(self.drafter, self.drafter_tensors, place)
        if self.head is not None:
            self.head.check(self.head_tensors, place)


def parts_of(fields: Fields, tensors: Tensors) -> CheckpointParts:
    """Take a checkpoint apart.

    Args:
        fields: of its ``config.json``.
        tensors: by the names in its files.
    """
    network = network_of(fields)
    head = None if network is None else network.reads(fields)
    beside = None if network is None else network.prefix
    if network is not None and beside is None:
        return CheckpointParts(None, {}, head, {network.tensor_name(name): one for name, one in tensors.items()})
    layout = layout_of(fields)
    drafter = None if is_head_alone(fields) else layout.reads(fields)
    in_head = {name for name in tensors if beside is not None and name.startswith(beside)}
    others = [name for name in tensors if name not in in_head]
    prefix = layout.prefix if drafter is not None or beside is None else beside
    if foreign := [name for name in others if drafter is None or not name.startswith(prefix)]:
        raise ModelError(
            f"this checkpoint holds {foreign[0]}, where its layout has names that begin with {prefix}; fetch or train "
            "it again"
        )
    return CheckpointParts(
        drafter,
        {name.removeprefix(prefix): tensors[name] for name in others},
        head,
        {name.removeprefix(beside or ""): tensors[name] for name in tensors if name in in_head},
    )


def checked_parts(place: Path) -> CheckpointParts:
    """What a checkpoint consists of, seen to fit its configuration."""
    parts = parts_of(read_fields(config_file(place)), stored_tensors(place))
    parts.check(place)
    return parts


def checked_network(place: Path, kind: type[Config], what: str) -> tuple[Config, Tensors]:
    """The configuration and the tensors of a network that lies alone.

    Args:
        place: the folder, or the one file with weights beside its ``config.json``.
        kind: the class of its configuration.
        what: it is, in words.

    Raises:
        ModelError: files are missing or damaged, it is another network, or the weights do not fit the configuration.
    """
    parts = checked_parts(place)
    if not isinstance(parts.head, kind):
        raise ModelError(f"{place} has no {what}; `simlab inspect {place}` says what it is")
    return parts.head, parts.head_tensors
