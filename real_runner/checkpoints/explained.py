"""A drafter's checkpoint in words: what it is, what it reads, what it borrows, and whether it will run."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.config import format_name, read_config
from simlab.real_runner.checkpoints.parts import EMBEDDING, HEAD, check_names
from simlab.real_runner.checkpoints.speculators import is_speculators, named_target
from simlab.real_runner.drafters.config import DFlashConfig

_OF_DRAFTERS = ("dflash_config", "speculators_model_type", "block_size")


@dataclass(frozen=True, slots=True)
class Explained:
    """What is known of a checkpoint from its configuration and the names of its tensors.

    Attributes:
        format: ``z-lab`` or ``speculators``.
        config: None where it cannot be read.
        problem: why simlab will not run it; None: it will.
        lines: what to tell people, each with a heading.
    """

    format: str
    config: DFlashConfig | None
    problem: str | None
    lines: tuple[tuple[str, str], ...]


def is_drafter(fields: Mapping[str, object]) -> bool:
    """Whether a ``config.json`` is of a drafter of any kind."""
    return any(name in fields for name in _OF_DRAFTERS)


def explain(fields: Mapping[str, object], names: Collection[str], place: object) -> Explained:
    """What a checkpoint is.

    Args:
        fields: of its ``config.json``.
        names: of its tensors.
        place: where it lies, for the sentence that says why it will not run.
    """
    config, problem = None, None
    try:
        config = read_config(fields)
        check_names(config, names, place)
    except ModelError as error:
        problem = str(error)
    lines = [("format", _format(fields)), ("will run", "yes" if problem is None else f"no: {problem}")]
    target = named_target(fields)
    if target is not None:
        lines.append(("made for", target))
    if config is not None:
        lines += _lines(config, names)
    return Explained(format_name(fields), config, problem, tuple(lines))


def _format(fields: Mapping[str, object]) -> str:
    if not is_speculators(fields):
        return "z-lab, as PyPI dflash writes it"
    return f"speculators {fields.get('speculators_version', '')}".strip() + f", {fields['speculators_model_type']}"


def _lines(config: DFlashConfig, names: Collection[str]) -> list[tuple[str, str]]:
    first = (
        "the root's own slot predicts the first of them" if config.predicts_from_root else "the root's slot is unused"
    )
    return [
        ("variant", ", ".join(config.variants) or "plain DFlash"),
        ("drafts", f"{config.depth} tokens a round in a block of {config.block_size}; {first}"),
        ("reads", _taps(config)),
        ("layers", _layers(config)),
        ("vocabulary", _vocabulary(config)),
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


def _vocabulary(config: DFlashConfig) -> str:
    if config.draft_vocab_size is None:
        return f"all {config.vocab_size:,} tokens of the target"
    return f"{config.draft_vocab_size:,} of the target's {config.vocab_size:,} tokens; others have rank -1 in a trace"


def _borrowed(names: Collection[str]) -> str:
    borrowed = [what for what, name in (("embedding", EMBEDDING), ("head", HEAD)) if name not in names]
    return (
        f"the target's {' and '.join(borrowed)}" if borrowed else "nothing; it has an embedding and a head of its own"
    )
