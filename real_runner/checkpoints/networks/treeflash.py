"""The ``config.json`` of a TreeFlash checkpoint: a DFlash drafter with a first-order head, or a head alone.

The released class keeps the drafter below ``model`` and the head below ``ar_approximation``. A head alone, which simlab
trains, names the checkpoint of its drafter by the digest of its files in ``simlab_extends``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as shown

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import integer
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.checkpoints.zlab import ZLAB, config_from_json
from simlab.real_runner.drafters.config import DFlashConfig

HEAD_PREFIX = "ar_approximation."
_CLASS, _FIELD, _EXTENDS, _KIND = "TreeFlashDraftModel", "treeflash_config", "simlab_extends", "ar_approximation"
_SWIGLU = "swiglu"
_LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """What a first-order head is.

    Attributes:
        hidden_size: H, of its drafter.
        inner_size: I, between its matrices.
        extends: sha256 of its drafter's checkpoint, where it is a head alone; None: it lies beside its drafter.
    """

    hidden_size: int
    inner_size: int
    extends: str | None = None

    def __post_init__(self) -> None:
        for name in ("hidden_size", "inner_size"):
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise ModelError(
                    f"a head's {name} must be at least 1 and at most {_LARGEST:,}; got {getattr(self, name)}"
                )


def head_from_json(fields: Fields) -> HeadConfig | None:
    """The head of a checkpoint; None where it has none, and is a plain DFlash drafter."""
    if not _is_treeflash(fields):
        return None
    inner = fields.get(_FIELD)
    nested = inner if isinstance(inner, Mapping) else {}
    kind = nested.get(_KIND, fields.get(_KIND))
    if kind is None:
        if _EXTENDS in fields:
            raise ModelError(f"the head's config.json says of its kind {_KIND}=null, so it is of none; train it again")
        return None
    if kind != _SWIGLU:
        raise ModelError(f"this checkpoint has a head of the kind {shown(kind)}; simlab runs {_SWIGLU}")
    extends = fields.get(_EXTENDS)
    if extends is not None and not isinstance(extends, str):
        raise ModelError(f"the head's config.json holds {_EXTENDS}={shown(extends)} where a digest belongs")
    return HeadConfig(integer(fields.get("hidden_size")), integer(fields.get("intermediate_size")), extends)


def head_to_json(config: HeadConfig) -> dict[str, object]:
    """The fields of a head alone, in the places of the released class."""
    return {
        "architectures": [_CLASS],
        _FIELD: {_KIND: _SWIGLU},
        "hidden_size": config.hidden_size,
        "intermediate_size": config.inner_size,
        _EXTENDS: config.extends,
    }


def is_head_alone(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a head without its drafter."""
    return _is_treeflash(fields) and fields.get(_EXTENDS) is not None


def head_shapes(config: HeadConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that a head has, each with its shape."""
    hidden, inner = config.hidden_size, config.inner_size
    yield "ug.weight", (2 * inner, 2 * hidden)
    yield "ug.bias", (2 * inner,)
    yield "d.weight", (hidden, inner)
    yield "norm.weight", (hidden,)


def _is_treeflash(fields: Fields) -> bool:
    architectures = fields.get("architectures")
    return _FIELD in fields or (isinstance(architectures, list) and _CLASS in architectures)


def _drafter_from_json(fields: Fields) -> DFlashConfig:
    if is_head_alone(fields):
        raise ModelError(
            "this is a TreeFlash head alone, which drafts beside the drafter that it was trained for; name that drafter"
        )
    return config_from_json(fields)


def _described(fields: Fields) -> str:
    return "TreeFlash, a head alone" if is_head_alone(fields) else "TreeFlash, as its authors release it"


TREEFLASH = Layout(
    name="treeflash",
    field=_FIELD,
    recognises=_is_treeflash,
    reads=_drafter_from_json,
    named_target=lambda fields: None,
    described=_described,
    tap_offset=ZLAB.tap_offset,
    counting=ZLAB.counting,
    prefix="model.",
)
