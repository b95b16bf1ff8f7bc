"""Scores of tokens given the tokens before them: recorded along a text, or computed a moment ago.

A drafter's marginals say how likely a token is at a depth, whatever stands before it. A channel says more:
*transitions* score the next token after each of some tokens of the depth above, a *pool* scores the nodes of a tree
that some model walked through, *branches* are a second drafter's candidates behind beginnings of the chain.
*Features* score no token: they are what a network says of a root before anything is drafted. Networks that make
channels run elsewhere; here are numbers on the grid of `simlab.grid` alone. `rows`, `branches` and `features` hold them
at one root and at many, `needs` compares what a policy asks for with what was recorded. `law` is the one channel that
every trace has: how sure the *target* was of a root.
"""

from simlab.channels.branches import Branches, BranchRows, FeatureRows, Features
from simlab.channels.law import TARGET, TargetLaw, TargetLawRows
from simlab.channels.rows import (
    BRANCHES,
    FEATURES,
    KINDS,
    POOL,
    TRANSITIONS,
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
    kind_of,
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
    "kind_of",
]
