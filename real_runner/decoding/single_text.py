"""Passes of one text: what is known, drafted and made before its tree is chosen, whatever runs the passes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import read_only
from simlab.channels import TARGET, Channel, TargetLaw
from simlab.draft import Draft
from simlab.policy import TARGET_LAW, AnyPolicy, branches_asked, route_taken, routes_of
from simlab.real_runner.decoding.decoded import RunningText
from simlab.real_runner.decoding.drafting import Drafting
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.execution.fixed_drafter import run
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.masked import LiveMasks
from simlab.real_runner.targets.model import entropies_of
from simlab.sampling.choice import Sampling


class SingleText:
    """What all passes of one text at a time share, see `simlab.real_runner.decoding.speculation.Passes`.

    Attributes:
        clock: in whose seconds stages are timed.
    """

    _drafting: Drafting

    def __init__(self, models: Models, policy: AnyPolicy, sampling: Sampling, clock: Clock) -> None:
        """Begin with nothing read."""
        self._models, self._policy, self._sampling, self.clock = models, policy, sampling, clock
        # Asked once: a policy may make it anew each time.
        self._needs, self._routes = policy.needs, [route.needs for route in routes_of(policy)]
        self._reads_law = TARGET_LAW in self._needs.channels
        self._law: TargetLaw | None = None
        self._before_root: tuple[Tensor, Tensor] | None = None

    def drafts(self, texts: Sequence[RunningText], times: list[float]) -> list[Draft]:
        (text,) = texts
        committed, known, needs = read_only(text.tokens[: text.length]), self._known(text.position), self._needs
        # A round of which nothing is predicted has no such stage, either.
        times.append(times[-1] if self._before_root is None else self.clock())
        if self._routes:
            text.route = route_taken(self._policy, Draft(None, text.root, committed, text.position, known), text.state)
            needs = needs if text.route is None else self._routes[text.route]
        self._drafting.draft(committed, needs)
        times.append(self.clock())
        draft = Draft(self._drafting.marginals(), text.root, committed, text.position, known)
        if not needs.scored:
            # A round without channels has no such stage.
            times.append(times[-1])
            return [draft]
        made = self._drafting.channels(branches_asked(self._policy, draft, text.state))
        times.append(self.clock())
        return [replace(draft, channels={**known, **made})]

    def drop(self, row: int, last: int) -> None:
        """Do nothing: the next text begins anew."""

    def _behind_prompt(self, masks: LiveMasks, text: RunningText, cache: BufferCache) -> BlockStates:
        """States of the masks behind the prompt, in a pass of their own: reading it is as without masks."""
        num, length = self._models.drafter.config.depth, cache.length
        ids, committed = torch.zeros(1, num, dtype=torch.int64), text.tokens[: text.length]
        masks.begin(committed)
        with masks.during(0, committed[-1:], np.array([length - 1], np.int32)) as before:
            after = self._models.target.states(ids, cache)
        cache.shorten(length)
        return BlockStates(before[-1], after)

    def _remember(self, state: Tensor, logits: Tensor) -> None:
        """Keep what is read of the token before the next root: its law ``[V]``, and its state ``[H]``."""
        if self._reads_law:
            (entropy,) = run(self._models.graphs, "law", _entropy, logits)
            self._law = TargetLaw(float(entropy))
        self._before_root = (state, logits) if self._drafting.predicts else None

    def _known(self, position: int) -> dict[str, Channel]:
        """What is known before anything is drafted."""
        law: dict[str, Channel] = {} if self._law is None else {TARGET: self._law}
        return law if self._before_root is None else law | self._drafting.predicted(*self._before_root, position)


def _entropy(logits: Tensor) -> tuple[Tensor]:
    return (entropies_of(logits.log_softmax(-1)),)
