"""The ``config.json`` of a router's network, which simlab trains: it reads one target and needs no drafter.

WhiFlash published no network and so no layout; this one is simlab's. Nothing here needs torch.
"""

from collections.abc import Iterator, Mapping
from reprlib import repr as shown
from typing import NoReturn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import integer
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.heads.router.config import NUM_BESIDE, RouterConfig

_CLASS, _FIELD = "RouterNetwork", "router_config"
_LARGEST = 1 << 16


def is_router(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a router's network."""
    return _FIELD in fields


def router_from_json(fields: Fields) -> RouterConfig | None:
    """The network of a checkpoint; None where it is another one."""
    if not is_router(fields):
        return None
    nested = fields[_FIELD]
    if not isinstance(nested, Mapping):
        raise ModelError(f"the router's config.json holds {_FIELD}={shown(nested)} where an object belongs")
    routes, digest = nested.get("routes"), nested.get("target_digest")
    if not isinstance(routes, list) or not all(isinstance(one, str) for one in routes):
        raise ModelError(f"the router's config.json holds routes={shown(routes)} where a list of policies belongs")
    if not isinstance(digest, str):
        raise ModelError(f"the router's config.json holds target_digest={shown(digest)} where a digest belongs")
    sizes = {name: integer(nested.get(name)) for name in ("hidden_size", "inner_size")}
    for name, size in sizes.items():
        if not 1 <= size <= _LARGEST:
            raise ModelError(f"the {name} of a router's network is from 1 to {_LARGEST:,}; got {size}")
    try:
        return RouterConfig(routes=tuple(routes), target_digest=digest, **sizes)
    except ValueError as error:
        raise ModelError(str(error)) from error


def router_to_json(config: RouterConfig) -> dict[str, object]:
    """The fields of a network."""
    nested = {
        "hidden_size": config.hidden_size,
        "inner_size": config.inner_size,
        "routes": list(config.routes),
        "target_digest": config.target_digest,
    }
    return {"architectures": [_CLASS], _FIELD: nested}


def router_shapes(config: RouterConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that a network has, each with its shape."""
    num_inputs = config.hidden_size + NUM_BESIDE
    for name, shape in (
        ("norm", (num_inputs,)),
        ("inner", (config.inner_size, num_inputs)),
        ("outer", (len(config.routes), config.inner_size)),
    ):
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]


def no_drafter_but_router(fields: Fields) -> NoReturn:
    """Refuse a router's network where a drafter is wanted."""
    raise ModelError(
        "this is a router's network, which chooses among drafters and is none; add what it says to a trace: `simlab "
        "record --trace DIR --add-channel router=CHECKPOINT`"
    )


ROUTER = Layout(
    name="router",
    field=_FIELD,
    recognises=is_router,
    reads=no_drafter_but_router,
    named_target=lambda fields: None,
    described=lambda fields: "a router's network, as simlab trains it",
    tap_offset=None,
    counting="",
)
