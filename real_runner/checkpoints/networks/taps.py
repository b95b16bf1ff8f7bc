"""The ``config.json`` of a TAPS scorer, which simlab trains: it lies alone, and belongs to one drafter.

The released scorers have no public layout that could be fetched; this one is simlab's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as shown
from typing import NoReturn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import integer
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.heads.taps_pool import NUM_PLACE, PoolReach, ScorerSizes

_CLASS, _FIELD, _EXTENDS = "TapsScorer", "taps_config", "simlab_extends"
_OF_SIZES = ("hidden_size", "depth", "rank", "depth_size", "inner_size")
_OF_REACH = ("beam", "extensions")
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class ScorerConfig:
    """What a scorer is, and which pools it was trained on.

    Attributes:
        sizes: of its networks.
        reach: of those pools.
        extends: sha256 of its drafter's checkpoint.
    """

    sizes: ScorerSizes
    reach: PoolReach
    extends: str


def is_scorer(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a scorer."""
    return _FIELD in fields


def scorer_from_json(fields: Fields) -> ScorerConfig | None:
    """The scorer of a checkpoint; None where it is another one."""
    if not is_scorer(fields):
        return None
    nested, extends = fields[_FIELD], fields.get(_EXTENDS)
    if not isinstance(nested, Mapping):
        raise ModelError(f"the scorer's config.json holds {_FIELD}={shown(nested)} where an object belongs")
    if not isinstance(extends, str):
        raise ModelError(f"the scorer's config.json holds {_EXTENDS}={shown(extends)} where a digest belongs")
    numbers = {name: integer(nested.get(name)) for name in (*_OF_SIZES, *_OF_REACH)}
    for name, number in numbers.items():
        if not 1 <= number <= _LARGEST:
            raise ModelError(f"a scorer's {name} must be at least 1 and at most {_LARGEST:,}; got {number}")
    sizes = ScorerSizes(**{name: numbers[name] for name in _OF_SIZES})
    return ScorerConfig(sizes, PoolReach(**{name: numbers[name] for name in _OF_REACH}), extends)


def scorer_to_json(config: ScorerConfig) -> dict[str, object]:
    """The fields of a scorer."""
    sizes = {name: getattr(config.sizes, name) for name in _OF_SIZES}
    reach = {name: getattr(config.reach, name) for name in _OF_REACH}
    return {"architectures": [_CLASS], _FIELD: sizes | reach, _EXTENDS: config.extends}


def scorer_shapes(sizes: ScorerSizes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that a scorer has, each with its shape."""
    yield "token.weight", (sizes.rank, sizes.hidden_size)
    yield "state.weight", (sizes.rank, sizes.hidden_size)
    yield "depth.weight", (sizes.depth, sizes.depth_size)
    shared = sizes.rank + sizes.depth_size + NUM_PLACE
    for name, num in (("edge", shared + 2 * sizes.rank), ("other", shared + sizes.rank)):
        yield f"{name}.0.weight", (num,)
        yield f"{name}.0.bias", (num,)
        yield f"{name}.1.weight", (sizes.inner_size, num)
        yield f"{name}.1.bias", (sizes.inner_size,)
        yield f"{name}.3.weight", (1, sizes.inner_size)
        yield f"{name}.3.bias", (1,)


def _no_drafter(fields: Fields) -> NoReturn:
    raise ModelError(
        "this is a TAPS scorer, which scores beside the drafter that it was trained for; name that drafter"
    )


TAPS = Layout(
    name="taps",
    field=_FIELD,
    recognises=is_scorer,
    reads=_no_drafter,
    named_target=lambda fields: None,
    described=lambda fields: "TAPS, a scorer alone, as simlab trains it",
    tap_offset=None,
    counting="",
)
