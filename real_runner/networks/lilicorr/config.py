"""What LiLiCorr is: a DFlash drafter with a head over the lattice of its candidates, as sglang 0.5.23 reads it.

z-lab's layout with further fields in ``dflash_config``, and the head's tensors below ``lilicorr.``; its drafter may
have the convolutions of DFlash 2. Nothing here needs torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from reprlib import repr as shown

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import classes_of, inner_of, integer, number, plain_fields, said_once
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.weights import check_own
from simlab.real_runner.checkpoints.zlab import ZLAB, config_from_json
from simlab.real_runner.drafters.config import MOST_SLOTS, DFlashConfig, check_counts, check_within
from simlab.real_runner.networks.dflash2.config import CONVOLUTION, convolution_of
from simlab.real_runner.networks.network import HeadReach, Network, Settings, Tensors, reach_of_all

_CLASS, _MARK, _ENABLED = "LiLiCorrDraftModel", "lilicorr_", "lilicorr_enabled"
_COUNTS = ("candidate_topk", "num_layers", "num_heads", "factor_dim")
_NUMBERS = ("mlp_ratio", "vector_eps", "logit_scale")
_WIDTH = "hidden_size"
_MOST_CANDIDATES, _LARGEST = 16, 1 << 24

FEATURES = 5
"""Numbers of a candidate beside its token: see `simlab.real_runner.networks.lilicorr.head.LatticeHead`."""


@dataclass(frozen=True, slots=True)
class LatticeConfig:
    """What a lattice head is.

    Attributes:
        drafter_size: H, of its drafter's states.
        block_size: of the drafter, the root's slot counted.
        rms_norm_eps: of the drafter.
        hidden_size: W, of the head's own states.
        candidate_topk: K, candidates of each depth.
        num_layers: over all candidates.
        num_heads: of each of them.
        factor_dim: F, of the vectors whose products are the scores.
        mlp_ratio: of the width of its perceptrons to its own.
        vector_eps: no vector is taken to be shorter.
        logit_scale: of the products.
    """

    drafter_size: int
    block_size: int
    rms_norm_eps: float
    hidden_size: int
    candidate_topk: int
    num_layers: int
    num_heads: int
    factor_dim: int
    mlp_ratio: float
    vector_eps: float
    logit_scale: float

    def __post_init__(self) -> None:
        whose, top_k = "a lattice head's", self.candidate_topk
        counts = (*_COUNTS, "hidden_size", "inner_size", "drafter_size")
        check_counts(whose, {name: getattr(self, name) for name in counts}, _LARGEST)
        check_counts(whose, {"block_size": self.block_size}, MOST_SLOTS)
        for name, low, high in (("mlp_ratio", 1e-3, 1e3), ("vector_eps", 1e-30, 1.0), ("logit_scale", 1e-6, 1e6)):
            check_within(f"{whose} {name}", getattr(self, name), low, high)
        if top_k > _MOST_CANDIDATES or top_k & (top_k - 1):
            raise ModelError(
                f"a lattice head's candidate_topk must be a power of two of at most {_MOST_CANDIDATES}; got {top_k}"
            )
        if self.hidden_size % self.num_heads:
            raise ModelError(f"a lattice head's {self.hidden_size} numbers do not split into {self.num_heads} heads")

    @property
    def inner_size(self) -> int:
        """The width of the perceptrons in its layers."""
        return int(self.hidden_size * self.mlp_ratio)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The tensors that it has, each with its shape."""
        drafter, width, factors = self.drafter_size, self.hidden_size, self.factor_dim
        linear = {"pass_hidden_proj": (drafter, width), "context_proj": (drafter, width)}
        linear |= {"token_proj": (drafter, width)} if drafter != width else {}
        linear |= {"feature_mlp.up_proj": (FEATURES, width), "feature_mlp.down_proj": (width, width)}
        linear |= {"factor_input_proj": (3 * width, width)}
        linear |= dict.fromkeys(("out_head", "in_head", "anchor_out_head"), (width, factors))
        norms = ["output_norm", "anchor_norm"]
        for layer in (f"layers.{index}" for index in range(self.num_layers)):
            linear |= {f"{layer}.attn.out_proj": (width, width), f"{layer}.mlp.up_proj": (width, self.inner_size)}
            linear |= {f"{layer}.mlp.down_proj": (self.inner_size, width)}
            norms += [f"{layer}.attn_norm", f"{layer}.mlp_norm"]
            yield f"{layer}.attn.in_proj_weight", (3 * width, width)
            yield f"{layer}.attn.in_proj_bias", (3 * width,)
        for name, (inputs, outputs) in linear.items():
            yield from ((f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,)))
        yield from ((f"{name}.weight", (width,)) for name in norms)
        yield from ((f"feature_norm.{name}", (FEATURES,)) for name in ("weight", "bias"))
        yield "slot_embedding", (1, 1, self.block_size - 1, 1, width)
        yield "rank_embedding", (1, 1, 1, self.candidate_topk, width)
        yield "relative_slot_bias", (self.num_heads, 2 * self.block_size - 1)
        yield "same_slot_bias", (self.num_heads,)

    def check(self, tensors: Tensors, location: object) -> None:
        check_own(dict(self.shapes()), tensors, f"lattice head in {location}", location)

    def lines(self) -> list[tuple[str, str]]:
        what = f"first-order: one of {self.candidate_topk} candidates given the one before it"
        return [("lattice", f"{what}; {self.num_layers} layers of width {self.hidden_size} over all candidates")]


def lattice_from_json(fields: Fields) -> LatticeConfig | None:
    """The lattice head of a checkpoint; None where it is no LiLiCorr."""
    if not _is_lilicorr(fields):
        return None
    if said_once(_ENABLED, inner_of(fields), fields) is False:
        raise ModelError(
            f"this drafter of LiLiCorr says {_ENABLED} false, so its lattice head is off; for its drafter alone give a "
            f'copy without fields and tensors of LiLiCorr, of the class "DFlashDraftModel"'
        )
    own = (*_COUNTS, _WIDTH, *_NUMBERS)
    values = {name: said_once(_MARK + name, inner_of(fields), fields) for name in own}
    if missing := [_MARK + name for name, value in values.items() if value is None]:
        raise ModelError(
            f"this is a drafter of LiLiCorr, and its config.json has no {missing[0]!r}, at the top or in "
            "dflash_config; ask its publisher for a config.json that has it"
        )
    drafter, drafter_size = _drafter_from_json(fields), integer(fields.get("hidden_size"))
    sizes = {name: integer(values[name]) for name in (_WIDTH, *_COUNTS)}
    # 0: as wide as the drafter.
    width = sizes.pop(_WIDTH) or drafter_size
    own_numbers = (number(values[name]) for name in _NUMBERS)
    return LatticeConfig(drafter_size, drafter.block_size, drafter.rms_norm_eps, width, *sizes.values(), *own_numbers)


def _is_lilicorr(fields: Fields) -> bool:
    named = [name for part in (fields, inner_of(fields)) for name, value in part.items() if value]
    is_marked = any(name.startswith(_MARK) for name in named)
    return "speculators_model_type" not in fields and (_CLASS in classes_of(fields) or is_marked)


def _drafter_from_json(fields: Fields) -> DFlashConfig:
    names = [name for part in (fields, inner_of(fields)) for name in part if name.startswith(_MARK)]
    if (kind := said_once("projector_type", inner_of(fields), fields)) is not None:
        if kind != "lilicorr":
            raise ModelError(f"this is a drafter of LiLiCorr with projector_type={shown(kind)}; simlab runs lilicorr")
        names.append("projector_type")
    plain = config_from_json(plain_fields(fields, (*names, *CONVOLUTION)))
    return replace(plain, convolution=convolution_of(fields))


def _reach(fields: Fields, settings: Settings, is_base: bool) -> HeadReach:
    config = lattice_from_json(fields)
    assert config is not None
    return reach_of_all("a lattice head of LiLiCorr", config.candidate_topk, settings)


LILICORR = Network(
    what="a lattice head of LiLiCorr",
    layout=replace(
        ZLAB,
        name="lilicorr",
        recognises=_is_lilicorr,
        reads=_drafter_from_json,
        described=lambda fields: "LiLiCorr, as sglang 0.5.23 reads it",
    ),
    reads=lattice_from_json,
    reach=_reach,
    module="simlab.real_runner.networks.lilicorr.head",
    prefix="lilicorr.",
)
