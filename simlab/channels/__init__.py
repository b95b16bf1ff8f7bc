"""Scores of tokens given the tokens before them: recorded along a text, or computed a moment ago.

A drafter's marginals say how likely a token is at a depth, whatever stands before it. A channel says more:
*transitions* score the next token after each of some tokens of the depth above, a *pool* scores the nodes of a tree
that some model walked through, *branches* are a second drafter's candidates behind beginnings of the chain.
*Features* score no token: they are what a network says of a root before anything is drafted. Networks that make
channels run elsewhere; here are numbers on the grid of `simlab.grid` alone. `rows` and `features` hold them at one root
and at many, `root_rows` has what all of them share, `needs` compares what a policy asks for with what was recorded. One
channel every trace has: how sure the *target* was of a root.
"""

from simlab.channels.features import FeatureRows, Features, TargetLaw, TargetLawRows
from simlab.channels.root_rows import BRANCHES, FEATURES, KINDS, POOL, TARGET, TRANSITIONS
from simlab.channels.rows import (
    Branches,
    BranchRows,
    Channel,
    ChannelRows,
    MadeChannel,
    MadeRows,
    Pool,
    PoolRows,
    ScoredTokens,
    TransitionRows,
    Transitions,
    join_channels,
)

__all__ = [
    "BRANCHES",
    "FEATURES",
    "KINDS",
    "POOL",
    "TARGET",
    "TRANSITIONS",
    "BranchRows",
    "Branches",
    "Channel",
    "ChannelRows",
    "FeatureRows",
    "Features",
    "MadeChannel",
    "MadeRows",
    "Pool",
    "PoolRows",
    "ScoredTokens",
    "TargetLaw",
    "TargetLawRows",
    "TransitionRows",
    "Transitions",
    "join_channels",
]
