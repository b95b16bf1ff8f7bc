"""What a TAPS scorer is: its sizes, its pools' reach, and its ``config.json``. Nothing here needs torch.

It lies alone, and belongs to one drafter.
The released scorers have no public layout that could be fetched; this one is simlab's.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from simlab.channels import POOL
from simlab.real_runner.checkpoints.fields import check_keys, integer, typed
from simlab.real_runner.checkpoints.layout import Fields, layout_alone
from simlab.real_runner.checkpoints.weights import check_own
from simlab.real_runner.drafters.config import check_counts
from simlab.real_runner.networks.network import (
    BYTES_OF_NODE,
    Network,
    Reach,
    Settings,
    Tensors,
    check_settings,
    reach_with,
)

NUM_PLACE = 7
"""Numbers that tell a node's place: log-probability, the depth's entropy, top gap, mass, depth, path weight (two)."""

_CLASS, _FIELD, _EXTENDS = "TapsScorer", "taps_config", "simlab_extends"
_OF_SIZES = ("hidden_size", "depth", "rank", "depth_size", "inner_size")
_OF_REACH = ("beam", "extensions")
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class PoolReach(Reach):
    """How many nodes a pool has.

    Attributes:
        beam: nodes that are kept of each depth, and looked below.
        extensions: the drafter's first candidates of the next depth that are looked at below each.
    """

    kind: ClassVar[str] = POOL
    score_bytes: ClassVar[float] = BYTES_OF_NODE

    beam: int = 48
    extensions: int = 64

    def __post_init__(self) -> None:
        check_settings(self, "a pool", "beam", "extensions")

    @property
    def width(self) -> int:
        return self.extensions

    def within(self, num_tokens: int) -> Self:
        return replace(self, extensions=min(self.extensions, num_tokens))

    def settings(self, depth: int) -> dict[str, object]:
        return {"depth": depth, "beam": self.beam, "extensions": self.extensions}

    def num_scores(self, depth: int) -> int:
        return sum(self.sizes(depth))

    def widest(self, width: int) -> str:
        return f"extensions={width}"

    def sizes(self, depth: int) -> list[int]:
        """Nodes of each depth."""
        sizes = [1]
        for _ in range(depth):
            sizes.append(min(self.beam, sizes[-1] * self.extensions))
        return sizes[1:]


@dataclass(frozen=True, slots=True)
class ScorerSizes:
    """The sizes of a scorer.

    Attributes:
        hidden_size: H, of the drafter.
        depth: D, the positions drafted ahead.
        rank: of the projections of tokens and states.
        depth_size: numbers that stand for a depth.
        inner_size: of the two networks.
    """

    hidden_size: int
    depth: int
    rank: int = 32
    depth_size: int = 8
    inner_size: int = 64


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

    def check(self, tensors: Tensors, location: object) -> None:
        sizes = self.sizes
        shapes: dict[str, tuple[int, ...]] = {
            "token.weight": (sizes.rank, sizes.hidden_size),
            "state.weight": (sizes.rank, sizes.hidden_size),
            "depth.weight": (sizes.depth, sizes.depth_size),
        }
        shared = sizes.rank + sizes.depth_size + NUM_PLACE
        for name, num in (("edge", shared + 2 * sizes.rank), ("other", shared + sizes.rank)):
            shapes |= {f"{name}.0.weight": (num,), f"{name}.0.bias": (num,)}
            shapes |= {f"{name}.1.weight": (sizes.inner_size, num), f"{name}.1.bias": (sizes.inner_size,)}
            shapes |= {f"{name}.3.weight": (1, sizes.inner_size), f"{name}.3.bias": (1,)}
        check_own(shapes, tensors, f"head in {location}", location)

    def lines(self) -> list[tuple[str, str]]:
        reach = f"pools of a beam of {self.reach.beam}, extended by {self.reach.extensions} candidates"
        return [
            ("scorer", f"a node given its path, in {reach}; {self.sizes.depth} depths"),
            ("extends", f"the drafter whose files have the sha256 {self.extends}, and no other"),
        ]


def scorer_from_json(fields: Fields) -> ScorerConfig | None:
    """The scorer of a checkpoint; None where it is another one."""
    if _FIELD not in fields:
        return None
    nested = typed(fields[_FIELD], dict, f"the scorer's config.json holds {_FIELD}", "an object")
    check_keys(nested, (*_OF_SIZES, *_OF_REACH), f"{_FIELD} of the scorer's config.json", nothing=(None,))
    extends = typed(fields.get(_EXTENDS), str, f"the scorer's config.json holds {_EXTENDS}", "a digest")
    numbers = {name: integer(nested.get(name)) for name in (*_OF_SIZES, *_OF_REACH)}
    check_counts("a scorer's", numbers, _LARGEST)
    sizes = ScorerSizes(**{name: numbers[name] for name in _OF_SIZES})
    return ScorerConfig(sizes, PoolReach(**{name: numbers[name] for name in _OF_REACH}), extends)


def scorer_to_json(config: ScorerConfig) -> dict[str, object]:
    """The fields of a scorer."""
    sizes = {name: getattr(config.sizes, name) for name in _OF_SIZES}
    reach = {name: getattr(config.reach, name) for name in _OF_REACH}
    return {"architectures": [_CLASS], _FIELD: sizes | reach, _EXTENDS: config.extends}


def _reach(fields: Fields, settings: Settings, is_base: bool) -> PoolReach:
    """The reach of the pools that a scorer was trained on, but for what the settings say."""
    config = scorer_from_json(fields)
    assert config is not None
    own = config.reach
    return reach_with("a TAPS scorer", settings, _OF_REACH, lambda **given: replace(own, **given))


TAPS = Network(
    what="a TAPS scorer",
    layout=layout_alone(
        "taps",
        _FIELD,
        "TAPS, a scorer alone, as simlab trains it",
        "this is a TAPS scorer, which scores beside the drafter that it was trained for; name that drafter",
    ),
    reads=scorer_from_json,
    reach=_reach,
    module="simlab.real_runner.networks.taps.pool",
)
