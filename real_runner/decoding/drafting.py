"""What a round's draft is made of: the drafter's candidates, and the channels that a policy reads beside them.

The drafter is run once, where something reads its pass. Producers may read more of its candidates than the policy
declares, and the policy sees only what it declares, as a replay cuts a record. In a round of a router that is run
alone which its route reads; what does not run catches up with the text when it next does.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from simlab.arrays import Ints
from simlab.channels import Channel
from simlab.draft import Marginals
from simlab.errors import MissingChannelError
from simlab.policy import AnyPolicy, Asked, Needs, routes_of
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.execution.executions import COMPILED, CUDA_GRAPHS, EAGER
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.masked import LiveMasks
from simlab.real_runner.networks.drafter import LiveDraft
from simlab.real_runner.networks.producer import (
    AnyProducer,
    Drafted,
    Reader,
    RootProducer,
    StagedProducer,
    TextProducer,
)
from simlab.real_runner.targets.model import features_of


class Drafting:
    """What drafts along one text: the drafter, and what makes its policy's channels.

    The drafter runs where the policy reads its candidates, or a channel goes on from its pass. Where the target drafts
    for itself, what it says at masks is handed over with each pass that has some.

    Attributes:
        masks: what the target says at its own masks; None where a drafter drafts, or nothing.
        layer_ids: the target's layers whose outputs are read.
        is_fed: whether `read` is to be told of further tokens; else what drafts takes them by itself.
    """

    def __init__(
        self, models: Models, policy: AnyPolicy, room: int, live: Callable[[CandidatesRead], LiveDraft] | None = None
    ) -> None:
        """Begin with nothing read of the text.

        Args:
            models: of them the drafter, and what makes the channels that the policy reads.
            policy: which drafts, or reads channels.
            room: tokens that the drafter's context will hold.
            live: makes what drafts along the text, where it is not the drafter by itself.
        """
        self._needs, made = policy.needs, producers_of(models, policy)
        self._before = {name: producer for name, producer in made.items() if isinstance(producer, RootProducer)}
        staged = {name: producer for name, producer in made.items() if isinstance(producer, StagedProducer)}
        alone = {name: producer for name, producer in made.items() if isinstance(producer, TextProducer)}
        self._beside = {
            name: producer
            for name, producer in made.items()
            if not isinstance(producer, TextProducer | StagedProducer | RootProducer)
        }
        self._alone = {name: producer.begin() for name, producer in alone.items()}
        self._staged = {name: producer.begin_behind(room) for name, producer in staged.items()}
        self._on_draft = {*self._beside, *staged}
        self._own = candidates_read(policy) if policy.needs.draft else CandidatesRead(0)
        read = [producer.width for producer in self._beside.values()] + [producer.width for producer in staged.values()]
        width = max([self._own.width, *read])
        self._is_cut = width > self._own.width
        self._drafter: LiveDraft | None = None
        self._readers = list[tuple[Reader, tuple[int, ...]]]()
        if policy.needs.draft or self._on_draft:
            drafted = replace(self._own, width=width)
            self._drafter = models.drafts.live(drafted, room, models.graphs) if live is None else live(drafted)
            self._readers.append((self._drafter, models.drafter.config.target_layer_ids))
        self.masks = self._drafter if isinstance(self._drafter, LiveMasks) else None
        self._readers += [(channel, alone[name].taps) for name, channel in self._alone.items()]
        self._readers += [(text, staged[name].taps) for name, text in self._staged.items()]
        self.layer_ids = tuple(dict.fromkeys(layer for _, taps in self._readers for layer in taps))
        self.is_fed = any(taps and (live is None or reader is not self._drafter) for reader, taps in self._readers)
        self._committed = np.empty(0, np.int32)
        self._served = self._needs
        self._is_drafted = False
        self._drafted: Drafted | None = None

    def read(self, features: Tensor) -> None:
        """Take in the states ``[1, L, taps x H]`` of further tokens of the text, behind the layers of ``layer_ids``."""
        states = dict(zip(self.layer_ids, features.chunk(len(self.layer_ids), dim=-1), strict=True))
        for reader, taps in self._readers:
            if taps:
                reader.read(features if taps == self.layer_ids else features_of(states, taps))

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; see `Reader.rewind`."""
        for reader, _ in self._readers:
            reader.rewind(length)

    @property
    def predicts(self) -> bool:
        """Whether some channel is known before anything is drafted."""
        return bool(self._before)

    def predicted(self, state: Tensor, logits: Tensor, position: int) -> dict[str, Channel]:
        """The channels of a root that are known before anything is drafted; arguments as of `RootProducer.predict`."""
        return {name: producer.predict(state, logits, position) for name, producer in self._before.items()}

    def draft(self, committed: Ints, served: Needs | None = None) -> None:
        """Draft below the last of the tokens of prompt and text, int32, all before it read.

        Args:
            committed: these tokens.
            served: what the round reads of all that the policy may read, as the route of a router declares it; None:
                all of it.
        """
        self._committed, self._served = committed, self._needs if served is None else served
        self._is_drafted, self._drafted = False, None
        if self._drafter is None:
            return
        if self._served.draft or any(need.name in self._on_draft for need in self._served.scored):
            self._is_drafted, self._drafted = True, self._drafter.draft(committed)

    def marginals(self) -> Marginals | None:
        """What the policy sees of the last draft; None where the round reads none, or the root has no draft."""
        if not self._served.draft:
            return None
        if not self._is_drafted:
            raise ValueError("nothing was drafted yet")
        if self._drafted is None:
            return None
        marginals = self._drafted.marginals
        return marginals.first_ranks(self._own.width) if self._is_cut else marginals

    def channels(self, asked: Asked) -> dict[str, Channel]:
        """The channels of a root that the round reads, by name, each made here.

        There are none of a root without a draft of the target's own masks.

        Args:
            asked: the branches that the round wants; every one of a channel that is not named.
        """
        if self.masks is not None and self._drafted is None:
            return {}
        return {need.name: self._channel(need.name, asked) for need in self._served.scored}

    def _channel(self, name: str, asked: Asked) -> Channel:
        if name in self._alone:
            return self._alone[name].at_root(self._committed)
        if name in self._staged:
            return self._staged[name].at_root(self._last(), asked.get(name))
        return self._beside[name].at_root(self._last())

    def _last(self) -> Drafted:
        if self._drafted is None:
            raise ValueError("nothing was drafted yet")
        return self._drafted


def candidates_read(policy: AnyPolicy) -> CandidatesRead:
    """What a policy may read of a draft: a best-first tree of n nodes reads no candidate past rank n."""
    needs = policy.needs
    return CandidatesRead(policy.budget if needs.top_k is None else needs.top_k, needs.entropies)


def depth_of(models: Models, policy: AnyPolicy) -> int:
    """How deep trees of a policy may go: as deep as the drafter, or a channel that it reads."""
    made = producers_of(models, policy).values()
    return max(
        [
            models.drafter.config.depth,
            *(producer.depth for producer in made if isinstance(producer, TextProducer | StagedProducer)),
        ]
    )


def producers_of(models: Models, policy: AnyPolicy) -> dict[str, AnyProducer]:
    """What makes the channels that a policy reads, each no more than it declares, by name."""
    needs = policy.needs.made
    check_passes(policy, models.execution)
    for need in needs:
        if need.name not in models.channels:
            made = f"the channels {', '.join(models.channels)}" if models.channels else "no channel"
            raise MissingChannelError(
                f"{policy!r} reads the channel {need.name}, and the runner makes {made}; confirm the policy on a trace "
                f"with that channel, or give what makes it, `replace(models, channels={{{need.name!r}: PRODUCER}})`"
            )
    producers, graphs = {need.name: models.channels[need.name].within(need) for need in needs}, models.graphs
    return producers if graphs is None else {name: producer.captured(graphs) for name, producer in producers.items()}


def check_passes(policy: AnyPolicy, execution: str, batch: int = 1) -> None:
    """Refuse a router, or what reads channels, where passes are compiled, or of several texts.

    Args:
        policy: any.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`.
        batch: texts at a time.
    """
    what = f"{policy!r} is a router, and routers" if routes_of(policy) else ""
    if policy.needs.channels:
        what = f"{policy!r} reads the channel {policy.needs.channels[0].name}, and channels"
    if what and execution == COMPILED:
        raise MissingChannelError(
            f"{what} have no form for --execution {execution}; give {EAGER}, or {CUDA_GRAPHS} on a GPU"
        )
    if what and batch > 1:
        raise MissingChannelError(f"{what} are run for one text at a time; leave --batch out")
