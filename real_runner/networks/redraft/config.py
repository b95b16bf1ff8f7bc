"""How far a drafter's own checkpoint reaches as a network: redrafts behind a chain, or pools of its own paths.

Nothing here needs torch.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from simlab.channels import BRANCHES, POOL
from simlab.channels.rows import WHOLE_CHAIN, beam_sizes
from simlab.errors import ModelError
from simlab.policy import MADE_WITH
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.zlab import ZLAB
from simlab.real_runner.networks.known import read_config
from simlab.real_runner.networks.network import BYTES_OF_NODE, Network, Reach, Settings, check_settings, reach_with
from simlab.traces.format.manifest_entries import branch_lengths


@dataclass(frozen=True, slots=True)
class RedraftReach(Reach):
    """How much a second drafter says.

    Attributes:
        depth: D2, its last one.
        top_k: K, tokens of a row.
        block: slots of its block, the root's counted, where that is another one than its checkpoint has; else None.
        whole: 1: behind the whole chain alone; 0: behind every beginning.
    """

    kind: ClassVar[str] = BRANCHES
    score_bytes: ClassVar[float] = 4.5

    depth: int
    top_k: int = 8
    block: int | None = None
    whole: int = 0

    def __post_init__(self) -> None:
        check_settings(self, "redrafts", "top_k")
        if self.whole not in (0, 1):
            raise ValueError(
                f"{WHOLE_CHAIN}=1 is the branch behind the whole chain alone; got {self.whole}, leave it out for all"
            )

    @property
    def width(self) -> int:
        """How many candidates of each depth of the first drafter are read: the chain."""
        return 1

    def lengths(self, depth: int) -> range:
        """Behind how many tokens of a chain of ``depth`` there are branches."""
        lengths = branch_lengths(depth, self.depth, self.whole == 1)
        if not lengths:
            raise ModelError(
                f"a drafter that looks {self.depth} tokens ahead says nothing behind a whole chain of {depth}; run it "
                f"in a longer block, such as block={2 * depth + 1}"
            )
        return lengths

    def settings(self, depth: int) -> dict[str, object]:
        own = {"depth": self.depth, "branches": len(self.lengths(depth)), "top_k": self.top_k}
        typed = {"block": self.block, WHOLE_CHAIN: self.whole or None}
        return {**own, **{key: value for key, value in typed.items() if value is not None}}

    def num_scores(self, depth: int) -> int:
        return sum(self.depth - length for length in self.lengths(depth)) * self.top_k

    def widest(self, width: int) -> str:
        return f"top_k={width}"


@dataclass(frozen=True, slots=True)
class PathReach(Reach):
    """How many nodes a pool of paths has.

    Attributes:
        beam: b, paths of each depth that are looked behind.
        top_k: R, tokens that are kept behind each.
    """

    kind: ClassVar[str] = POOL
    score_bytes: ClassVar[float] = BYTES_OF_NODE

    beam: int = 10
    top_k: int = 7

    def __post_init__(self) -> None:
        check_settings(self, "a pool", "beam", "top_k")

    @property
    def width(self) -> int:
        return self.top_k

    def within(self, num_tokens: int) -> Self:
        return replace(self, top_k=min(self.top_k, num_tokens))

    def settings(self, depth: int) -> dict[str, object]:
        return {"depth": depth, "beam": self.beam, "top_k": self.top_k}

    def num_scores(self, depth: int) -> int:
        return sum(beam_sizes(self.beam, self.top_k, depth - 1))

    def widest(self, width: int) -> str:
        return f"top_k={width}"


def makes_redrafts(settings: Settings, is_base: bool) -> bool:
    """Whether a drafter's checkpoint redrafts behind a chain, and does not make pools of its own paths.

    Another drafter than the draft set's redrafts, unless a ``beam`` is set. The same one makes pools, unless
    a setting says that it redrafts: ``branches``, whose number is not read, since all beginnings of the chain are
    recorded; ``block``, for one that is longer than its own; or ``whole``, for the branch behind the whole chain alone.

    Args:
        settings: as typed behind the checkpoint, or as a manifest has them.
        is_base: whether it is the draft set's own drafter, whose chain it is.
    """
    is_stated = any(key in settings for key in ("branches", "block", WHOLE_CHAIN))
    return "beam" not in settings and (is_stated or not is_base)


def check_own_rows(checkpoint: str, settings: Settings, is_base: bool) -> None:
    """Refuse a drafter's checkpoint that would go on from the rows of another drafter, as no pool of paths does.

    Args:
        checkpoint: as it was typed.
        settings: the same.
        is_base: whether it is the draft set's own drafter.
    """
    if "beam" in settings and not is_base:
        raise ModelError(
            f"{checkpoint} is a drafter, which goes on from its own rows alone where a beam is set, and the draft set "
            f"here is of another; add its rows first, `simlab record --trace DIR --add-draft NAME={checkpoint}`, and "
            "choose them with --draft-set NAME, or leave beam out: then it redrafts behind the chain of the other"
        )


def _reach(fields: Fields, settings: Settings, is_base: bool) -> Reach:
    if not makes_redrafts(settings, is_base):
        return reach_with("a drafter that goes on from its own rows", settings, ("beam", "top_k"), PathReach)
    config, block = read_config(fields), settings.get("block")
    depth = config.with_block(block).depth if isinstance(block, int) else config.depth

    def made(branches: int = 0, **own: int) -> RedraftReach:
        return RedraftReach(depth, **own)

    return reach_with("a drafter that redrafts behind a chain", settings, MADE_WITH[BRANCHES], made)


REDRAFT = Network(
    what="a drafter",
    layout=ZLAB,
    reads=lambda fields: None,
    reach=_reach,
    module="simlab.real_runner.networks.redraft.redrafts",
)
"""A drafter alone, in this or another layout of drafters: what none of `simlab.real_runner.networks.known` reads."""
