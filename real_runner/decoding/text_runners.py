"""What decodes a text on these models: passes of just the right size, or captured ones of fixed sizes."""

import time
from dataclasses import replace

import numpy as np
import torch

from simlab.arrays import Ints, Longs, read_only
from simlab.cost import StageSeconds
from simlab.draft import Draft, Marginals, Prompt
from simlab.policy import AnyPolicy, Outcome, modelled_s
from simlab.real_runner.decoding.decoded import Choose, DecodedRound, RunningText, chooser
from simlab.real_runner.decoding.drafting import candidates_read
from simlab.real_runner.decoding.plain import Clock, PlainDecoding, StageMarks
from simlab.real_runner.decoding.speculation import Speculation, check_drafted
from simlab.real_runner.decoding.tree_pass import follow
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.execution.executions import rows_for
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.execution.tree_passes import TreePass
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target, features_of, tapped
from simlab.sampling.choice import Sampling, sequence_key
from simlab.sequence_replay import Round

# Plain decoding of one text by a pass of fixed size: the baseline beside rounds that are captured.


class GraphPlainDecoding:
    """One text, token by token; begins with the prefill and token 0. On the device each token leads to the next."""

    @torch.inference_mode()
    def __init__(
        self, target: Target, graphed: GraphedModels, prompt: Prompt, sampling: Sampling, max_new_tokens: int
    ) -> None:
        """Read the prompt and choose token 0."""
        self._target, self._graphed, self._sampling = target, graphed, sampling
        self._key = sequence_key(sampling, prompt)
        self._max_new_tokens = max_new_tokens
        start = len(prompt.token_ids)
        cache = BufferCache(target, start)
        states = target.states(torch.from_numpy(prompt.token_ids.astype(np.int64))[None], cache)
        rows = cache.rows.tensor
        assert rows is not None
        graphed.begin(rows[:, :, :, :start], None, start + max_new_tokens)
        first = chooser(target, target.logits(states[:, -1]), sampling, self._key)(0, start)
        self._begin(start, first)

    @property
    def text(self) -> Ints:
        """int32 ``[T]``, what was written so far."""
        return np.array(self._text, np.int32)

    @property
    def ended(self) -> bool:
        """Whether the last token is a stop token or the last allowed one."""
        return self._text[-1] in self._target.stop_token_ids or len(self._text) >= self._max_new_tokens

    @torch.inference_mode()
    def step(self) -> float:
        """Write one token by a captured pass of the target.

        Returns:
            Seconds; capturing is not in them.
        """
        graphed, began, captured = self._graphed, time.perf_counter(), self._graphed.graphs.seconds
        is_drawn = self._sampling.temperature > 0
        held = graphed.step(self._position, is_drawn)
        if held.logits is not None:
            token = chooser(self._target, held.logits, self._sampling, self._key)(0, self._position + 1)
            graphed.place(token, self._position + 1, is_drawn)
        else:
            (token,) = graphed.chosen(held)
        self._text.append(token)
        self._position += 1
        return time.perf_counter() - began - (graphed.graphs.seconds - captured)

    @torch.inference_mode()
    def rewind(self, context_length: int, root_token: int) -> None:
        """Forget all but the first ``context_length`` tokens, and go on below ``root_token``: to time it again."""
        self._begin(context_length, root_token)

    def _begin(self, position: int, token: int) -> None:
        self._position, self._text = position, [token]
        self._graphed.place(token, position, self._sampling.temperature > 0)


# Speculative decoding of one text by passes of fixed sizes.
#
# Rounds are those of `simlab.real_runner.decoding.speculation`: the same draft, tree, walk and text. What differs is
# the order of work. When a tree is verified the device goes on by itself: it keeps the accepted rows and drafts below
# the bonus token, while the host waits for the choices and follows them, and then for the next round's candidates.
# Above temperature 0 the host draws the choices, and waits for each row of logits that it looks at.


_MOST_DRAFTED = 512
"""Tokens of a tree for which there is place from the beginning; policies that know no limit draft less."""


class GraphSpeculation:
    """One text, round by round; begins with the prefill, token 0 and the first draft."""

    @torch.inference_mode()
    def __init__(
        self,
        models: Models,
        graphed: GraphedModels,
        policy: AnyPolicy,
        prompt: Prompt,
        sampling: Sampling,
        max_new_tokens: int,
    ) -> None:
        """Read the prompt and choose token 0.

        Args:
            models: a target and a drafter that fits it.
            graphed: of these; what it held of another text is lost.
            policy: any that drafts.
            prompt: rendered; names the text's noise.
            sampling: how the target chooses.
            max_new_tokens: at least 1.
        """
        self._models, self._graphed, self._policy, self._sampling = models, graphed, policy, sampling
        self._marks = StageMarks(models.target.device, lambda: graphed.graphs.seconds)
        self._read = _read(models, policy) if policy.needs.draft else None
        start = len(prompt.token_ids)
        tokens = np.zeros(start + max_new_tokens, np.int32)
        tokens[:start] = prompt.token_ids
        key = sequence_key(sampling, prompt)
        self._running = RunningText(
            number=0, prompt=prompt, key=key, tokens=tokens, length=start, state=policy.start(prompt)
        )
        self._marginals: Marginals | None = None
        self._read_prompt()

    @property
    def text(self) -> Ints:
        """int32 ``[T]``, what was written so far."""
        return self._running.text

    @property
    def ended(self) -> bool:
        """Whether the last token is a stop token or the last allowed one."""
        return self._running.root in self._models.target.stop_token_ids or self._running.num_left == 0

    @torch.inference_mode()
    def round(self) -> DecodedRound:
        """One verification, and the draft of the next round.

        The seconds of a captured pass are those of the device. Capturing is in none.

        Raises:
            PolicyError: a tree above the policy's own budget, below another root, or of unknown tokens.
            ModelError: logits of a model are no law.
        """
        text, graphed, policy = self._running, self._graphed, self._policy
        position, began, captured = text.position, time.perf_counter(), graphed.graphs.seconds
        marginals = self._marginals
        tree = policy.select(Draft(marginals, text.root, read_only(text.tokens[: text.length]), position), text.state)
        select_s = time.perf_counter() - began
        check_drafted(policy, tree, text.root, self._models.target.vocab_size)
        is_drawn = self._sampling.temperature > 0
        self._marks.mark()
        held, deepest = graphed.verify(tree, position, self._read is not None, is_drawn)
        drawn: dict[int, int] = {}
        if is_drawn:
            follow(tree, self._drawing(held, drawn), position, text.num_left, self._models.target.stop_token_ids)
            graphed.choose(held, _places(drawn, tree.num_nodes))
        self._marks.mark()
        num_fresh = graphed.keep(held, position, deepest)
        self._marks.mark()
        if self._read is not None:
            graphed.draft(num_fresh, position + num_fresh + 1, self._read)
        self._marks.mark()
        # All that follows from the choices is done while the device drafts.
        chosen = graphed.chosen(held)
        path, committed = follow(
            tree, lambda row, _: chosen[row], position, text.num_left, self._models.target.stop_token_ids
        )
        text.append(committed)
        seconds = modelled_s(policy, position, tree.num_drafted)
        text.state = policy.update(text.state, Outcome(path, committed, self.ended, seconds))
        if self._read is not None:
            self._marginals = graphed.marginals(self._read)
        ran = Round(position - len(text.prompt.token_ids), tree, path, len(committed), len(path) == len(committed))
        verify_s, keep_s, draft_s = self._marks.seconds()
        # What is neither the policy's nor a pass of a model is the host's: launches, copies, following the tree.
        total_s = time.perf_counter() - began - (graphed.graphs.seconds - captured)
        commit_s = max(keep_s, total_s - draft_s - select_s - verify_s)
        stages = StageSeconds(draft_s=draft_s, select_s=select_s, verify_s=verify_s, commit_s=commit_s)
        return DecodedRound(ran, marginals, stages)

    @torch.inference_mode()
    def rewind(self, context_length: int, root_token: int) -> None:
        """Go back to the first ``context_length`` tokens, below another root: to time a round again.

        What the drafter projects of the last few tokens is what it last read.
        """
        text = self._running
        text.tokens[context_length] = root_token
        text.length = context_length + 1
        text.state = self._policy.start(text.prompt)
        if self._read is not None:
            self._graphed.draft_at(root_token, context_length, self._read)
            self._take_draft()

    def _read_prompt(self) -> None:
        text, target, graphed = self._running, self._models.target, self._graphed
        start = len(text.prompt.token_ids)
        ids = torch.from_numpy(text.prompt.token_ids.astype(np.int64))[None].to(target.device)
        cache = BufferCache(target, start)
        layer_ids = self._models.drafter.config.target_layer_ids if self._read is not None else ()
        with tapped(target, layer_ids) as taken:
            states = target.states(ids, cache)
        rows = cache.rows.tensor
        assert rows is not None
        features = features_of(taken, layer_ids) if self._read is not None else None
        context = None if features is None else self._models.block_drafter.context(features)
        room = len(text.tokens) + rows_for(1 + min(self._policy.budget, _MOST_DRAFTED))
        graphed.begin(rows[:, :, :, :start], context, room)
        text.append((chooser(target, target.logits(states[:, -1]), self._sampling, text.key)(0, start),))
        if self._read is not None:
            graphed.draft_at(text.root, start, self._read, features)
            self._take_draft()

    def _take_draft(self) -> None:
        assert self._read is not None
        self._marginals = self._graphed.marginals(self._read)

    def _drawing(self, held: TreePass, drawn: dict[int, int]) -> Choose:
        """The target's choices with the text's noise; what was asked for is kept by its row."""
        assert held.logits is not None
        choose = chooser(self._models.target, held.logits, self._sampling, self._running.key)

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


AnySpeculation = Speculation | GraphSpeculation
AnyPlainDecoding = PlainDecoding | GraphPlainDecoding


def with_own_graphs(models: Models) -> Models:
    """These models with captured passes and buffers of their own, where passes are captured: a text beside others."""
    if models.graphs is None:
        return models
    return replace(models, graphs=GraphedModels(models.target, models.block_drafter, models.graphs.fused))


def speculation(
    models: Models, policy: AnyPolicy, prompt: Prompt, sampling: Sampling, max_new_tokens: int, clock: Clock
) -> AnySpeculation:
    """A text under a policy, its prompt read.

    Args:
        models: where they hold captured passes, these are used, and another text's are lost.
        policy: any but plain decoding.
        prompt: rendered; names the text's noise.
        sampling: how the target chooses.
        max_new_tokens: at least 1.
        clock: of the models' device; captured passes are timed by the device itself.
    """
    if models.graphs is None:
        return Speculation(models, policy, prompt, sampling, max_new_tokens, clock)
    return GraphSpeculation(models, models.graphs, policy, prompt, sampling, max_new_tokens)


def plain_decoding(
    models: Models, prompt: Prompt, sampling: Sampling, max_new_tokens: int, clock: Clock
) -> AnyPlainDecoding:
    """A text without a drafter, its prompt read; arguments and errors as for `speculation`."""
    if models.graphs is None:
        return PlainDecoding(models.target, prompt, sampling, max_new_tokens, clock, models.fixed_rows)
    return GraphPlainDecoding(models.target, models.graphs, prompt, sampling, max_new_tokens)
