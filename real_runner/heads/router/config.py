"""What a router's network is, and what its channel holds; nothing here needs torch."""

from dataclasses import dataclass

from simlab.channels import FEATURES
from simlab.channels.branches import MOST_FEATURES, TRAINED_FOR

NUM_BESIDE = 3
"""Numbers that are read beside a state: entropy, decision gap, log position."""

_BYTES_OF_NUMBER = 4


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """The sizes of a router's network, and for which routes and which target it was trained.

    Attributes:
        hidden_size: H, of the target.
        inner_size: between its two matrices.
        routes: as they are typed; one number for each.
        target_digest: of the target whose states it reads.
    """

    hidden_size: int
    routes: tuple[str, ...]
    target_digest: str
    inner_size: int = 128

    def __post_init__(self) -> None:
        if not 1 <= len(self.routes) <= MOST_FEATURES or any("|" in one or not one for one in self.routes):
            raise ValueError(f"a router's network has 1 to {MOST_FEATURES} routes, none empty; got {list(self.routes)}")

    @property
    def kind(self) -> str:
        """The kind of its channel."""
        return FEATURES

    @property
    def settings(self) -> dict[str, object]:
        """What the manifest says of its channel."""
        return {"size": len(self.routes), TRAINED_FOR: "|".join(self.routes)}

    @property
    def disk_bytes(self) -> float:
        """Bytes that a root takes in a trace at most."""
        return float(_BYTES_OF_NUMBER * len(self.routes))
