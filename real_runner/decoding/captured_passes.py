"""Passes of one text of fixed sizes, which are captured on a GPU.

Rounds are those of `simlab.real_runner.decoding.eager_passes`: the same draft, tree, walk and text. What differs is
the order of work. When a tree is verified the device goes on by itself: it keeps the accepted rows and drafts below
the bonus token, while the host waits for the choices and follows them, and then for the next round's candidates.
Above temperature 0 the host draws the choices, and waits for each row of logits that it looks at.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from simlab.arrays import Longs, read_only
from simlab.cost import StageSeconds
from simlab.draft import Draft, Marginals
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decoded import Choose, RunningText, chooser
from simlab.real_runner.decoding.drafting import candidates_read
from simlab.real_runner.decoding.tree_pass import Walked, follow
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.execution.executions import rows_for
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.execution.tree_passes import TreePass
from simlab.real_runner.models import Models
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
        """Seconds of each stage since the last call; the device must have reached the last mark."""
        events = [1e-3 * first.elapsed_time(second) for first, second in pairwise(self._events)]
        times = [second - first for first, second in pairwise(self._times)]
        outside = [second - first for first, second in pairwise(self._outsides)]
        self._spare += self._events
        self._events, self._times, self._outsides = [], [], []
        # Two clocks may differ a little where a device waited.
        return [max(0.0, spent - other) for spent, other in zip(events or times, outside, strict=True)]


class CapturedPasses:
    """Passes of one text at a time, see `simlab.real_runner.decoding.speculation.Passes`."""

    def __init__(self, models: Models, graphed: GraphedModels, policy: AnyPolicy, sampling: Sampling) -> None:
        """Begin with nothing read.

        Args:
            models: a target and a drafter that fits it.
            graphed: of these; what it held of another text is lost.
            policy: any that drafts.
            sampling: how the target chooses.
        """
        self._models, self._graphed, self._sampling = models, graphed, sampling
        self._marks = StageMarks(models.target.device, lambda: graphed.graphs.seconds)
        self._read = _read(models, policy) if policy.needs.draft else None
        self._most_rows = rows_for(1 + min(policy.budget, _MOST_DRAFTED))
        self._marginals: Marginals | None = None
        self._captured_before_s = 0.0

    def add(self, row: int, text: RunningText) -> None:
        target, graphed, start = self._models.target, self._graphed, text.length
        cache = BufferCache(target, start)
        layer_ids = self._models.drafter.config.target_layer_ids if self._read is not None else ()
        with tapped(target, layer_ids) as taken:
            states = target.states(text.prompt_ids.to(target.device), cache)
        features = features_of(taken, layer_ids) if self._read is not None else None
        context = None if features is None else self._models.block_drafter.context(features)
        graphed.begin(cache, context, len(text.tokens) + self._most_rows)
        text.append((chooser(target, target.logits(states[:, -1]), self._sampling, text.key)(0, start),))
        if self._read is not None:
            graphed.draft_at(text.root, start, self._read, features)
            self._marginals = graphed.marginals(self._read)

    def drafts(self, texts: Sequence[RunningText], times: list[float]) -> list[Draft]:
        """What was drafted when the last round was verified: that takes no time here."""
        (text,) = texts
        self._captured_before_s = self._graphed.graphs.seconds
        times += [times[-1]] * 3
        return [Draft(self._marginals, text.root, read_only(text.tokens[: text.length]), text.position)]

    def verify(self, texts: Sequence[RunningText], trees: Sequence[DraftTree]) -> list[Walked]:
        (text,), (tree,) = texts, trees
        graphed, position, is_drawn = self._graphed, text.position, self._sampling.temperature > 0
        self._marks.mark()
        held, deepest = graphed.verify(tree, position, self._read is not None, is_drawn)
        if is_drawn:
            drawn: dict[int, int] = {}
            follow(tree, self._drawing(held, text.key, drawn), position, text.num_left, text.stop_token_ids)
            graphed.choose(held, _places(drawn, tree.num_nodes))
        self._marks.mark()
        num_fresh = graphed.keep(held, position, deepest)
        self._marks.mark()
        if self._read is not None:
            graphed.draft(num_fresh, position + num_fresh + 1, self._read)
        self._marks.mark()
        # All that follows from the choices is done while the device drafts.
        chosen = graphed.chosen(held)
        return [follow(tree, lambda row, _: chosen[row], position, text.num_left, text.stop_token_ids)]

    def keep(self, texts: Sequence[RunningText], walks: Sequence[Walked]) -> None:
        """Do nothing: the device has kept what was accepted."""

    def stage_seconds(self, times: Sequence[float]) -> StageSeconds:
        """Seconds of each stage, once the next root is drafted below: of passes the device's own, without capturing."""
        if self._read is not None:
            self._marginals = self._graphed.marginals(self._read)
        began, *_, drafted, selected, _verified, _committed = times
        select_s = selected - drafted
        verify_s, keep_s, draft_s = self._marks.seconds()
        # What is neither the policy's nor a pass of a model is the host's: launches, copies, following the tree.
        total_s = time.perf_counter() - began - (self._graphed.graphs.seconds - self._captured_before_s)
        commit_s = max(keep_s, total_s - draft_s - select_s - verify_s)
        return StageSeconds(draft_s=draft_s, select_s=select_s, verify_s=verify_s, commit_s=commit_s)

    def rewind(self, row: int, text: RunningText) -> None:
        if self._read is not None:
            self._graphed.draft_at(text.root, text.position, self._read)
            self._marginals = self._graphed.marginals(self._read)

    def drop(self, row: int, last: int) -> None:
        """Do nothing: the next text begins anew."""

    def _drawing(self, held: TreePass, key: int, drawn: dict[int, int]) -> Choose:
        """The target's choices with the text's noise; what was asked for is kept by its row."""
        assert held.logits is not None
        choose = chooser(self._models.target, held.logits, self._sampling, key)

        def draw(row: int, position: int) -> int:
            drawn[row] = choose(row, position)
            return drawn[row]

        return draw


def _read(models: Models, policy: AnyPolicy) -> CandidatesRead:
    """What a policy reads of a draft; no wider than the vocabulary, so that equal drafts are captured once."""
    own, read = models.block_drafter.lm_head, candidates_read(policy)
    size = models.target.vocab_size if own is None else own.out_features
    return replace(read, width=min(read.width, size))


def _places(drawn: dict[int, int], num_nodes: int) -> Longs:
    """int64 ``[N]``, a choice for each row that was asked for, -1 for the others."""
    places = np.full(num_nodes, -1, np.int64)
    places[list(drawn)] = list(drawn.values())
    return places
