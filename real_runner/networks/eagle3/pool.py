"""What an EAGLE-3 head drafts below a root: dynamic trees, what its beam looked at pass by pass, and its own chain.

Li and others 2025, "EAGLE-3", arXiv 2503.01840; the tree is that of EAGLE-2 (2024, arXiv 2406.16858), as the released
`cnets.py` grows it. The head's input at position j is the state of the token x_j (fused taps of the target, or the
head's own output) with the embedding of x_{j+1}; its output says what may follow x_{j+1}. So the pass below the root
x_t reads the text up to position t - 1, and a node of depth d stands at position t + d - 1.

One arithmetic serves the dense record, with many roots, and a round, with one.

Letters: N roots, b nodes of a beam, R children of a node, C positions of the text, K nodes of earlier beams, H hidden
size, E key-value heads, F head size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats, Ints, Longs
from simlab.channels import Channel, PoolRows
from simlab.errors import ModelError
from simlab.grid import to_grid
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.candidate_keys import sent
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead, columns_of, first_candidates
from simlab.real_runner.execution.executions import COMPILED, CUDA_GRAPHS, EAGER
from simlab.real_runner.execution.fixed_drafter import run
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.networks.candidates import first_of, first_of_laws, first_on_host
from simlab.real_runner.networks.drafter import Asked, drafted_marginals
from simlab.real_runner.networks.eagle3.config import Eagle3Reach
from simlab.real_runner.networks.eagle3.head import (
    WEIGHTS_PER_PASS,
    Eagle3Head,
    GrowingText,
    KeyValues,
    ReadText,
    check_head,
    joined,
    load_eagle3,
    read_text,
)
from simlab.real_runner.networks.network import Reach
from simlab.real_runner.networks.pools import beam_pools, joined_pools
from simlab.real_runner.networks.producer import ChannelAsked, Drafted, WithModels, check_makes
from simlab.real_runner.targets.model import Target
from simlab.traces.channels.columns import PoolColumns
from simlab.traces.format.frames import DraftColumns

_ROOTS_PER_PASS = 64
"""Laws of a chain at so many roots are held at a time, at most."""


def roots_per_pass(head: Eagle3Head, reach: Eagle3Reach, num_tokens: int) -> int:
    """How many roots of a text of so many tokens are looked below at once, by attention weights, keys and values."""
    config, keys = head.config, num_tokens + reach.beam * reach.steps
    weights = config.num_attention_heads * reach.beam * keys
    kept = 2 * config.num_key_value_heads * config.head_dim * keys
    return max(1, WEIGHTS_PER_PASS // max(weights, kept))


class Growth:
    """The passes below some roots: each node sees the text before its root, the nodes above it, and itself."""

    def __init__(
        self,
        head: Eagle3Head,
        target: Target,
        roots: Tensor,
        outputs: Tensor,
        text: KeyValues,
        top_k: int,
        graphs: GraphedModels | None = None,
    ) -> None:
        """Begin with the outputs ``[N, 1, H]`` of the roots themselves; passes are captured where ``graphs`` are."""
        self._head, self._target, self._top_k, self._graphs = head, target, top_k, graphs
        self._roots, self._positions, self._outputs = roots, roots[:, None], outputs
        self._text = text
        self._nodes: tuple[Tensor, ...] = ()
        # Which nodes of earlier beams each node of the last one sees, bool [N, b, K].
        self._above = torch.zeros(len(roots), 1, 0, dtype=torch.bool, device=roots.device)

    def candidates(self) -> tuple[Ints, Floats]:
        """The first tokens behind each node of the last pass, ``[N, b, R]``."""
        config, shape, head = self._head.config, self._outputs.shape[:2], self._head
        where = (self._outputs, self._top_k, config.num_tokens, head.vocabulary, self._graphs)
        ids, log_probs = first_of_laws(lambda part: head.logits(self._target, part), head, *where)
        return ids.reshape(*shape, -1), to_grid(log_probs).reshape(*shape, -1)

    def behind(self, tokens: Ints, above: Longs) -> tuple[Ints, Floats]:
        """What follows nodes that go through the head; see `simlab.real_runner.networks.pools.Behind`."""
        self.step(tokens, above)
        return self.candidates()

    def logits(self) -> Tensor:
        """What the head says behind each node of the last pass, float32 ``[N, b, V_d]``."""

        def work(outputs: Tensor) -> tuple[Tensor]:
            return (self._head.logits(self._target, outputs),)

        (logits,) = run(self._graphs, ("eagle3 logits", self._head), work, self._outputs)
        return logits if self._graphs is None else logits.clone()

    def step(self, tokens: Ints, above: Longs) -> None:
        """Send nodes through the head.

        Args:
            tokens: int32 ``[N, b]``, the target's.
            above: int64 ``[N, b]``, which node of the last pass each of them is a child of.
        """
        device = self._positions.device
        ids, parents = (sent(torch.from_numpy(array.astype(np.int64)), device) for array in (tokens, above))
        key = ("eagle3 step", self._head, self._text.keys.shape[2])
        inputs = (ids, parents, self._roots, self._positions, self._outputs, self._above, *self._nodes)
        results = run(self._graphs, key, self._stepped, *inputs)
        self._positions, self._outputs, self._above, *nodes = results
        self._nodes = tuple(nodes)

    def _stepped(
        self,
        ids: Tensor,
        parents: Tensor,
        roots: Tensor,
        positions: Tensor,
        outputs: Tensor,
        above: Tensor,
        *nodes: Tensor,
    ) -> tuple[Tensor, ...]:
        """Positions, outputs, what is seen, and keys and values of all nodes, after one more pass."""
        num, at = ids.shape[1], parents[:, :, None]
        seen = above.gather(1, at.expand(-1, -1, above.shape[2]))
        itself = torch.eye(num, dtype=torch.bool, device=ids.device).expand(len(ids), -1, -1)
        above = torch.cat([seen, itself], dim=2)
        before = torch.arange(self._text.keys.shape[2], device=ids.device) >= roots[:, None]
        past = [self._text, KeyValues(*nodes)] if nodes else [self._text]
        outputs, new = self._head(
            outputs.gather(1, at.expand(-1, -1, outputs.shape[2])),
            self._head.embedded(self._target, ids),
            positions.expand(-1, num),
            past,
            torch.cat([before[:, None].expand(-1, num, -1), ~above], dim=2)[:, None],
        )
        return positions + 1, outputs, above, *joined([*past[1:], new])


# The channel of an EAGLE-3 head: pools that need no drafter, from states of the target alone.


@dataclass(frozen=True, slots=True, eq=False)
class Eagle3Producer:
    """A head, the target that it reads, and how far its pools reach; see `TextProducer`.

    Attributes:
        head: that drafts the pools.
        target: whose states it reads, and whose embedding and output head it may borrow.
        reach: of its pools.
        graphs: which capture its passes; None: these are run as they come.
    """

    head: Eagle3Head
    target: Target
    reach: Eagle3Reach
    graphs: GraphedModels | None = None

    def __post_init__(self) -> None:
        check_head(self.head, self.target)
        num_tokens = self.head.config.num_tokens
        if self.reach.top_k > num_tokens:
            raise ModelError(
                f"a node would have {self.reach.top_k} children, and the EAGLE-3 head has {num_tokens} tokens; give "
                f"top_k={num_tokens}"
            )

    @property
    def kind(self) -> str:
        return self.reach.kind

    @property
    def taps(self) -> tuple[int, ...]:
        return self.head.config.target_layer_ids

    @property
    def depth(self) -> int:
        return self.reach.depth

    def within(self, need: ChannelNeed) -> "Eagle3Producer":
        """This producer going no more steps than a policy reads."""
        check_makes(need, self.kind, self.reach.settings())
        return self if need.deepest is None else replace(self, reach=replace(self.reach, steps=need.deepest - 1))

    def captured(self, graphs: GraphedModels) -> "Eagle3Producer":
        """This producer with its passes captured."""
        return replace(self, graphs=graphs)

    def begin(self) -> "Eagle3Text":
        return Eagle3Text(self)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> PoolColumns:
        parts, last = list[PoolRows](), len(tokens) - 1
        if num_roots == 0:
            return PoolColumns.unlabelled(joined_pools(parts))
        text = read_text(self.head, self.target, features[: last - 1], tokens[1:last], None)
        roots = torch.arange(last - num_roots, last, device=features.device)
        for part in roots.split(roots_per_pass(self.head, self.reach, len(tokens))):
            outputs = text.outputs[part - 1]
            parts.append(self.pools(part, outputs, text.past))
        return PoolColumns.unlabelled(joined_pools(parts))

    @torch.inference_mode()
    def pools(self, roots: Tensor, outputs: Tensor, text: KeyValues) -> PoolRows:
        """The pools below some roots of one text.

        Args:
            roots: int64 ``[N]``, absolute positions.
            outputs: ``[N, H]``, the head's at the position before each root, which read the root's embedding.
            text: of the text, ``[1, E, C, F]``; below a root what lies before it is seen.
        """
        growth = Growth(self.head, self.target, roots, outputs[:, None], text, self.reach.top_k, self.graphs)
        return beam_pools(growth.candidates(), growth.behind, self.reach.beam, self.reach.steps)


class Eagle3Text:
    """One text that is being written, see `TextChannel`: what the head keeps of it, and the pool below its end."""

    def __init__(self, producer: Eagle3Producer) -> None:
        self._producer = producer
        self._text = GrowingText(producer.head, producer.target, producer.graphs)
        self.read, self.rewind = self._text.read, self._text.rewind

    @torch.inference_mode()
    def at_root(self, committed: Ints) -> Channel:
        made, text = self._producer, self._text.up_to_root(committed)
        roots = torch.tensor([len(committed) - 1], device=text.outputs.device)
        return made.pools(roots, text.outputs[-1:], text.past).row(0, 0)


def eagle3_producer(head: Eagle3Head, target: Target, reach: Eagle3Reach) -> Eagle3Producer:
    """What makes the pools of a head, which learns here which layers of its target it reads."""
    head.config = head.config.for_target(target.num_layers)
    return Eagle3Producer(head, target, reach)


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The head of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    assert isinstance(reach, Eagle3Reach)
    head = load_eagle3(asked.location, asked.dtype)
    return lambda _, target: eagle3_producer(head.to(target.device), target, reach)


# The head as a drafter: its laws along its own most probable path, as serving engines draft a chain with it.
#
# The law of depth d is that behind the first tokens of the depths above, so a row is a function of the text up to its
# root, as a block drafter's row is; of the product of the laws only the chain itself is the head's own probability.


@dataclass(frozen=True, slots=True, eq=False)
class Eagle3Chain:
    """A head as what drafts, see `simlab.real_runner.networks.drafter.Drafts`."""

    head: Eagle3Head
    target: Target
    graphs: GraphedModels | None = None

    def columns(self, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates) -> DraftColumns:
        roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
        return columns_of(
            self._passes(features, tokens, roots), self.head.vocabulary, self.head.config.depth, tokens, kept
        )

    @torch.inference_mode()
    def _passes(self, features: Tensor, tokens: Tensor, roots: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        if len(roots) == 0:
            return
        last, reach = len(tokens) - 1, Eagle3Reach(1, 1, max(1, self.head.config.depth - 1))
        text = read_text(self.head, self.target, features[: last - 1], tokens[1:last], None)
        for part in roots.split(min(_ROOTS_PER_PASS, roots_per_pass(self.head, reach, len(tokens)))):
            yield part, self.logits(part, ReadText(text.past, text.outputs[part - 1]))

    def live(self, read: CandidatesRead, room: int, graphs: GraphedModels | None = None) -> "LiveChain":
        return LiveChain(replace(self, graphs=graphs), read)

    @torch.inference_mode()
    def logits(self, roots: Tensor, text: ReadText) -> Tensor:
        """The head's logits below some roots of one text, each depth behind the first tokens of those above.

        Args:
            roots: int64 ``[N]``, absolute positions.
            text: of it what lies before a root is seen; its outputs ``[N, H]`` are those at the position before each
                root.

        Returns:
            float32 ``[N, D, V_d]``, in the head's own vocabulary, where it has one.
        """
        growth = Growth(self.head, self.target, roots, text.outputs[:, None], text.past, 1, self.graphs)
        above, laws = np.zeros((len(roots), 1), np.int64), [growth.logits()]
        while len(laws) < self.head.config.depth:
            ids = self._likeliest(laws[-1][:, 0])
            growth.step(ids if self.head.vocabulary is None else self.head.vocabulary.to_target(ids), above)
            laws.append(growth.logits())
        return torch.cat(laws, dim=1)

    def _likeliest(self, logits: Tensor) -> Ints:
        """The first candidates of laws ``[N, V_d]``, in the order of rows, int32 ``[N, 1]``."""
        if self.graphs is None:
            return first_candidates(logits.log_softmax(-1), 1)[0]

        def work(logits: Tensor) -> tuple[Tensor, ...]:
            return first_of(logits.log_softmax(-1), 1)

        return first_on_host(self.graphs.call(("eagle3 likeliest", self.head), work, logits))[0]


class LiveChain:
    """The head as the drafter of one text that is being written; see `LiveDraft`."""

    def __init__(self, own: Eagle3Chain, read: CandidatesRead) -> None:
        """Begin with nothing read of the text; ``read`` is what is given at each depth."""
        self._own, self._wanted = own, read
        self._text = GrowingText(own.head, own.target, own.graphs)
        self.read, self.rewind = self._text.read, self._text.rewind

    @torch.inference_mode()
    def draft(self, committed: Ints) -> Drafted:
        own, text, root = self._own, self._text.up_to_root(committed), len(committed) - 1
        roots = torch.tensor([root], device=text.outputs.device)
        logits = own.logits(roots, ReadText(text.past, text.outputs[-1:]))
        marginals = drafted_marginals(lambda given: given, own.head, self._wanted, own.graphs, logits[0])
        return Drafted(int(committed[-1]), root, marginals)


def load_drafter(asked: Asked) -> Callable[[Target], Eagle3Head]:
    """The head of a checkpoint as a drafter; see `simlab.real_runner.networks.loading.NetworkCode.load_drafter`."""
    if asked.tap_offset is not None:
        raise ModelError("an EAGLE-3 head numbers the target's layers in one way; leave --tap-offset out")
    if asked.execution == COMPILED:
        raise ModelError(
            f"an EAGLE-3 head has no compiled form; give --execution {EAGER} or {CUDA_GRAPHS}, or a DFlash drafter"
        )
    head = load_eagle3(asked.location, asked.dtype, asked.device)
    head.config = head.config if asked.block is None else head.config.with_block(asked.block)

    def fitted(target: Target) -> Eagle3Head:
        head.config = head.config.for_target(target.num_layers)
        check_head(head, target)
        return head.to(target.device)

    return fitted


drafts = Eagle3Chain
"""What drafts with a head; see `simlab.real_runner.networks.loading.NetworkCode.drafts`."""
