"""Whether prices look launch-bound: flat far past the size of a pass at which arithmetic should bite.

A pass of s tokens moves the target's weights once and does two operations for each weight and token. Beyond R tokens, R
the operations that a machine can do while it moves a byte (weights of 2 bytes; those of 4 make it smaller wherever
arithmetic on them is slower), arithmetic is what takes the time, and a pass should take s / R times as long as a small
one. Where it takes much less, the small one was slow for another reason: starting one operation after another takes as
long as they run. Large trees then look free, and would not be where operations are started together, as a graph.
"""

from dataclasses import dataclass

from simlab.cost import CostTable

_A100 = 312e12 / 1935e9

RIDGES = {
    "A100": _A100,
    "A800": _A100,
    "H100": 989e12 / 3350e9,
    "H200": 989e12 / 4800e9,
    "A6000": 155e12 / 768e9,
    "A5000": 111e12 / 768e9,
    "RTX PRO 6000": 504e12 / 1792e9,
}
"""R by a part of the device's name, from the peaks of bfloat16 arithmetic and memory that BASTION's release has; an
A800 is an A100 whose links to others are slower."""

UNKNOWN_RIDGE = max(RIDGES.values())
"""For other devices the largest known, so that what is found holds whatever the device."""

FAR = 1.5
"""Prices that end below so many times R tell nothing."""

SHARE = 0.75
"""A table looks launch-bound where its longest pass takes less than this share of s / R times the shortest."""


@dataclass(frozen=True, slots=True)
class Flatness:
    """How much longer the longest measured pass takes than one of the root alone, and how much it should.

    Attributes:
        context: tokens before the root, the fewest measured: there the weights are most of what is moved.
        tokens: of the longest pass, the root counted.
        ratio: its seconds over those of the shortest.
        ridge: R.
    """

    context: int
    tokens: int
    ratio: float
    ridge: float

    @property
    def looks_launch_bound(self) -> bool | None:
        """None: the prices end too early to tell."""
        if self.tokens < FAR * self.ridge:
            return None
        return self.ratio < SHARE * self.tokens / self.ridge

    @property
    def warning(self) -> str:
        """A sentence for whoever reads the prices; empty where there is nothing to warn of."""
        if not self.looks_launch_bound:
            return ""
        return (
            f"looks launch-bound: with {self.context:,} tokens before it, a pass of {self.tokens:,} takes only "
            f"{self.ratio:.2f} times as long as one token, and arithmetic alone should make it "
            f"{self.tokens / self.ridge:.1f} times; large trees look free here and would not in an engine that starts "
            "its operations as a graph"
        )


def flatness(cost: CostTable, device: str) -> Flatness:
    """How flat the target's passes are.

    Args:
        cost: of one machine.
        device: its name; where it is none of ``RIDGES``, `UNKNOWN_RIDGE` is taken.
    """
    row = cost.seconds["verify"][0]
    ridge = next((value for name, value in RIDGES.items() if name in device.upper()), UNKNOWN_RIDGE)
    ratio = float(row[-1] / row[0]) if row[0] > 0 else float("inf")
    return Flatness(int(cost.contexts[0]), len(row), ratio, ridge)
