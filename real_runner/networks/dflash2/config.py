"""What DFlash 2 is: a DFlash drafter with convolutions, a selector of candidates, and their ``config.json``.

z-lab's layout with further fields in ``dflash_config``, as PyPI dflash 0.1.0 reads it, or that of speculators 0.9. A
selector alone, which simlab trains on a drafter without convolutions, names the checkpoint of its drafter by the digest
of its files in ``simlab_extends``. Nothing here needs torch.
"""

from dataclasses import dataclass, replace
from reprlib import repr as shown

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import (
    check_keys,
    classes_of,
    inner_of,
    integer,
    plain_fields,
    said_once,
    typed,
)
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.speculators import config_from_speculators, sizes_of_dflash2
from simlab.real_runner.checkpoints.speculators import is_dflash2 as in_speculators
from simlab.real_runner.checkpoints.weights import check_own
from simlab.real_runner.checkpoints.zlab import ZLAB, config_from_json
from simlab.real_runner.drafters.config import Convolution, DFlashConfig, check_counts
from simlab.real_runner.networks.network import HeadReach, Network, Settings, Tensors, reach_of_all

SELECTOR_PREFIX = "candidate_selector."
_CLASS, _EXTENDS = "DFlash2DraftModel", "simlab_extends"
_SELECTOR = ("selector_rank", "selector_top_k")
CONVOLUTION = ("conv_kernel_size", "conv_group_size")
_LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class SelectorConfig:
    """What a selector of candidates is.

    Attributes:
        hidden_size: H, of its drafter.
        vocab_size: V, of its codebooks.
        rank: of these.
        top_k: K, candidates of each depth that it chooses among.
        extends: sha256 of its drafter's checkpoint, where it is alone; None: it lies beside its drafter.
    """

    hidden_size: int
    vocab_size: int
    rank: int
    top_k: int
    extends: str | None = None

    def __post_init__(self) -> None:
        sizes = ("hidden_size", "vocab_size", "rank", "top_k")
        check_counts("a selector's", {name: getattr(self, name) for name in sizes}, _LARGEST)

    def check(self, tensors: Tensors, location: object) -> None:
        shapes = {f"{name}_codebook.weight": (self.vocab_size, self.rank) for name in ("predecessor", "successor")}
        shapes["hidden_projection.weight"] = (self.rank, self.hidden_size)
        check_own(shapes, tensors, f"selector in {location}", location)

    def lines(self) -> list[tuple[str, str]]:
        what = f"first-order: one of {self.top_k} candidates given the token before it; rank {self.rank}"
        extends = f"the drafter whose files have the sha256 {self.extends}, and no other"
        return [("selector", what)] if self.extends is None else [("selector", what), ("extends", extends)]


def selector_from_json(fields: Fields) -> SelectorConfig | None:
    """The selector of a checkpoint; None where it is no DFlash 2."""
    if not _is_dflash2(fields):
        return None
    if in_speculators(fields):
        drafter, (_, _, rank, top_k) = config_from_speculators(fields), sizes_of_dflash2(fields)
        return SelectorConfig(drafter.hidden_size, drafter.vocab_size, rank, top_k)
    inner = inner_of(fields)
    values = {name: said_once(name, inner, fields) for name in _SELECTOR}
    if missing := [name for name, value in values.items() if value is None]:
        raise ModelError(
            f"this is a drafter of DFlash 2, and its config.json has no {missing[0]!r}, at the top or in "
            "dflash_config; ask its publisher for a config.json that has it"
        )
    rank, top_k = (integer(value) for value in values.values())
    extends = fields.get(_EXTENDS)
    if extends is not None:
        extends = typed(extends, str, f"the selector's config.json holds {_EXTENDS}", "a digest")
        check_keys(fields, ("dflash_config", _EXTENDS, "hidden_size", "vocab_size"), "the selector's config.json")
        check_keys(inner, _SELECTOR, "dflash_config of the selector's config.json")
    return SelectorConfig(integer(fields.get("hidden_size")), integer(fields.get("vocab_size")), rank, top_k, extends)


def selector_to_json(config: SelectorConfig) -> dict[str, object]:
    """The fields of a selector alone, in the places of the released class."""
    return {
        "architectures": [_CLASS],
        "dflash_config": {"selector_rank": config.rank, "selector_top_k": config.top_k},
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        _EXTENDS: config.extends,
    }


def convolution_of(fields: Fields) -> Convolution | None:
    """The convolutions of a drafter; None where its fields say nothing of any."""
    sizes = [said_once(name, inner_of(fields), fields) for name in CONVOLUTION]
    if not any(sizes):
        return None
    if None in sizes:
        raise ModelError(
            f"a drafter with convolutions has {' and '.join(CONVOLUTION)} in its config.json; this one says "
            f"{shown(sizes)}"
        )
    return Convolution(*map(integer, sizes))


def _is_dflash2(fields: Fields) -> bool:
    named = [name for name in (*_SELECTOR, *CONVOLUTION) if fields.get(name) or inner_of(fields).get(name)]
    in_zlab_layout = "speculators_model_type" not in fields and (_CLASS in classes_of(fields) or bool(named))
    return in_zlab_layout or in_speculators(fields)


def _is_alone(fields: Fields) -> bool:
    return _is_dflash2(fields) and fields.get(_EXTENDS) is not None


def _drafter_from_json(fields: Fields) -> DFlashConfig:
    if _is_alone(fields):
        raise ModelError(
            "this is a selector of DFlash 2 alone, which chooses beside the drafter that it was trained for; name that "
            "drafter"
        )
    convolution = convolution_of(fields)
    if convolution is None:
        raise ModelError("a drafter of DFlash 2 has convolutions, and its config.json says no sizes of them")
    rest = plain_fields(fields, (*_SELECTOR, *CONVOLUTION))
    return replace(config_from_json(rest), convolution=convolution)


def _reach(fields: Fields, settings: Settings, is_base: bool) -> HeadReach:
    """All candidates that the selector chooses among, below all of them."""
    config = selector_from_json(fields)
    assert config is not None
    return reach_of_all("a selector of DFlash 2", config.top_k, settings)


def _tensor_name(name: str) -> str:
    """Codebooks as modules name them: z-lab's files leave the last part out."""
    return f"{name}.weight" if name.endswith("_codebook") else name


DFLASH2 = Network(
    what="a selector of DFlash 2",
    layout=replace(
        ZLAB,
        name="dflash2",
        recognises=_is_dflash2,
        reads=_drafter_from_json,
        described=lambda fields: f"DFlash 2, {'a selector alone' if _is_alone(fields) else 'as z-lab releases it'}",
    ),
    reads=selector_from_json,
    reach=_reach,
    module="simlab.real_runner.networks.dflash2.selector",
    prefix=SELECTOR_PREFIX,
    tensor_name=_tensor_name,
    is_alone=_is_alone,
)
