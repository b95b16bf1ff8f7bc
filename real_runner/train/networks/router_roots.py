"""What a router's network learns from: what it reads at the roots of recorded texts, and what each route brings there.

Labels cost nothing: a recording says of every root how far the tree of any policy would have come.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from simlab.arrays import Longs
from simlab.channels.needs import channels_read
from simlab.errors import ModelError, PromptError
from simlab.policies.engine.routed import RouteLayers, can_walk
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.routing.cut_rule import some_rule
from simlab.policies.routing.route_walk import accepted_by, deepest_of
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.real_runner.checkpoints.files import write_tensors
from simlab.real_runner.heads.router.network import inputs_along
from simlab.real_runner.record.record import forward_text
from simlab.real_runner.targets.model import Target
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs
from simlab.traces.reader import Trace


@dataclass(frozen=True, slots=True, eq=False)
class RouterRoots:
    """Some roots of recorded texts.

    Attributes:
        inputs: float32 ``[R, H + 3]``, as `simlab.real_runner.heads.router.network.router_inputs` gives them.
        tokens: float32 ``[R, routes]``, that a round by each route adds, the bonus token among them.
        texts: int64 ``[R]``, the number of each one's text.
    """

    inputs: Tensor
    tokens: Tensor
    texts: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def entropies(self) -> Tensor:
        """float32 ``[R]``, of the laws that the roots were chosen from, nats."""
        return self.inputs[:, -3].contiguous()

    def of(self, which: Tensor) -> "RouterRoots":
        """Some of these roots; ``which`` is bool ``[R]``."""
        return RouterRoots(self.inputs[which], self.tokens[which], self.texts[which])

    def drawn(self, num_texts: int, num_roots: int, draws: torch.Generator) -> Tensor:
        """Places of some roots of some texts, both drawn with replacement; int64 ``[num_texts x num_roots]``."""
        counts = self.texts.unique_consecutive(return_counts=True)[1]
        some = torch.randint(len(counts), (num_texts,), generator=draws)
        shares = torch.rand(num_texts, num_roots, generator=draws)
        within = (shares * counts[some, None]).long()
        places: Tensor = (counts.cumsum(0) - counts)[some, None] + within
        return places.flatten()

    def split(self, share: float, seed: int) -> tuple["RouterRoots", "RouterRoots"]:
        """The roots that are learnt from and those of a share of the texts, at least one, that are held out."""
        texts = self.texts.unique()
        num = max(1, round(share * len(texts)))
        if num >= len(texts):
            raise PromptError(
                f"of {len(texts)} texts {num} would be held out, and none learnt from; give more texts or a smaller "
                "--held-out"
            )
        order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
        held_out = torch.isin(self.texts, texts[order[:num]])
        return self.of(~held_out), self.of(held_out)


def router_of(routes: Sequence[str]) -> RoutedPolicy:
    """The policies that are routes, together, as they are typed."""
    named = [parse_policies([route]) for route in routes]
    several = [route for route, one in zip(routes, named, strict=True) if len(one) != 1]
    if several:
        raise ValueError(f"the route {several[0]} makes several policies; name one")
    router = RoutedPolicy(tuple(one[0].policy for one in named), some_rule(len(routes)), label="|".join(routes))
    if not can_walk(router):
        raise ValueError(f"routes are simlab's own policies; got {'|'.join(routes)}")
    return router


def read_roots(
    traces: Sequence[Trace], router: RoutedPolicy, draft_set: str | None, target: Target, folder: Path
) -> RouterRoots:
    """All roots of some recordings whose rounds the end of their text cannot cut short.

    What the network reads is kept in the folder, a file for each recording, and read from there the next time.

    Args:
        traces: of one target and dtype.
        router: the routes.
        draft_set: whose candidates the routes read; None: the only one.
        target: which wrote the texts.
        folder: of the run.

    Raises:
        SimlabError: a recording does not hold what a route reads, or a file in the folder is damaged.
    """
    parts, num_texts = list[RouterRoots](), 0
    for trace in traces:
        tokens, texts, left, deepest = _labels(trace, router, trace.draft_name(draft_set))
        inputs = _inputs(trace, target, folder / f"inputs-{trace.text_id}.safetensors")
        of_trace = RouterRoots(inputs, torch.from_numpy(tokens).float(), torch.from_numpy(texts) + num_texts)
        parts.append(of_trace.of(torch.from_numpy(left > deepest)))
        num_texts += len(trace.texts)
    joined = RouterRoots(*(torch.cat([getattr(one, name) for one in parts]) for name in RouterRoots.__slots__))
    if not len(joined):
        raise PromptError("no text is longer than what its drafters look ahead, so there is nothing to learn from")
    return joined


def _labels(trace: Trace, router: RoutedPolicy, draft: str) -> tuple[Longs, Longs, Longs, int]:
    """What each route brings at each root, and of each root its text and how many tokens follow it.

    Returns:
        int64 ``[R, routes]``, ``[R]``, ``[R]``; how many tokens a round accepts at most.
    """
    check_needs(router, trace.holds(draft))
    tokens, texts, left, deepest, number = list[Longs](), list[Longs](), list[Longs](), 0, 0
    for some in trace.recorded_texts(draft, channels=channels_read([router])):
        trees = RouteLayers(some).trees(router.routes)
        tokens.append(1 + accepted_by(trees).T)
        deepest = max(deepest, deepest_of(trees))
        for one in some.sequences:
            num_roots = len(one.text) - 1
            texts.append(np.full(num_roots, number, np.int64))
            left.append(np.arange(num_roots, 0, -1, dtype=np.int64))
            number += 1
    return np.concatenate(tokens), np.concatenate(texts), np.concatenate(left), deepest


def _inputs(trace: Trace, target: Target, path: Path) -> Tensor:
    """What the network reads at every root of a recording, float32 ``[R, H + 3]``."""
    if not path.exists():
        texts = tqdm([record.recorded() for record in trace.texts], unit="text", desc="reading texts")
        parts = [one for text in texts for one in _inputs_of_text(text, target)]
        write_tensors(path, {"inputs": torch.cat(parts)}, ("format", "pt"))
    try:
        return load_file(path)["inputs"]
    except (OSError, SafetensorError, KeyError) as error:
        raise ModelError(f"{path} cannot be read ({error}); delete it, and it is made again") from error


@torch.inference_mode()
def _inputs_of_text(recorded: RecordedSequence, target: Target) -> Iterator[Tensor]:
    ids = np.concatenate([recorded.prompt.token_ids, recorded.text]).astype(np.int64)
    states = forward_text(target, torch.from_numpy(ids).to(target.device), ())[1]
    return (one.cpu() for one in inputs_along(target, states, len(recorded.text) - 1))
