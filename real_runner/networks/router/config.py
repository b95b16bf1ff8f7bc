"""What a router's network is, its ``config.json``, and what its channel holds; nothing here needs torch.

It reads one target and needs no drafter. The layout is simlab's, and has a second form for the networks that WhiFlash
released, whose card gives a formula, and neither names of tensors nor which drafter is which.
"""

from dataclasses import asdict, dataclass
from reprlib import repr as shown
from typing import ClassVar

from simlab.channels import FEATURES
from simlab.channels.features import MOST_FEATURES, TRAINED_FOR
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import check_keys, integer, number, typed
from simlab.real_runner.checkpoints.layout import Fields, layout_alone
from simlab.real_runner.checkpoints.weights import check_own
from simlab.real_runner.networks.network import Network, Reach, Settings, Tensors

NUM_BESIDE = 3
"""Numbers that are read beside a state: entropy, decision gap, log position."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How a network of WhiFlash's chooses between two routes: by the tokens that one brings more than the other.

    Attributes:
        pos: the route that is taken where the network says more than the threshold, 0 or 1.
        threshold: tokens.
        gelu: ``erf`` or ``tanh``, which form of it stands between its matrices.
    """

    pos: int
    threshold: float
    gelu: str

    def __post_init__(self) -> None:
        if self.pos not in (0, 1) or self.gelu not in GELUS:
            raise ValueError(
                f"the gain of a router's network has pos 0 or 1, the route that is taken above its threshold, and gelu "
                f"{' or '.join(GELUS)}; got pos={self.pos}, gelu={self.gelu}"
            )


GELUS = ("erf", "tanh")
TAKEN = 1024.0
"""What the channel of such a network says of the route that it takes, and 0 of the other: more than any latency tells
against it, so that the network decides whatever ``beta`` and ``rate`` are."""


@dataclass(frozen=True, slots=True)
class RouterConfig(Reach):
    """The sizes of a router's network, and for which routes and which target it was trained.

    Attributes:
        hidden_size: H, of the target.
        inner_size: between its two matrices.
        routes: as they are typed; one number for each.
        target_digest: of the target whose states it reads.
        gain: of a network of WhiFlash's form; None: it says a number of each route.
    """

    kind: ClassVar[str] = FEATURES
    needs_drafter: ClassVar[bool] = False
    score_bytes: ClassVar[float] = 4.0

    hidden_size: int
    routes: tuple[str, ...]
    target_digest: str
    inner_size: int = 128
    gain: Gain | None = None

    def __post_init__(self) -> None:
        if self.gain is not None and len(self.routes) != 2:
            raise ValueError(f"a network that says the gain of one route over another has 2; got {list(self.routes)}")
        if not 1 <= len(self.routes) <= MOST_FEATURES or any("|" in route or not route for route in self.routes):
            raise ValueError(f"a router's network has 1 to {MOST_FEATURES} routes, none empty; got {list(self.routes)}")

    def settings(self, depth: int = 0) -> dict[str, object]:
        return {"size": len(self.routes), TRAINED_FOR: "|".join(self.routes)}

    def num_scores(self, depth: int = 0) -> int:
        return len(self.routes)

    def held(self, depth: int = 0) -> str:
        return f"{len(self.routes)} numbers at each"

    def check(self, tensors: Tensors, location: object) -> None:
        num_inputs, num_outputs = self.hidden_size + NUM_BESIDE, len(self.routes)
        shapes: dict[str, tuple[int, ...]] = {"norm.weight": (num_inputs,), "norm.bias": (num_inputs,)}
        if self.gain is not None:
            num_inputs, num_outputs, shapes = self.hidden_size, 1, {}
        shapes |= {"inner.weight": (self.inner_size, num_inputs), "inner.bias": (self.inner_size,)}
        shapes |= {"outer.weight": (num_outputs, self.inner_size), "outer.bias": (num_outputs,)}
        check_own(shapes, tensors, f"router's network in {location}", location)

    def lines(self) -> list[tuple[str, str]]:
        says = f"how many tokens a round by each of {len(self.routes)} routes would bring; it needs no drafter"
        if self.gain is not None:
            route = self.routes[self.gain.pos]
            says = f"{route} where it would bring over {self.gain.threshold:g} tokens more, as WhiFlash's card has it"
        return [
            ("router", says),
            *(("route", route) for route in self.routes),
            ("belongs to", f"the target of the digest {self.target_digest}, and no other"),
        ]


_CLASS, _FIELD = "RouterNetwork", "router_config"
_LARGEST = 1 << 16


def router_from_json(fields: Fields) -> RouterConfig | None:
    """The network of a checkpoint; None where it is another one."""
    if _FIELD not in fields:
        return None
    nested = typed(fields[_FIELD], dict, f"the router's config.json holds {_FIELD}", "an object")
    inside = ("hidden_size", "inner_size", "routes", "target_digest", "gain")
    check_keys(nested, inside, f"{_FIELD} of the router's config.json", nothing=(None,))
    routes = nested.get("routes")
    if not isinstance(routes, list) or not all(isinstance(route, str) for route in routes):
        raise ModelError(f"the router's config.json holds routes={shown(routes)} where a list of policies belongs")
    digest = typed(nested.get("target_digest"), str, "the router's config.json holds target_digest", "a digest")
    sizes = {name: integer(nested.get(name)) for name in ("hidden_size", "inner_size")}
    for name, size in sizes.items():
        if not 1 <= size <= _LARGEST:
            raise ModelError(f"the {name} of a router's network is from 1 to {_LARGEST:,}; got {size}")
    try:
        gain = None if nested.get("gain") is None else _gain_from_json(nested["gain"])
        return RouterConfig(routes=tuple(routes), target_digest=digest, gain=gain, **sizes)
    except ValueError as error:
        raise ModelError(str(error)) from error


def _gain_from_json(value: object) -> Gain:
    """The form of a network of WhiFlash's; nothing of it is guessed."""
    where = "gain of the router's config.json"
    fields, inside = typed(value, dict, where, "an object"), ("pos", "threshold", "gelu")
    check_keys(fields, inside, where, nothing=(None,))
    missing = [name for name in inside if name not in fields]
    if missing:
        raise ModelError(
            f"{where} lacks {', '.join(missing)}: WhiFlash's card does not say which route is taken above the "
            "threshold, nor which GELU it has; write pos, 0 or 1, threshold, in tokens, and gelu, erf or tanh"
        )
    gelu = typed(fields["gelu"], str, f"{where} holds gelu", "a word")
    return Gain(integer(fields["pos"]), number(fields["threshold"]), gelu)


def router_to_json(config: RouterConfig) -> dict[str, object]:
    """The fields of a network."""
    nested = {
        "hidden_size": config.hidden_size,
        "inner_size": config.inner_size,
        "routes": list(config.routes),
        "target_digest": config.target_digest,
    }
    if config.gain is not None:
        nested["gain"] = asdict(config.gain)
    return {"architectures": [_CLASS], _FIELD: nested}


def _reach(fields: Fields, settings: Settings, is_base: bool) -> RouterConfig:
    """What a router's network says, which no setting changes."""
    config = router_from_json(fields)
    assert config is not None
    for key, value in settings.items():
        if config.settings().get(key) != value:
            raise ModelError(
                f"a router's network has no settings, and says as much as it was trained for; leave {key} out"
            )
    return config


ROUTER = Network(
    what="a router's network",
    layout=layout_alone(
        "router",
        _FIELD,
        "a router's network, as simlab trains it",
        "this is a router's network, which chooses among drafters and is none; add what it says to a trace: `simlab "
        "record --trace DIR --add-channel router=CHECKPOINT`",
    ),
    reads=router_from_json,
    reach=_reach,
    module="simlab.real_runner.networks.router.network",
    needs_drafter=False,
)
