"""The fields of a drafter's ``config.json``, each checked as it is read."""

from collections.abc import Mapping
from reprlib import repr as shown

from simlab.errors import ModelError

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


def flag(value: object, name: str) -> bool:
    """A value of ``config.json`` as the truth value that it must be."""
    if not isinstance(value, bool):
        raise ModelError(f"the drafter's config.json holds {name}={shown(value)} where true or false belongs")
    return value


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
