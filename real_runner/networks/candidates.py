"""First candidates: those of a drafter, which a network begins with, and those of a network's own laws."""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from simlab.arrays import Doubles, Floats, Ints
from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.grid import to_grid
from simlab.real_runner.drafters.candidate_keys import NO_LAWS, are_laws, ids_at, keys_of, on_host
from simlab.real_runner.drafters.dense import Outputs, logits_of
from simlab.real_runner.drafters.ranked import first_candidates
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.execution.executions import rows_for
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.targets.model import Target

_LOGITS_PER_PASS = 2**26


@dataclass(frozen=True, slots=True, eq=False)
class BaseCandidates:
    """The first W candidates of each depth, in the order of their ranks.

    Attributes:
        ids: int32 ``[N, D, W]``, in the target's vocabulary.
        log_probs: float32 ``[N, D, W]``, on the grid, under the drafter's whole vocabulary.
    """

    ids: Ints
    log_probs: Floats

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead."""
        return int(self.ids.shape[1])

    @property
    def width(self) -> int:
        """W, the candidates of a depth."""
        return int(self.ids.shape[2])

    def part(self, first: int, last: int) -> "BaseCandidates":
        """Those from one root up to another."""
        return BaseCandidates(self.ids[first:last], self.log_probs[first:last])


def base_candidates(ids: Ints, log_probs: Floats, counts: Ints, width: int) -> BaseCandidates:
    """Out of the rows of a draft set, flat as a trace has them.

    Args:
        ids: int32 ``[sum counts]``, root by root, depth by depth.
        log_probs: float32 ``[sum counts]``.
        counts: int32 ``[N, D]``, the candidates kept.
        width: W.
    """
    fewest = int(counts.min(initial=width))
    if fewest < width:
        raise ModelError(
            f"the head reads the first {width} candidates of each depth, and the drafter's rows keep {fewest} at some; "
            f"record them with --min-width {width}, or let the head read fewer"
        )
    starts = np.concatenate([[0], np.cumsum(counts.ravel(), dtype=np.int64)])[:-1]
    indices = starts.reshape(*counts.shape, 1) + np.arange(width)
    return BaseCandidates(ids[indices], log_probs[indices])


def base_of(marginals: Marginals, width: int) -> BaseCandidates:
    """Out of the marginals below one root, as a round has them."""
    return base_candidates(marginals.ids, marginals.log_probs, marginals.counts[None], width)


# The first tokens of laws, in passes of bounded memory.


def first_of_all(
    drafter: Outputs, target: Target, states: Tensor, top_k: int, graphs: GraphedModels | None = None
) -> tuple[Ints, Doubles]:
    """The first tokens of the whole vocabulary after each state ``[N, S, H]``, in passes of bounded memory.

    Where ``graphs`` are given it is one captured pass.

    Returns:
        int32 ``[N * S, R]``, ids in the target's vocabulary, and float64 of the same shape, log-probabilities.
    """
    vocab_size, own = drafter.config.vocab_size, drafter.vocabulary
    where = states, top_k, vocab_size, own, graphs
    return first_of_laws(lambda part: logits_of(drafter, target, part), drafter.norm, *where)


def first_of_laws(
    logits: Callable[[Tensor], Tensor],
    network: Hashable,
    states: Tensor,
    top_k: int,
    vocab_size: int,
    own: DraftVocabulary | None,
    graphs: GraphedModels | None,
) -> tuple[Ints, Doubles]:
    """What `first_of_all` gives, of any network.

    Args:
        logits: from states ``[n, H]`` to float32 logits ``[n, V]``.
        network: whose these are; one module of it.
        states: ``[N, S, H]``.
        top_k: R.
        vocab_size: at least V.
        own: which tokens the logits are of; None: those of the target.
        graphs: which capture it as one pass; None: it is run as it comes.
    """
    per_pass, flat = max(1, _LOGITS_PER_PASS // vocab_size), states.flatten(0, 1)
    passes = flat.split(per_pass)
    if graphs is not None:
        filled = pad(flat, (0, 0, 0, rows_for(len(flat)) - len(flat)))

        def work(part: Tensor) -> tuple[Tensor, ...]:
            return first_of(logits(part).log_softmax(-1), top_k)

        ids, log_probs = first_on_host(graphs.call(("first", network, top_k), work, filled))
        ids, log_probs = ids[: len(flat)], log_probs[: len(flat)]
    elif states.device.type == "cpu":
        of_parts = [_of_some(logits(part), top_k) for part in passes]
        ids, log_probs = (np.concatenate(column) for column in zip(*of_parts, strict=True))
    else:
        # With one wait for the device.
        parts = [first_of(logits(part).log_softmax(-1), top_k) for part in passes]
        ids, log_probs = first_on_host([torch.cat(column) for column in zip(*parts, strict=True)])
    return ids if own is None else own.to_target(ids), log_probs


def _of_some(logits: Tensor, top_k: int) -> tuple[Ints, Doubles]:
    log_probs = logits.log_softmax(-1)
    parts = log_probs.chunk(torch.get_num_threads())
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        ids = np.concatenate([ids for ids, _ in pool.map(lambda part: first_candidates(part, top_k), parts)])
    kept = log_probs.gather(-1, torch.from_numpy(ids.astype(np.int64)))
    return ids, kept.numpy().astype(np.float64)


def first_of(log_probs: Tensor, top_k: int, candidates: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The first tokens of some laws, on any device, without a wait.

    Args:
        log_probs: ``[n, V]``.
        top_k: R.
        candidates: int64 ``[n, V]``, whose they are; None: those of the ids 0 to V - 1.

    Returns:
        Ids int64 and log-probabilities float64, ``[n, R]`` each, and whether these are laws, bool ``[1]``.
    """
    keys = keys_of(log_probs, candidates)
    first, at = keys.topk(min(top_k, keys.shape[-1]), largest=False, sorted=True)
    return ids_at(first), log_probs.gather(-1, at).double(), are_laws(log_probs)[None]


def first_on_host(candidates: Sequence[Tensor]) -> tuple[Ints, Doubles]:
    """What `first_of` found, on the host, with one wait."""
    ids, kept, laws = on_host(*candidates)
    if not laws.all():
        raise ModelError(NO_LAWS)
    return ids.astype(np.int32), kept.copy()


def outside_log_mass(log_probs: Doubles) -> Floats:
    """float32 ``[S]``, on the grid: log of the mass that rows ``[S, R]`` do not hold."""
    with np.errstate(divide="ignore"):
        return to_grid(np.log(np.maximum(1.0 - np.exp(log_probs).sum(-1), 0.0)))
