"""How often routers took each of their routes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from simlab.channels.needs import channels_read
from simlab.policies.engine.replay import Replay
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.traces.reader import Trace

ROOTS_AT_ONCE = 4096
"""Texts of as many positions are looked at together."""

RouteShares: TypeAlias = Mapping[str, Mapping[str, float]]
"""By the label of a router, and by a route as it is typed: the share of the router's rounds that it served."""


def route_shares(trace: Trace, draft: str, policies: Iterable[NamedPolicy], sequences: Sequence[int]) -> RouteShares:
    """How often each router among some policies took each route; no entry for any other policy.

    Routers are replayed once more for it: result rows do not say who served a round.

    Args:
        trace: the recording.
        draft: the draft set.
        policies: any.
        sequences: the texts.
    """
    routers = {one.label: one.policy for one in policies if isinstance(one.policy, RoutedPolicy)}
    if not routers:
        return {}
    replay = Replay([(policy, None) for policy in routers.values()])
    counts = [np.zeros(len(policy.routes), np.int64) for policy in routers.values()]
    channels = channels_read(routers.values())
    for texts in trace.recorded_texts(draft, sequences, ROOTS_AT_ONCE, channels):
        for place, found in enumerate(replay.rounds(texts)):
            if found.routes is not None:
                counts[place] += np.bincount(found.routes, minlength=len(counts[place]))
    return {
        label: dict(zip(policy.route_labels, (total / max(total.sum(), 1)).tolist(), strict=True))
        for (label, policy), total in zip(routers.items(), counts, strict=True)
    }


def routes_text(shares: RouteShares) -> str:
    """A line for each router."""
    lines = [
        f"{label}: {', '.join(f'{100 * share:.0f} % {route}' for route, share in routes.items())}"
        for label, routes in shares.items()
    ]
    return "\n".join(["Rounds by route:", *(f"  {line}" for line in lines)])
