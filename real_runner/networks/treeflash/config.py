"""What a TreeFlash head is: its sizes, its rows' reach, and its ``config.json``. Nothing here needs torch.

A checkpoint is a DFlash drafter with a first-order head, or a head alone.
The released class keeps the drafter below ``model`` and the head below ``ar_approximation``. A head alone, which simlab
trains, names the checkpoint of its drafter by the digest of its files in ``simlab_extends``.
"""

from dataclasses import dataclass, replace
from reprlib import repr as shown

from simlab.channels import TRANSITIONS
from simlab.errors import ModelError
from simlab.policy import MADE_WITH
from simlab.real_runner.checkpoints.fields import check_keys, classes_of, integer, said_once, typed
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.weights import check_own
from simlab.real_runner.checkpoints.zlab import ZLAB, config_from_json
from simlab.real_runner.drafters.config import DFlashConfig, check_counts
from simlab.real_runner.networks.network import HeadReach, Network, Settings, Tensors, reach_with

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
        check_counts("a head's", {"hidden_size": self.hidden_size, "inner_size": self.inner_size}, _LARGEST)

    def check(self, tensors: Tensors, location: object) -> None:
        hidden, inner = self.hidden_size, self.inner_size
        shapes = {"ug.weight": (2 * inner, 2 * hidden), "ug.bias": (2 * inner,), "d.weight": (hidden, inner)}
        check_own(shapes | {"norm.weight": (hidden,)}, tensors, f"head in {location}", location)

    def lines(self) -> list[tuple[str, str]]:
        what = f"first-order: a token given the one before it; {self.hidden_size} wide, {self.inner_size} inside"
        extends = f"the drafter whose files have the sha256 {self.extends}, and no other"
        return [("head", what)] if self.extends is None else [("head", what), ("extends", extends)]


def head_from_json(fields: Fields) -> HeadConfig | None:
    """The head of a checkpoint; None where it has none, and is a plain DFlash drafter."""
    if not _is_treeflash(fields):
        return None
    inner = fields.get(_FIELD)
    nested = typed({} if inner is None else inner, dict, f"the head's config.json holds {_FIELD}", "an object")
    check_keys(nested, (_KIND, "candidate_tokens"), f"{_FIELD} of the head's config.json", nothing=(None,))
    kind = said_once(_KIND, nested, fields)
    if kind is None:
        if _EXTENDS in fields:
            raise ModelError(f"the head's config.json says of its kind {_KIND}=null, so it is of none; train it again")
        return None
    if kind != _SWIGLU:
        raise ModelError(f"this checkpoint has a head of the kind {shown(kind)}; simlab runs {_SWIGLU}")
    extends = fields.get(_EXTENDS)
    if extends is not None:
        extends = typed(extends, str, f"the head's config.json holds {_EXTENDS}", "a digest")
        alone = (_FIELD, _KIND, _EXTENDS, "hidden_size", "intermediate_size")
        check_keys(fields, alone, "the head's config.json")
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


def is_standalone_head(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a head without its drafter."""
    return _is_treeflash(fields) and fields.get(_EXTENDS) is not None


def _is_treeflash(fields: Fields) -> bool:
    return _FIELD in fields or _CLASS in classes_of(fields)


def _drafter_from_json(fields: Fields) -> DFlashConfig:
    if is_standalone_head(fields):
        raise ModelError(
            "this is a TreeFlash head alone, which drafts beside the drafter that it was trained for; name that drafter"
        )
    return config_from_json(fields)


def _described(fields: Fields) -> str:
    return "TreeFlash, a head alone" if is_standalone_head(fields) else "TreeFlash, as its authors release it"


def _reach(fields: Fields, settings: Settings, is_base: bool) -> HeadReach:
    return reach_with("a TreeFlash head", settings, MADE_WITH[TRANSITIONS], HeadReach)


TREEFLASH = Network(
    what="a TreeFlash head",
    layout=replace(
        ZLAB,
        name="treeflash",
        field=_FIELD,
        recognises=_is_treeflash,
        reads=_drafter_from_json,
        described=_described,
        prefix="model.",
    ),
    reads=head_from_json,
    reach=_reach,
    module="simlab.real_runner.networks.treeflash.head",
    on_masks=True,
    prefix=HEAD_PREFIX,
    is_alone=is_standalone_head,
)
