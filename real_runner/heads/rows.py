"""The rows of a first-order head: what may follow each of the first tokens of the depth above.

One arithmetic serves the dense record, with many roots, and a round, with one. The tokens above are those of the
drafter's own marginals, which the head does not change.

Letters: N roots, D depths, M tokens above, R tokens of a row, S = 1 + (D - 1) M rows of a root, H hidden size.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.channels import TRANSITIONS, TransitionRows
from simlab.errors import ModelError
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.real_runner.drafters.dense import BlockStates, Outputs, embedded_tokens, finished_logits, logits_of
from simlab.real_runner.drafters.places import NO_LAWS, are_laws, ids_at, on_host, places_of
from simlab.real_runner.drafters.ranked import first_candidates
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.heads.base import BaseCandidates
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.targets.model import Target
from simlab.traces.format.manifest_entries import BASE_RANK

_LOGITS_PER_PASS = 2**26
_BYTES_OF_SCORE = 4.48
"""On disk, of a token of a row with its share of the rest: 4.49 and 4.47 in those of 4,764 and 4,644 roots, 7 depths,
16 rows and 16 tokens, along answers of SmolLM2-135M to GSM8K and MBPP."""


@dataclass(frozen=True, slots=True)
class HeadReach:
    """How far a head's rows reach.

    Attributes:
        previous: M, tokens of each depth that have a row below them.
        top_k: R, tokens of a row.
        candidates: None scores a row over the whole vocabulary, as published. Else C (ours): over the drafter's own
            first C candidates of the row's depth alone, whose probabilities share what the drafter gave to all of
            them; C products with a state then take the place of V.
    """

    previous: int = 16
    top_k: int = 16
    candidates: int | None = None

    def __post_init__(self) -> None:
        for name in ("previous", "top_k", "candidates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} of a head must be at least 1; got {value}")
        if self.candidates is not None and self.top_k > self.candidates:
            raise ValueError(f"top_k of a head must be at most its {self.candidates} candidates; got {self.top_k}")

    @property
    def width(self) -> int:
        """How many candidates of each depth of the drafter are read."""
        return max(self.previous, self.candidates or 1)

    def within(self, num_tokens: int) -> "HeadReach":
        """This reach where a drafter has so many tokens: it proposes no more, and no row has more."""
        candidates = None if self.candidates is None else min(self.candidates, num_tokens)
        return HeadReach(min(self.previous, num_tokens), min(self.top_k, num_tokens), candidates)

    @property
    def kind(self) -> str:
        """Rows of a head are transitions."""
        return TRANSITIONS

    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of the rows; ``candidates`` only where they bound them."""
        bounded = {} if self.candidates is None else {"candidates": self.candidates}
        return {"depth": depth, "previous": self.previous, "top_k": self.top_k, "order": BASE_RANK, **bounded}

    def num_scores(self, depth: int) -> int:
        """Tokens of all rows of a root."""
        return sum(rows_of_depths(depth, self)) * self.top_k

    def disk_bytes(self, depth: int) -> float:
        """Bytes that the rows of a root take in a trace, from those of a measured one."""
        return self.num_scores(depth) * _BYTES_OF_SCORE

    def widest(self, width: int) -> str:
        """The setting that must be smaller where a depth keeps so many candidates."""
        return f"{'previous' if self.previous > width else 'candidates'}={width}"


@dataclass(frozen=True, slots=True, eq=False)
class HeadRows:
    """The rows of a head at some roots.

    Attributes:
        transitions: the rows.
        outside_log_mass: float32 ``[sum S]``, on the grid: log of the mass that a row does not hold.
    """

    transitions: TransitionRows
    outside_log_mass: Floats


@torch.inference_mode()
def head_rows(
    head: TreeFlashHead,
    drafter: Outputs,
    target: Target,
    states: BlockStates,
    root_tokens: Ints,
    base: BaseCandidates,
    reach: HeadReach,
) -> HeadRows:
    """What a head says below some roots.

    Args:
        head: and its drafter and target, whose embedding, norm and output head it borrows.
        drafter: see there.
        target: see there.
        states: of the drafter's pass, of N roots.
        root_tokens: int32 ``[N]``.
        base: the drafter's first candidates below these roots, at least ``reach.width`` of each depth.
        reach: tokens above, and of a row.
    """
    num_tokens = drafter.config.draft_vocab_size or drafter.config.vocab_size
    if max(reach.top_k, reach.width) > num_tokens:
        raise ModelError(
            f"the head was asked for {max(reach.top_k, reach.width)} tokens, and the drafter has {num_tokens}; ask for "
            "fewer"
        )
    slots = np.repeat(np.arange(base.depth), rows_of_depths(base.depth, reach))
    above = np.concatenate([root_tokens[:, None], base.ids[:, :-1, : reach.previous].reshape(len(base), -1)], axis=1)
    tokens, places = (torch.from_numpy(one.astype(np.int64)).to(states.before.device) for one in (above, slots))
    embedded = embedded_tokens(drafter, target, tokens).to(states.before.dtype)
    corrected = drafter.norm(head(states.before, states.after, embedded, places))
    if reach.candidates is None:
        ids, log_probs = first_of_all(drafter, target, corrected, reach.top_k)
    else:
        ids, log_probs = _of_candidates(drafter, target, corrected, base, reach)
    num_rows = np.tile(np.array(rows_of_depths(base.depth, reach), np.int32), (len(base), 1))
    previous = np.ascontiguousarray(above[:, 1:]).ravel()
    transitions = TransitionRows(num_rows, previous, ids, to_grid(log_probs))
    return HeadRows(transitions, outside_log_mass(log_probs))


def rows_of_depths(depth: int, reach: HeadReach) -> list[int]:
    """Rows of each depth: one below the root, then one below each token above."""
    return [1] + [reach.previous] * (depth - 1)


def first_of_all(drafter: Outputs, target: Target, states: Tensor, top_k: int) -> tuple[Ints, Doubles]:
    """The first tokens of the whole vocabulary after each state ``[N, S, H]``, in passes of bounded memory.

    Returns:
        int32 ``[N * S, R]``, ids in the target's vocabulary, and float64 likewise, log-probabilities.
    """
    vocab_size, own = drafter.config.vocab_size, drafter.vocabulary
    return first_of_laws(lambda some: logits_of(drafter, target, some), states, top_k, vocab_size, own)


def first_of_laws(
    logits: Callable[[Tensor], Tensor], states: Tensor, top_k: int, vocab_size: int, own: DraftVocabulary | None
) -> tuple[Ints, Doubles]:
    """What `first_of_all` gives, of any network.

    Args:
        logits: from states ``[n, H]`` to float32 logits ``[n, V]``.
        states: ``[N, S, H]``.
        top_k: R.
        vocab_size: at least V.
        own: which tokens the logits are of; None: those of the target.
    """
    per_pass = max(1, _LOGITS_PER_PASS // vocab_size)
    passes = states.flatten(0, 1).split(per_pass)
    if states.device.type == "cpu":
        found = [_of_some(logits(some), top_k) for some in passes]
        ids, log_probs = (np.concatenate(column) for column in zip(*found, strict=True))
    else:
        ids, log_probs = first_on_device((logits(some).log_softmax(-1) for some in passes), top_k)
    return ids if own is None else own.to_target(ids), log_probs


def _of_some(logits: Tensor, top_k: int) -> tuple[Ints, Doubles]:
    log_probs = logits.log_softmax(-1)
    parts = log_probs.chunk(torch.get_num_threads())
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        ids = np.concatenate([ids for ids, _ in pool.map(lambda part: first_candidates(part, top_k), parts)])
    kept = log_probs.gather(-1, torch.from_numpy(ids.astype(np.int64)))
    return ids, kept.numpy().astype(np.float64)


def first_on_device(passes: Iterable[Tensor], top_k: int, candidates: Tensor | None = None) -> tuple[Ints, Doubles]:
    """The first tokens of some laws on any device, with one wait for it.

    Args:
        passes: log-probabilities, ``[n, V]``.
        top_k: R.
        candidates: int64 ``[n, V]``, whose they are; None: those of the ids 0 to V - 1.

    Returns:
        int32 ``[sum n, R]``; float64 likewise, log-probabilities.
    """
    parts = []
    for log_probs in passes:
        places = places_of(log_probs, candidates)
        first, at = places.topk(min(top_k, places.shape[-1]), largest=False, sorted=True)
        parts.append((ids_at(first), log_probs.gather(-1, at).double(), are_laws(log_probs)[None]))
    ids, kept, laws = on_host(*(torch.cat(column) for column in zip(*parts, strict=True)))
    if not laws.all():
        raise ModelError(NO_LAWS)
    return ids.astype(np.int32), kept


def _of_candidates(
    drafter: Outputs, target: Target, states: Tensor, base: BaseCandidates, reach: HeadReach
) -> tuple[Ints, Doubles]:
    """The first of the drafter's own candidates of its depth after each state ``[N, S, H]``, likewise."""
    sizes = rows_of_depths(base.depth, reach)
    slots = np.repeat(np.arange(base.depth), sizes)
    ids, theirs = base.ids[..., : reach.candidates], base.log_probs[..., : reach.candidates]
    scored = _candidate_logits(drafter, target, states, ids, sizes).double()
    on_its_device = candidates_by_numpy if scored.device.type == "cpu" else candidates_on_device
    return on_its_device(scored, ids[:, slots], theirs, slots, reach.top_k)


def candidates_by_numpy(scored: Tensor, ids: Ints, theirs: Floats, slots: Longs, top_k: int) -> tuple[Ints, Doubles]:
    """The first of the drafter's own candidates after some states, on a CPU.

    Args:
        scored: float64 ``[N, S, C]``, logits of the candidates.
        ids: int32 ``[N, S, C]``.
        theirs: float32 ``[N, D, C]``, the drafter's log-probabilities.
        slots: int64 ``[S]``, the depth of each state.
        top_k: R.

    Returns:
        int32 ``[N * S, R]``; float64 likewise, log-probabilities.
    """
    logits = scored.numpy()
    if not np.isfinite(logits.max(-1)).all():
        raise ModelError(NO_LAWS)
    mass = np.minimum(np.exp(theirs.astype(np.float64)).sum(-1), 1.0)
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True) + np.log(mass)[:, slots, None]
    order = np.argsort(_places(log_probs, ids), axis=-1)[..., :top_k]
    first_ids = np.take_along_axis(ids, order, -1).reshape(-1, top_k)
    return first_ids, np.take_along_axis(log_probs, order, -1).reshape(-1, top_k)


def candidates_on_device(scored: Tensor, ids: Ints, theirs: Floats, slots: Longs, top_k: int) -> tuple[Ints, Doubles]:
    """What `candidates_by_numpy` gives, on any device."""
    below, shared = (torch.from_numpy(one).to(scored.device) for one in (ids.astype(np.int64), theirs))
    mass = shared.double().exp().sum(-1, keepdim=True).clamp(max=1.0)
    log_probs = scored.log_softmax(-1) + mass.log()[:, slots]
    return first_on_device([log_probs.flatten(0, 1)], top_k, below.flatten(0, 1))


def _candidate_logits(drafter: Outputs, target: Target, states: Tensor, candidates: Ints, sizes: list[int]) -> Tensor:
    """float32 ``[N, S, C]``: the candidates ``[N, D, C]`` of each depth, scored by the states ``[N, S, H]`` of it."""
    own, head = drafter.vocabulary, drafter.lm_head or target.head
    weight, bias = head.weight, getattr(head, "bias", None)
    assert isinstance(weight, Tensor)
    rows = torch.from_numpy((candidates if own is None else own.to_draft(candidates)).astype(np.int64))
    matrices = weight[rows.to(weight.device)].to(states.device).transpose(-1, -2)
    of_depths = zip(states.split(sizes, dim=1), matrices.unbind(1), strict=True)
    logits = torch.cat([some @ matrix for some, matrix in of_depths], dim=1).float()
    if isinstance(bias, Tensor):
        added = bias[rows.to(bias.device)].to(states.device).float()
        logits = logits + added.repeat_interleave(torch.tensor(sizes, device=added.device), dim=1)
    return finished_logits(drafter, logits)


def _places(log_probs: Doubles, ids: Ints) -> Longs:
    """Each token's place in the order of its row as one integer: grid steps below 0, then the id."""
    steps = np.rint(to_grid(log_probs).astype(np.float64) * -STEPS_PER_NAT).astype(np.int64)
    places: Longs = (steps << 31) | ids
    return places


def outside_log_mass(log_probs: Doubles) -> Floats:
    """float32 ``[S]``, on the grid: log of the mass that rows ``[S, R]`` do not hold."""
    with np.errstate(divide="ignore"):
        return to_grid(np.log(np.maximum(1.0 - np.exp(log_probs).sum(-1), 0.0)))
