"""Passes of one text of fixed sizes, which are captured on a GPU.

Rounds are those of `simlab.real_runner.decoding.eager_passes`: the same draft, tree, walk and text. What differs is
the order of work. When a tree is verified the device goes on by itself: it keeps the accepted rows and drafts below
the bonus token, while the host waits for the choices and follows them, and then for the next round's candidates.
What drafts token by token, and a router's drafter, wait for the host. Above temperature 0 the host draws the choices,
and waits for each row of logits that it looks at.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints, Longs
from simlab.cost import StageSeconds
from simlab.draft import Marginals
from simlab.policy import AnyPolicy, num_masked, routes_of
from simlab.real_runner.decoding.decoded import Choose, RunningText, chooser
from simlab.real_runner.decoding.drafting import Drafting
from simlab.real_runner.decoding.single_text import SingleText
from simlab.real_runner.decoding.tree_pass import Walked, follow
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.execution.executions import rows_for
from simlab.real_runner.execution.fused_layers import Adapter
from simlab.real_runner.execution.graph_models import GraphedModels, Wanted
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.execution.tree_passes import TreePass
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.masked import LiveMasks, OwnDrafter
from simlab.real_runner.networks.producer import Drafted
from simlab.real_runner.targets.model import features_of, tapped
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

_MOST_DRAFTED = 512
"""Tokens of a tree for which there is place from the beginning; policies that know no limit draft less."""


class StageMarks:
    """Marks between stages. On a GPU they are events of the stream, so that no mark waits."""

    def __init__(self, device: torch.device, outside: Callable[[], float]) -> None:
        """Begin with no mark set.

        Args:
            device: that works.
            outside: seconds so far that belong to no stage; the device waits meanwhile.
        """
        self._is_gpu, self._outside = device.type == "cuda", outside
        self._events: list[torch.cuda.Event] = []
        self._spare: list[torch.cuda.Event] = []
        # Asking for it costs more than a mark.
        self._stream = torch.cuda.current_stream(device) if self._is_gpu else None
        self._times: list[float] = []
        self._outsides: list[float] = []

    def mark(self) -> None:
        """Here one stage ends and the next begins."""
        self._outsides.append(self._outside())
        if self._is_gpu:
            event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
            event.record(self._stream)
            self._events.append(event)
        else:
            self._times.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds of each stage since the last call; waits until the device has reached the last mark."""
        if self._events:
            self._events[-1].synchronize()
        events = [1e-3 * first.elapsed_time(second) for first, second in pairwise(self._events)]
        times = [second - first for first, second in pairwise(self._times)]
        outside = [second - first for first, second in pairwise(self._outsides)]
        self._spare += self._events
        self._events, self._times, self._outsides = [], [], []
        # Two clocks may differ a little where a device waited.
        return [max(0.0, spent - other) for spent, other in zip(events or times, outside, strict=True)]


class ChainedDraft:
    """A block drafter that the device runs by itself behind each verification; see `LiveDraft`."""

    def __init__(self, models: Models, graphed: GraphedModels, read: CandidatesRead) -> None:
        """Begin with nothing read of the text; ``read`` is what is given at each depth."""
        own, size = models.block_drafter.lm_head, models.target.vocab_size
        # No wider than the vocabulary, so that equal drafts are captured once.
        self._read = replace(read, width=min(read.width, size if own is None else own.out_features))
        self._drafter, self._graphed = models.block_drafter, graphed
        self._features = torch.empty(0)
        self._is_launched = False
        self._marginals: Marginals | None = None

    def read(self, features: Tensor) -> None:
        """Take in the states of the prompt; those of later tokens the device has taken, and the last ones are kept."""
        if not len(self._features):
            self._graphed.fill(self._drafter.context(features))
        self._features = features[:, -self._graphed.num_fresh :]

    def rewind(self, length: int) -> None:
        self._is_launched = False

    def launch(self, num_fresh: int, position: int, width: int) -> None:
        """Have the device draft below the root that it finds, once it has verified below this position."""
        self._graphed.draft(num_fresh, position + num_fresh + 1, self._read, width)
        self._is_launched, self._marginals = True, None

    def finish(self) -> None:
        """Wait for the draft that was launched."""
        if self._is_launched and self._marginals is None:
            self._marginals = self._graphed.marginals(self._read)

    def draft(self, committed: Ints) -> Drafted:
        root, position = int(committed[-1]), len(committed) - 1
        if not self._is_launched:
            self._graphed.draft_at(root, position, self._read, self._features)
            self._is_launched, self._marginals = True, None
        self.finish()
        assert self._marginals is not None
        states = self._graphed.drafted_states(self._drafter.config.depth)
        return Drafted(root, position, self._marginals, states, self._graphed.blocks(position))


class ChainedMasks(LiveMasks):
    """The masks of a target, from whose states the device drafts by itself behind each verification."""

    def __init__(self, own: OwnDrafter, graphed: GraphedModels, read: CandidatesRead) -> None:
        """Begin without a draft; ``read`` is what is given at each depth."""
        super().__init__(own, read)
        self._graphed = graphed
        self._is_launched = False
        self._marginals: Marginals | None = None

    def launch(self, held: TreePass) -> None:
        """Have the device draft below the root that it finds."""
        self._graphed.draft_of_masks(held, self._own.config.depth, self._wanted, self.logits)
        self._marginals, self._is_launched = None, True

    def finish(self) -> None:
        """Wait for the draft that was launched."""
        if self._is_launched:
            self._marginals = self._graphed.marginals(self._wanted)
            self._states, self._is_launched = self._graphed.drafted_states(self._own.config.depth), False

    def leave(self, has_draft: bool) -> None:
        """Whether the next root has the draft that was launched."""
        self._is_drafted = has_draft

    def draft(self, committed: Ints) -> Drafted | None:
        if self._marginals is None or not self._is_drafted:
            return super().draft(committed)
        assert self._states is not None
        return Drafted(int(committed[-1]), len(committed) - 1, self._marginals, self._states)


class CapturedPasses(SingleText):
    """Passes of one text at a time, see `simlab.real_runner.decoding.speculation.Passes`."""

    def __init__(self, models: Models, graphed: GraphedModels, policy: AnyPolicy, sampling: Sampling) -> None:
        """Begin with nothing read.

        Args:
            models: a target and a drafter that fits it.
            graphed: of these; what it held of another text is lost.
            policy: any that drafts.
            sampling: how the target chooses.
        """
        # Capturing belongs to no round.
        super().__init__(models, policy, sampling, lambda: time.perf_counter() - graphed.graphs.seconds)
        self._graphed = graphed
        self._marks = StageMarks(models.target.device, lambda: graphed.graphs.seconds)
        self._most_rows = rows_for(1 + min(policy.budget, _MOST_DRAFTED))
        self._chained: ChainedDraft | ChainedMasks | None = None

    def add(self, row: int, text: RunningText) -> None:
        target, graphed, start = self._models.target, self._graphed, text.length
        self._chained = None
        drafter = self._models.drafter
        # Which route of a router drafts is known when the round has begun.
        is_chained = isinstance(drafter, DFlashDrafter) and not routes_of(self._policy)
        live = self._live if is_chained or isinstance(drafter, Adapter) else None
        self._drafting = Drafting(self._models, self._policy, len(text.tokens), live)
        layer_ids, predicts = self._drafting.layer_ids, self._drafting.predicts
        reads_logits = self._sampling.temperature > 0 or self._reads_law or predicts
        self._wanted = Wanted(layer_ids, reads_logits, predicts)
        cache = BufferCache(target, start)
        with tapped(target, layer_ids) as taken:
            states = target.states(text.prompt_ids.to(target.device), cache)
        graphed.begin(cache, len(text.tokens) + self._most_rows)
        if layer_ids:
            self._drafting.read(features_of(taken, layer_ids))
        if self._drafting.masks is not None:
            self._drafting.masks.take(self._behind_prompt(self._drafting.masks, text, cache))
        logits = target.logits(states[:, -1])
        self._remember(states[0, -1], logits[0])
        text.append((chooser(target, logits, self._sampling, text.key)(0, start),))
        self._draft_first(text)

    def verify(self, texts: Sequence[RunningText], trees: Sequence[DraftTree]) -> list[Walked]:
        (text,), (tree,) = texts, trees
        graphed, position, chained = self._graphed, text.position, self._chained
        num, depth, noise = 0, self._models.drafter.config.depth, None
        if isinstance(chained, ChainedMasks):
            num = num_masked(self._policy, text.state, tree.num_nodes)
            noise = chained.noise_behind(tree.tokens[:num], position + tree.depths()[:num])
        self._marks.mark()
        held, deepest = graphed.verify(tree, position, self._wanted, num, depth, noise)
        if self._sampling.temperature > 0:
            drawn: dict[int, int] = {}
            follow(tree, self._drawing(held, text.key, drawn), position, text.num_left, text.stop_token_ids)
            graphed.choose(held, _places(drawn, tree.num_nodes))
        self._marks.mark()
        num_fresh = graphed.keep(held, position, deepest)
        self._marks.mark()
        if isinstance(chained, ChainedDraft):
            assert held.features is not None
            chained.launch(num_fresh, position, held.features.shape[2])
        elif chained is not None and num:
            chained.launch(held)
        self._marks.mark()
        # All that follows from the choices is done while the device drafts.
        chosen = graphed.chosen(held)
        walked = follow(tree, lambda row, _: chosen[row], position, text.num_left, text.stop_token_ids)
        self._verified = held, num_fresh, num
        return [walked]

    def keep(self, texts: Sequence[RunningText], walks: Sequence[Walked]) -> None:
        """Tell what else reads the text of what was accepted; the device itself has kept it."""
        ((path, _),) = walks
        held, num_fresh, num = self._verified
        last = path[-1] if path else 0
        if isinstance(self._chained, ChainedMasks):
            self._chained.leave(last < num)
        if self._drafting.is_fed:
            self._drafting.read(self._graphed.fresh(held, num_fresh, 1 + len(path)))
        if held.logits is not None:
            self._remember(held.logits[last] if held.states is None else held.states[last], held.logits[last])

    def stage_seconds(self, times: Sequence[float]) -> StageSeconds:
        """Seconds of each stage, once the next root is drafted below: of passes the device's own, without capturing."""
        if self._chained is not None:
            self._chained.finish()
        began, before, drafted, behind, selected, *_ = times
        verify_s, keep_s, launched_s = self._marks.seconds()
        draft_s, channel_s = launched_s + drafted - before, before - began + behind - drafted
        select_s = selected - behind
        # What is neither the policy's nor a pass of a model is the host's: launches, copies, following the tree.
        commit_s = max(keep_s, self.clock() - began - draft_s - channel_s - select_s - verify_s)
        return StageSeconds(draft_s, channel_s, select_s, verify_s, commit_s)

    def rewind(self, row: int, text: RunningText) -> None:
        self._drafting.rewind(text.position)
        self._draft_first(text)

    def _live(self, read: CandidatesRead) -> ChainedDraft | ChainedMasks:
        drafts = self._models.drafts
        if isinstance(drafts, OwnDrafter):
            self._chained = ChainedMasks(drafts, self._graphed, read)
        else:
            self._chained = ChainedDraft(self._models, self._graphed, read)
        return self._chained

    def _draft_first(self, text: RunningText) -> None:
        """Draft where no verification has launched it, so that no round pays for it."""
        if isinstance(self._chained, ChainedDraft):
            self._chained.draft(text.tokens[: text.length])

    def _drawing(self, held: TreePass, key: int, drawn: dict[int, int]) -> Choose:
        """The target's choices with the text's noise; what was asked for is kept by its row."""
        assert held.logits is not None
        choose = chooser(self._models.target, held.logits, self._sampling, key)

        def draw(row: int, position: int) -> int:
            drawn[row] = choose(row, position)
            return drawn[row]

        return draw


def _places(drawn: dict[int, int], num_nodes: int) -> Longs:
    """int64 ``[N]``, a choice for each row that was asked for, -1 for the others."""
    positions = np.full(num_nodes, -1, np.int64)
    positions[list(drawn)] = list(drawn.values())
    return positions
