"""The stages of a round, their seconds, and how samples of them are taken."""

from dataclasses import dataclass

STAGES = ("draft", "channel", "select", "verify", "commit")
"""The stages of a round, in order."""

CHANNEL = "channel"
"""Making the channels that a policy reads; a policy without channels pays nothing for it."""

GRID_STAGES = tuple(stage for stage in STAGES if stage != CHANNEL)
"""Stages that are timed by drafted tokens, whatever the policy; what a channel takes goes by its units."""

PLAIN = "plain"
"""One token of plain decoding on its own fastest path; it stands in a table beside the stages."""

LEAST_S, MOST_S = 1e-9, 1e6
"""No pass takes less or more seconds; what a file says beyond these was not measured."""


def channel_stage(name: str) -> str:
    """The stage of a cost file that makes one channel.

    >>> channel_stage("treeflash")
    'channel:treeflash'
    """
    return f"{CHANNEL}:{name}"


def is_plain(stage: str) -> bool:
    """Whether samples of a cost file are of plain decoding, beside whatever they were taken."""
    return stage == PLAIN or stage.startswith(f"{PLAIN}:")


def plain_beside(stage: str) -> str:
    """Under which stage a cost file keeps the plain decoding that was timed beside another stage.

    >>> plain_beside("verify"), plain_beside("channel:treeflash")
    ('plain', 'plain:treeflash')
    """
    return f"{PLAIN}:{stage.removeprefix(f'{CHANNEL}:')}" if stage.startswith(f"{CHANNEL}:") else PLAIN


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds spent in each stage, of one round or summed over many; the sums of disjoint parts add up.

    >>> (StageSeconds(draft_s=0.5) + StageSeconds(draft_s=0.25, verify_s=1.0)).total_s
    1.75
    """

    draft_s: float = 0.0
    channel_s: float = 0.0
    select_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0

    def __post_init__(self) -> None:
        if not all(value >= 0 for value in self.by_stage):
            raise ValueError(f"a stage took negative time: {self!r}")

    def __add__(self, other: "StageSeconds") -> "StageSeconds":
        return StageSeconds(*(value + more for value, more in zip(self.by_stage, other.by_stage, strict=True)))

    @property
    def by_stage(self) -> tuple[float, ...]:
        """The seconds of each of ``STAGES``."""
        return self.draft_s, self.channel_s, self.select_s, self.verify_s, self.commit_s

    @property
    def total_s(self) -> float:
        """Seconds of all stages together."""
        return self.draft_s + self.channel_s + self.select_s + self.verify_s + self.commit_s


@dataclass(frozen=True, slots=True)
class Visits:
    """How samples of a cost file were taken: a few at a time, which are alike; visits of one sweep follow each other.

    Attributes:
        rounds: samples of a stage that one visit brings.
        steps: samples of plain decoding that one visit brings.
        paired: whether each visit to rounds timed plain decoding too, so that a price is known as a ratio to it.
    """

    rounds: int = 2
    steps: int = 8
    paired: bool = False

    def __post_init__(self) -> None:
        if min(self.rounds, self.steps) < 1:
            raise ValueError(f"a visit must bring at least one sample; got {self.rounds} rounds and {self.steps} steps")
