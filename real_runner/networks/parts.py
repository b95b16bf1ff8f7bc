"""The parts of a checkpoint: a drafter, a network beside a drafter or a target, or drafter and head.

The loaders and `simlab inspect` take them apart and check them here; nothing here needs torch.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import check_beside, config_file, stored_tensors
from simlab.real_runner.checkpoints.fields import EMBEDDING, HEAD, check_tied
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.weights import StoredTensor, check_weights
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.networks.known import layout_of, network_of, read_fields
from simlab.real_runner.networks.network import Network, NetworkConfig, Tensors

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

    def check(self, location: Path) -> None:
        """Refuse parts that cannot be built of these tensors, or are not all that the checkpoint computes with."""
        if self.drafter is not None:
            check_weights(self.drafter, self.drafter_tensors, location)
        if self.head is not None:
            self.head.check(self.head_tensors, location)
        check_beside(location)


def parts_of(fields: Fields, tensors: Tensors) -> CheckpointParts:
    """Take a checkpoint apart.

    Args:
        fields: of its ``config.json``.
        tensors: by the names in its files.
    """
    network = network_of(fields)
    check_tied(fields, {name.removeprefix("model.") for name in tensors})
    head = None if network is None else network.reads(fields)
    beside = None if network is None else network.prefix
    if network is not None and beside is None:
        return CheckpointParts(None, {}, head, {network.tensor_name(name): tensor for name, tensor in tensors.items()})
    layout = layout_of(fields)
    drafter = None if network is not None and network.is_alone(fields) else layout.reads(fields)
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
        {_own_name(network, name): tensors[name] for name in tensors if name in in_head},
    )


def _own_name(network: Network | None, name: str) -> str:
    return name if network is None else network.tensor_name(name.removeprefix(network.prefix or ""))


def checked_parts(location: Path) -> CheckpointParts:
    """What a checkpoint consists of, seen to fit its configuration."""
    parts = parts_of(read_fields(config_file(location)), stored_tensors(location))
    parts.check(location)
    return parts


def checked_network(location: Path, kind: type[Config], what: str) -> tuple[Config, Tensors]:
    """The configuration and the tensors of a network that lies alone.

    Args:
        location: the folder, or the one file with weights beside its ``config.json``.
        kind: the class of its configuration.
        what: it is, in words.

    Raises:
        ModelError: files are missing or damaged, it is another network, or the weights do not fit the configuration.
    """
    parts = checked_parts(location)
    if not isinstance(parts.head, kind):
        raise ModelError(f"{location} has no {what}; `simlab inspect {location}` says what it is")
    return parts.head, parts.head_tensors


# A checkpoint in words: what it is, what it reads, what it borrows, and whether it will run.


def explain_checkpoint(
    fields: Mapping[str, object], tensors: Mapping[str, StoredTensor], location: Path
) -> tuple[DFlashConfig | None, str | None, list[tuple[str, str]]]:
    """Say what a checkpoint is, and whether simlab will run it.

    Args:
        fields: of its ``config.json``.
        tensors: by name.
        location: where it lies, for the sentence that says why it will not run.

    Returns:
        The drafter's configuration, None where it cannot be read, and of a head alone; why simlab will not run it,
        None: it will; and what to tell people, in lines with a heading each.
    """
    parts, problem, layout = None, None, layout_of(fields)
    try:
        parts = parts_of(fields, tensors)
        parts.check(location)
    except ModelError as error:
        problem = str(error)
    config = None if parts is None else parts.drafter
    lines = [("format", layout.described(fields)), ("will run", "yes" if problem is None else f"no: {problem}")]
    target = layout.named_target(fields)
    if target is not None:
        lines.append(("made for", target))
    if parts is not None and parts.head is not None:
        lines += parts.head.lines()
    if parts is not None and config is not None:
        # What else there is, or is wrong, makes a variant that no line below a refusal should call plain.
        about = _lines(config, parts.drafter_tensors)
        lines += about if problem is None else about[1:]
    return config, problem, lines


def _lines(config: DFlashConfig, names: Collection[str]) -> list[tuple[str, str]]:
    first = (
        "the root's own slot predicts the first of them" if config.predicts_from_root else "the root's slot is unused"
    )
    return [
        ("variant", ", ".join(config.variants) or "plain DFlash"),
        ("drafts", f"{config.depth} tokens a round in a block of {config.block_size}; {first}"),
        ("reads", _taps(config)),
        ("layers", _layers(config)),
        ("vocabulary", _vocabulary(config, names)),
        ("borrows", _borrowed(names)),
    ]


def _taps(config: DFlashConfig) -> str:
    numbers = [tap + 1 - config.tap_offset for tap in config.target_layer_ids]
    states = ", ".join(_state(tap, config.num_target_layers) for tap in config.target_layer_ids)
    of_all = "" if config.num_target_layers is None else f" of {config.num_target_layers} layers"
    return (
        f"states {states} of the target{of_all}, where state 0 is the embedding: the checkpoint's numbers "
        f"{', '.join(map(str, numbers))} with tap offset {config.tap_offset}, its format's; if it drafts badly, try "
        "--tap-offset auto"
    )


def _state(tap: int, num_layers: int | None) -> str:
    return f"{tap + 1} (after the final norm)" if num_layers is not None and tap == num_layers - 1 else str(tap + 1)


def _layers(config: DFlashConfig) -> str:
    counted = Counter(map(str, config.views))
    return "; ".join(f"{num} that show{'s' if num == 1 else ''} {what}" for what, num in counted.items())


def _vocabulary(config: DFlashConfig, names: Collection[str]) -> str:
    if config.draft_vocab_size is None and not {EMBEDDING, HEAD} & set(names):
        return f"the target's ({config.vocab_size:,} tokens by config.json; rows of padding may differ)"
    if config.draft_vocab_size is None:
        return f"all {config.vocab_size:,} tokens of the target"
    return f"{config.draft_vocab_size:,} of the target's {config.vocab_size:,} tokens; others have rank -1 in a trace"


def _borrowed(names: Collection[str]) -> str:
    borrowed = [what for what, name in (("embedding", EMBEDDING), ("head", HEAD)) if name not in names]
    return (
        f"the target's {' and '.join(borrowed)}" if borrowed else "nothing; it has an embedding and a head of its own"
    )
