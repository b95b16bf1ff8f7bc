"""The fields of a drafter's ``config.json``, each checked as it is read."""

from collections.abc import Iterable, Mapping
from reprlib import repr as shown
from typing import TypeVar

from simlab.errors import ModelError
from simlab.real_runner.drafters.config import DFlashConfig

# Which tensors a DFlash checkpoint consists of, by their names.


EMBEDDING, HEAD, OFFSETS, MASK = "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"
BESIDE_THE_LAYERS = (EMBEDDING, HEAD, OFFSETS, MASK)
"""What a checkpoint may hold of its own beside the layers: embedding, head, and the map of its vocabulary."""

IGNORED = ("verifier_lm_head.weight", "verifier_norm.weight")
"""Copies of the target's weights, which speculators uses in training only."""

# What simlab lacks for drafters of other kinds, by what they are known.

CLASSES_OF_OTHERS = {
    "DFlash2DraftModel": "its convolutions and its candidate selector",
    "DSparkDraftModel": "its Markov head",
}
"""By the class that a ``config.json`` names."""

KINDS_OF_OTHERS = {
    "dflash2": "its convolutions and its candidate selector",
    "dspark": "its Markov head and its confidence head",
    "eagle3": "this layout of EAGLE-3, but reads that of its authors and of SpecForge",
    "peagle": "P-EAGLE layers",
    "mtp": "multi-token prediction layers",
    "xpress": "XPress layers",
}
"""By the model type that speculators names."""

_PARTS_OF_OTHERS = {
    "qkv_proj": "fused projections of queries, keys and values (Laguna)",
    "g_proj": "gated attention (Laguna)",
    "aux_hidden_norms": "a norm for each tapped layer",
    "candidate_selector": "the candidate selector of DFlash2",
    "attention_conv": "the convolutions of DFlash2",
    "mlp_conv": "the convolutions of DFlash2",
    "markov_head": "the Markov head of DSpark",
    "confidence_head": "a confidence head",
    "midlayer": "the layer of EAGLE-3",
}
"""By the names of tensors."""


def check_names(config: DFlashConfig, names: Iterable[str], place: object) -> None:
    """Refuse tensors that a drafter of this configuration does not consist of.

    Args:
        config: of the checkpoint.
        names: of its tensors.
        place: where it lies, for the message.
    """
    present, expected = set(names), {name for name, _ in config.shapes()}
    missing, foreign = sorted(expected - present), sorted(present - expected - {*BESIDE_THE_LAYERS, *IGNORED})
    named = {
        what: name for name in reversed(foreign) for part, what in _PARTS_OF_OTHERS.items() if f".{part}" in f".{name}"
    }
    if named:
        parts = ", ".join(f"{what}: {name}" for what, name in sorted(named.items())[:3])
        raise ModelError(f"the drafter in {place} has parts that simlab does not run ({parts})")
    if missing or foreign:
        shown = ", ".join((missing or foreign)[:3])
        what = "lacks" if missing else "holds, beside those of DFlash,"
        raise ModelError(f"the drafter in {place} {what} {shown}; simlab runs DFlash checkpoints only")
    if config.draft_vocab_size is None:
        return
    if HEAD not in present:
        raise ModelError(
            f"the drafter in {place} has {config.draft_vocab_size} tokens of its own and no lm_head for them"
        )
    if not present & {OFFSETS, MASK}:
        raise ModelError(f"the drafter in {place} has a vocabulary of its own and no d2t or t2d that says which")


Value = TypeVar("Value")

_LARGEST, _HIGHEST = 1 << 31, 1e30
_MOST_LAYERS = 1024


def integer(value: object) -> int:
    """A value of ``config.json`` as the whole number that it must be."""
    if isinstance(value, bool) or not isinstance(value, int) or not -_LARGEST < value < _LARGEST:
        raise ModelError(f"the drafter's config.json holds {shown(value)} where a whole number belongs")
    return value


def layer_count(value: object) -> int:
    """How many layers a drafter has; what follows makes a list of so many."""
    if integer(value) > _MOST_LAYERS:
        raise ModelError(f"a drafter's num_hidden_layers must be at most {_MOST_LAYERS:,}; got {value}")
    return integer(value)


def number(value: object) -> float:
    """A value of ``config.json`` as the number that it must be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_HIGHEST < value < _HIGHEST:
        raise ModelError(f"the drafter's config.json holds {shown(value)} where a number belongs")
    return float(value)


def typed(value: object, kind: type[Value], where: str, what: str) -> Value:
    """A value of ``config.json`` of the type that it must be.

    Args:
        value: as it was read.
        kind: its type.
        where: it stands, such as "the drafter's config.json holds causal".
        what: belongs there, in words.
    """
    if not isinstance(value, kind):
        raise ModelError(f"{where}={shown(value)} where {what} belongs")
    return value


def flag(value: object, name: str) -> bool:
    """A value of ``config.json`` as the truth value that it must be."""
    return typed(value, bool, f"the drafter's config.json holds {name}", "true or false")


def flag_of(fields: Mapping[str, object], name: str) -> bool:
    """A field that is true or false; false where it is null or left out."""
    value = fields.get(name)
    return value is not None and flag(value, name)


def layer_numbers(value: object) -> tuple[int, ...]:
    """The target's layers that are tapped."""
    if not isinstance(value, list | tuple):
        raise ModelError(f"the drafter's target_layer_ids must be a list of layer numbers; got {shown(value)}")
    return tuple(integer(tap) for tap in value)


def rotary_base(fields: Mapping[str, object]) -> float:
    """The base of the rotary positions, from either place."""
    for name in ("rope_scaling", "rope_parameters"):
        rope = fields.get(name)
        if not isinstance(rope, Mapping):
            continue
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ModelError(
                f"this drafter needs scaled rotary positions ({name} {shown(kind)}), which simlab does not run"
            )
        if rope.get("partial_rotary_factor", 1) != 1 or any(isinstance(value, Mapping) for value in rope.values()):
            raise ModelError(
                f"this drafter needs rotary positions that {name} {shown(dict(rope))} describes, "
                "which simlab does not run"
            )
    rope = fields.get("rope_parameters")
    theta = rope.get("rope_theta") if isinstance(rope, Mapping) else None
    theta = fields.get("rope_theta") if theta is None else theta
    return number(10000.0 if theta is None else theta)


def layer_types(fields: Mapping[str, object], num_layers: int) -> list[str]:
    """The kind of each layer, as transformers' Qwen3 configuration works it out."""
    given = fields.get("layer_types")
    if given is None:
        first = integer(fields.get("max_window_layers", 28))
        slides = flag_of(fields, "use_sliding_window") and fields.get("sliding_window") is not None
        return ["sliding_attention" if slides and i >= first else "full_attention" for i in range(num_layers)]
    if not isinstance(given, list | tuple) or (num_layers > 0 and len(given) != num_layers):
        raise ModelError(
            f"the drafter's layer_types must name the kind of each of {num_layers} layers; got {shown(given)}"
        )
    if others := [kind for kind in given if kind not in ("full_attention", "sliding_attention")]:
        raise ModelError(f"this drafter has layers of {shown(others[0])}, which simlab does not run")
    return [str(kind) for kind in given]


def sliding_window(fields: Mapping[str, object]) -> int | None:
    """The window of sliding layers, where it is in use."""
    window = fields.get("sliding_window", 4096)
    return integer(window) if flag_of(fields, "use_sliding_window") and window is not None else None
